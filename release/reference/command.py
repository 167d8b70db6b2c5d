"""The page of the command, from its own help."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import typer

from evenlag.cli.app import app
from release.reference.form import page, table

_INTRODUCTION: Final = """\
Look up a command or an option. Each command has `--help`. A command group runs its subcommand `show` if none
is named: `evenlag plans` is `evenlag plans show`. All commands have the same [exit codes](errors.md).
`evenlag --install-completion` makes the shell complete commands and options."""
_OUTPUT: Final = """\
## Output

`-o` selects `table` (default), `wide` (all columns) or `json` (the same as `--json`; use it in scripts). A
table fits the terminal: texts wrap, then columns are left out, and its last line names them. Identifiers and
numbers are never cut; where they do not fit, a row takes several lines."""
_HEADER: Final = ("option", "default", "meaning")
_COMMON_FROM: Final = 3
"""Options of at least this many commands are described once."""


def render_command() -> str:
    """Render the page."""
    root: Any = typer.main.get_command(app)
    commands = list(_commands(root, "evenlag"))
    rows = {name: list(_rows(command)) for name, command in commands}
    common = _common(rows.values())
    index = " · ".join(f"[`{name}`](#{_anchor(name)})" for name, _ in commands)
    parts = [_INTRODUCTION, index, _OUTPUT, "## Common options", table(_HEADER, common)]
    for name, command in commands:
        parts += [f"## {name}", _prose(command.help or ""), f"```\n{_usage(name, command)}\n```"]
        own = [row for row in rows[name] if row not in common]
        if own:
            parts.append(table(_HEADER, own))
        shared = [row[0].split()[0] for row in rows[name] if row in common]
        if shared:
            parts.append(f"Common options: {', '.join(shared)}.")
    return page("Command", "the command's own help, in `evenlag/cli`,", [part for part in parts if part])


def _common(rows: Iterable[list[tuple[str, str, str]]]) -> list[tuple[str, str, str]]:
    """Return the options that several commands have with the same meaning, one for each name."""
    counts = Counter(row for of_command in rows for row in of_command).most_common()
    most_used = {row[0]: row for row, _ in reversed(counts)}
    return [row for row, count in counts if count >= _COMMON_FROM and most_used[row[0]] == row]


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each command that can be called, with its complete name."""
    for child_name, child in sorted(getattr(command, "commands", {}).items()):
        if child.hidden:
            continue
        if hasattr(child, "commands"):
            yield from _commands(child, f"{name} {child_name}")
        else:
            yield f"{name} {child_name}", child


def _usage(name: str, command: Any) -> str:
    arguments = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            shown = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
            arguments.append(shown if parameter.required else f"[{shown}]")
    return " ".join([name, *arguments, "[OPTIONS]"])


def _rows(command: Any) -> Iterator[tuple[str, str, str]]:
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        if parameter.param_type_name == "argument":
            yield f"`{parameter.name.upper()}`", "", _prose(parameter.help or "")
            continue
        names = " ".join(f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts))
        yield names, _default(parameter), _prose(parameter.help or "")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "must be given"
    value = parameter.default
    if callable(value) or value is None or value is False or value in ((), [], ""):
        return ""
    if not isinstance(value, bool | int | float | str):
        return ""
    return "" if value is True else f"`{value}`"


def _prose(text: str) -> str:
    """The help without the marks of the terminal; a placeholder must not be read as HTML."""
    return re.sub(r"<(\w+)>", r"`<\1>`", text.replace("\b", "")).strip()


def _anchor(name: str) -> str:
    return name.replace(" ", "-")
