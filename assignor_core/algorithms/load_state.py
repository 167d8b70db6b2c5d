"""An assignment in the making, for the search of `lag-aware-sticky`: owners, loads and counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.algorithms.partition_classes import Classes
    from assignor_core.group import Assignment, Group

__all__ = ["MANY", "LoadState", "Step"]

# Below this many cells of rows x members a group is small: all pairs are searched.
_SMALL = 2_000
# More than any count of partitions.
MANY = np.iinfo(np.int64).max // 2


class Step(NamedTuple):
    """A move of `row` to `to`, with `back` in exchange if that is no -1."""

    value: float
    cost: int
    row: int
    to: int
    back: int


@dataclass(slots=True)
class Limits:
    """What a search may still do.

    Attributes
    ----------
    budget
        How many more rows may leave their live owners.
    gap
        The largest allowed difference of counts over which a partition could be moved.
    """

    budget: int
    gap: int


class LoadState:
    """Which member has which rows, with loads and counts kept up to date step by step.

    Parameters
    ----------
    group, classes
        The group and its classes.
    assignment
        int32 [P] to begin with; it is copied.
    load, capacity
        float64 [P] and [M].
    pinned
        bool [P], rows that may not leave their live owner.
    budget
        How many rows may leave their live owners in all.
    """

    def __init__(
        self,
        group: Group,
        classes: Classes,
        assignment: Assignment,
        *,
        load: NDArray[np.float64],
        capacity: NDArray[np.float64],
        pinned: NDArray[np.bool_],
        budget: int,
    ) -> None:
        self.load = load
        self.capacity = capacity
        self.owner = group.live_owner
        self.pinned: NDArray[np.bool_] = pinned & (self.owner >= 0)
        self.has_pins = bool(self.pinned.any())
        self.row_class = classes.class_of_row
        self.eligible = classes.eligible
        self.limits = Limits(budget, 0)
        self.is_small = group.num_partitions * group.num_members <= _SMALL
        self._set(assignment)

    def _set(self, assignment: Assignment) -> None:
        self.assignment = assignment.copy()
        placed = np.flatnonzero(assignment >= 0)
        num_classes, num_members = self.eligible.shape
        loads = np.bincount(assignment[placed], self.load[placed], minlength=num_members)
        self.loads = loads.astype(np.float64)
        cells = self.row_class[placed].astype(np.int64) * num_members + assignment[placed]
        held = np.bincount(cells, minlength=num_classes * num_members)
        self.held = held.reshape(num_classes, num_members).astype(np.int64)
        self.counts = self.held.sum(axis=0)
        order = placed[np.lexsort((placed, self.load[placed], assignment[placed]))]
        self.rows = np.split(order, np.cumsum(self.counts)[:-1])

    def save(self) -> tuple[Assignment, int]:
        """Return what `restore` needs to return to this state."""
        return self.assignment.copy(), self.limits.budget

    def force(self, row: int, to: int) -> None:
        """Give a row to a member, whatever that does to loads and counts, and pin it there."""
        giver = int(self.assignment[row])
        cost = int(self.move_costs(np.array([row]), giver, to)[0])
        self.apply(Step(0.0, cost, row, to, -1))
        self.pinned[row] = self.has_pins = True

    def restore(self, saved: tuple[Assignment, int]) -> None:
        """Return to a saved state; see `save`."""
        self._set(saved[0])
        self.limits.budget = saved[1]

    @property
    def ratios(self) -> NDArray[np.float64]:
        """Load by capacity: float64 [M]."""
        return np.asarray(self.loads / self.capacity, dtype=np.float64)

    def gap(self) -> int:
        """Return the largest difference of counts over which a partition could go."""
        most, least = self.class_extremes()
        return int((most - least).max(initial=0))

    def class_extremes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the most partitions of an owner of each class and the fewest of a subscriber: [K] each."""
        most = np.where(self.held > 0, self.counts, 0).max(axis=1, initial=0)
        least = np.where(self.eligible, self.counts, MANY).min(axis=1, initial=MANY)
        return most, np.where(most > 0, least, 0)

    def pair_value(self, giver: int, taker: int, shift: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the larger load by capacity of two members after each shift of load from giver to taker."""
        left = (self.loads[giver] - shift) / self.capacity[giver]
        right = (self.loads[taker] + shift) / self.capacity[taker]
        return np.asarray(np.maximum(left, right), dtype=np.float64)

    def movable_rows(self, giver: int, taker: int) -> NDArray[np.int64]:
        """Return the giver's rows that are not pinned and that the taker subscribes to, ascending by load."""
        rows = self.rows[giver]
        movable: NDArray[np.int64] = rows[self.eligible[self.row_class[rows], taker] & ~self.pinned[rows]]
        return movable

    def move_costs(self, rows: NDArray[np.int64], giver: int, taker: int) -> NDArray[np.int64]:
        """Return what each move costs of the budget: 1 from the live owner, -1 back to it, else 0."""
        owner = self.owner[rows]
        return np.asarray((owner == giver).astype(np.int64) - (owner == taker), dtype=np.int64)

    def apply(self, step: Step) -> None:
        """Take a step."""
        giver = int(self.assignment[step.row])
        self._hand_over(step.row, giver, step.to)
        if step.back >= 0:
            self._hand_over(step.back, step.to, giver)
        self.limits.budget -= step.cost

    def _hand_over(self, row: int, giver: int, taker: int) -> None:
        number = self.row_class[row]
        self.assignment[row] = taker
        for member, sign in ((giver, -1), (taker, 1)):
            self.loads[member] += sign * self.load[row]
            self.counts[member] += sign
            self.held[number, member] += sign
        kept = self.rows[giver]
        self.rows[giver] = kept[kept != row]
        place = int(np.searchsorted(self.load[self.rows[taker]], self.load[row]))
        taken = self.rows[taker]
        self.rows[taker] = np.concatenate((taken[:place], [row], taken[place:]))
