"""What plans are expected to lead to, beside values that were calculated manually, and whether that held."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from evenlag.lag.group_lag import GroupLag
from evenlag.planning.expectations import Expected, expect_plan, expected_of, score_expected
from evenlag.planning.time_plans import Prediction, TimePlan
from tests.support.lakes.snapshots import NOW

NOBODY = np.zeros(0, dtype=np.int32)


def plan(stay_lag: list[float], lag: list[float], stay_s: list[float], wait_s: list[float]) -> TimePlan:
    """A plan by what waits at the end of each step of 100 s."""
    stay, planned = (
        Prediction(0.0, 100.0, np.array(lags), np.array(waits))
        for lags, waits in ((stay_lag, stay_s), (lag, wait_s))
    )
    return TimePlan(NOBODY, stay, planned, 0.0, 0.0)


FALLS = plan([1_000.0, 2_000.0], [400.0, 0.0], [50.0, 100.0], [20.0, 0.0])


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        # At 100 s there are 600 fewer; at 50 s half of that, at 150 s 1,300.
        (("total_lag_records", 100.0, 1_100.0, 900.0, 1_500.0), (500.0, 300.0, 900.0)),
        (("total_lag_records", 50.0, 600.0, 500.0, 800.0), (300.0, 200.0, 500.0)),
        (("total_lag_records", 150.0, 1_600.0, 1_200.0, 2_500.0), (300.0, 0.0, 1_200.0)),
        (("total_lag_records", 200.0, 2_100.0, None, None), (100.0, None, None)),
        # Waiting 40 % as long, and in the end not at all.
        (("time_lag_ms", 100.0, 60_000.0, 30_000.0, 90_000.0), (24_000.0, 12_000.0, 36_000.0)),
        (("time_lag_ms", 200.0, 120_000.0, 30_000.0, 400_000.0), (0.0, 0.0, 0.0)),
    ],
)
def test_predictions_change_as_the_model_says_of_the_plan(
    each: tuple[Any, ...], expected: tuple[float | None, ...]
) -> None:
    measure, *numbers = each
    (found,) = expect_plan([Expected(measure, False, *numbers)], FALLS) or []
    assert (found["measure"], found["is_horizon"], found["ahead_s"]) == (measure, False, numbers[0])
    assert (found["predicted"], found["lower"], found["upper"]) == pytest.approx(expected)


@pytest.mark.parametrize("stay_s", [0.0, 0.01])
def test_with_hardly_any_backlog_what_a_plan_makes_records_wait_is_added(stay_s: float) -> None:
    adds = plan([0.0], [30.0], [stay_s], [stay_s + 3.0])
    (found,) = expect_plan([Expected("time_lag_ms", True, 100.0, 2_000.0, 1_000.0, 5_000.0)], adds) or []
    numbers = (found["predicted"], found["lower"], found["upper"])
    assert numbers == pytest.approx((5_000.0, 4_000.0, 8_000.0))


def test_nothing_is_expected_without_speeds_or_predictions() -> None:
    known = {"is_horizon": False, "lower": None, "upper": None}
    rows = [
        {**known, "measure": "total_lag_records", "ahead_s": 60.0, "predicted": 5.0},
        {**known, "measure": "max_member_lag_records", "ahead_s": 60.0, "predicted": 5.0},
        {**known, "measure": "time_lag_ms", "ahead_s": None, "predicted": 5.0},
        {**known, "measure": "time_lag_ms", "ahead_s": 60.0, "predicted": None},
    ]
    assert expected_of(rows) == (Expected("total_lag_records", False, 60.0, 5.0, None, None),)
    assert expected_of(None) == ()
    assert expect_plan((), FALLS) is None
    assert expect_plan(expected_of(rows), None) is None


def row(measure: str, lower: float | None, upper: float | None, *, horizon: bool = False) -> dict[str, Any]:
    return Expected(measure, horizon, 1_800.0 if horizon else 60.0, 50.0, lower, upper)._asdict()


def after(rows: list[dict[str, Any]] | None, passed_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """A plan with these predictions, and the marker of a snapshot so much later."""
    return {"slot": NOW, "expected": rows}, {"slot": NOW + timedelta(seconds=passed_s)}


def test_predictions_are_scored_by_a_snapshot_near_the_time_that_they_were_made_for() -> None:
    rows = [
        row("total_lag_records", 100.0, 200.0),
        row("time_lag_ms", 100.0, 200.0),
        row("total_lag_records", 0.0, 150.0, horizon=True),
        row("time_lag_ms", None, None, horizon=True),
    ]
    lag = GroupLag(num_partitions=2, total_lag_records=200, time_lag_ms=201)

    def held(
        passed_s: float, *, horizon: bool, actual: GroupLag | None = lag
    ) -> dict[str, bool | None] | None:
        found = score_expected(*after(rows, passed_s), actual, is_horizon=horizon)
        return None if found is None else {each["measure"]: each["held"] for each in found}

    assert held(60.0, horizon=False) == {"total_lag_records": True, "time_lag_ms": False}
    assert held(1_500.0, horizon=True) == {"total_lag_records": False, "time_lag_ms": None}
    # A plan that was approved late, and lag that is not known.
    assert held(91.0, horizon=False) is None
    assert held(29.0, horizon=False) is None
    assert held(60.0, horizon=False, actual=GroupLag(num_unknown_partitions=1, total_lag_records=9)) is None
    assert held(60.0, horizon=False, actual=None) is None
    assert score_expected(*after(None, 60.0), lag, is_horizon=False) is None
