"""Predictions of lag and waiting beside a queue that is followed in small steps; how often intervals hold."""

from __future__ import annotations

import numpy as np
import pytest

from evenlag.lag.predictions import MISS, Intervals, Members, predict
from tests.bench.forecast import interval_score

_STEP_S = 10.0


def _members(chance: np.random.Generator, number: int) -> Members:
    return Members(
        group=np.sort(chance.integers(0, 3, number)),
        is_member=np.ones(number, dtype=np.bool_),
        lag=chance.uniform(500, 3_000, number),
        consumed=chance.uniform(0, 40, number),
        behind_s=chance.uniform(10, 100, number),
        arrivals=chance.uniform(0, 30, (number, 6)),
        step_s=np.full(number, _STEP_S),
        speed=np.full(number, np.nan),
        is_bound=np.zeros(number, dtype=np.bool_),
    )


def _followed(members: Members, row: int, ahead_s: float) -> float:
    """The queue of a member after so many seconds, in steps of a hundredth."""
    queue, step = float(members.lag[row]), 0.01
    for number in range(round(ahead_s / step)):
        place = min(int(number * step / _STEP_S), 5)
        queue = max(queue + step * (members.arrivals[row, place] - members.consumed[row]), 0.0)
    return queue


@pytest.mark.parametrize("ahead_s", [7.0, 35.0, 60.0, 80.0])
def test_queues_are_those_that_are_followed_in_small_steps(ahead_s: float) -> None:
    members = _members(np.random.default_rng(round(ahead_s)), 12)
    found = predict(members, np.full(3, ahead_s), np.zeros(3), 3, is_steady=False)
    queues = np.array([_followed(members, row, ahead_s) for row in range(12)])
    for group in range(3):
        mine = queues[members.group == group]
        assert found[group, 0] == pytest.approx(mine.sum(), abs=1.0 * len(mine))
        assert found[group, 1] == pytest.approx(mine.max(), abs=1.0)


def _one(
    lag: float,
    consumed: float,
    behind_s: float,
    *,
    owned: bool = True,
    speed: float = np.nan,
    is_bound: bool = False,
) -> Members:
    return Members(
        group=np.zeros(1, dtype=np.int64),
        is_member=np.array([owned]),
        lag=np.array([lag]),
        consumed=np.array([consumed]),
        behind_s=np.array([behind_s]),
        arrivals=np.full((1, 6), 10.0),
        step_s=np.array([_STEP_S]),
        speed=np.array([speed]),
        is_bound=np.array([is_bound]),
    )


def _ahead(members: Members, ahead_s: float, *, idle_s: float = 0.0, is_steady: bool = True) -> list[float]:
    found: list[float] = predict(members, np.array([ahead_s]), np.array([idle_s]), 1, is_steady=is_steady)[
        0
    ].tolist()
    return found


def test_measures_as_calculated() -> None:
    # 1,000 records fall by 15 a second and are 60 s old: after 20 s 700 are left, 500 of them old ones.
    assert _ahead(_one(1_000, 25, 60), 20) == [700, 700, 1_000 * (20 + 60 * 0.5)]
    # After 60 s 100 are left, all of them new: the oldest came 10 s ago.
    assert _ahead(_one(1_000, 25, 60), 60) == [100, 100, 10_000]
    # Who keeps up is behind as it is when it is seen, whatever the last interval shows.
    assert _ahead(_one(20, 5, 2), 60, idle_s=2.5) == [25, 25, 2_500]
    assert _ahead(_one(20, 5, 2), 60, is_steady=False)[:2] == [320, 320]
    # A measured speed counts, of a bound what is more; the rates of the last interval are another rule.
    assert _ahead(_one(1_000, 25, 60, speed=40), 20)[:2] == [400, 400]
    assert _ahead(_one(1_000, 25, 60, speed=40), 20, is_steady=False)[:2] == [700, 700]
    assert _ahead(_one(1_000, 25, 60, speed=30, is_bound=True), 20)[:2] == [600, 600]
    assert _ahead(_one(1_000, 25, 60, speed=20, is_bound=True), 20)[:2] == [700, 700]
    # Nobody processes what has no owner, and it is no member's lag.
    total, largest, _ = _ahead(_one(20, 5, 2, owned=False), 60)
    assert total == 620
    assert np.isnan(largest)


def _held(errors: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """The share of intervals around 1,000 that hold for these errors."""
    state, hits = Intervals.new((1,)), []
    for error in errors:
        predicted = np.array([1_000.0])
        lower, upper = state.around(predicted)
        actual = predicted + error
        if np.isfinite(lower[0]):
            hits.append(bool(lower[0] <= actual[0] <= upper[0]))
        state = state.after(predicted, lower, upper, actual)
    return float(np.mean(hits))


def test_intervals_hold_nine_times_in_ten_whatever_the_errors_are() -> None:
    chance = np.random.default_rng(7)
    drawn = {
        "normal": chance.normal(0, 20, 2_000),
        "heavy tails": 10 * chance.standard_t(2.5, 2_000).clip(-90, 90),
        "one side": chance.exponential(30, 2_000),
        "a bias": chance.normal(40, 10, 2_000),
        "a change of scale": np.concatenate([chance.normal(0, 5, 1_000), chance.normal(0, 100, 1_000)]),
    }
    shares = {name: _held(errors) for name, errors in drawn.items()}
    assert all(abs(share - (1 - MISS)) <= 0.05 for share in shares.values()), shares


def test_intervals_begin_after_some_scores_and_never_below_nothing() -> None:
    state, one = Intervals.new((1,)), np.array([5.0])
    for _ in range(3):
        assert np.isnan(state.around(one)).all()
        state = state.after(one, *state.around(one), one + 10)
    lower, upper = state.around(one)
    assert lower[0] == 0.0
    assert upper[0] == pytest.approx(5 + 2.5 * 10)


def test_what_was_not_scored_changes_nothing() -> None:
    state, unknown = Intervals.new((2,)), np.full(2, np.nan)
    after = state.after(unknown, unknown, unknown, np.zeros(2))
    assert after.scored.tolist() == [0, 0]
    assert np.isnan(after.error).all()


def test_interval_scores_as_calculated() -> None:
    # Gneiting and Raftery (2007), equation 43: the width, and 2 / 0.1 for each record outside.
    lower, upper = np.full(3, 10.0), np.full(3, 30.0)
    assert interval_score(lower, upper, np.array([20.0, 5.0, 31.0])).tolist() == [20.0, 120.0, 40.0]
