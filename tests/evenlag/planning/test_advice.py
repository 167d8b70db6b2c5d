"""Advice against all assignments of small groups, and against calculations."""

from __future__ import annotations

from itertools import product
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from evenlag.enums import AdviceReason
from evenlag.planning.advice import HOLD_S, Advice, Held, advise, demand, fastest_first, hold
from tests.support.each import for_each

if TYPE_CHECKING:
    from evenlag.lag.arrays import Floats

FILL = 0.98
NO_BOUND = np.zeros(2, dtype=np.bool_)


def advice(
    rates: Any, speed: Any, owner: Any = None, *, typical: float | None = None, bounds: Any = ()
) -> Advice:
    """Return advice for constant rates [P], in units of work; the speeds of `bounds` are lower bounds."""
    rates, speed = np.asarray(rates, dtype=np.float64), np.asarray(speed, dtype=np.float64)
    owner = np.arange(len(rates)) % len(speed) if owner is None else np.asarray(owner)
    wanted = demand(np.zeros(len(rates)), np.repeat(rates[:, None] * 60.0, 6, axis=1), 60.0, 30.0)
    is_bound = np.isin(np.arange(len(speed)), bounds)
    return advise(wanted, speed, is_bound, owner, float(np.median(speed)) if typical is None else typical)


def least_members(sizes: Floats, speeds: Floats) -> int:
    """Return the least number of members, fastest first, by trying all assignments."""
    for count in range(1, len(speeds) + 1):
        for members in product(range(count), repeat=len(sizes)):
            load = np.bincount(members, sizes, minlength=count)
            if (load <= FILL * speeds[:count] + 1e-9).all():
                return count
    return len(sizes)


def test_the_number_is_the_least_that_any_assignment_holds_or_one_more() -> None:
    chance = np.random.default_rng(40)
    exact = 0
    for _ in range(60):
        rates = chance.uniform(0.05, 0.85, 6)
        speed = np.sort(chance.choice([1.0, 1.0, 2.0], 6))[::-1]
        found, least = advice(rates, speed).members, least_members(rates, speed)
        assert least <= found <= least + 1
        exact += found == least
    assert exact >= 55


def test_a_demand_that_changes_packs_by_each_of_its_times() -> None:
    # Two partitions are busy in turn: one member has time for both.
    arrivals = np.full((2, 6), 0.1 * 60)
    arrivals[0, :3] = arrivals[1, 3:] = 0.7 * 60
    wanted = demand(np.zeros(2), arrivals, 60.0, 0.0)
    assert advise(wanted, np.ones(2), NO_BOUND, np.array([0, 1]), 1.0).members == 1
    together = arrivals.copy()
    together[1] = arrivals[0]
    wanted = demand(np.zeros(2), together, 60.0, 0.0)
    assert advise(wanted, np.ones(2), NO_BOUND, np.array([0, 1]), 1.0).members == 2
    # A peak of one step may wait for the target, at most.
    peak = np.full((1, 6), 0.5 * 60)
    peak[0, 2] = 1.3 * 60
    sizes = [demand(np.zeros(1), peak, 60.0, target_s).work.max() for target_s in (0.0, 30.0, 60.0)]
    assert sizes == pytest.approx([1.3, 1.3 / 1.5, 0.65])


def test_a_backlog_is_worked_off_within_ten_minutes_beside_what_arrives() -> None:
    arrivals = np.full((1, 6), 0.5 * 300)
    wanted = demand(np.array([0.5 * 10 + 240.0]), arrivals, 300.0, 30.0)
    assert wanted.work[0, -1] == pytest.approx(0.5 + 240 / 600)
    assert wanted.rate == pytest.approx([0.5])


