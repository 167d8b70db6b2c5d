"""Less load across racks: moves and exchanges that keep a plan's largest load, counts and budget (ADR 105).

A step changes the member of one row or of two at once: two that exchange members, one that makes room for
the other, or one that goes back to its owner so that the other may move.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from assignor_core.algorithms.load_search import LoadSearch
    from assignor_core.group import Assignment, Group


# What a unit of load above the largest allowed one costs, in units of load across racks: one after the other.
_PRICES = (0.25, 0.5, 1.0, 2.0, 4.0)
_STEEPER = (1.0, 4.0, 64.0)
_FORBIDDING = 1e6
# How many changes of one row are combined with all others.
_FIRST = 200
# Rows and members of the changes that a search begins with again, and how often it does.
_HEAVY_ROWS, _HEAVY_PARTNERS, _MOST_ROUNDS = 8, 2, 4
# Of a large group, these many members are searched at a time, with their heaviest rows.
_PARTNERS, _ROWS_EACH, _PASSES, _MOST_STEPS = 3, 64, 3, 1_500
_MOST_CHECKED = 64
# A step must bring more than this share of the mean load, and a move this much for its own sake.
_EPSILON, _PRICE_OF_A_MOVE = 1e-9, 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Racks:
    """Who reads a row across racks. Where a rack is unknown, nobody does.

    member_rack: int64 [M], -1: unknown.
    row_racks: bool [P, R + 1]: the racks in which a row can be read; all if unknown. The last is unknown.
    """

    member_rack: NDArray[np.int64]
    row_racks: NDArray[np.bool_]

    def far(self, rows: NDArray[np.int64], members: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Return which members read which rows across racks, for index arrays that broadcast."""
        return np.asarray(~self.row_racks[rows, self.member_rack[members]])

    def load_across(self, load: NDArray[np.float64], assignment: Assignment) -> float:
        """Return the load that an assignment reads across racks."""
        rows = np.flatnonzero(assignment >= 0)
        return float(load[rows[self.far(rows, assignment[rows])]].sum())


def racks_of(group: Group) -> Racks | None:
    """Return the racks of a group; None if no partition can be far from a member."""
    if group.row_racks is None or group.member_rack is None:
        return None
    known = np.asarray(group.row_racks.any(axis=1))
    row_racks = np.column_stack([group.row_racks | ~known[:, None], np.ones(len(known), dtype=np.bool_)])
    member_rack = group.member_rack.astype(np.int64)
    return None if row_racks[:, member_rack].all() else Racks(member_rack, row_racks)


def search_near(
    search: LoadSearch, racks: Racks, start: Assignment, ceiling: float, movable: NDArray[np.bool_] | None
) -> Assignment:
    """Return an assignment with less load across racks than a search has found, or the same.

    search: At the plan, with the budget of all moves.
    start: An assignment with allowed counts that the plan was searched from: a second start.
    ceiling: The largest load by capacity that is allowed; the plan keeps it.
    movable: bool [P], rows that may move; None: all that are not pinned.
    """
    steps = _NearSearch(search, racks, ceiling, movable)
    everybody = np.arange(len(search.loads))
    if not search.is_small:
        for _ in range(_PASSES):
            for members in steps.some_members():
                steps.descend(steps.best, _FORBIDDING, members=members)
        return steps.best
    if search.most_effort and movable is None:
        steps.descend_from(start, everybody)
        while steps.steps < search.most_effort and steps.try_each(everybody):
            pass
    steps.descend(steps.best, _FORBIDDING, members=everybody)
    return steps.best


