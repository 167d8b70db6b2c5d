"""What all commands share: help by -h, output formats, completion by the shell, headings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from evenlag.cli.app import app
from evenlag.cli.console import console, print_json
from evenlag.cli.grammar import use_grammar
from evenlag.cli.layout import Column, Table
from evenlag.cli.options import JsonOption  # Typer reads the annotation
from tests.support.each import for_each

if TYPE_CHECKING:
    from collections.abc import Iterator


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))


@for_each(ALL, " ".join)
def test_each_command_has_help_by_h_without_types_of_flags(path: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(app, [*path, "-h"], env={"COLUMNS": "80"})
    assert answer.exit_code == 0, answer.output
    assert "Usage:" in answer.output
    assert "<bool>" not in answer.output
    assert "<str>" not in answer.output
    assert max(map(len, answer.output.splitlines())) <= 80
    # A docstring's own line ends are not in it: a short line ends a paragraph.
    assert "\n to \n" not in answer.output


@for_each(ALL, " ".join)
def test_each_option_names_its_value_and_a_letter_means_one_thing(path: tuple[str, ...]) -> None:
    letters = {
        "-h": "--help", "-c": "--config", "-b": "--bootstrap-servers", "-g": "--group", "-o": "--output",
        "-a": "--assignor", "-f": "--file", "-w": "--watch",
    }  # fmt: skip
    for param in ALL[path].params:
        for option in param.opts:
            if option.startswith("-") and not option.startswith("--"):
                assert letters[option] in param.opts
        assert param.metavar not in {"TEXT", "INTEGER", "NUMBER"} or "--reason" in param.opts


@for_each(ALL, " ".join)
def test_each_command_that_answers_in_json_has_the_output_option(path: tuple[str, ...]) -> None:
    options = [option for param in ALL[path].params for option in param.opts]
    assert ("--json" in options) == ("--output" in options) == ("-o" in options)


def made_app() -> typer.Typer:
    made = typer.Typer()

    @made.command()
    def show(*, as_json: JsonOption = False) -> None:
        if as_json:
            print_json({"group": "orders"})
            return
        shown = Table("Lag", (Column("group"), Column("why")), optional=("why",))
        shown.add_row("orders", "a reason of many words " * 20)
        console().print(shown)

    use_grammar(made)
    return made


@pytest.mark.parametrize("asked", [["--json"], ["-o", "json"], ["--output=json"], ["-o", "json", "--json"]])
def test_json_is_asked_for_in_either_way(asked: list[str]) -> None:
    answer = CliRunner().invoke(made_app(), asked)
    assert answer.output == '{\n  "group": "orders"\n}\n'


def test_wide_applies_to_one_call_only() -> None:
    runner = CliRunner()
    lines = {
        how: len(runner.invoke(made_app(), ["-o", how]).output.splitlines()) for how in ("wide", "table")
    }
    # The title, the heading and the row, each with its frame.
    assert lines["wide"] == 6
    assert lines["table"] > 6
    refused = runner.invoke(made_app(), ["-o", "yaml"])
    assert refused.exit_code == 2
    assert "'yaml' is not one of" in refused.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("evenlag pl", {"plans"}),
        ("evenlag plans app", {"approve"}),
        ("evenlag plans --da", {"--days"}),
        ("evenlag plans show --da", {"--days"}),
        ("evenlag hints w", {"withdraw"}),
        ("evenlag audit churn -o w", {"wide"}),
    ],
)
def test_a_shell_completes_words(words: str, expected: set[str]) -> None:
    environment = {
        "_EVENLAG_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    answer = CliRunner().invoke(app, [], env=environment, prog_name="evenlag")
    assert set(answer.output.split()) == expected
