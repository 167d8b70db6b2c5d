"""An assignment in the making, for placing by load: counts, loads and levels kept up to date (ADR 63)."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SCALE", "PlaceProblem", "PlaceState", "lacking"]

# Load per capacity is compared in thousandths.
SCALE = 1000
_SEVERAL = 2


@dataclass(frozen=True, eq=False)
class PlaceProblem:
    """What does not change: N rows that somebody takes, in K classes of equal takers, and M members.

    Attributes
    ----------
    load
        int64 [N], none negative; times 1000 their sum fits into 63 bits.
    row_class
        int64 [N].
    eligible
        bool [K, M].
    capacity
        int64 [M], all positive.
    count_slack
        By how much more than one counts may differ.
    """

    load: NDArray[np.int64]
    row_class: NDArray[np.int64]
    eligible: NDArray[np.bool_]
    capacity: NDArray[np.int64]
    count_slack: int

    @cached_property
    def is_equal(self) -> bool:
        """Whether everybody takes every row."""
        return len(self.eligible) == 1 and bool(self.eligible.all())

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
        capacity = int(self.capacity[self.eligible.any(axis=0)].sum())
        mean = int(self.load.sum()) * SCALE // capacity if capacity else 0
        return max(1, -(-mean // parts))


def lacking(top: NDArray[np.int64], count: NDArray[np.int64], count_slack: int) -> NDArray[np.int64]:
    """Return how many rows members lack: who has none is to get one of whoever has several.

    Parameters
    ----------
    top
        For each member, the largest count of a holder of a row that it takes.
    count, count_slack
        Its own count, and by how much more than one counts may differ.
    """
    is_left_out = (count == 0) & (top >= _SEVERAL)
    lacks: NDArray[np.int64] = np.maximum(top - 1 - count_slack - count, is_left_out)
    return lacks.clip(min=0)


class PlaceState:
    """Who has which rows.

    Parameters
    ----------
    problem
        The problem.
    target
        int64 [N], row → member or -1; it is copied.
    """

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
        return lacking(top, self.count, problem.count_slack)

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

    def heaviest(self, members: NDArray[np.int64]) -> int:
        """Return the first of ascending members by (-level, -count, index)."""
        levels = self.level[members]
        most = members[levels == levels.max()]
        return int(most[0] if len(most) == 1 else most[self.count[most].argmax()])
