"""The two searches by load, and the sticky assignor, beside each other: ``python -m tests.bench.searches``.

Prints, by kind of lag and limit of moves, how far the largest lag of a member is above an integer program's
optimum; for larger groups how far it is above the lower bound, moves and seconds; and how often placing by
load without any load gives less even counts than `cooperative-sticky` (ADR 98).
"""

from __future__ import annotations

import sys
from itertools import product
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from assignor_core.algorithms.place_by_load import place_by_load
from assignor_core.assignors import get_assignor
from assignor_core.assignors.lag_aware_sticky import LagAwareStickyAssignor
from assignor_core.loads import LoadsPayload
from assignor_core.metrics import count_moves, measure, member_counts
from assignor_core.protocol import next_round
from tests.assignor_core.assignors.test_lag_aware_sticky import least_max_lag, skewed
from tests.support.by_load.groups import group_of, random_vector

if TYPE_CHECKING:
    from assignor_core.group import Assignment, Group

KINDS = ("zipf", "hot topic", "slow member", "uniform")
SMALL = ((2, 12), (3, 14), (4, 16), (5, 18), (4, 24), (3, 20))
ROUNDS, MANY = 5, 10**6
LARGE = ((8, 40), (20, 400), (50, 2000), (200, 20_000), (1000, 100_000))


def placed(group: Group, max_moves: int, *, count_slack: int = 1, with_load: bool = True) -> Assignment:
    """Return the target of placing by load, with the lags as loads or without any."""
    lags = np.split(group.lag if with_load else np.zeros_like(group.lag), group.topic_start[1:-1])
    loads = {topic: lag.tolist() for topic, lag in zip(group.topics, lags, strict=True)}
    payload = LoadsPayload("c", "g", "s", 0, 1, loads, {}, 1, count_slack, max_moves)
    return place_by_load(group, {topic: topic for topic in group.topics}, payload).target


def planned(group: Group, max_moves: int) -> Assignment:
    """Return the target of `lag-aware-sticky`."""
    return LagAwareStickyAssignor(max_moves=max_moves).plan(group).assignment


def above(group: Group, target: Assignment, least: float) -> float:
    """Return how far the largest lag of a member is above another figure, as a share of it."""
    return measure(group, target).max_member_lag_records / least - 1


def main() -> None:
    """Measure and print."""
    searches = {"place_by_load": placed, "lag-aware-sticky": planned}
    for kind, max_moves in product(KINDS, (1, 2, 4, 8, 30)):
        groups = [skewed(kind, *size, 100 + seed) for seed, size in enumerate(SMALL)]
        least = [least_max_lag(group, max_moves, 1) for group in groups]
        for name, search in searches.items():
            shares = [
                above(group, search(group, max_moves), best)
                for group, best in zip(groups, least, strict=True)
            ]
            mean, worst = float(np.mean(shares)), max(shares)
            sys.stdout.write(f"{kind}, {max_moves} moves, {name}: mean {mean:.4f}, worst {worst:.4f}\n")
    for kind, (members, partitions) in product(KINDS, LARGE):
        group = skewed(kind, members, partitions, 7)
        bound = LagAwareStickyAssignor(max_moves=0).plan(group).bound
        for max_moves, (name, search) in product((5, partitions // 20, partitions), searches.items()):
            start = perf_counter()
            target = search(group, max_moves)
            took = f"{count_moves(group, target)} moves, {perf_counter() - start:.3f} s"
            share = above(group, target, bound)
            sys.stdout.write(f"{kind}, {members} x {partitions}, {max_moves}, {name}: {share:.4f}, {took}\n")
    less_even = [is_less_even(seed) for seed in range(1000)]
    sys.stdout.write(f"placing without load is less even in {sum(less_even)} of {len(less_even)} groups\n")


def is_less_even(seed: int) -> bool:
    """Return whether placing without any load ends with less even counts than `cooperative-sticky`."""
    group = group_of(random_vector(seed))[0]
    sticky = get_assignor("cooperative-sticky").assign(group)
    target = placed(group, MANY, count_slack=0, with_load=False)
    for _ in range(ROUNDS):
        group = next_round(group, target)
        target = placed(group, MANY, count_slack=0, with_load=False)
    fewest, squares = (int((member_counts(group, each) ** 2).sum()) for each in (sticky, target))
    return squares > fewest


if __name__ == "__main__":
    main()
