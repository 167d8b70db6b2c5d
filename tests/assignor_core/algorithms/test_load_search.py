"""The search of `lag-aware-sticky`: one step beside a plain loop, and its bounds beside all assignments."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.algorithms.load_search import (
    LoadSearch,
    bound_of_counts,
    bound_of_moves,
    place_free_by_load,
)
from assignor_core.algorithms.partition_classes import classes_of
from assignor_core.group import Group
from assignor_core.verify import largest_count_gap
from tests.support.strategies import groups

if TYPE_CHECKING:
    from collections.abc import Iterator


def every_step(search: LoadSearch, group: Group, giver: int) -> Iterator[tuple[int, int, int]]:
    """(row, taker, row in exchange or -1) of what subscriptions and counts allow, moves of a row first."""
    gap = search.max_gap

    def keeps_counts(after: list[int], row_owner: dict[int, int]) -> bool:
        for row, owner in row_owner.items():
            takers = np.flatnonzero(group.subscribed[:, group.row_topic[row]])
            if after[owner] - min(after[taker] for taker in takers) > gap:
                return False
        return True

    placed = {int(row): int(search.assignment[row]) for row in np.flatnonzero(search.assignment >= 0)}
    for row in search.rows[giver].tolist():
        takers = np.flatnonzero(group.subscribed[:, group.row_topic[row]]).tolist()
        for taker in takers:
            counts = search.counts.tolist()
            counts[giver] -= 1
            counts[taker] += 1
            if taker != giver and keeps_counts(counts, placed | {row: taker}):
                yield row, taker, -1
        for other, taker in placed.items():
            is_taken = group.subscribed[giver, group.row_topic[other]]
            swapped = placed | {row: taker, other: giver}
            if (
                taker != giver
                and taker in takers
                and is_taken
                and keeps_counts(search.counts.tolist(), swapped)
            ):
                yield row, taker, other


@given(groups(lags=True), st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.0, 0.05, 0.3]))
@settings(max_examples=150, deadline=None)
def test_a_step_is_never_worse_than_the_best_of_all_that_counts_allow(
    group: Group, slack: int, budget: int, share: float
) -> None:
    classes = classes_of(group)
    if not len(classes.size) or not group.num_partitions or not group.has_equal_subscriptions:
        return
    load, capacity = group.lag.astype(np.float64), np.ones(group.num_members)
    search = LoadSearch(
        group,
        classes,
        place_free_by_load(group, classes, load, capacity),
        load=load,
        capacity=capacity,
        pinned=np.zeros(group.num_partitions, dtype=np.bool_),
        budget=budget,
    )
    search.max_gap = max(search.gap(), 1 + slack)
    giver = int(search.ratios.argmax())
    ratio = float(search.ratios[giver])
    threshold = ratio - max(share * ratio, 1e-12 * ratio)
    best = 0.0
    for row, taker, other in every_step(search, group, giver):
        shift = load[row] - (load[other] if other >= 0 else 0.0)
        value = max(search.loads[giver] - shift, search.loads[taker] + shift)
        owner = search.owner
        cost = int(owner[row] == giver) - int(owner[row] == taker)
        if other >= 0:
            cost += int(owner[other] == taker) - int(owner[other] == giver)
        if cost <= budget and value < threshold:
            best = max(best, (ratio - value) / max(cost, 0.5))
    step = search.best_step(giver, share * ratio)
    found = 0.0 if step is None else (ratio - step.value) / max(step.cost, 0.5)
    assert found >= best * (1 - 1e-12)
    assert (step is None) == (found == 0.0)


@given(
    groups(max_members=3, max_topics=2, max_partitions=3, lags=True),
    st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=3, max_size=3),
    st.lists(st.booleans(), min_size=6, max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_no_assignment_within_counts_or_moves_is_below_their_bounds(
    group: Group, capacities: list[float], pins: list[bool]
) -> None:
    classes = classes_of(group)
    rows = np.flatnonzero(classes.class_of_row >= 0)
    if not len(classes.size):
        return
    load, capacity = group.lag.astype(np.float64), np.array(capacities[: group.num_members])
    pinned = np.array(pins[: group.num_partitions], dtype=np.bool_)
    owner, held = group.live_owner, pinned & (group.live_owner >= 0)
    takers = [np.flatnonzero(group.subscribed[:, group.row_topic[row]]).tolist() for row in rows]
    by_gap: dict[int, float] = {}
    by_moves: dict[int, float] = {}
    for chosen in product(*takers):
        assignment = np.full(group.num_partitions, -1, dtype=np.int32)
        assignment[rows] = chosen
        loads = np.bincount(assignment[rows], load[rows], minlength=group.num_members)
        ratio = float((loads / capacity).max())
        gap = largest_count_gap(group, assignment)
        by_gap[gap] = min(ratio, by_gap.get(gap, np.inf))
        if (assignment[held] == owner[held]).all():
            moves = int(((owner >= 0) & (assignment != owner)).sum())
            by_moves[moves] = min(ratio, by_moves.get(moves, np.inf))
    for gap, least in by_gap.items():
        assert bound_of_counts(classes, load, capacity, gap) <= least * (1 + 1e-9)
    for moves, least in by_moves.items():
        assert bound_of_moves(group, load, capacity, pinned, moves) <= least * (1 + 1e-9)


def test_bounds_of_counts_and_moves_by_hand() -> None:
    group = Group.from_arrays(
        topics=["t"],
        num_partitions=np.array([6]),
        member_ids=["a", "b", "c"],
        subscriptions=(np.arange(3), np.zeros(3, dtype=np.int64)),
        claims=(np.arange(6), np.array([0, 0, 0, 1, 2, 2]), np.ones(6, dtype=np.int64)),
        lags=np.array([9, 8, 7, 6, 1, 0]),
    )
    classes, load, capacity = classes_of(group), group.lag.astype(np.float64), np.ones(3)
    nothing = np.zeros(6, dtype=np.bool_)
    # Two of 9, 8, 7 and 6 are together, whatever the counts. With two each, 9 is not alone.
    assert bound_of_counts(classes, load, capacity, 0) == bound_of_counts(classes, load, capacity, 2) == 13
    # The first member gives 9, then 8; of three moves the third gives 7, and the second member keeps 6.
    assert [bound_of_moves(group, load, capacity, nothing, moves) for moves in (0, 1, 2, 3, 6)] == [
        *(24, 15, 7, 6, 0)
    ]
    assert bound_of_moves(group, load, capacity, np.array([True] * 3 + [False] * 3), 6) == 24
