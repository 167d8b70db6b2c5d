"""What the command prints: strict JSON, a dash for what is no number, and tables that fit any terminal."""

from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console

from evenlag.cli.console import fit, print_json, table
from evenlag.formatting import duration, number, percent


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def test_json_is_strict_and_what_is_not_finite_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"gain": -math.inf, "rows": [{"lag_skew": math.inf}, (math.nan, 1.5)], "n": 3})
    answer = json.loads(capsys.readouterr().out, parse_constant=_refuse)
    assert answer == {"gain": None, "rows": [{"lag_skew": None}, [None, 1.5]], "n": 3}


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, None])
def test_people_see_a_dash_for_what_is_not_finite(value: float | None) -> None:
    assert (number(value), percent(value), duration(value)) == ("-", "-", "-")


NUMBERS = ("1,234,567", "≥ 2,469,134", "12.34", "4 min 10 s")
GROUP = "payments-eu-west-1.a-rather-long-group-name"


def shown(width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    columns = ("group", "lag", "most loaded member", "skew", "behind by", "statuses")
    made = table("Lag", columns, right=columns[1:5], caption="As seen")
    made.add_row(GROUP, *NUMBERS, "14 OK, 10 UNKNOWN")
    with console.capture() as captured:
        console.print(fit(console, made, ("statuses", "skew")))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [60, 70, 80, 100, 120, 200])
def test_a_number_is_never_cut(width: int) -> None:
    lines = shown(width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    is_skew_left_out = "statuses, skew" in text
    for figure in NUMBERS:
        assert figure in text or (figure == "12.34" and is_skew_left_out)
    # Of a long name every character is there, on as many lines as it takes.
    first = "".join(line.split("│")[1].strip() for line in lines if line.startswith("│"))
    assert first == GROUP


def test_what_is_left_out_is_said_and_only_on_a_narrow_terminal() -> None:
    assert "As seen. A wider terminal or --json shows more: statuses" in " ".join(
        line.strip() for line in shown(60)
    )
    wide = "\n".join(shown(200))
    assert "A wider terminal" not in wide
    assert "most loaded member" in wide
    assert "14 OK, 10 UNKNOWN" in wide
