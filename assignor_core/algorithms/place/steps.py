"""The steps of placing by load that go by counts: free rows are placed, and missing rows are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assignor_core.algorithms.place.alike import place_rows, repair_rows
from assignor_core.algorithms.place.search import lower
from assignor_core.algorithms.place.state import lacking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from assignor_core.algorithms.place.state import PlaceState

__all__ = ["place", "repair", "share_of"]

# A free row costs nothing to place: smaller gains count than for rows that members own.
_GAIN_SHARE = 256
# Of many rows the order alone gives a good result; of few, exchanging some is quick.
_MAX_EXCHANGES = 32


def place(state: PlaceState, free: NDArray[np.int64]) -> None:
    """Give free rows to members, heaviest first, then exchange them while that lowers the largest levels.

    Whoever lacks rows by the count rule must get them, but only when no more rows are left than are
    lacking: until then the level decides.
    """
    problem = state.problem
    order = free[np.lexsort((free, -problem.load[free]))]
    if problem.is_equal:
        place_rows(state, order)
    else:
        _place_one_by_one(state, order)
    movable = np.zeros(len(problem.load), dtype=np.bool_)
    movable[free] = True
    lower(state, min(2 * len(free), _MAX_EXCHANGES), _GAIN_SHARE, movable)


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
        member = state.lightest(pool)
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
        needs = lacking(self._top[members], state.count[members], state.problem.count_slack)
        self.total += int(needs.sum() - self._needs[members].sum())
        self._needs[members] = needs


def repair(state: PlaceState, budget: int, owned: NDArray[np.bool_], *, empty_only: bool) -> int:
    """Give members that lack rows by the count rule one after the other, from whoever has too many.

    Parameters
    ----------
    state
        It is changed.
    budget
        How many rows may move.
    owned
        bool [N]: only these move.
    empty_only
        Whether only members without any row get one.

    Returns
    -------
    int
        What is left of the budget.
    """
    if state.problem.is_equal:
        return repair_rows(state, budget, owned, empty_only=empty_only)
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
        num_rows, num_members, load, capacity = share_of(state, member)
        missing = max(1, num_rows // num_members - count)
        room = max(0, load * int(problem.capacity[member]) // capacity - int(state.sum[member]))
        loads = problem.load[rows]
        fits = loads <= room
        if fits.any():
            rows, loads = rows[fits], loads[fits]
        state.put(int(rows[np.abs(loads - room // missing).argmin()]), member)
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


def share_of(state: PlaceState, member: int) -> tuple[int, int, int, int]:
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
