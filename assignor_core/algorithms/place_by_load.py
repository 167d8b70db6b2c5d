"""Place by load: what a leader does with fresh loads and without a hint that fits (ADR 63).

Owned partitions stay, free ones go to the members with the least load for their capacity, then a few moves
and swaps lower the largest load. All is in integers, ties included: the broker plug-in gives the same
target.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from assignor_core.algorithms.partition_classes import classes_of
from assignor_core.errors import HintMismatchError
from assignor_core.group import Assignment, Group
from assignor_core.hint import member_key
from assignor_core.record import MAX_NUMBER, MAX_PARTITIONS_IN_ALL
from assignor_core.together import can_unite, unite

if TYPE_CHECKING:
    from assignor_core.loads import LoadsPayload


# Load per capacity is compared in thousandths.
SCALE = 1000
# With so many rows a member is overloaded beside one with none.
_SEVERAL = 2


@dataclass(frozen=True, eq=False)
class PlaceProblem:
    """What does not change: N rows that somebody takes, in K classes of equal takers, and M members.

    `load` is int64 [N], none negative, and times 1000 its sum fits into 63 bits; `row_class` int64 [N];
    `eligible` bool [K, M]; `capacity` int64 [M], all positive. Counts may differ by 1 + `count_slack`.
    `far` is bool [S + 1, M], who reads rows of which set of racks across racks, and `rack_set` int64 [N] the
    set of a row, the last if unknown; None without racks. A near member may be above the mean by `tolerance`
    thousandths.
    """

    load: NDArray[np.int64]
    row_class: NDArray[np.int64]
    eligible: NDArray[np.bool_]
    capacity: NDArray[np.int64]
    count_slack: int
    far: NDArray[np.bool_] | None = None
    rack_set: NDArray[np.int64] | None = None
    tolerance: int = 0

    @cached_property
    def is_equal(self) -> bool:
        """Whether everybody takes every row, and is as near to it."""
        return len(self.eligible) == 1 and bool(self.eligible.all()) and self.far is None

    def is_far(self, rows: NDArray[np.int64] | int, members: NDArray[np.int64] | int) -> NDArray[np.bool_]:
        """Return which members read which rows across racks; nobody without racks."""
        if self.far is None or self.rack_set is None:
            return np.zeros(np.broadcast(rows, members).shape, dtype=np.bool_)
        return np.asarray(self.far[self.rack_set[rows], members])

    @cached_property
    def mean(self) -> int:
        """The mean level."""
        capacity = int(self.capacity[self.eligible.any(axis=0)].sum())
        return int(self.load.sum()) * SCALE // capacity if capacity else 0

    @cached_property
    def near_level(self) -> int:
        """Up to this level rows go to members that are near."""
        return self.mean * (SCALE + self.tolerance) // SCALE

    @cached_property
    def class_size(self) -> NDArray[np.int64]:
        """How many rows a class has: [K]."""
        return np.bincount(self.row_class, minlength=len(self.eligible)).astype(np.int64)

    @cached_property
    def class_load(self) -> NDArray[np.int64]:
        """The load of all rows of a class: [K]."""
        load = np.zeros(len(self.eligible), dtype=np.int64)
        np.add.at(load, self.row_class, self.load)
        return load

    def share_of_mean(self, parts: int) -> int:
        """Return a part of the mean level, rounded up: 32 for a 32nd; at least 1."""
        return max(1, -(-self.mean // parts))


def _rows_lacking(top: NDArray[np.int64], count: NDArray[np.int64], count_slack: int) -> NDArray[np.int64]:
    """Return how many rows members lack: who has none is to get one of whoever has several.

    `top` is, for each member, the largest count of a holder of a row that it takes.
    """
    is_left_out = (count == 0) & (top >= _SEVERAL)
    lacks: NDArray[np.int64] = np.maximum(top - 1 - count_slack - count, is_left_out)
    return lacks.clip(min=0)


class PlaceState:
    """Mutable search state: the member of each row (`target`, -1: free), with counts, loads and levels."""

    def __init__(self, problem: PlaceProblem, target: NDArray[np.int64]) -> None:
        self.problem = problem
        self.target = target.copy()
        num_classes, num_members = problem.eligible.shape
        rows = np.flatnonzero(target >= 0)
        members = target[rows]
        self.count = np.bincount(members, minlength=num_members).astype(np.int64)
        self.sum = np.zeros(num_members, dtype=np.int64)
        np.add.at(self.sum, members, problem.load[rows])
        cells = problem.row_class[rows] * num_members + members
        holds = np.bincount(cells, minlength=num_classes * num_members).astype(np.int64)
        self.holds = holds.reshape(num_classes, num_members)
        self.level = self.sum * SCALE // problem.capacity
        self.rows_by_member: dict[int, NDArray[np.int64]] | None = None

    def copy(self) -> PlaceState:
        """Return an independent state with the same rows."""
        return self.without(np.empty(0, dtype=np.int64))

    def without(self, rows: NDArray[np.int64]) -> PlaceState:
        """Return a state in which nobody has these rows, that all have somebody."""
        state = copy(self)
        state.target, state.count, state.sum = self.target.copy(), self.count.copy(), self.sum.copy()
        state.holds, state.level, state.rows_by_member = self.holds.copy(), self.level.copy(), None
        members = self.target[rows]
        state.target[rows] = -1
        np.subtract.at(state.count, members, 1)
        np.subtract.at(state.sum, members, self.problem.load[rows])
        np.subtract.at(state.holds, (self.problem.row_class[rows], members), 1)
        state.level[members] = state.sum[members] * SCALE // self.problem.capacity[members]
        return state

    def reassign(self, rows: NDArray[np.int64], members: NDArray[np.int64]) -> None:
        """Give distinct rows, free or not, to these members."""
        self.target[rows] = members
        updated = PlaceState(self.problem, self.target)
        self.count, self.sum, self.holds = updated.count, updated.sum, updated.holds
        self.level, self.rows_by_member = updated.level, None

    def changed(self, base: PlaceState) -> NDArray[np.int64]:
        """Return the rows that are elsewhere than in another state."""
        return np.flatnonzero(self.target != base.target)

    def put(self, row: int, member: int) -> None:
        """Give a row, free or not, to a member."""
        before = int(self.target[row])
        if before >= 0:
            self._add(row, before, -1)
        self.target[row] = member
        self._add(row, member, 1)
        held = self.rows_by_member
        if held is None:
            return
        if before >= 0:
            held[before] = np.delete(held[before], np.searchsorted(held[before], row))
        held[member] = np.insert(held[member], np.searchsorted(held[member], row), row)

    def _add(self, row: int, member: int, sign: int) -> None:
        problem = self.problem
        self.count[member] += sign
        self.sum[member] += sign * problem.load[row]
        self.holds[problem.row_class[row], member] += sign
        self.level[member] = int(self.sum[member]) * SCALE // int(problem.capacity[member])

    def held(self, member: int) -> NDArray[np.int64]:
        """Return the rows of a member, ascending."""
        if self.rows_by_member is None:
            rows = np.flatnonzero(self.target >= 0)
            rows = rows[np.argsort(self.target[rows], kind="stable")]
            parts = np.split(rows, np.cumsum(self.count)[:-1])
            self.rows_by_member = dict(enumerate(parts))
        return self.rows_by_member[member]

    def largest_counts(self) -> NDArray[np.int64]:
        """Return the largest count of a holder of each class: [K], 0 without any."""
        largest: NDArray[np.int64] = np.where(self.holds > 0, self.count, 0).max(axis=1, initial=0)
        return largest

    def needs(self) -> NDArray[np.int64]:
        """Return how many rows each member lacks by the count rule: [M]."""
        problem = self.problem
        top = np.where(problem.eligible, self.largest_counts()[:, None], 0).max(axis=0, initial=0)
        return _rows_lacking(top, self.count, problem.count_slack)

    def gap(self) -> int:
        """Return the largest count of a holder of a row less the count of a taker of it."""
        problem = self.problem
        if problem.is_equal:
            most = int(self.count.max())
            return most - int(self.count.min()) if most else 0
        least = np.where(problem.eligible, self.count, np.iinfo(np.int64).max).min(axis=1)
        largest = self.largest_counts()
        return int((largest - least)[largest > 0].max(initial=0))

    def gap_after(self, changes: tuple[tuple[int, int, int], ...]) -> int:
        """Return the gap if rows of a class went from a member to another: (class, from, to) each."""
        for row_class, giver, taker in changes:
            self._shift(row_class, giver, taker)
        gap = self.gap()
        for row_class, giver, taker in changes:
            self._shift(row_class, taker, giver)
        return gap

    def _shift(self, row_class: int, giver: int, taker: int) -> None:
        self.count[giver] -= 1
        self.count[taker] += 1
        self.holds[row_class, giver] -= 1
        self.holds[row_class, taker] += 1

    def score(self) -> tuple[int, list[int]]:
        """Return what is to be small: rows that are lacking, then the levels, largest first."""
        return int(self.needs().sum()), np.sort(self.level)[::-1].tolist()

    def lightest_first(self, members: NDArray[np.int64], limit: int | None = None) -> NDArray[np.int64]:
        """Return ascending members by (level, count, index), at most so many."""
        if limit is not None and len(members) > limit:
            levels = self.level[members]
            members = members[levels <= np.partition(levels, limit - 1)[limit - 1]]
        order = np.lexsort((self.count[members], self.level[members]))
        return members[order[:limit]]

    def lightest(self, members: NDArray[np.int64]) -> int:
        """Return the first of ascending members by (level, count, index)."""
        levels = self.level[members]
        least = members[levels == levels.min()]
        return int(least[0] if len(least) == 1 else least[self.count[least].argmin()])

    def nearest(self, members: NDArray[np.int64], row: int) -> int:
        """Return the lightest of the members that are near a row, if its level allows; else of all."""
        lightest, problem = self.lightest(members), self.problem
        if problem.far is None:
            return lightest
        near = members[~problem.is_far(row, members)]
        if not len(near):
            return lightest
        nearest, load = self.lightest(near), int(problem.load[row])
        levels = [
            (int(self.sum[member]) + load) * SCALE // int(problem.capacity[member])
            for member in (nearest, lightest)
        ]
        return nearest if levels[0] <= max(problem.near_level, levels[1]) else lightest

    def heaviest(self, members: NDArray[np.int64]) -> int:
        """Return the first of ascending members by (-level, -count, index)."""
        levels = self.level[members]
        most = members[levels == levels.max()]
        return int(most[0] if len(most) == 1 else most[self.count[most].argmax()])


_PASSES = 4
# A step must gain this part of the mean level: to move what a member owns costs it a pause.
_GAIN_SHARE = 32
# Where counts are even and nothing is free, the highest level must sink by this part of the mean level: a
# rebalance that has another reason, such as a sync that came late, is not followed by one more for little.
_WORTH_A_REBALANCE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where the partitions of a group are to go, before the two-phase step.

    `target` is int32 [P], row → member, -1 where nobody takes the topic. `is_uneven`: counts are less even
    than the limits ask for, and one more rebalance can repair that, because free partitions are placed
    without taking any from others.
    """

    target: Assignment
    is_uneven: bool


