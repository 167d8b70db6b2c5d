"""Scores of many snapshots at once are those of the core, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from assignor_core.assignors import get_assignor
from assignor_core.assignors.lag_aware_sticky import LagAwareStickyAssignor
from assignor_core.group import Group
from assignor_core.metrics import count_moves, measure
from assignor_core.objective import relative_gain
from assignor_core.verify import largest_count_gap
from evenlag.simulation.simulate_group import score_snapshots


def random_group(rng: np.random.Generator, *, equal: bool) -> Group:
    takes = np.ones((4, 3), dtype=np.bool_) if equal else rng.random((4, 3)) < 0.6
    members, topics = np.nonzero(takes)
    return Group.from_arrays(
        topics=["t0", "t1", "t2"],
        num_partitions=np.array([4, 3, 5]),
        member_ids=["a", "b", "c", "d"],
        subscriptions=(members, topics),
    )


@pytest.mark.parametrize("equal", [True, False], ids=["equal subscriptions", "different ones"])
@pytest.mark.parametrize("seed", range(8))
def test_they_are_what_the_core_says_of_each(seed: int, *, equal: bool) -> None:
    rng = np.random.default_rng(seed)
    group = random_group(rng, equal=equal)
    lag = rng.choice([0, 0, 5, 90, 1_000], (6, group.num_partitions))
    owner = rng.integers(-1, 4, (6, group.num_partitions)).astype(np.int32)
    states = [group.with_state(owner[i], lag[i]) for i in range(6)]
    owner = np.stack([state.live_owner for state in states])
    states = [group.with_state(owner[i], lag[i]) for i in range(6)]
    after = np.stack([get_assignor("lag-aware").assign(state) for state in states])

    scores = score_snapshots(group, lag.astype(np.float64), owner, after)

    for i, state in enumerate(states):
        core = measure(state, after[i])
        assert scores["num_unassigned_partitions"][i] == core.unassigned_partitions
        assert (scores["min_member_partitions"][i], scores["max_member_partitions"][i]) == (
            core.min_member_partitions,
            core.max_member_partitions,
        )
        assert scores["balance_score"][i] == core.balance_score
        assert scores["max_member_lag_records"][i] == core.max_member_lag_records
        assert scores["mean_member_lag_records"][i] == pytest.approx(core.mean_member_lag_records)
        assert scores["lag_skew"][i] == pytest.approx(core.lag_skew)
        assert scores["moves"][i] == count_moves(state, after[i])
        assert scores["count_gap"][i] == largest_count_gap(state, after[i])
        gain = relative_gain(lag[i].astype(np.float64), np.ones(4), owner[i], after[i])
        assert scores["gain"][i] == pytest.approx(gain)
        assert scores["lower_bound_records"][i] == pytest.approx(LagAwareStickyAssignor().plan(state).bound)


def test_other_owners_and_lags_make_the_group_that_arrays_make() -> None:
    rng = np.random.default_rng(3)
    group = random_group(rng, equal=False)
    assert group.subscribed.any()
    owner = rng.integers(-1, 4, group.num_partitions).astype(np.int32)
    lag = rng.integers(0, 100, group.num_partitions)
    rows = np.flatnonzero(owner >= 0)
    members = np.repeat(np.arange(4), np.diff(group.subscription_start))
    built = Group.from_arrays(
        topics=group.topics,
        num_partitions=np.diff(group.topic_start),
        member_ids=group.member_ids,
        subscriptions=(members, group.subscription_topic),
        claims=(rows, owner[rows], np.zeros(len(rows), dtype=np.int64)),
        lags=lag,
    )
    state = group.with_state(owner, lag)
    assert state.live_owner.tolist() == built.live_owner.tolist()
    for name in ("sticky", "cooperative-sticky", "lag-aware", "lag-aware-sticky", "fair", "range"):
        assert get_assignor(name).assign(state).tolist() == get_assignor(name).assign(built).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_that_even_the_bound_does_not_allow_keeps_everything(seed: int) -> None:
    """Nothing is looked for then; what `min_gain` promises holds whether or not."""
    rng = np.random.default_rng(seed)
    group = random_group(rng, equal=True)
    lag = (rng.pareto(1.0, group.num_partitions) * 100).astype(np.int64)
    owner = (np.arange(group.num_partitions) % 4).astype(np.int32)
    state = group.with_state(owner, lag)
    for min_gain in (0.02, 0.2, 0.6):
        for effort in (0, 250):
            plan = LagAwareStickyAssignor(min_gain=min_gain, effort=effort).plan(state)
            gain = 1 - plan.max_ratio / plan.max_ratio_before
            assert gain >= min_gain or plan.assignment.tolist() == owner.tolist()
            free = LagAwareStickyAssignor(effort=effort).plan(state)
            if plan.bound > plan.max_ratio_before * (1 - min_gain):
                assert plan.assignment.tolist() == owner.tolist()
                assert free.max_ratio > plan.max_ratio_before * (1 - min_gain)
