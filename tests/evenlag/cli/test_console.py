"""What the command prints: strict JSON, and a dash for what is no number."""

from __future__ import annotations

import json
import math

import pytest

from evenlag.cli.console import print_json
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