@for_each(
    [
        ("rate", np.full(100, 0.05), AdviceReason.RATE, 6, 6, 0),
        ("whole partitions", [0.5, 0.5, 0.5, 0.5], AdviceReason.PARTITIONS, 4, 3, 0),
        ("a few partitions", [0.99, 0.99], AdviceReason.PARTITIONS, 2, 3, 1),
        ("hot", [2.5, 0.1, 0.1], AdviceReason.HOT_PARTITION, 2, 3, 2),
        ("nothing", np.zeros(3), AdviceReason.RATE, 1, 1, 0),
    ],
    str,
)
def test_what_binds_is_the_rate_a_partition_or_the_number_of_partitions(case: Any) -> None:
    _, rates, *expected = case
    found = advice(rates, np.ones(2))
    assert [found.reason, found.members, found.by_rate, found.partitions_to_add] == expected


def test_partitions_that_no_number_of_members_helps_are_named() -> None:
    assert advice([0.1, 2.5, 0.95], np.ones(1)).hot.tolist() == [1]
    # A faster member can do it.
    assert advice([0.1, 2.5], [1.0, 3.0], typical=1.0).hot.tolist() == []


def test_a_lower_bound_says_neither_that_a_partition_is_hot_nor_that_a_member_has_too_much() -> None:
    # The second member keeps up with 1 in all, and did 0.92 at least.
    speed = [0.9, 0.92]
    for rates, owner, hot, moves in (([0.5, 1.0], [0, 1], [1], 0), ([0.5, 0.5, 0.5], [0, 1, 1], [], 1)):
        found = advice(rates, speed, owner, bounds=[1])
        assert (found.hot.tolist(), found.partitions_to_add, found.moves) == ([], 0, 0)
        assert found.reason is not AdviceReason.HOT_PARTITION
        # If 0.92 is what it can do, one of them is.
        found = advice(rates, speed, owner)
        assert (found.hot.tolist(), found.moves) == (hot, moves)


def test_a_partition_without_an_owner_is_not_hot_if_all_speeds_are_lower_bounds() -> None:
    for bounds, hot in (([0, 1], []), ([1], [0])):
        assert advice([2.5, 0.1], np.ones(2), [-1, 0], bounds=bounds).hot.tolist() == hot


def test_the_slowest_members_may_go_and_of_similar_ones_those_with_least_work() -> None:
    rates, speed, owner = np.array([0.1, 0.3, 0.2, 0.0]), np.array([1.0, 1.05, 0.98]), np.array([0, 1, 2, 0])
    found = advice(rates, speed, owner)
    assert (found.members, fastest_first(rates, speed, owner).tolist()) == (1, [1, 2, 0])
    # Three partitions move, with 0.1 + 0.2 of work per second; a member does 1.
    assert found.moves == 3
    assert found.r_score == pytest.approx(0.3)
    rates, speed = np.array([0.5, 0.3, 0.4]), np.array([1.0, 4.0, 1.0])
    assert fastest_first(rates, speed, np.arange(3)).tolist() == [1, 0, 2]
    assert advice(rates, speed).members == 1


def test_members_with_too_much_keep_their_largest_partitions() -> None:
    found = advice([0.5, 0.2, 0.3, 0.4], [1.0], owner=[0, 0, 0, 0])
    assert (found.members, found.moves) == (2, 2)
    assert found.r_score == pytest.approx(0.5)


def test_large_groups_are_packed_by_their_heaviest_partitions() -> None:
    chance = np.random.default_rng(41)
    rates = chance.pareto(2.0, 50_000) + 0.01
    rates[:3] = 5_000.0
    found = advice(rates, np.full(20, 10_000.0))
    assert found.members == found.by_rate == ceil(rates.sum() / (FILL * 10_000))


def test_more_members_are_advised_at_once_and_fewer_after_a_while() -> None:
    held = hold(None, 5, 0.0)
    seen = []
    for minute, members in enumerate([4, 3, 4, 6, 5, 2, 3, 2]):
        held = hold(held, members, minute * 400.0)
        seen.append(held.members)
    # Three looks of at least 900 s between them; the most of what these needed.
    assert seen == [5, 5, 5, 6, 6, 6, 6, 5]
    assert held == Held(5, 2, 7 * 400.0)
    assert HOLD_S == 900
