"""Names as pages write them, and the same names as the code has them."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import OutcomeReason
from evenlag.lake.tables import TABLES
from evenlag.policy.gates import GATES
from tests.support.pages.markdown import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.pages.markdown import Page

_NAMING_FOLDERS: Final = (
    "assignor_core",
    "spark_jobs",
    "evenlag",
    "dags",
    "sandbox",
    "release",
    "docker",
)
CODE_FOLDERS: Final = (*_NAMING_FOLDERS, "jvm", "tests")
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
_COMMAND: Final = re.compile(
    r"^(?:\$ |.* \| |docker compose exec \S+ )?(?:\w+=\S+ +)*(?:\S*/|python -m )?evenlag(?: +(?![→ ])(.*))?$"
)
# Placeholders: `…`, `[OPTIONS]`, `<name>`.
_PLACEHOLDER: Final = re.compile(r"^[\[(<…].*|.*[…\])>]$|^\.\.\.$")


def names_in(page: Page) -> set[str]:
    """Names with an underscore that are in backquotes by themselves."""
    return {span for span in page.spans if _NAME.fullmatch(span)}


def named_after(page: Page, words: str) -> set[str]:
    """Names in backquotes after one of these words, as in ``gates `x` and `y```, or before it."""
    one = r"`([a-z_]+)`"
    behind = re.compile(rf"\b(?:{words}) ((?:{one}(?:, | and | or )?)+)")
    before = re.compile(rf"{one} (?:{words})\b")
    found = {name for match in behind.finditer(page.prose) for name in re.findall(one, match[1])}
    return found | set(before.findall(page.prose))


@cache
def code_names() -> frozenset[str]:
    """Names of gates, tables and columns, and every name and whole string of the Python code."""
    found = {gate.name for gate in GATES} | set(TABLES)
    # Labels of metrics.
    found |= {reason.value.lower() for reason in OutcomeReason}
    for table in TABLES.values():
        found |= set(table.column_names)
        found |= {name for column in table.columns for name in re.findall(r"(\w+):", column.type)}
    for folder in _NAMING_FOLDERS:
        found.add(folder)
        for path in (ROOT / folder).rglob("*.py"):
            found.update(_names_of(ast.parse(path.read_text(encoding="utf-8"))))
    return frozenset(found)


def _names_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.arg(arg=name) | ast.Name(id=name):
                yield name
            case ast.Constant(value=str(text)):
                yield text


def commands_in(page: Page) -> Iterator[str]:
    """What follows ``evenlag`` wherever a page writes a call of it, in backquotes or in a code block."""
    for text in (*page.spans, *page.code_lines):
        found = _COMMAND.match(text.strip())
        if found is not None:
            yield (found[1] or "").strip()


def wrong_with_call(command: Any, call: str) -> str | None:
    """Say what a call has that the command does not know; None when it has nothing of the kind.

    call: Its arguments as a shell takes them; placeholders in capitals stand for values.
    """
    words = shlex.split(call, comments=True)
    num_arguments = 0
    while words:
        word = words.pop(0)
        if word in {"|", ">", "&&", ";", "||"}:
            break
        if _PLACEHOLDER.match(word):
            continue
        if word.startswith("-") and len(word) > 1:
            name, has_value, _ = word.partition("=")
            option = _option(command, name)
            if option is None and name != "--help":
                return f"`{command.name}` has no option {name}"
            if option is not None and not option.is_flag and not has_value and words:
                words.pop(0)
            continue
        child = _child(command, word)
        if child is not None:
            command = child
            continue
        if hasattr(command, "commands"):
            return f"`{command.name}` has no subcommand {word}"
        num_arguments += 1
        if num_arguments > _most_arguments(command):
            return f"`{command.name}` takes no argument {word}"
    return None


def all_options(command: Any) -> set[str]:
    """Every option of a command and of what is below it."""
    found = {name for option in _options(command) for name in (*option.opts, *option.secondary_opts)}
    for child in getattr(command, "commands", {}).values():
        found |= all_options(child)
    return found | {"--help"}


def _options(command: Any) -> list[Any]:
    return [parameter for parameter in command.params if parameter.param_type_name == "option"]


def _option(command: Any, name: str) -> Any:
    # A command that shows something by default takes the options of what it shows.
    shown = _default(command)
    options = [*_options(command), *(_options(shown) if shown is not None else ())]
    return next((option for option in options if name in (*option.opts, *option.secondary_opts)), None)


def _default(command: Any) -> Any:
    return getattr(command, "commands", {}).get("show")


def _child(command: Any, word: str) -> Any:
    return getattr(command, "commands", {}).get(word) or _default(command)


def _most_arguments(command: Any) -> float:
    counts = [parameter.nargs for parameter in command.params if parameter.param_type_name == "argument"]
    return float("inf") if -1 in counts else sum(counts)
