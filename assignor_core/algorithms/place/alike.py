"""Placing and repairing where everybody takes every row: by heaps, a few steps of logarithmic cost a row.

The result is that of the general steps in `assignor_core.algorithms.place.steps`, which look at all members
for each row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from assignor_core.algorithms.place.state import SCALE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.algorithms.place.state import PlaceState

__all__ = ["place_rows", "repair_rows"]

# With so many rows somebody is overloaded beside one with none.
_SEVERAL = 2


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


def place_rows(state: PlaceState, order: NDArray[np.int64]) -> None:
    """Give free rows to members, in this order.

    Parameters
    ----------
    state
        It is changed.
    order
        The free rows, heaviest first.
    """
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


def repair_rows(state: PlaceState, budget: int, owned: NDArray[np.bool_], *, empty_only: bool) -> int:
    """Give members that lack rows one after the other, each from the heaviest that has too many.

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