def place_by_load(group: Group, topic_ids: Mapping[str, str], loads: LoadsPayload) -> Placement:
    """Place the partitions of a group by their loads.

    The second round of a cooperative rebalance, computed by any leader from the claims alone, gives the
    same target: there the partitions that the first round released are free. Topics that stay together are
    placed as one, where their partitions and subscribers allow it. `topic_ids` are by name, in the text form
    of hints. Raises `HintMismatchError` if the id of a topic is unknown, or there are too many partitions.
    """
    if any(topic not in topic_ids for topic in group.topics):
        raise HintMismatchError("the broker's metadata hold no topic ids")
    if group.num_partitions > MAX_PARTITIONS_IN_ALL:
        raise HintMismatchError(f"{group.num_partitions} partitions are too many to be placed by load")
    load = row_loads(group, topic_ids, loads)
    together = _fitting(group, topic_ids, loads)
    if not together:
        return _place(group, topic_ids, loads, load)
    united = unite(group, together, load)
    first_ids = {
        min(names, key=group.topics.index): min(topic_ids[name] for name in names) for names in together
    }
    merged = {topic_ids[name] for names in together for name in names}
    if loads.racks is not None:
        # Of partitions of several topics it is not known where all can be read.
        known = {topic: sets for topic, sets in loads.racks.topics.items() if topic not in merged}
        loads = replace(loads, racks=replace(loads.racks, topics=known))
    loads = replace(loads, max_moves=loads.max_moves // max(map(len, together)))
    units = replace(united.group, rack_names=group.rack_names)
    load = np.minimum(united.sums(load), MAX_NUMBER).astype(np.int64)
    placed = _place(units, {**topic_ids, **first_ids}, loads, load)
    return Placement(united.expand(placed.target), placed.is_uneven)


def _fitting(group: Group, topic_ids: Mapping[str, str], loads: LoadsPayload) -> list[list[str]]:
    """Return the names of topics that stay together and can: with equal partitions and subscribers."""
    sizes = dict(zip(group.topics, np.diff(group.topic_start).tolist(), strict=True))
    names = {topic_ids[name]: name for name, size in sizes.items() if size}
    listed = [[names[topic] for topic in topics if topic in names] for topics in loads.together or ()]
    return [each for each in listed if len(each) > 1 and can_unite(group, each)]


def _place(
    group: Group, topic_ids: Mapping[str, str], loads: LoadsPayload, load: NDArray[np.int64]
) -> Placement:
    classes = classes_of(group)
    by_id = np.argsort(np.array([topic_ids[topic] for topic in group.topics], dtype=np.str_))
    rank = np.empty(group.num_topics, dtype=np.int64)
    rank[by_id] = np.arange(group.num_topics)
    rows = np.flatnonzero(classes.class_of_row >= 0)
    # In each topic the rows of a group are in the order of partitions.
    rows = rows[np.argsort(rank[group.row_topic[rows]], kind="stable")]
    # Topics without partitions are no part of a member's share.
    with_rows = np.flatnonzero(classes.size)
    keys = map(member_key, group.member_ids, group.instance_ids)
    far, rack_set = _racks(group, topic_ids, loads, rows)
    problem = PlaceProblem(
        load=load[rows],
        row_class=np.searchsorted(with_rows, classes.class_of_row[rows]),
        eligible=classes.eligible[with_rows],
        capacity=np.array(
            [loads.capacities.get(key, loads.default_capacity) for key in keys], dtype=np.int64
        ),
        count_slack=loads.count_slack,
        far=far,
        rack_set=rack_set,
        tolerance=0 if loads.racks is None else loads.racks.tolerance,
    )
    placed, is_uneven = _solve(problem, group.live_owner[rows].astype(np.int64), loads.max_moves)
    target = np.full(group.num_partitions, -1, dtype=np.int32)
    target[rows] = placed
    return Placement(target, is_uneven)


def _racks(
    group: Group, topic_ids: Mapping[str, str], loads: LoadsPayload, rows: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]] | tuple[None, None]:
    """Return `far` and the `rack_set` of rows; None where nobody would read any of them across racks."""
    if loads.racks is None or not any(group.rack_names):
        return None, None
    sets = [*map(set, loads.racks.sets)]
    far = np.array(
        [[bool(rack) and rack not in racks for rack in group.rack_names] for racks in sets]
        + [[False] * group.num_members]
    )
    rack_set = np.full(group.num_partitions, len(sets), dtype=np.int64)
    starts = group.topic_start.tolist()
    for topic, (start, end) in zip(group.topics, pairwise(starts), strict=True):
        known = loads.racks.topics.get(topic_ids[topic], ())[: end - start]
        rack_set[start : start + len(known)] = [len(sets) if each is None else each for each in known]
    rack_set = rack_set[rows]
    return (far, rack_set) if far[np.unique(rack_set)].any() else (None, None)


