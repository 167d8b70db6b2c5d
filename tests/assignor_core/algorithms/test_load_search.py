"""One step of the search of `lag-aware-sticky` beside a plain loop over every move and every swap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.algorithms.load_search import LoadSearch, place_free_by_load
from assignor_core.algorithms.partition_classes import classes_of
from tests.support.strategies import groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assignor_core.group import Group


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
