"""`fair` and `fairest-sticky`: the two alternatives that KIP-54 discusses."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from assignor_core.algorithms.chains import balance
from assignor_core.algorithms.levels import raise_lowest
from assignor_core.algorithms.partition_classes import Classes, assignment_of_counts, classes_of
from assignor_core.assignors.base import COOPERATIVE, EAGER, Assignor
from assignor_core.group import Assignment, Group


@dataclass(frozen=True, slots=True)
class FairAssignor(Assignor):
    """Counts as even as subscriptions allow, from an empty start: current owners are ignored.

    Notes
    -----
    KIP-49 as KIP-54 describes it. The sum of squared counts is minimal, as with `sticky`.
    """

    name: ClassVar[str] = "fair"

    def assign(self, group: Group) -> Assignment:
        """Return the assignment; see the class for its promise."""
        classes = classes_of(group)
        fresh = Classes(classes.class_of_row, classes.eligible, classes.size, np.zeros_like(classes.owned))
        owners = np.full(group.num_partitions, -1, dtype=np.int32)
        return assignment_of_counts(
            group, fresh, _spread(fresh, np.zeros(group.num_members, dtype=np.int64)), owners
        )


@dataclass(frozen=True, slots=True)
class FairestStickyAssignor(Assignor):
    """No owned partition moves; free ones are placed so that counts are as even as possible.

    Notes
    -----
    KIP-54's other alternative, "fairest sticky". A member that joins a full group gets nothing.
    """

    name: ClassVar[str] = "fairest-sticky"
    protocols: ClassVar[tuple[str, ...]] = (COOPERATIVE, EAGER)

    def assign(self, group: Group) -> Assignment:
        """Return the assignment; see the class for its promise."""
        classes = classes_of(group)
        free = Classes(
            classes.class_of_row,
            classes.eligible,
            classes.size - classes.owned.sum(axis=1),
            np.zeros_like(classes.owned),
        )
        placed = _spread(free, classes.owned.sum(axis=0))
        return assignment_of_counts(group, classes, classes.owned + placed)


def _spread(classes: Classes, held: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many of each class every member gets beside what it owns: int64 [K, M]."""
    if len(classes.size) != 1:
        return balance(classes.owned, classes.eligible, classes.size, held=held)
    takers = np.flatnonzero(classes.eligible[0])
    spread = np.zeros_like(classes.owned)
    spread[0, takers] = raise_lowest(held[takers], int(classes.size[0])) - held[takers]
    return spread
