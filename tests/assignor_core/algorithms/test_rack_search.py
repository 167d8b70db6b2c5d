"""Load across racks: near the least that an integer program finds, and nothing where racks are unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from assignor_core.algorithms.rack_search import racks_of
from assignor_core.assignors.lag_aware_sticky import LagAwareStickyAssignor
from assignor_core.group import Group
from assignor_core.metrics import count_moves, member_counts
from assignor_core.verify import check_assignment, largest_count_gap
from tests.support.strategies import groups

if TYPE_CHECKING:
    from numpy.typing import NDArray


def one_topic(owner: NDArray[np.int64], lag: NDArray[np.int64], member_rack: NDArray[np.int64]) -> Group:
    """Return members that take one topic."""
    members = len(member_rack)
    return Group.from_arrays(
        topics=["t"],
        num_partitions=np.array([len(owner)]),
        member_ids=[f"m{number:04}" for number in range(members)],
        subscriptions=(np.arange(members), np.zeros(members, dtype=np.int64)),
        claims=(np.arange(len(owner)), owner, np.ones(len(owner), dtype=np.int64)),
        lags=lag,
    )


def random_group(seed: int) -> Group:
    """Return members in two or three racks, some in none, and partitions with replicas in fewer of them."""
    rng = np.random.default_rng(seed)
    members, rows, racks = int(rng.integers(3, 10)), int(rng.integers(12, 41)), int(rng.integers(2, 4))
    row_racks = np.zeros((rows, racks), dtype=np.bool_)
    replicas = int(rng.integers(1, racks))
    for row in range(rows):
        row_racks[row, rng.choice(racks, replicas, replace=False)] = True
    member_rack = rng.permutation(np.arange(members) % racks)
    if rng.random() < 0.15:
        member_rack[rng.random(members) < 0.2] = -1
    owner = rng.permutation(np.arange(rows) % members)
    if rng.random() < 0.33:
        near = row_racks[:, member_rack] & (member_rack >= 0)
        owner = np.array([rng.choice(np.flatnonzero(row) if row.any() else members) for row in near])
    ranks = np.arange(1, rows + 1)
    kinds = [
        rng.permutation(1e6 / ranks ** rng.uniform(0.6, 1.1)),
        rng.integers(1, 1_000, rows),
        rng.integers(1, 50, rows) * np.where(owner == 0, 40, 1),
    ]
    group = one_topic(owner, kinds[int(rng.integers(3))].astype(np.int64), member_rack)
    return replace(group, member_rack=member_rack.astype(np.int32), row_racks=row_racks, _cache={})


def far_from(group: Group) -> NDArray[np.bool_]:
    """Return which members read which rows across racks, by its definition: [P, M]."""
    assert group.row_racks is not None
    assert group.member_rack is not None
    far = np.zeros((group.num_partitions, group.num_members), dtype=np.bool_)
    for row, racks in enumerate(group.row_racks.tolist()):
        for member, rack in enumerate(group.member_rack.tolist()):
            far[row, member] = any(racks) and rack >= 0 and not racks[rack]
    return far


def load_across(group: Group, assignment: NDArray[np.int32]) -> int:
    return int(group.lag[far_from(group)[np.arange(len(assignment)), assignment]].sum())


def least_load_across(group: Group, largest: float, max_moves: int, gap: int) -> float | None:
    """Return the least load across racks by integer programming; None if it takes too long."""
    rows, members = group.num_partitions, group.num_members
    scale = float(group.lag.sum()) / members
    place = np.arange(rows * members).reshape(rows, members)
    cells: list[tuple[int, int, float]] = []
    low: list[float] = []
    high: list[float] = []

    def add(columns: NDArray[np.int64], values: NDArray[np.float64], at_least: float, at_most: float) -> None:
        cells.extend(
            (len(low), int(column), float(value)) for column, value in zip(columns, values, strict=True)
        )
        low.append(at_least)
        high.append(at_most)

    lowest = rows * members
    for row in range(rows):
        add(place[row], np.ones(members), 1, 1)
    for member in range(members):
        add(place[:, member], group.lag / scale, -np.inf, largest / scale * (1 + 1e-9))
        add(np.append(place[:, member], lowest), np.append(np.ones(rows), -1.0), 0, gap)
    add(place[np.arange(rows), group.owner], np.ones(rows), rows - max_moves, np.inf)
    line, column, value = zip(*cells, strict=True)
    result = milp(
        np.append((group.lag[:, None] * far_from(group)).ravel() / scale, 0.0),
        constraints=LinearConstraint(csr_matrix((value, (line, column))), low, high),
        bounds=Bounds(0, np.append(np.ones(rows * members), np.inf)),
        integrality=np.ones(rows * members + 1),
        options={"mip_rel_gap": 0.005, "time_limit": 20},
    )
    return None if result.x is None else float(result.fun) * scale


def shares(seeds: range) -> tuple[float, float]:
    """Return the mean share of load across racks: of plans, and of an integer program as near to even."""
    found = []
    for seed in seeds:
        group, rng = random_group(seed), np.random.default_rng(seed + 1_000)
        assignor = LagAwareStickyAssignor(
            max_moves=int(rng.integers(3, 16)), count_slack=int(rng.integers(0, 3))
        )
        plan = assignor.plan(group)
        gap = int(np.ptp(member_counts(group, plan.assignment)))
        gap = max(gap, 1 + assignor.count_slack)
        assert assignor.max_moves is not None
        least = least_load_across(group, plan.max_ratio, assignor.max_moves, gap)
        if least is not None:
            found.append(np.array([load_across(group, plan.assignment), least]) / group.lag.sum())
    ours, optimum = np.mean(found, axis=0)
    return float(ours), float(optimum)


def test_load_across_racks_is_near_the_least() -> None:
    ours, optimum = shares(range(200, 212))
    assert ours <= 1.1 * optimum


@pytest.mark.extended
@pytest.mark.timeout(3600)  # 200 integer programs
def test_load_across_racks_is_within_a_tenth_of_the_least_on_200_groups() -> None:
    ours, optimum = shares(range(200))
    assert ours <= 1.1 * optimum


@pytest.mark.parametrize("seed", range(25))
def test_plan_keeps_its_limits_and_the_largest_load_within_the_tolerance(seed: int) -> None:
    group, rng = random_group(seed), np.random.default_rng(seed)
    plain = replace(group, member_rack=None, row_racks=None, _cache={})
    tolerance, moves, slack = (
        float(rng.choice([0.0, 0.02, 0.2])),
        int(rng.integers(0, 12)),
        int(rng.integers(3)),
    )
    pinned = rng.random(group.num_partitions) < 0.2
    assignor = LagAwareStickyAssignor(max_moves=moves, count_slack=slack, rack_tolerance=tolerance)
    before, after = assignor.plan(plain, pinned=pinned), assignor.plan(group, pinned=pinned)
    check_assignment(group, after.assignment, max_moves=moves)
    assert after.max_ratio <= before.max_ratio * (1 + tolerance) * (1 + 1e-6)
    gap = largest_count_gap(group, before.assignment)
    assert largest_count_gap(group, after.assignment) <= max(gap, 1 + slack)
    assert load_across(group, after.assignment) <= load_across(group, before.assignment)
    assert (after.assignment[pinned] == group.owner[pinned]).all()


@given(groups(lags=True), st.integers(0, 6), st.integers(0, 2), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_limits_hold_for_any_subscriptions(group: Group, moves: int, slack: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    racked = replace(
        group,
        member_rack=rng.integers(-1, 3, group.num_members).astype(np.int32),
        row_racks=rng.random((group.num_partitions, 3)) < 0.4,
        _cache={},
    )
    assignor = LagAwareStickyAssignor(max_moves=moves, count_slack=slack)
    before, after = assignor.plan(group), assignor.plan(racked)
    check_assignment(group, after.assignment)
    assert count_moves(group, after.assignment) <= max(moves, before.moves)
    assert after.max_ratio <= before.max_ratio * 1.02 * (1 + 1e-6)
    assert after.count_excess <= before.count_excess
    racks = racks_of(racked)
    if racks is not None:
        load = group.lag.astype(float)
        assert racks.load_across(load, after.assignment) <= racks.load_across(load, before.assignment) + 1e-6


@given(groups(lags=True), st.integers(0, 6), st.sampled_from(["members", "partitions", "all near"]))
@settings(max_examples=40)
def test_unknown_racks_change_no_plan(group: Group, moves: int, kind: str) -> None:
    member_rack = np.zeros(group.num_members, dtype=np.int32)
    row_racks = np.zeros((group.num_partitions, 2), dtype=np.bool_)
    if kind == "members":
        member_rack[:], row_racks[:, 1] = -1, True
    if kind == "all near":
        row_racks[:, 0] = True
    racked = replace(group, member_rack=member_rack, row_racks=row_racks, _cache={})
    assignor = LagAwareStickyAssignor(max_moves=moves)
    assert assignor.assign(racked).tobytes() == assignor.assign(group).tobytes()


def test_plan_that_gains_too_little_moves_nothing_for_its_racks() -> None:
    """All lag is across racks, and even: with a minimum gain nothing moves, without one all does."""
    group = one_topic(np.array([0, 1]), np.array([5, 5]), np.array([0, 1]))
    racked = replace(
        group,
        member_rack=np.array([0, 1], np.int32),
        row_racks=np.array([[False, True], [True, False]]),
        _cache={},
    )
    assert LagAwareStickyAssignor(min_gain=0.05).assign(racked).tolist() == [0, 1]
    assert LagAwareStickyAssignor().assign(racked).tolist() == [1, 0]


def test_large_group_reads_less_across_racks() -> None:
    rng = np.random.default_rng(7)
    rows, members = 2_000, 30
    leader = rng.integers(0, 3, rows)
    owner = np.array([rng.choice(np.arange(rack, members, 3)) for rack in leader])
    group = one_topic(
        owner, rng.permutation(1e6 / np.arange(1, rows + 1)).astype(np.int64), np.zeros(members, np.int64)
    )
    racked = replace(
        group,
        member_rack=(np.arange(members) % 3).astype(np.int32),
        row_racks=leader[:, None] == np.arange(3),
        _cache={},
    )
    assignor = LagAwareStickyAssignor(max_moves=200, count_slack=50)
    before, after = assignor.plan(group), assignor.plan(racked)
    assert after.moves <= 200
    assert after.max_ratio <= before.max_ratio * 1.02 * (1 + 1e-6)
    assert load_across(racked, after.assignment) <= 0.7 * load_across(racked, before.assignment)
