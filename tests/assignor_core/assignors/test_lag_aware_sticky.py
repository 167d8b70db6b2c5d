"""`lag-aware-sticky`: its limits hold for any group, and its load is near the optimum of a solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from assignor_core.assignors import get_assignor
from assignor_core.assignors.lag_aware_sticky import LagAwareStickyAssignor
from assignor_core.errors import ProblemError
from assignor_core.group import Group
from assignor_core.members import Member
from assignor_core.metrics import count_moves, member_counts, member_lags
from assignor_core.verify import check_assignment, largest_count_gap
from tests.support.strategies import follow_up, groups


def skewed(kind: str, num_members: int, num_partitions: int, seed: int) -> Group:
    """Return one topic, dealt in turn, with lags as they occur."""
    rng = np.random.default_rng(seed)
    ranks = np.arange(1, num_partitions + 1)
    owner = (ranks - 1) % num_members
    lag = {
        "zipf": rng.permutation(1e6 / ranks**1.1),
        "hot topic": rng.integers(0, 100, num_partitions) * np.where(ranks <= num_partitions // 4, 100, 1),
        "slow member": rng.integers(0, 50, num_partitions) * np.where(owner == 0, 40, 1),
        "uniform": rng.integers(0, 1000, num_partitions),
        "idle": np.zeros(num_partitions),
    }[kind]
    return Group.from_arrays(
        topics=["t"],
        num_partitions=np.array([num_partitions]),
        member_ids=[f"m{i:04}" for i in range(num_members)],
        subscriptions=(np.arange(num_members), np.zeros(num_members, dtype=np.int64)),
        claims=(np.arange(num_partitions), owner, np.ones(num_partitions, dtype=np.int64)),
        lags=lag.astype(np.int64),
    )


def least_max_lag(group: Group, max_moves: int, count_slack: int) -> float:
    """Return the least possible largest lag of a member, for equal subscriptions, by integer programming."""
    members, rows = group.num_members, group.num_partitions
    scale = max(float(group.lag.sum()), 1.0) / members
    size = rows * members
    matrix = np.zeros((rows + 2 * members + 1, size + 2))
    for row in range(rows):
        matrix[row, row * members : (row + 1) * members] = 1
        matrix[-1, row * members + group.owner[row]] = 1
    for member in range(members):
        matrix[rows + member, member:size:members] = group.lag / scale
        matrix[rows + member, size] = -1
        matrix[rows + members + member, member:size:members] = 1
        matrix[rows + members + member, size + 1] = -1
    low = np.concatenate([np.ones(rows), np.full(members, -np.inf), np.zeros(members), [rows - max_moves]])
    high = np.concatenate([np.ones(rows), np.zeros(members), np.full(members, 1.0 + count_slack), [np.inf]])
    upper = np.concatenate([np.ones(size), [np.inf, np.inf]])
    integral = np.concatenate([np.ones(size), [0, 1]])
    cost = np.zeros(size + 2)
    cost[size] = 1
    result = milp(
        cost,
        constraints=LinearConstraint(matrix, low, high),
        bounds=Bounds(np.zeros(size + 2), upper),
        integrality=integral,
        options={"mip_rel_gap": 0.002, "time_limit": 20},
    )
    return float(result.fun) * scale


@given(groups(lags=True), st.integers(0, 6), st.integers(0, 2))
@settings(max_examples=80)
def test_limits_hold_for_any_group(group: Group, max_moves: int, count_slack: int) -> None:
    plan = LagAwareStickyAssignor(max_moves=max_moves, count_slack=count_slack).plan(group)
    check_assignment(group, plan.assignment)
    live = group.live_owner
    forced = int(((group.owner >= 0) & (live < 0)).sum())
    assert plan.moves == count_moves(group, plan.assignment) <= max(max_moves, forced)
    assert plan.count_excess == max(0, largest_count_gap(group, plan.assignment) - 1 - count_slack)
    assert plan.max_ratio == pytest.approx(member_lags(group, plan.assignment).max(initial=0))
    assert plan.bound <= plan.max_ratio * (1 + 1e-9)


@given(groups(lags=True), st.integers(0, 2))
@settings(max_examples=70)
def test_counts_are_within_the_slack_when_moves_are_not_limited(group: Group, count_slack: int) -> None:
    plan = LagAwareStickyAssignor(count_slack=count_slack).plan(group)
    check_assignment(group, plan.assignment, count_slack=count_slack)
    assert plan.count_excess == 0


@given(groups(lags=True))
def test_second_plan_of_a_followed_one_moves_nothing(group: Group) -> None:
    assignor = get_assignor("lag-aware-sticky")
    first = assignor.assign(group)
    after = follow_up(group, first)
    second = assignor.assign(after)
    before, now = (np.sort(member_lags(group, a))[::-1].tolist() for a in (first, second))
    assert now <= before
    if now == before:
        assert count_moves(after, second) == 0


@given(groups(lags=True))
def test_ordinary_rebalance_with_the_same_slack_keeps_the_plan(group: Group) -> None:
    plan = LagAwareStickyAssignor(count_slack=1).plan(group)
    after = follow_up(group, plan.assignment)
    assert (get_assignor("cooperative-sticky", count_slack=1).assign(after) == plan.assignment).all()


@given(groups(lags=True), st.data())
def test_pinned_rows_stay(group: Group, data: st.DataObject) -> None:
    pinned = np.array([data.draw(st.booleans()) for _ in range(group.num_partitions)], dtype=np.bool_)
    plan = LagAwareStickyAssignor().plan(group, pinned=pinned)
    fixed = pinned & (group.live_owner >= 0)
    assert (plan.assignment[fixed] == group.live_owner[fixed]).all()


@pytest.mark.parametrize("kind", ["zipf", "hot topic", "slow member", "uniform"])
@pytest.mark.parametrize("max_moves", [1, 3, 8, 24])
def test_largest_lag_is_near_the_optimum(kind: str, max_moves: int) -> None:
    distances = []
    for seed in range(3):
        group = skewed(kind, 3, 14, seed)
        plan = LagAwareStickyAssignor(max_moves=max_moves, count_slack=1).plan(group)
        distances.append(plan.max_ratio / least_max_lag(group, max_moves, 1) - 1)
    assert np.mean(distances) <= 0.02


def least_gap(group: Group, max_moves: int) -> int:
    """Return the least difference of the largest and the smallest count, for equal subscriptions."""
    members, rows = group.num_members, group.num_partitions
    size = rows * members
    place = np.arange(size).reshape(rows, members)
    matrix = np.zeros((rows + 2 * members + 1, size + 2))
    low, high = np.zeros(len(matrix)), np.full(len(matrix), np.inf)
    for row in range(rows):
        matrix[row, place[row]] = 1
        low[row] = high[row] = 1
        if group.owner[row] >= 0:
            matrix[-1, place[row, group.owner[row]]] = 1
    for member in range(members):
        matrix[rows + member, [*place[:, member], size]] = [*[1.0] * rows, -1.0]
        matrix[rows + members + member, [*place[:, member], size + 1]] = [*[-1.0] * rows, 1.0]
    low[rows:-1], high[rows:-1] = -np.inf, 0
    low[-1] = (group.owner >= 0).sum() - max_moves
    result = milp(
        np.append(np.zeros(size), [1.0, -1.0]),
        constraints=LinearConstraint(matrix, low, high),
        bounds=Bounds(0, np.append(np.ones(size), [np.inf, np.inf])),
        integrality=np.ones(size + 2),
    )
    return round(float(result.fun))


def test_excess_of_counts_is_the_least_where_all_take_the_same_topics() -> None:
    num_uneven = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        group = skewed("uniform", int(rng.integers(2, 6)), int(rng.integers(2, 14)), seed)
        owner = rng.integers(-1, int(rng.integers(1, group.num_members + 1)), group.num_partitions)
        group = group.with_state(owner.astype(np.int32), group.lag)
        moves, slack = int(rng.integers(0, 5)), int(rng.integers(0, 2))
        plan = LagAwareStickyAssignor(max_moves=moves, count_slack=slack).plan(group)
        assert plan.count_excess == max(0, least_gap(group, moves) - 1 - slack), seed
        num_uneven += plan.count_excess > 0
    assert num_uneven > 5


@pytest.mark.parametrize("kind", ["zipf", "hot topic", "slow member"])
def test_few_moves_reach_the_skew_of_lag_aware(kind: str) -> None:
    group = skewed(kind, 20, 400, 7)
    rival = get_assignor("lag-aware").assign(group)
    budget = count_moves(group, rival) // 5
    ours = LagAwareStickyAssignor(max_moves=budget).plan(group)
    assert ours.max_ratio <= member_lags(group, rival).max()


def test_idle_group_is_left_alone() -> None:
    group = skewed("idle", 5, 23, 0)
    assert (get_assignor("lag-aware-sticky").assign(group) == group.owner).all()


def test_swap_is_found_where_counts_allow_no_move() -> None:
    members = [
        Member("a", ("t",), owned=(("t", 0), ("t", 1)), generation=1),
        Member("b", ("t",), owned=(("t", 2), ("t", 3)), generation=1),
    ]
    group = Group.from_members({"t": 4}, members, lags={"t": [50, 50, 1, 1]})
    plan = LagAwareStickyAssignor(max_moves=2, count_slack=0).plan(group)
    assert (plan.moves, plan.max_ratio, plan.optimality_gap) == (2, 51.0, 0.0)
    assert member_counts(group, plan.assignment).tolist() == [2, 2]


def test_small_gain_is_not_worth_a_move() -> None:
    members = [Member("a", ("t",), owned=(("t", 0), ("t", 1))), Member("b", ("t",), owned=(("t", 2),))]
    group = Group.from_members({"t": 3}, members, lags={"t": [100, 4, 98]})
    assert LagAwareStickyAssignor(min_gain=0.05).plan(group).moves == 0
    assert LagAwareStickyAssignor(min_gain=0.01).plan(group).moves == 1


def test_one_partition_that_dominates_is_named() -> None:
    members = [Member("a", ("t",), owned=(("t", 0),)), Member("b", ("t",), owned=(("t", 1),))]
    group = Group.from_members({"t": 2}, members, lags={"t": [1000, 1]})
    plan = LagAwareStickyAssignor().plan(group)
    assert (plan.moves, plan.bound) == (0, 1000.0)


def test_capacity_shifts_load_to_who_can_bear_it() -> None:
    group = Group.from_members({"t": 4}, [Member("a", ("t",)), Member("b", ("t",))], lags={"t": [10] * 4})
    plan = LagAwareStickyAssignor(count_slack=1).plan(group, capacity=np.array([3.0, 1.0]))
    assert member_lags(group, plan.assignment).tolist() == [30, 10]


@pytest.mark.parametrize(
    "limits", [{"max_moves": -1}, {"count_slack": -1}, {"min_gain": 1.0}, {"min_gain": -0.1}]
)
def test_limits_out_of_range_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ProblemError):
        get_assignor("lag-aware-sticky", **limits)


@pytest.mark.parametrize(
    "figures",
    [
        {"load": np.array([1.0])},
        {"load": np.array([-1.0, 0.0])},
        {"load": np.array([np.nan, 0.0])},
        {"capacity": np.array([0.0])},
    ],
)
def test_loads_and_capacities_out_of_range_are_refused(figures: dict[str, np.ndarray]) -> None:
    group = Group.from_members({"t": 2}, [Member("a", ("t",))])
    with pytest.raises(ProblemError):
        LagAwareStickyAssignor().plan(group, **figures)
