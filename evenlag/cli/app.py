"""The command tree of ``evenlag``, with its exit codes.

Only Typer and Rich are imported here, so that the command starts fast: each command imports what it needs.
"""

from typing import Annotated, Any

import typer
from typer._click.exceptions import NoArgsIsHelpError, UsageError

from evenlag.cli import (
    advise,
    assign,
    audit,
    compare,
    dags,
    demo,
    doctor,
    hints,
    lag,
    lake,
    plans,
    policy,
    quality,
    report,
    serve,
)
from evenlag.cli import run as run_module
from evenlag.cli.console import print_error
from evenlag.cli.grammar import Group, use_grammar
from evenlag.cli.job_runner import JobFailedError
from evenlag.errors import JobError, PolicyError


class _Root(Group):
    """Reports each error that evenlag raises on purpose as one line, with its documented exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except JobError as error:
            # One line per mistake in the policy, or a message and the end of the job's output.
            has_lines = isinstance(error, PolicyError | JobFailedError)
            print_error(*(str(error).split("\n") if has_lines else [str(error)]))
            raise typer.Exit(error.exit_code) from error
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            extra = next((extra for extra, modules in demo.EXTRAS.items() if module in modules), None)
            if extra is None:
                raise
            print_error(f"this needs {error.name}, which is not installed: pip install 'evenlag[{extra}]'")
            raise typer.Exit(1) from error
        except NoArgsIsHelpError:
            raise
        except UsageError as error:
            where = error.ctx.command_path if error.ctx else "evenlag"
            message = " ".join(error.format_message().split()).removeprefix("Invalid value for ")
            print_error(f"{message.rstrip('.')}; see {where} --help")
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            print_error("stopped")
            raise typer.Exit(130) from None


app = typer.Typer(
    name="evenlag",
    cls=_Root,
    no_args_is_help=True,
    # A traceback with local variables could show a password.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    help="Keep Kafka consumer groups balanced: watch lag, plan assignments, publish them as hints.",
    epilog="Exit codes: 0 success · 1 failure · 2 usage or policy error · 3 unavailable or refused · "
    "4 not found",
)


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"evenlag {version('evenlag')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # noqa: ARG001  # its callback prints and ends
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    from evenlag.logging_setup import set_up_logging

    set_up_logging(is_command=True)


app.command("run")(run_module.run)
app.command("lag")(lag.lag)
app.command("advise")(advise.advise)
app.command("report")(report.report)
app.command("serve")(serve.serve)
app.command("metrics")(serve.metrics)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.add_typer(plans.app, name="plans")
app.add_typer(hints.app, name="hints")
app.add_typer(compare.app, name="compare")
app.add_typer(dags.app, name="dags")
app.add_typer(policy.app, name="policy")
app.add_typer(audit.app, name="audit")
app.add_typer(lake.app, name="lake")
app.add_typer(quality.app, name="quality")
app.command("assign")(assign.assign)
use_grammar(app)