def row_loads(group: Group, topic_ids: Mapping[str, str], loads: LoadsPayload) -> NDArray[np.int64]:
    """Return the load of each row, int64 [P]; an unknown one is the mean of its topic, or of all topics."""
    known = [load for values in loads.loads.values() for load in values if load is not None]
    mean_of_all = sum(known) // len(known) if known else 0
    result = np.empty(group.num_partitions, dtype=np.int64)
    starts = group.topic_start.tolist()
    for topic, (start, end) in zip(group.topics, pairwise(starts), strict=True):
        result[start:end] = _topic_loads(loads.loads.get(topic_ids[topic], ()), end - start, mean_of_all)
    return result


def _topic_loads(values: Sequence[int | None], size: int, mean_of_all: int) -> NDArray[np.int64]:
    known = [load for load in values if load is not None]
    mean = sum(known) // len(known) if known else mean_of_all
    filled = np.full(size, mean, dtype=np.int64)
    given = [mean if load is None else load for load in values[:size]]
    filled[: len(given)] = given
    return filled


def _solve(problem: PlaceProblem, owner: NDArray[np.int64], max_moves: int) -> tuple[NDArray[np.int64], bool]:
    state = PlaceState(problem, owner)
    owned = owner >= 0
    free = np.flatnonzero(~owned)
    budget = max(max_moves, _share_of_empty(state))
    _place_free(state, free)
    base = state.copy()
    left = _repair_counts(state, budget, owned, empty_only=len(free) > 0)
    best = _improve(state, base, budget, 0 if len(free) else left)
    is_settled = not len(free) and left == budget
    if _releases_more(best, base) or (is_settled and not _is_worth_it(best, base)):
        best = base
    needs = best.needs()
    can_go_on = max_moves > 0 or bool((needs[best.count == 0] > 0).any())
    is_uneven = bool(needs.any()) and can_go_on and (len(free) > 0 or len(best.changed(base)) > 0)
    return best.target, is_uneven


