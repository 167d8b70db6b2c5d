"""What was measured beside what was simulated, and what is not known: never a lag of 0."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pytest

from evenlag.policy.candidates import parse_candidate
from evenlag.policy.group_settings import GroupSettings
from evenlag.policy.settings import Pauses
from evenlag.simulation.replay_metrics import measure_history
from evenlag.simulation.simulate_group import score_group, simulate_group
from tests.support.lakes.replay_histories import history_of, snapshot

Lags: TypeAlias = list[list[float | None]]

AT_S = [0.0, 15.0, 136.0]
COMPARED = [parse_candidate("range")]


def test_the_measured_lag_is_over_time_and_what_is_not_known_is_counted() -> None:
    """The sum of what is known goes from 100 to 350 in 15 s and to 170 in 121 s."""
    lags: Lags = [[100.0, None], [300.0, 50.0], [100.0, 70.0]]
    history = history_of(lags, lags, [["a", "a"]] * 3, [snapshot("a")] * 3, at_s=AT_S, age_s=7.5)
    measured = measure_history(history)
    assert measured["measured_mean_lag_records"] == pytest.approx((15 * 225 + 121 * 260) / 136)
    assert (measured["measured_max_lag_records"], measured["num_unknown_lags"]) == (350, 1)
    # Half of the first interval of one of two partitions.
    assert measured["measured_unknown_share"] == pytest.approx(7.5 / 272)
    assert (measured["measured_max_time_lag_ms"], measured["num_unknown_time_lags"]) == (7_500, 0)
    (observed, policy) = simulate_group(history, GroupSettings(), COMPARED, Pauses())
    assert observed["measured_max_lag_records"] == 350
    assert observed["unknown_share"] == policy["unknown_share"] == pytest.approx(15 / 272)
    assert "measured_max_lag_records" not in policy


def test_a_lag_without_an_age_makes_the_measured_time_lag_a_lower_bound() -> None:
    lags: Lags = [[100.0, 0.0]] * 3
    history = history_of(lags, lags, [["a", "a"]] * 3, [snapshot("a")] * 3, at_s=AT_S)
    assert measure_history(history)["measured_max_time_lag_ms"] is None
    assert measure_history(history)["num_unknown_time_lags"] == 3
    (observed, _) = simulate_group(history, GroupSettings(), COMPARED, Pauses())
    assert observed["num_unknown_ages"] == 1


@pytest.mark.parametrize("last", [None, 40.0], ids=["at no snapshot", "at the last snapshot only"])
def test_a_group_whose_lag_is_not_known_is_not_replayed(last: float | None) -> None:
    lags: Lags = [[None, None], [None, None], [last, last]]
    history = history_of(lags, lags, [["a", "a"]] * 3, [snapshot("a")] * 3, at_s=AT_S)
    rows = simulate_group(history, GroupSettings(), COMPARED, Pauses())
    assert [row["policy"] for row in rows] == ["observed", "range"]
    assert {row["reason"] for row in rows} == {"no snapshot before the last one knows the lag of a partition"}
    at_least = None if last is None else pytest.approx((40 + 40) * 60.5 / 136)
    assert rows[0]["measured_mean_lag_records"] == at_least
    assert rows[0]["num_unknown_lags"] == (6 if last is None else 4)


def test_a_score_without_a_lower_bound_needs_all_lags() -> None:
    lags: Lags = [[100.0, 20.0], [None, 20.0]]
    history = history_of(lags, lags, [["a", "b"]] * 2, [snapshot("a", "b")] * 2)
    for moments in score_group(history, GroupSettings(), COMPARED):
        assert moments.columns["max_member_lag_records"].tolist() == [100.0, 20.0]
        for name in ("mean_member_lag_records", "lag_skew", "optimality_gap", "gain"):
            assert np.isnan(moments.columns[name]).tolist() == [False, True], name


def test_a_snapshot_that_knows_no_lag_is_not_scored() -> None:
    lags: Lags = [[None, None], [None, 9.0], [3.0, 4.0]]
    history = history_of(lags, lags, [["a", "a"]] * 3, [snapshot("a")] * 3, at_s=AT_S)
    reasons = {
        (each.columns["policy"], tuple(each.places.tolist())): each.columns.get("reason")
        for each in score_group(history, GroupSettings(), COMPARED)
    }
    unknown = "the lag of no partition is known"
    assert reasons == {
        ("observed", (0,)): unknown,
        ("observed", (1, 2)): None,
        ("range", (0,)): unknown,
        ("range", (1, 2)): None,
    }
