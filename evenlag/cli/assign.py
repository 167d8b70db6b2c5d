"""`evenlag assign`: solve a problem with one assignor, or with all of them to compare them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path  # Typer reads the annotations
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from assignor_core.errors import AssignorError, ProblemError
from evenlag.cli.console import console, print_error
from evenlag.cli.layout import Table, key, numbers
from evenlag.cli.option_types import argument, flag, option, path, shown
from evenlag.errors import UsageError
from evenlag.formatting import number

if TYPE_CHECKING:
    from assignor_core.problem import Problem

_ALL = "all"
_FIGURES: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "largest lag": lambda figures: number(figures["max_member_lag_records"]),
    "skew": lambda figures: number(figures["lag_skew"], digits=2),
    "partitions": lambda figures: f"{figures['min_member_partitions']} to {figures['max_member_partitions']}",
    "balance score": lambda figures: number(figures["balance_score"]),
    "moves": lambda figures: number(figures["moves"]),
    "unassigned": lambda figures: number(figures["unassigned_partitions"]),
    "ms": lambda figures: number(figures["assign_ms"], digits=2),
}


def _parameter(text: str) -> tuple[str, int | float]:
    """Parse ``NAME=VALUE``: a parameter and its value, in the type that the assignors declare."""
    from assignor_core.assignors import assignor_classes

    declared = {each.name: each for assignor in assignor_classes() for each in assignor.parameters}
    name, _, value = (part.strip() for part in text.partition("="))
    if name not in declared:
        names = ", ".join(sorted(declared))
        raise typer.BadParameter(f"{shown(text)} is not NAME=VALUE with a name of: {names}")
    try:
        parsed = declared[name].parse(value)
        declared[name].check(parsed)
    except ProblemError as error:
        raise typer.BadParameter(str(error)) from error
    except ValueError:
        raise typer.BadParameter(f"{name} cannot be {shown(value)}") from None
    return name, parsed


def assign(
    file: Annotated[Path, argument("FILE", "The problem as JSON; - reads standard input.", path)],
    assignor: Annotated[
        str | None,
        option("--assignor -a", "NAME", "Its name, or all; the one that the problem names without it."),
    ] = None,
    jsonl: Annotated[bool, flag("--jsonl", "One problem a line, one answer a line.")] = False,
    rounds: Annotated[bool, flag("--rounds", "Run a cooperative assignor until it settles.")] = False,
    as_json: Annotated[bool, flag("--json", "With all: answers in JSON, no table.")] = False,
    parameters: Annotated[
        list[Any] | None,
        option(
            "--set",
            "NAME=VALUE",
            "A parameter of the assignor, e.g. max_moves=5; may be repeated.",
            _parameter,
        ),
    ] = None,
) -> None:
    """Assign partitions to members of a problem; no cluster and no lake is involved."""
    settings = dict(parameters or [])
    try:
        with _opened(file) as source:
            if jsonl:
                answered = [_answer(line, assignor, rounds, settings) for line in source if line.strip()]
                failed = any(answered)
            elif assignor == _ALL:
                failed = _compare(source.read(), settings, as_json)
            else:
                failed = _answer(source.read(), assignor, rounds, settings)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from error
    if failed:
        raise typer.Exit(1)


def _opened(file: Path) -> AbstractContextManager[IO[str]]:
    # A byte that is not UTF-8 makes only its own line invalid.
    if str(file) != "-":
        return file.open(encoding="utf-8", errors="surrogateescape")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    return nullcontext(sys.stdin)


def _answer(text: str, assignor: str | None, rounds: bool, settings: dict[str, Any]) -> bool:
    """Write the answers to one problem, one per line, and flush; return whether one is an error."""
    answers = _solve(text, assignor, rounds, settings)
    for answer in answers:
        sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    return any("error" in answer for answer in answers)


def _solve(text: str, assignor: str | None, rounds: bool, settings: dict[str, Any]) -> list[dict[str, Any]]:
    from assignor_core.assignors import assignor_names
    from assignor_core.problem import parse_problem

    try:
        problem = parse_problem(text)
    except AssignorError as error:
        return [{"error": str(error)}]
    if assignor != _ALL:
        return [_solve_one(problem, assignor, rounds, settings)]
    answers = [_solve_one(problem, name, rounds, settings, is_one_of_all=True) for name in assignor_names()]
    return [{"assignor": n} | answer for n, answer in zip(assignor_names(), answers, strict=True)]


def _solve_one(
    problem: Problem,
    assignor: str | None,
    rounds: bool,
    settings: dict[str, Any],
    *,
    is_one_of_all: bool = False,
) -> dict[str, Any]:
    from assignor_core.assignors import find_assignor
    from assignor_core.problem import solve

    try:
        name = assignor or problem.assignor or ""
        known = {parameter.name for parameter in find_assignor(name).parameters} if name else set()
        unknown = sorted(set(settings) - known) if assignor else []
        if unknown and not is_one_of_all:
            raise ProblemError(f"{name} has no parameter {', '.join(unknown)}")
        fitting = {key: value for key, value in settings.items() if key in known}
        return solve(problem, assignor, to_the_end=rounds, **fitting)
    except AssignorError as error:
        return {"error": str(error)}


def _compare(text: str, settings: dict[str, Any], as_json: bool) -> bool:
    """Show the results of all assignors on one problem; cooperative assignors run until they settle."""
    answers = _solve(text, _ALL, True, settings)
    if as_json:
        sys.stdout.write(json.dumps(answers) + "\n")
        return len(answers) == 1
    if len(answers) == 1:
        print_error(str(answers[0]["error"]))
        return True
    columns = (
        key("assignor", lambda answer: answer["assignor"]),
        *(numbers(heading, partial(_cell, text_of)) for heading, text_of in _FIGURES.items()),
    )
    title, optional = "Assignors on one problem", ("unassigned", "balance score", "partitions")
    shown = Table(title, columns, answers, optional=optional)
    out = console()
    out.print(shown)
    for answer in answers:
        if "error" in answer:
            out.print(f"{answer['assignor']}: {answer['error']}")
    return False


def _cell(text_of: Callable[[dict[str, Any]], str], answer: dict[str, Any]) -> str:
    if "error" in answer:
        return "-"
    return text_of(answer["metrics"] | {"assign_ms": answer["assign_ms"]})
