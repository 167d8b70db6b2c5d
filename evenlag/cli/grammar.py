"""What all commands have in common on the command line: help, groups of options, output formats, defaults."""

import inspect
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import is_dataclass
from functools import wraps
from typing import Annotated, Any, Final, Literal, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from evenlag.cli.layout import wide_tables

# The subcommand that a command group runs when none is named.
SHOW: Final = "show"
# The parameter of commands that answer in JSON.
_AS_JSON: Final = "as_json"
_LINE_END: Final = re.compile(r"(?<!\n)\n(?!\n)")


_OUTPUT: Final = inspect.Parameter(
    "output",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Literal["table", "wide", "json"] | None,
        typer.Option(
            "--output",
            "-o",
            show_default=False,
            metavar="FORMAT",
            help="table, wide (all columns, whatever the width of the terminal), or json (for scripts).",
        ),
    ],
)


class _WithoutFlagTypes:
    """Shows no type of a flag, which takes no value, and none of an argument, whose name says it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, as Click asks for them."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the class that it is mixed into
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif param.param_type_name == "argument":
                param.display_type_rich = lambda **_: None
        return params


class Command(_WithoutFlagTypes, TyperCommand):
    """A command whose help has the line ends of the terminal, not of its docstring."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help = None if self.help is None else _LINE_END.sub(" ", self.help)


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
    """Give all commands and groups of an application the classes and the options of this module."""
    for command in app.registered_commands:
        command.cls = Command
        command.callback = command.callback and _expanded(command.callback)
    for group in app.registered_groups:
        inner = group.typer_instance
        if inner is not None:
            if not isinstance(inner.info.cls, type):
                inner.info.cls = Group
            use_grammar(inner)


def _expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace parameters that are dataclasses by options of their fields; add ``-o`` beside ``--json``."""
    parameters = inspect.signature(command, eval_str=True).parameters
    kinds: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in parameters.items()
        if is_dataclass(parameter.annotation)
    }
    groups = {name: _options_of(kind) for name, kind in kinds.items()}
    options = {
        name: option
        for parameter in parameters.values()
        for name, option in groups.get(parameter.name, {parameter.name: parameter}).items()
    }
    if _AS_JSON in options:
        options[_OUTPUT.name] = _OUTPUT

    @wraps(command)
    def call(**values: Any) -> None:
        output = values.pop(_OUTPUT.name, None)
        if output == "json":
            values[_AS_JSON] = True
        for name, fields in groups.items():
            values[name] = kinds[name](**{field: values.pop(field) for field in fields})
        with wide_tables() if output == "wide" else nullcontext():
            command(**values)

    expanded: Any = call
    expanded.__signature__ = inspect.Signature(list(options.values()))
    return call


def _options_of(kind: Any) -> dict[str, inspect.Parameter]:
    types = get_type_hints(kind, include_extras=True)
    parameters = inspect.signature(kind).parameters
    return {name: parameter.replace(annotation=types[name]) for name, parameter in parameters.items()}