class _NearSearch:
    def __init__(
        self, search: LoadSearch, racks: Racks, ceiling: float, movable: NDArray[np.bool_] | None
    ) -> None:
        self._search, self._racks = search, racks
        self._load, self._owner = search.load, search.owner
        self._top = ceiling * search.capacity
        self._scale = float(search.load.sum()) / len(search.loads)
        self._most_moves = search.budget
        self._gap = max(search.gap(), search.max_gap)
        self._fixed = search.pinned if movable is None else search.pinned | ~movable
        self.best = search.assignment.copy()
        self._least = racks.load_across(self._load, self.best)
        self.steps = 0
        self._set(self.best)

    def _set(self, assignment: Assignment) -> None:
        self._now = assignment.copy()
        self._loads: NDArray[np.float64] = self._load_of_members(assignment)
        rows = np.flatnonzero(assignment >= 0)
        self._held = np.zeros_like(self._search.held)
        np.add.at(self._held, (self._search.row_class[rows], assignment[rows]), 1)
        self._counts = self._held.sum(axis=0)

    def _load_of_members(self, assignment: Assignment) -> NDArray[np.float64]:
        held = assignment >= 0
        loads = np.bincount(assignment[held], self._load[held], minlength=len(self._top))
        return loads.astype(np.float64)

    def _moves(self) -> int:
        return int(((self._owner >= 0) & (self._owner != self._now)).sum())

    def descend_from(self, start: Assignment, members: NDArray[np.int64]) -> None:
        """Search from a start that may be above the largest load, with a rising price of that."""
        for price in _PRICES:
            now = start
            for factor in _STEEPER:
                now = self.descend(now, price * factor, members=members)

    def try_each(self, members: NDArray[np.int64]) -> bool:
        """Begin with each of some changes of the best, and search on; return whether that found better."""
        base, least = self.best, self._least
        for row, member in self._tries():
            if self.steps > self._search.most_effort:
                return False
            self._set(base)
            self._change(row, member)
            if self._gap_now() > self._gap:
                self._give_back(row, member, int(base[row]))
            now, fixed = self._now, self._fixed.copy()
            fixed[row] = True
            for price in (*_STEEPER[::2], _FORBIDDING):
                now = self.descend(now, price, members=members, fixed=fixed)
            if self._least < least:
                self.descend(self.best, _FORBIDDING, members=members)
                return True
        return False

    def _tries(self) -> list[tuple[int, int]]:
        """The rows with the most load across racks, to members that are near; then moves to take back."""
        base = self.best
        rows = np.flatnonzero((base >= 0) & ~self._fixed)
        far = rows[self._racks.far(rows, base[rows])]
        heavy = far[np.argsort(-self._load[far], kind="stable")][:_HEAVY_ROWS]
        loads = self._load_of_members(base) / self._search.capacity
        tries = []
        for row in heavy[self._load[heavy] > 0].tolist():
            takes = self._search.eligible[self._search.row_class[row]]
            near = np.flatnonzero(takes & ~self._racks.far(np.array([row]), np.arange(len(loads))))
            tries += [(row, int(m)) for m in near[np.argsort(loads[near], kind="stable")][:_HEAVY_PARTNERS]]
        moved = rows[(self._owner[rows] >= 0) & (self._owner[rows] != base[rows])]
        moved = moved[np.argsort(-self._load[moved], kind="stable")][:_HEAVY_ROWS]
        return tries + [(row, int(self._owner[row])) for row in moved.tolist()]

    def _give_back(self, row: int, member: int, giver: int) -> None:
        rows = np.flatnonzero((self._now == member) & ~self._fixed)
        rows = rows[(rows != row) & self._search.eligible[self._search.row_class[rows], giver]]
        if len(rows):
            farther = self._racks.far(rows, np.array([giver])).astype(np.int64)
            farther -= self._racks.far(rows, np.array([member]))
            self._change(int(rows[np.argmin(farther * self._load[rows])]), giver)

    def some_members(self) -> Iterator[NDArray[np.int64]]:
        """Members with load across racks, the most first, each with the least loaded that are near it."""
        base = self.best
        rows = np.flatnonzero((base >= 0) & ~self._fixed)
        far = rows[self._racks.far(rows, base[rows])]
        across = np.bincount(base[far], self._load[far], minlength=len(self._top))
        for giver in np.argsort(-across, kind="stable").tolist():
            if across[giver] <= 0 or self.steps > _MOST_STEPS:
                return
            mine = far[(base[far] == giver) & (self.best[far] == giver)]
            heavy = mine[np.argsort(-self._load[mine], kind="stable")][:_HEAVY_ROWS]
            takes = self._search.eligible[self._search.row_class[heavy]]
            near = ~self._racks.far(heavy[:, None], np.arange(len(self._top))[None, :])
            loads = self._load_of_members(self.best)
            partners = np.flatnonzero((takes & near).any(axis=0))
            order = np.argsort(loads[partners] / self._search.capacity[partners], kind="stable")
            yield np.array([giver, *partners[order][:_PARTNERS].tolist()])

    def descend(
        self,
        start: Assignment,
        price: float,
        *,
        members: NDArray[np.int64],
        fixed: NDArray[np.bool_] | None = None,
    ) -> Assignment:
        """Take the best step until none gains; record each better assignment that keeps the largest load."""
        self._set(start)
        rows, takers = self._cells(members, self._fixed if fixed is None else fixed)
        while self.steps <= _MOST_STEPS:
            changes = self._best_step(rows, takers, price)
            if not changes:
                break
            for row, member in changes:
                self._change(row, member)
            self.steps += 1
            if (self._loads <= self._top * (1 + _EPSILON)).all():
                across = self._racks.load_across(self._load, self._now)
                if across < self._least - _EPSILON * self._scale:
                    self.best, self._least = self._now.copy(), across
        return self._now

    def _cells(
        self, members: NDArray[np.int64], fixed: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows = np.flatnonzero(np.isin(self._now, members) & ~fixed)
        if not self._search.is_small:
            order = np.lexsort((-self._load[rows], self._now[rows]))
            rows = rows[order]
            first = np.searchsorted(self._now[rows], self._now[rows])
            rows = rows[np.arange(len(rows)) - first < _ROWS_EACH]
        takes = self._search.eligible[self._search.row_class[rows]][:, members]
        row, member = np.nonzero(takes)
        return rows[row], members[member]

    def _change(self, row: int, member: int) -> None:
        giver = int(self._now[row])
        self._loads[giver] -= self._load[row]
        self._loads[member] += self._load[row]
        self._count(self._search.row_class[row], giver, member)
        self._now[row] = member

    def _count(self, number: int, giver: int, taker: int) -> None:
        for member, more in ((giver, -1), (taker, 1)):
            self._held[number, member] += more
            self._counts[member] += more

    def _above(self, loads: NDArray[np.float64], members: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(np.maximum(loads - self._top[members], 0.0))

    def _best_step(
        self, rows: NDArray[np.int64], takers: NDArray[np.int64], price: float
    ) -> list[tuple[int, int]]:
        givers = self._now[rows].astype(np.int64)
        keep = np.flatnonzero(givers != takers)
        rows, takers, givers = rows[keep], takers[keep], givers[keep]
        load, owner = self._load[rows], self._owner[rows]
        cost = (owner == givers).astype(np.int64) - (owner == takers)
        nearer = load * (self._racks.far(rows, takers).astype(np.int64) - self._racks.far(rows, givers))
        nearer += cost * _PRICE_OF_A_MOVE * self._scale
        above = self._rise(self._loads[givers], self._loads[takers], givers, takers, load)
        value = nearer + price * above
        first = np.argsort(value, kind="stable")[:_FIRST]
        budget = self._most_moves - self._moves()
        # A column for each second change, and one for none.
        both = value[first][:, None] + nearer + price * self._above_after(first, givers, takers, load)
        costs = cost[first][:, None] + cost
        both[(rows[first][:, None] == rows) | (costs > budget)] = 0.0
        alone = np.where(cost[first] <= budget, value[first], 0.0)
        both = np.column_stack([alone, both])
        costs = np.column_stack([cost[first], costs])
        i, j = np.nonzero(both < -_EPSILON * self._scale)
        weighed = both[i, j] / np.sqrt(np.maximum(costs[i, j], 0.5))
        changes = rows, givers, takers
        return self._first_allowed(changes, first[i], j - 1, weighed)

    def _above_after(
        self,
        first: NDArray[np.int64],
        givers: NDArray[np.int64],
        takers: NDArray[np.int64],
        load: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """What the second of two changes adds to the load above the largest, after the first: [F, N]."""
        giver, taker, shift = givers[first][:, None], takers[first][:, None], load[first][:, None]
        of_givers = self._loads[givers] + shift * ((givers == taker) * 1.0 - (givers == giver))
        of_takers = self._loads[takers] + shift * ((takers == taker) * 1.0 - (takers == giver))
        return self._rise(of_givers, of_takers, givers, takers, load)

    def _rise(
        self,
        of_givers: NDArray[np.float64],
        of_takers: NDArray[np.float64],
        givers: NDArray[np.int64],
        takers: NDArray[np.int64],
        load: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """What changes add to the load above the largest, from these loads of givers and takers."""
        result = self._above(of_givers - load, givers) - self._above(of_givers, givers)
        result += self._above(of_takers + load, takers) - self._above(of_takers, takers)
        return result

    def _first_allowed(
        self,
        changes: tuple[NDArray[np.int64], ...],
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        value: NDArray[np.float64],
    ) -> list[tuple[int, int]]:
        """Return the changes of the best step that the counts allow; `second` is -1 for none."""
        rows, givers, takers = changes
        if len(self._held) == 1:
            allowed = self._keeps_counts(givers, takers, first, second)
            first, second, value = first[allowed], second[allowed], value[allowed]
        checked: set[tuple[int, ...]] = set()
        for at in np.argsort(value, kind="stable").tolist():
            step = [int(first[at])] + ([int(second[at])] if second[at] >= 0 else [])
            kind = tuple(
                int(number)
                for each in step
                for number in (self._search.row_class[rows[each]], givers[each], takers[each])
            )
            if kind in checked:
                continue
            if self._keeps_gap([(kind[n], kind[n + 1], kind[n + 2]) for n in range(0, len(kind), 3)]):
                return [(int(rows[each]), int(takers[each])) for each in step]
            checked.add(kind)
            if len(checked) == _MOST_CHECKED:
                break
        return []

    def _keeps_counts(
        self,
        givers: NDArray[np.int64],
        takers: NDArray[np.int64],
        first: NDArray[np.int64],
        second: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Return which steps keep all counts within one of the windows that hold them now."""
        counts = self._counts[self._search.eligible[0]]
        low, high = int(counts.min()), int(counts.max())
        one, other = (givers[first], takers[first]), (givers[second], takers[second])
        has_second = second >= 0
        after = [
            self._counts[member]
            + (member == one[1])
            - (member == one[0])
            + has_second * ((member == other[1]) * 1 - (member == other[0]))
            for member in (*one, *other)
        ]
        least = np.minimum.reduce(after)
        most = np.maximum.reduce(after)
        windows = {min(max(w, high - self._gap), low) for w in (high - self._gap, low - 1, low)}
        return np.asarray(np.any([(least >= w) & (most <= w + self._gap) for w in windows], axis=0))

    def _gap_now(self) -> int:
        search = self._search
        most = np.where(self._held > 0, self._counts, 0).max(axis=1, initial=0)
        counts = np.where(search.eligible, self._counts, np.iinfo(np.int64).max)
        return int(np.where(most > 0, most - counts.min(axis=1), 0).max(initial=0))

    def _keeps_gap(self, changes: list[tuple[int, int, int]]) -> bool:
        for change in changes:
            self._count(*change)
        gap = self._gap_now()
        for number, giver, taker in changes:
            self._count(number, taker, giver)
        return gap <= self._gap