def _is_worth_it(best: PlaceState, base: PlaceState) -> bool:
    least_gain = base.problem.share_of_mean(_WORTH_A_REBALANCE)
    return int(best.level.max(initial=0)) <= int(base.level.max(initial=0)) - least_gain


def _share_of_empty(state: PlaceState) -> int:
    total = 0
    for member in np.flatnonzero(state.count == 0).tolist():
        num_rows, num_members, _, _ = _share_of(state, member)
        total += max(1, num_rows // num_members) if num_rows else 0
    return total


def _improve(state: PlaceState, base: PlaceState, budget: int, left: int) -> PlaceState:
    best, best_score = base, base.score()
    for _ in range(_PASSES):
        _lower_levels(state, left, _GAIN_SHARE)
        result = _replace(base, state.changed(base))
        score = result.score()
        if score >= best_score:
            break
        best, best_score, state = result, score, result.copy()
        left = budget - len(result.changed(base)) if left else 0
        if left <= 0:
            break
    return best


def _replace(base: PlaceState, released: NDArray[np.int64]) -> PlaceState:
    """Place released rows again, as the next round will; a row that comes back is not released."""
    while True:
        state = base.without(released)
        _place_free(state, released)
        kept = state.changed(base)
        if len(kept) == len(released):
            return state
        released = kept


def _releases_more(best: PlaceState, base: PlaceState) -> bool:
    """Return whether the follow-up, in which the released rows are free, would release others."""
    return _repair_counts(best.copy(), 1, best.target == base.target, empty_only=True) == 0


# A free row costs nothing to place: smaller gains count than for rows that members own.
_FREE_GAIN_SHARE = 256
# Of many rows the order alone gives a good result; of few, exchanging some is quick.
_MAX_EXCHANGES = 32


def _place_free(state: PlaceState, free: NDArray[np.int64]) -> None:
    """Give free rows to members, heaviest first, then exchange them while that lowers the largest levels.

    Whoever lacks rows by the count rule must get them, but only when no more rows are left than are
    lacking: until then the level decides.
    """
    problem = state.problem
    order = free[np.lexsort((free, -problem.load[free]))]
    if problem.is_equal:
        _place_equal(state, order)
    else:
        _place_one_by_one(state, order)
    movable = np.zeros(len(problem.load), dtype=np.bool_)
    movable[free] = True
    _lower_levels(state, min(2 * len(free), _MAX_EXCHANGES), _FREE_GAIN_SHARE, movable)


def _place_one_by_one(state: PlaceState, order: NDArray[np.int64]) -> None:
    problem = state.problem
    needs = _Needs(state)
    left = np.bincount(problem.row_class[order], minlength=len(problem.eligible))
    takers = [np.flatnonzero(members) for members in problem.eligible]
    for row, row_class in zip(order.tolist(), problem.row_class[order].tolist(), strict=True):
        members = takers[row_class]
        counts = state.count[members]
        pool = needs.forced(members, counts, left) if needs.total else None
        if pool is None:
            most = needs.largest[row_class] - 1
            pool = members[counts <= max(most, counts.min() + problem.count_slack)]
        member = state.nearest(pool, row)
        state.put(row, member)
        left[row_class] -= 1
        needs.update(member)


class _Needs:
    """How many rows each member lacks while counts only rise."""

    def __init__(self, state: PlaceState) -> None:
        self._state = state
        self.largest = state.largest_counts()
        eligible = state.problem.eligible
        self._top = np.where(eligible, self.largest[:, None], 0).max(axis=0, initial=0)
        self._needs = state.needs()
        self.total = int(self._needs.sum())

    def forced(
        self, members: NDArray[np.int64], counts: NDArray[np.int64], left: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """Return who of the takers of a row must get it; None if all may."""
        problem = self._state.problem
        classes = problem.eligible[:, self._needs > 0].any(axis=1)
        if left[classes].sum() > self.total:
            return None
        empty: NDArray[np.int64] = members[counts == 0]
        if len(empty):
            return empty
        needy: NDArray[np.int64] = members[self._needs[members] > 0]
        return needy if len(needy) else None

    def update(self, member: int) -> None:
        """Take notice of a row that a member got."""
        state = self._state
        grown = np.flatnonzero((state.holds[:, member] > 0) & (self.largest < state.count[member]))
        if not len(grown):
            count_slack = state.problem.count_slack
            need = max(int(self._top[member]) - 1 - count_slack - int(state.count[member]), 0)
            self.total += need - int(self._needs[member])
            self._needs[member] = need
            return
        self.largest[grown] = state.count[member]
        members = np.flatnonzero(state.problem.eligible[grown].any(axis=0))
        self._top[members] = np.maximum(self._top[members], state.count[member])
        self._refresh(members)

    def _refresh(self, members: NDArray[np.int64]) -> None:
        state = self._state
        needs = _rows_lacking(self._top[members], state.count[members], state.problem.count_slack)
        self.total += int(needs.sum() - self._needs[members].sum())
        self._needs[members] = needs


def _repair_counts(state: PlaceState, budget: int, owned: NDArray[np.bool_], *, empty_only: bool) -> int:
    """Give members that lack rows by the count rule one after the other, from whoever has too many.

    Only rows of `owned`, bool [N], move. Returns what is left of the budget of moves.
    """
    if state.problem.is_equal:
        return _repair_equal(state, budget, owned, empty_only=empty_only)
    while budget > 0 and _repair_one(state, owned, empty_only=empty_only):
        budget -= 1
    return budget


def _repair_one(state: PlaceState, owned: NDArray[np.bool_], *, empty_only: bool) -> bool:
    problem = state.problem
    lacks = state.needs() > 0
    if empty_only:
        lacks &= state.count == 0
    needy = np.flatnonzero(lacks)
    for member in _by_count(state, needy):
        count = int(state.count[member])
        donors = np.flatnonzero(state.count >= (count + 2 + problem.count_slack if count else 2))
        rows = _rows_of_heaviest(state, donors, owned, problem.eligible[:, member])
        if rows is None:
            continue
        num_rows, num_members, load, capacity = _share_of(state, member)
        missing = max(1, num_rows // num_members - count)
        room = max(0, load * int(problem.capacity[member]) // capacity - int(state.sum[member]))
        loads = problem.load[rows]
        fits = loads <= room
        if fits.any():
            rows, loads = rows[fits], loads[fits]
        order = np.lexsort((rows, np.abs(loads - room // missing), problem.is_far(rows, member)))
        state.put(int(rows[order[0]]), member)
        return True
    return False


def _by_count(state: PlaceState, members: NDArray[np.int64]) -> Iterator[int]:
    """Return members by (count, level, index), without sorting all: nearly always the first is taken."""
    if not len(members):
        return
    counts = state.count[members]
    first = state.lightest(members[counts == counts.min()])
    yield first
    order = np.lexsort((state.level[members], counts))
    yield from (member for member in members[order].tolist() if member != first)


def _rows_of_heaviest(
    state: PlaceState, donors: NDArray[np.int64], owned: NDArray[np.bool_], takes: NDArray[np.bool_]
) -> NDArray[np.int64] | None:
    donors = donors[state.holds[takes][:, donors].any(axis=0)]
    while len(donors):
        donor = state.heaviest(donors)
        rows = state.held(donor)
        rows = rows[owned[rows] & takes[state.problem.row_class[rows]]]
        if len(rows):
            return rows
        donors = donors[donors != donor]
    return None


def _share_of(state: PlaceState, member: int) -> tuple[int, int, int, int]:
    """Return what a member shares: rows, members that take any of them, the rows' load, the capacity."""
    problem = state.problem
    classes = problem.eligible[:, member]
    members = problem.eligible[classes].any(axis=0)
    return (
        int(problem.class_size[classes].sum()),
        int(members.sum()),
        int(problem.class_load[classes].sum()),
        int(problem.capacity[members].sum()),
    )


class _Counts:
    """How many members have how many rows; the smallest and the largest count."""

    def __init__(self, count: NDArray[np.int64], num_rows: int) -> None:
        # No count exceeds the number of rows.
        self.members_with: list[int] = np.bincount(count, minlength=num_rows + 2).tolist()
        self.least, self.most = int(count.min()), int(count.max())

    def change(self, before: int, after: int) -> None:
        """Take notice of a member whose count has changed by one."""
        members_with = self.members_with
        members_with[before] -= 1
        members_with[after] += 1
        self.most = max(self.most, after)
        while not members_with[self.most]:
            self.most -= 1
        self.least = min(self.least, after)
        while not members_with[self.least]:
            self.least += 1


class _Lacking:
    """How many rows all members lack while counts only rise."""

    def __init__(self, counts: _Counts, count_slack: int) -> None:
        self._counts, self._slack = counts, count_slack
        # Whoever has fewer than the floor lacks what is missing to it.
        self._floor = counts.most - 1 - count_slack
        below = counts.members_with[: max(self._floor, 0)]
        self._num_below = sum(below)
        self._missing: int = sum((self._floor - count) * number for count, number in enumerate(below))

    @property
    def total(self) -> int:
        """The sum of what members lack."""
        has_several = self._counts.most >= _SEVERAL
        left_out = self._counts.members_with[0] if has_several and self._floor < 1 else 0
        return self._missing + left_out

    def lacks(self, count: int) -> bool:
        """Return whether a member with this count lacks rows."""
        return count < self._floor or (not count and self._counts.most >= _SEVERAL)

    def rise(self, before: int) -> None:
        """Take notice of a member that got a row; the counts know it already."""
        if before < self._floor:
            self._missing -= 1
            self._num_below -= before + 1 == self._floor
        floor = self._counts.most - 1 - self._slack
        if floor > self._floor:
            # The largest count rises by one at a time.
            if self._floor >= 0:
                self._num_below += self._counts.members_with[self._floor]
                self._missing += self._num_below
            self._floor = floor


def _place_equal(state: PlaceState, order: NDArray[np.int64]) -> None:
    """Give free rows to members, in this order, as `_place_one_by_one` does; by heaps, where all take all."""
    if not len(order):
        return
    problem = state.problem
    loads, capacity = problem.load[order].tolist(), problem.capacity.tolist()
    count, total, level = state.count.tolist(), state.sum.tolist(), state.level.tolist()
    counts = _Counts(state.count, len(state.target))
    lacking = _Lacking(counts, problem.count_slack)
    receivers = []

    def give(load: int, member: int) -> None:
        before = count[member]
        receivers.append(member)
        count[member] = before + 1
        total[member] += load
        level[member] = total[member] * SCALE // capacity[member]
        counts.change(before, before + 1)
        lacking.rise(before)

    lightest = [(level[member], count[member], member) for member in range(len(count))]
    heapify(lightest)
    # Those with too many rows for now. All have the largest count, which cannot rise without them.
    waiting: list[tuple[int, int, int]] = []
    placed = 0
    while placed < len(loads) and not 0 < len(loads) - placed <= lacking.total:
        limit = max(counts.most - 1, counts.least + problem.count_slack)
        if waiting and waiting[0][1] <= limit:
            for each in waiting:
                heappush(lightest, each)
            waiting.clear()
        while lightest[0][1] > limit:
            waiting.append(heappop(lightest))
        member = heappop(lightest)[2]
        give(loads[placed], member)
        heappush(lightest, (level[member], count[member], member))
        placed += 1
    # From here on each row goes to whoever lacks one, and neither the floor nor the largest count changes:
    # first to those without any.
    needy = [each for each in (*lightest, *waiting) if lacking.lacks(each[1])]
    empty = sorted((each for each in needy if not each[1]), reverse=True)
    needy = [each for each in needy if each[1]]
    heapify(needy)
    for load in loads[placed:]:
        member = (empty.pop() if empty else heappop(needy))[2]
        give(load, member)
        if lacking.lacks(count[member]):
            heappush(needy, (level[member], count[member], member))
    state.reassign(order, np.array(receivers, dtype=np.int64))


def _repair_equal(state: PlaceState, budget: int, owned: NDArray[np.bool_], *, empty_only: bool) -> int:
    """As `_repair_counts`, where everybody takes every row: by heaps."""
    lacks = state.needs() > 0
    if empty_only:
        lacks &= state.count == 0
    if budget <= 0 or not lacks.any():
        return budget
    repair = _Repair(state, owned, empty_only=empty_only)
    while budget > 0 and repair.step():
        budget -= 1
    moved = np.array(list(repair.moved), dtype=np.int64)
    state.reassign(moved, np.array(list(repair.moved.values()), dtype=np.int64))
    return budget


class _Repair:
    """The state of a repair as lists and heaps. An entry of a heap that no longer holds is passed over."""

    def __init__(self, state: PlaceState, owned: NDArray[np.bool_], *, empty_only: bool) -> None:
        problem = state.problem
        self._empty_only, self._slack = empty_only, problem.count_slack
        self._counts = _Counts(state.count, len(state.target))
        self._count, self._total = state.count.tolist(), state.sum.tolist()
        self._level, self._capacity = state.level.tolist(), problem.capacity.tolist()
        load, capacity = int(problem.load.sum()), int(problem.capacity.sum())
        self._share = [load * each // capacity for each in self._capacity]
        self._rows_each = len(state.target) // len(self._count)
        self._num_rows = len(state.target)
        self._held = _by_load(state, owned)
        members = range(len(self._count))
        self._fewest = [(self._count[member], self._level[member], member) for member in members]
        self._heaviest = [(-self._level[member], -self._count[member], member) for member in members]
        heapify(self._fewest)
        heapify(self._heaviest)
        self.moved: dict[int, int] = {}

    def step(self) -> bool:
        """Move one row; return whether there was one to move."""
        member = self._next_receiver()
        count = self._count[member]
        most = self._counts.most
        if not (count < most - 1 - self._slack or (not count and most >= _SEVERAL)):
            return False
        if count and self._empty_only:
            return False
        donor = self._next_donor(count + 2 + self._slack if count else 2)
        if donor is None:
            return False  # others that lack rows have no fewer, so that they have no donor either
        room = max(0, self._share[member] - self._total[member])
        held = self._held[donor]
        key = held.pop(self._choose(held, room, room // max(1, self._rows_each - count)))
        load, row = divmod(key, self._num_rows)
        insort(self._held[member], key)
        self.moved[row] = member
        self._change(donor, -1, -load)
        self._change(member, 1, load)
        return True

    def _change(self, member: int, rows: int, load: int) -> None:
        before = self._count[member]
        self._count[member] = count = before + rows
        self._total[member] += load
        self._level[member] = level = self._total[member] * SCALE // self._capacity[member]
        self._counts.change(before, count)
        heappush(self._fewest, (count, level, member))
        heappush(self._heaviest, (-level, -count, member))

    def _next_receiver(self) -> int:
        while True:
            count, level, member = self._fewest[0]
            if count == self._count[member] and level == self._level[member]:
                return member
            heappop(self._fewest)

    def _next_donor(self, enough: int) -> int | None:
        while self._heaviest:
            level, count, member = self._heaviest[0]
            is_true = -count == self._count[member] and -level == self._level[member]
            # What is enough never sinks, and who gets a row is entered again.
            if is_true and -count >= enough and self._held[member]:
                return member
            heappop(self._heaviest)
        return None

    def _choose(self, held: list[int], room: int, want: int) -> int:
        """Return the index of the row nearest to what is wanted, of those that fit if any does."""
        num_rows = self._num_rows
        fits = bisect_right(held, room * num_rows + num_rows - 1)
        if not fits:
            return 0
        above = bisect_left(held, want * num_rows, 0, fits)
        if not above:
            return 0
        lower_load = held[above - 1] // num_rows
        below = bisect_left(held, lower_load * num_rows, 0, above)
        if above == fits:
            return below
        far_above, row_above = divmod(held[above] - want * num_rows, num_rows)
        far_below, row_below = want - lower_load, held[below] % num_rows
        return below if (far_below, row_below) < (far_above, row_above) else above


def _by_load(state: PlaceState, owned: NDArray[np.bool_]) -> list[list[int]]:
    """Return the owned rows of each member, ascending by load and row, as one number for each."""
    rows = np.flatnonzero(owned & (state.target >= 0))
    # A load is less than 2^31, and there are at most 2^21 rows.
    keys = state.problem.load[rows] * len(state.target) + rows
    members = state.target[rows]
    order = np.lexsort((keys, members))
    ends = np.cumsum(np.bincount(members, minlength=len(state.count))).tolist()
    sorted_keys = keys[order].tolist()
    return [sorted_keys[start:end] for start, end in zip([0, *ends], ends, strict=False)]


_RECEIVERS = 16
_MAX_SWAPS = 64
_NEVER = np.iinfo(np.int64).max
# A load, and what is larger than any.
_LOAD_BITS = 32
_SWAP_COLUMNS = 4


def _lower_levels(
    state: PlaceState, budget: int, gain_share: int, movable: NDArray[np.bool_] | None = None
) -> None:
    """Lower the highest levels while a move (costs one) or a swap (costs two) gains enough.

    A step must gain the mean level divided by `gain_share`. Without `movable`, bool [N], all rows may move.
    """
    problem = state.problem
    if budget <= 0 or not problem.class_size.sum():
        return
    least_gain = problem.share_of_mean(gain_share)
    done = np.zeros(len(problem.capacity), dtype=np.bool_)
    swaps = 0
    while budget > 0:
        members = np.flatnonzero((state.count > 0) & ~done)
        if not len(members):
            return
        giver = state.heaviest(members)
        if problem.far is not None and state.level[giver] <= problem.near_level:
            return
        search = _Search(state, giver, int(state.level[giver]) - least_gain, movable)
        move = search.best_move() if state.count[giver] > 1 else None
        if move is not None:
            state.put(*move)
            budget -= 1
            continue
        swap = search.best_swap() if budget > 1 and swaps < _MAX_SWAPS else None
        if swap is None:
            done[giver] = True
            continue
        row, other, taker = swap
        state.put(row, taker)
        state.put(other, giver)
        budget -= 2
        swaps += 1


class _Search:
    """The steps that take from one member: with R receivers and n rows of the giver."""

    def __init__(self, state: PlaceState, giver: int, limit: int, movable: NDArray[np.bool_] | None) -> None:
        problem = state.problem
        self._state, self._problem, self._giver, self._limit = state, problem, giver, limit
        self._movable = movable
        rows = state.held(giver)
        self._rows = rows if movable is None else rows[movable[rows]]
        self._classes = problem.row_class[self._rows]
        self._load = problem.load[self._rows]
        self._receivers = self._find_receivers()
        self._max_gap: int | None = None

    def _find_receivers(self) -> NDArray[np.int64]:
        problem, state, giver = self._problem, self._state, self._giver
        mask = np.asarray(problem.eligible[np.unique(self._classes)].any(axis=0))
        mask[giver] = False
        members = state.lightest_first(np.flatnonzero(mask), _RECEIVERS)
        # Whatever the two exchange, one of them stays at or above their common level.
        total = (state.sum[members] + state.sum[giver]) * SCALE
        common = total // (problem.capacity[members] + problem.capacity[giver])
        return np.sort(np.asarray(members[common <= self._limit]))

    def best_move(self) -> tuple[int, int] | None:
        """Return the row and the member of the best move, if any is allowed."""
        receivers, problem, state = self._receivers, self._problem, self._state
        if not len(receivers):
            return None
        own = (state.sum[self._giver] - self._load) * SCALE // problem.capacity[self._giver]
        rows = np.flatnonzero(own <= self._limit)
        classes = self._classes[rows]
        others = (state.sum[receivers] + self._load[rows, None]) * SCALE // problem.capacity[receivers]
        levels = np.maximum(own[rows, None], others)
        levels[~self._may_get(classes, receivers) | (levels > self._limit)] = _NEVER
        while levels.size:
            # The first of equals: the rows and the receivers ascend.
            at, to = divmod(int(levels.argmin()), len(receivers))
            if levels[at, to] == _NEVER:
                break
            row_class, taker = int(classes[at]), int(receivers[to])
            if self._keeps_gap((row_class, self._giver, taker)):
                return int(self._rows[rows[at]]), taker
            levels[classes == row_class, to] = _NEVER
        return None

    def _may_get(self, classes: NDArray[np.int64], receivers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which receivers take which rows, less those whose count would be too large for sure."""
        problem, count = self._problem, self._state.count.copy()
        count[self._giver] -= 1
        distinct, index = np.unique(classes, return_inverse=True)
        eligible = problem.eligible[distinct]
        least = np.where(eligible, count, _NEVER).min(axis=1)
        after = count[receivers] + 1
        may_get: NDArray[np.bool_] = eligible[:, receivers] & (after - least[:, None] <= self._allowed_gap())
        return np.asarray(may_get[index.reshape(-1)])

    def best_swap(self) -> tuple[int, int, int] | None:
        """Return the row, the row in exchange and the member of the best swap, if any is allowed."""
        level, row, other, taker = self._swaps()
        row_class = self._problem.row_class
        refused: set[tuple[int, int, int]] = set()
        for index in _ascending(level, row, other, taker):
            mine, theirs, to = int(row[index]), int(other[index]), int(taker[index])
            given, taken = int(row_class[mine]), int(row_class[theirs])
            if (given, taken, to) in refused:
                continue
            if self._problem.is_equal or self._keeps_gap((given, self._giver, to), (taken, to, self._giver)):
                return mine, theirs, to
            refused.add((given, taken, to))
        return None

    def _swaps(self) -> tuple[NDArray[np.int64], ...]:
        """Return the swaps that gain enough as columns: level, row, row in exchange, member.

        For each row and receiver only two matter: the lightest row in exchange that leaves the giver at or
        above the receiver, and the one before it.
        """
        problem, receivers = self._problem, self._receivers
        parts = [self._exchangeable(taker) for taker in receivers.tolist()]
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        if not len(self._rows) or not parts or not ends[-1]:
            return (np.empty(0, dtype=np.int64),) * _SWAP_COLUMNS
        theirs = np.concatenate(parts)
        starts = ends - np.diff(ends, prepend=0)
        number = np.repeat(np.arange(len(parts)), ends - starts)
        # One key for receiver and load, so that one search finds the rows of all receivers.
        key = number << _LOAD_BITS | problem.load[theirs]
        order = np.argsort(key, kind="stable")
        theirs, key = theirs[order], key[order]
        least = np.clip(self._load[:, None] + self._least_change(), 0, MAX_NUMBER + 1)
        first = np.searchsorted(key, np.arange(len(parts)) << _LOAD_BITS | least)
        takes = problem.eligible[self._classes[:, None], receivers]
        mine, to = np.nonzero(takes & (first < ends))
        mine_before, to_before = np.nonzero(takes & (first > starts))
        at = np.concatenate([first[mine, to], first[mine_before, to_before] - 1])
        mine, to = np.concatenate([mine, mine_before]), np.concatenate([to, to_before])
        change = problem.load[theirs[at]] - self._load[mine]
        level = np.maximum(*self._levels(receivers[to], change))
        good = np.flatnonzero(level <= self._limit)
        return level[good], self._rows[mine[good]], theirs[at[good]], receivers[to[good]]

    def _exchangeable(self, taker: int) -> NDArray[np.int64]:
        theirs = self._state.held(taker)
        if self._movable is not None:
            theirs = theirs[self._movable[theirs]]
        if self._problem.is_equal:
            return theirs
        takes = self._problem.eligible[self._problem.row_class[theirs], self._giver]
        return np.asarray(theirs[takes])

    def _levels(
        self, takers: NDArray[np.int64], change: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        state, capacity = self._state, self._problem.capacity
        of_giver = (state.sum[self._giver] + change) * SCALE // capacity[self._giver]
        of_takers = (state.sum[takers] - change) * SCALE // capacity[takers]
        return of_giver, of_takers

    def _least_change(self) -> NDArray[np.int64]:
        """Return, for each receiver, the least gain in load that leaves the giver at or above it: [R]."""
        sums, capacity, receivers = self._state.sum, self._problem.capacity, self._receivers
        own, their = capacity[self._giver], capacity[receivers]
        # Rounded up, of exact levels. A level is in steps of at least one per unit of load, as capacities
        # are at most 1000: so only the next smaller change can have equal levels, by their rounding.
        change: NDArray[np.int64] = -((sums[self._giver] * their - sums[receivers] * own) // (own + their))
        of_giver, of_takers = self._levels(receivers, change - 1)
        return np.asarray(change - (of_giver >= of_takers))

    def _allowed_gap(self) -> int:
        if self._max_gap is None:
            self._max_gap = max(1 + self._problem.count_slack, self._state.gap())
        return self._max_gap

    def _keeps_gap(self, *changes: tuple[int, int, int]) -> bool:
        return self._state.gap_after(changes) <= self._allowed_gap()


def _ascending(level: NDArray[np.int64], *keys: NDArray[np.int64]) -> Iterator[int]:
    """Return indexes by (level, keys), sorting no more than is asked for: mostly the first is taken."""
    if not len(level):
        return
    best = np.flatnonzero(level == level.min())
    yield from best[np.lexsort([key[best] for key in reversed(keys)])].tolist()
    others = np.flatnonzero(level > level.min())
    yield from others[np.lexsort([key[others] for key in (*reversed(keys), level)])].tolist()
