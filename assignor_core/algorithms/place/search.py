"""The search of placing by load: single moves and swaps away from the member with the highest level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assignor_core.algorithms.place.state import SCALE
from assignor_core.record import MAX_NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from assignor_core.algorithms.place.state import PlaceState

__all__ = ["lower"]

_RECEIVERS = 16
_MAX_SWAPS = 64
_NEVER = np.iinfo(np.int64).max
# A load, and what is larger than any.
_LOAD_BITS = 32
_SWAP_COLUMNS = 4


def lower(state: PlaceState, budget: int, gain_share: int, movable: NDArray[np.bool_] | None = None) -> None:
    """Lower the highest levels while a move or a swap gains enough.

    Parameters
    ----------
    state
        It is changed.
    budget
        A move costs one, a swap two.
    gain_share
        A step must gain at least this part of the mean level: 32 for a 32nd.
    movable
        bool [N], which rows may move; all without it.
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
