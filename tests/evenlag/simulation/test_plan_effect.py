"""What a plan has saved, beside areas under the lag that were calculated manually."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from evenlag.planning.group_work import FollowTimes
from evenlag.simulation.estimates import KnownSpeeds, estimate
from evenlag.simulation.plan_effect import measure_effect
from tests.support.each import for_each
from tests.support.lakes.replay_histories import START_S, history_of, snapshot

if TYPE_CHECKING:
    from evenlag.planning.evaluations import PlanEffect
    from evenlag.simulation.history import History

Lags = list[list[float | None]]
AT_S = [10.0 * number for number in range(7)]
# 8 records/s come to each of two partitions, and each member processes 10.
ENDS = [[80.0 * number] * 2 for number in range(7)]
SPEEDS = KnownSpeeds(np.array([10.0, 10.0]), np.array([False, False]))


def effect_of(
    history: History, times: tuple[float, float] = (0.0, 0.0), since_s: float = 0.0
) -> PlanEffect | None:
    estimates = estimate(history, known=SPEEDS)
    return measure_effect(history, estimates, FollowTimes(9.0, *times), since_s=START_S + since_s)


def moved(ends: list[list[float]], lags: Lags) -> History:
    """Both partitions at `a`; from the second snapshot on the second one at `b`."""
    owners = [["a", "a"], *([["a", "b"]] * 6)]
    return history_of(ends, lags, owners, [snapshot("a", "b")] * 7, at_s=AT_S)


# 60 records wait at 10 s; then each member drains its 30 by 2 records/s.
DRAINED: Lags = [[0.0, 0.0], [30.0, 30.0], [10.0, 10.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]


def test_what_would_have_waited_is_compared_with_what_did_and_with_the_stops() -> None:
    found = effect_of(moved(ENDS, DRAINED), (1.0, 0.5))
    assert found is not None
    # Without the plan the lag grows by 6 records/s for 60 s.
    assert found.stay_record_s == pytest.approx(6 * 60**2 / 2)
    # 60 records in 10 s, and twice 30 that are gone after 15 s.
    assert found.actual_record_s == pytest.approx(60 * 10 / 2 + 2 * 30 * 15 / 2)
    # The moved partition pauses for 1 s, the other for 0.5 s, and both drain afterwards.
    of_moved = (30 + 38) / 2 * 1.0 + 38 * 19 / 2 - 225
    of_other = (30 + 34) / 2 * 0.5 + 34 * 17 / 2 - 225
    assert found.cost_record_s == pytest.approx(of_moved + of_other)
    assert found.net_record_s == pytest.approx(10_800 - 750 - of_moved - of_other)


def test_snapshots_before_it_was_published_are_no_part_of_it() -> None:
    """`b` has the second partition until 10 s, `a` until 30 s, and then `b` again: by the plan."""
    owners = [["a", "b"], ["a", "a"], ["a", "a"], *([["a", "b"]] * 4)]
    lags: Lags = [[0.0, 0.0], [0.0, 0.0], [30.0, 30.0], [60.0, 60.0]]
    lags += [[40.0, 40.0], [20.0, 20.0], [0.0, 0.0]]
    found = effect_of(history_of(ENDS, lags, owners, [snapshot("a", "b")] * 7, at_s=AT_S), since_s=20.0)
    assert found is not None
    assert found.stay_record_s == pytest.approx((60 + 300) / 2 * 40)
    assert found.actual_record_s == pytest.approx((60 + 120) / 2 * 10 + 120 * 30 / 2)


def test_a_plan_for_members_that_keep_up_saves_nothing() -> None:
    history = moved([[20.0 * number] * 2 for number in range(7)], [[0.0, 0.0]] * 7)
    found = effect_of(history, (1.0, 0.5))
    assert found is not None
    # 2 and 1 records wait after 1 s and half of one, and are then processed by 8 records/s more than come.
    of_moved, of_other = 2 / 2 + 2**2 / 8 / 2, 1 / 2 / 2 + 1 / 8 / 2
    assert found == pytest.approx((0.0, 0.0, of_moved + of_other), abs=1e-6)
    assert found.net_record_s < 0


def test_what_a_member_leaves_behind_goes_where_it_went() -> None:
    """`a` leaves at 20 s: with the plan or without, `b` then has both partitions."""
    owners = [["a", "a"], ["a", "b"], *([["b", "b"]] * 5)]
    lags: Lags = [[0.0, 0.0], [30.0, 30.0], [10.0, 10.0]]
    lags += [[40.0, 40.0], [70.0, 70.0], [100.0, 100.0], [130.0, 130.0]]
    people = [snapshot("a", "b")] * 2 + [snapshot("b")] * 5
    found = effect_of(history_of(ENDS, lags, owners, people, at_s=AT_S))
    assert found is not None
    # 120 wait at 20 s without the plan, 20 with it; then `b` is behind by 6 records/s more in both.
    stay = 120 * 20 / 2 + sum((120 + 60 * n + 120 + 60 * (n + 1)) / 2 * 10 for n in range(4))
    actual = 300 + (60 + 20) / 2 * 10 + sum((20 + 60 * n + 20 + 60 * (n + 1)) / 2 * 10 for n in range(4))
    assert (found.stay_record_s, found.actual_record_s) == pytest.approx((stay, actual))


@for_each(["a", "b"])
def test_nothing_is_said_of_a_plan_that_no_interval_shows(last: str) -> None:
    owners = [*([["a", "a"]] * 6), ["a", last]]
    lags: Lags = [[30.0 * number] * 2 for number in range(7)]
    assert effect_of(history_of(ENDS, lags, owners, [snapshot("a", "b")] * 7, at_s=AT_S)) is None
