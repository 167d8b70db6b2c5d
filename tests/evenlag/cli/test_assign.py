"""`evenlag assign`: each line answered, errors on their lines, all assignors side by side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from evenlag.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

PROBLEM: dict[str, Any] = {
    "topics": {"t": 4},
    "members": [
        {"id": "a", "topics": ["t"], "owned": [["t", 0], ["t", 1], ["t", 2]], "generation": 1},
        {"id": "b", "topics": ["t"]},
    ],
    "lags": {"t": [9, 1, 1, 1]},
}


def run(*arguments: str, text: str | bytes = "") -> tuple[int, str]:
    result = CliRunner().invoke(app, ["assign", *arguments], input=text)
    return result.exit_code, result.stdout


def test_file_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(PROBLEM, indent=1))
    code, out = run("--assignor", "cooperative-sticky", str(path))
    answer = json.loads(out)
    assert code == 0
    assert answer["assignment"] == {"a": [["t", 0], ["t", 1]], "b": [["t", 3]]}
    assert answer["unassigned"] == [["t", 2]]


def test_batch_goes_on_after_a_bad_line_and_ends_with_status_1() -> None:
    good = json.dumps({**PROBLEM, "assignor": "range"})
    code, out = run("--jsonl", "-", text=f"{good}\n{{\n\n{good}\n".encode() + b'"\xff"\n')
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert ["error" in answer for answer in answers] == [False, True, False, True]


def test_rounds_settle() -> None:
    code, out = run("-a", "cooperative-sticky", "--rounds", "-", text=json.dumps(PROBLEM))
    answer = json.loads(out)
    assert (code, answer["rounds"], answer["unassigned"]) == (0, 2, [])


def test_all_are_compared_side_by_side() -> None:
    code, out = run("-a", "all", "-", text=json.dumps(PROBLEM))
    assert code == 0
    assert all(name in out for name in ("constrained-cooperative-sticky", "lag-aware-sticky", "roundrobin"))
    code, out = run("-a", "all", "--json", "--set", "max_moves=1", "-", text=json.dumps(PROBLEM))
    assert {answer["assignor"] for answer in json.loads(out)} >= {"range", "fair"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(("-a", "stick", "-"), json.dumps(PROBLEM)), (("-",), json.dumps(PROBLEM)), (("-",), "{")],
)
def test_error_is_answered_with_status_1(arguments: tuple[str, ...], text: str) -> None:
    code, out = run(*arguments, text=text)
    assert code == 1
    assert json.loads(out)["error"]


def test_missing_file_is_one_line_and_a_mistake_in_the_call(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["assign", "-a", "range", str(tmp_path / "none.json")])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "none.json cannot be read: No such file" in result.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ownd": []}, "unknown key 'ownd'"),
        ({"lags": {"t": [9]}}, "1 lags for 4 partitions"),
        ({"lags": {"u": [9]}}, "no such topic"),
        ({"members": [{"id": "a", "owned": [["t", 5]]}]}, "has 4 partitions, no 5"),
    ],
)
def test_a_batch_names_a_typing_error_on_its_line_and_goes_on(changes: dict[str, Any], message: str) -> None:
    lines = [json.dumps({**PROBLEM, **each, "assignor": "range"}) for each in (changes, {})]
    code, out = run("--jsonl", "-", text="\n".join(lines))
    bad, good = (json.loads(line) for line in out.splitlines())
    assert (code, message in bad["error"], "assignment" in good) == (1, True, True)


def test_a_setting_that_the_assignor_does_not_have_is_refused() -> None:
    code, out = run("-a", "range", "--set", "max_moves=1", "-", text=json.dumps(PROBLEM))
    assert (code, json.loads(out)) == (1, {"error": "range has no parameter max_moves"})
