"""Where the search for an even load begins: what is owned stays, what is free is placed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assignor_core.algorithms.chains import fill_free
from assignor_core.algorithms.partition_classes import give_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.algorithms.partition_classes import Classes
    from assignor_core.group import Assignment, Group

__all__ = ["place_free"]


def place_free(
    group: Group,
    classes: Classes,
    load: NDArray[np.float64],
    capacity: NDArray[np.float64],
) -> Assignment:
    """Return the live owners' assignment with all free rows placed: the heavy by load, the idle by count.

    Counts decide how many a member gets; which ones it gets is decided by load, the heaviest first, each
    to the member that is least loaded for its capacity and still has room.
    """
    assignment = group.live_owner.copy()
    row_class = classes.class_of_row
    free = np.flatnonzero((assignment < 0) & (row_class >= 0))
    if not len(free):
        return assignment
    heavy = free[load[free] > 0]
    heavy = heavy[np.argsort(-load[heavy], kind="stable")]
    if not len(heavy):
        return give_out(group, classes, fill_free(classes.owned, classes.eligible, classes.size))
    room = fill_free(classes.owned, classes.eligible, classes.size) - classes.owned
    held = assignment >= 0
    loads = np.bincount(assignment[held], load[held], minlength=group.num_members).astype(np.float64)
    if len(classes.size) == 1:
        _deal_in_rounds(heavy, load, assignment, loads, capacity, room[0])
    else:
        _deal_one_by_one(heavy, load, assignment, loads, capacity, room, row_class)
    idle = free[assignment[free] < 0]
    order = np.argsort(row_class[idle], kind="stable")
    everybody = np.tile(np.arange(group.num_members, dtype=np.int32), len(room))
    assignment[idle[order]] = np.repeat(everybody, room.ravel())
    return assignment


def _deal_in_rounds(
    rows: NDArray[np.int64],
    load: NDArray[np.float64],
    assignment: Assignment,
    loads: NDArray[np.float64],
    capacity: NDArray[np.float64],
    room: NDArray[np.int64],
) -> None:
    """Give each member with room one row a round, the heaviest to the least loaded: one sort a round."""
    start = 0
    while start < len(rows):
        takers = np.flatnonzero(room > 0)
        takers = takers[np.argsort(loads[takers] / capacity[takers], kind="stable")]
        batch = rows[start : start + len(takers)]
        takers = takers[: len(batch)]
        # Only those that stay below the most loaded after their share take part while that matters;
        # a round in which somebody is far ahead already leaves it out.
        behind = loads[takers] / capacity[takers] <= (loads[takers[0]] + load[batch[0]]) / capacity[takers[0]]
        takers, batch = takers[behind], batch[: int(behind.sum())]
        assignment[batch] = takers
        loads[takers] += load[batch]
        room[takers] -= 1
        start += len(batch)


def _deal_one_by_one(
    rows: NDArray[np.int64],
    load: NDArray[np.float64],
    assignment: Assignment,
    loads: NDArray[np.float64],
    capacity: NDArray[np.float64],
    room: NDArray[np.int64],
    row_class: NDArray[np.int32],
) -> None:
    for row, number in zip(rows.tolist(), row_class[rows].tolist(), strict=True):
        takers = np.flatnonzero(room[number] > 0)
        member = takers[np.argmin((loads[takers] + load[row]) / capacity[takers])]
        assignment[row] = member
        loads[member] += load[row]
        room[number, member] -= 1
