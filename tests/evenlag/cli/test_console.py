"""What the command prints: strict JSON, and a dash for what is no number."""

from __future__ import annotations

import io
import json
import math
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from evenlag.cli.console import confirm, print_json
from evenlag.errors import JobError
from evenlag.formatting import duration, number, percent

if TYPE_CHECKING:
    from collections.abc import Iterator


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def test_json_is_strict_and_what_is_not_finite_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"gain": -math.inf, "rows": [{"lag_skew": math.inf}, (math.nan, 1.5)], "n": 3})
    answer = json.loads(capsys.readouterr().out, parse_constant=_refuse)
    assert answer == {"gain": None, "rows": [{"lag_skew": None}, [None, 1.5]], "n": 3}


def test_an_iterator_is_a_list_that_is_printed_while_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    before: list[bool] = []

    def rows() -> Iterator[dict[str, float]]:
        for row in range(3):
            before.append(f'"row": {row - 1}' in out.getvalue())
            yield {"row": row, "gain": math.nan}

    print_json({"rows": rows(), "none": iter(())})
    assert json.loads(out.getvalue()) == {
        "rows": [{"row": row, "gain": None} for row in range(3)],
        "none": [],
    }
    assert before == [False, True, True]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, None])
def test_people_see_a_dash_for_what_is_not_finite(value: float | None) -> None:
    assert (number(value), percent(value), duration(value)) == ("-", "-", "-")


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (b"y\n", True),
        (b"Yes\n", True),
        (b"", False),
        (b"\n", False),
        (b"n\n", False),
        (b"\xff\n", False),
        (b"\0\n", False),
    ],
)
def test_only_yes_confirms(answer: bytes, *, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(answer), encoding="utf-8"))
    with nullcontext() if wanted else pytest.raises(JobError, match="not confirmed, so nothing was changed"):
        confirm("Erase it?")
