"""What all commands have in common on the command line: help, output formats, and default subcommands."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from evenlag.cli.tables.layout import wide_tables

if TYPE_CHECKING:
    from collections.abc import Callable

# The subcommand that a command group runs when none is named.
SHOW: Final = "show"
# The parameter of commands that answer in JSON.
_AS_JSON: Final = "as_json"
_CHOSEN: Final = "evenlag.output"
_LINE_END: Final = re.compile(r"(?<!\n)\n(?!\n)")


class Output(StrEnum):
    """Form of an answer."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


class _WithoutFlagTypes:
    """Shows no type of a flag, which takes no value, and none of an argument, whose name says it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, as Click asks for them."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the class that it is mixed into
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif param.param_type_name == "argument":
                param.display_type_rich = _no_type
        return params


class Command(_WithoutFlagTypes, TyperCommand):
    """A command; one that can answer in JSON has ``-o`` for the form of its answer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A docstring's lines are not those of a terminal.
        self.help = None if self.help is None else _LINE_END.sub(" ", self.help)
        for param in self.params:
            if param.name == _AS_JSON:
                param.callback = _json_if_chosen(param.callback)
                self.params.append(_output_option())
                break


class Group(_WithoutFlagTypes, TyperGroup):
    """A group of commands."""


class ShowByDefault(Group):
    """A command group whose default subcommand is ``show``.

    ``evenlag plans 3f2a`` means ``evenlag plans show 3f2a``. A first word that is a subcommand's name is that
    subcommand.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epilog = self.epilog or f"Options of the default: evenlag {self.name} {SHOW} -h"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default subcommand when the first word is not a subcommand."""
        # A shell that completes the first word asks for the subcommands, too.
        is_named = bool(args) and args[0] in {*self.commands, "--help", "-h"}
        if not is_named and not (ctx.resilient_parsing and not args):
            args = [SHOW, *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete the first word: a subcommand, or an option of the default one."""
        found: list[Any] = super().shell_complete(ctx, incomplete)
        known = {item.value for item in found}
        more = self.commands[SHOW].shell_complete(ctx, incomplete)
        return found + [item for item in more if item.value not in known]


def use_grammar(app: typer.Typer) -> None:
    """Give all commands and groups of an application the classes of this module."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        inner = group.typer_instance
        if inner is not None:
            if not isinstance(inner.info.cls, type):
                inner.info.cls = Group
            use_grammar(inner)


@cache
def _output_option() -> Any:
    """Make the option ``-o`` as Typer makes options; one for all commands, because making it takes time."""
    probe = typer.Typer(add_completion=False)
    probe.command()(_with_output)
    return typer.main.get_command(probe).params[0]


def _choose_output(context: typer.Context, value: Output | None) -> Output | None:
    if value is not None and not context.resilient_parsing:
        context.meta[_CHOSEN] = value
        if value == Output.WIDE:
            context.with_resource(wide_tables())
    return value


def _with_output(
    output: Annotated[  # its callback keeps it
        Output | None,
        typer.Option(
            "--output",
            "-o",
            is_eager=True,
            expose_value=False,
            callback=_choose_output,
            show_default=False,
            metavar="FORMAT",
            help="table, wide (all columns, whatever the width of the terminal), or json (for scripts).",
        ),
    ] = None,
) -> None:
    """Declare the option; never called."""


def _json_if_chosen(inner: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a callback of ``--json`` that ``-o json`` answers, too."""

    def chosen(ctx: Any, param: Any, value: Any) -> Any:
        found = value if inner is None else inner(ctx, param, value)
        return found or ctx.meta.get(_CHOSEN) == Output.JSON

    return chosen


def _no_type(*, ctx: Any) -> None:
    """Return the type of an argument in its help: none."""
    del ctx
