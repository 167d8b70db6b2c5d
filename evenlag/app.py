"""The command's tree. Only Typer and Rich are imported here: what a command needs, it imports itself."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from evenlag import (
    approval_commands,
    audit_command,
    compare_command,
    dags_command,
    demo_command,
    doctor_command,
    hints_command,
    lag_command,
    plans_command,
    policy_command,
    report_command,
    upkeep_commands,
)
from evenlag import run_command as run_module
from evenlag.output import print_error
from spark_jobs.errors import JobError, PolicyError


class _Group(TyperGroup):
    """Turns the errors that we raise on purpose into one line and an exit code that means something."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PolicyError as error:
            # A line for each mistake.
            print_error(*str(error).split("\n"))
            raise typer.Exit(error.exit_code) from error
        except JobError as error:
            print_error(str(error))
            raise typer.Exit(error.exit_code) from error
        except ModuleNotFoundError as error:
            extra = _EXTRA_BY_MODULE.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            print_error(f"this needs {error.name}, which is not installed: pip install 'evenlag[{extra}]'")
            raise typer.Exit(1) from error
        except typer.BadParameter as error:
            where = error.ctx.command_path if error.ctx else "evenlag"
            told = " ".join(error.format_message().split()).removeprefix("Invalid value for ")
            print_error(f"{told.rstrip('.')}; see {where} --help")
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            print_error("stopped")
            raise typer.Exit(130) from None


_EXTRA_BY_MODULE = {
    "airflow": "airflow",
    "delta": "spark",
    "deltalake": "cli",
    "great_expectations": "spark",
    "kafka": "cli",
    "matplotlib": "cli",
    "pyarrow": "cli",
    "pydantic": "cli",
    "pyspark": "spark",
    "yaml": "cli",
}

app = typer.Typer(
    name="evenlag",
    cls=_Group,
    no_args_is_help=True,
    # A traceback with local variables could show a password.
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    help="Keep Kafka consumer groups even: watch lag, plan assignments, hand them to the consumers as hints.",
    epilog="Exit codes: 0 done · 1 failed · 2 mistake in call or policy · 3 no answer · 4 nothing there",
)


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"evenlag {version('evenlag')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # noqa: ARG001  # its callback prints and ends
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    from spark_jobs.logs import set_up_logging

    set_up_logging(is_command=True)


app.command("run")(run_module.run)
app.command("lag")(lag_command.lag)
app.command("tables")(upkeep_commands.tables)
app.command("maintain")(upkeep_commands.maintain)
app.command("report")(report_command.report)
app.command("doctor")(doctor_command.doctor)
app.command("demo")(demo_command.demo)
plans_command.app.command("approve")(approval_commands.approve)
plans_command.app.command("reject")(approval_commands.reject)
app.add_typer(plans_command.app, name="plans")
app.add_typer(hints_command.app, name="hints")
app.add_typer(compare_command.app, name="compare")
app.add_typer(dags_command.app, name="dags")
app.add_typer(policy_command.app, name="policy")
app.add_typer(audit_command.app, name="audit")
if find_spec("evenlag.assign") is not None:
    app.command("assign")(import_module("evenlag.assign").assign)
