"""A lower bound of the largest load by capacity, over all assignments of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.algorithms.partition_classes import Classes
    from assignor_core.group import Group

__all__ = ["lower_bound"]


def lower_bound(
    group: Group,
    classes: Classes,
    load: NDArray[np.float64],
    capacity: NDArray[np.float64],
    pinned: NDArray[np.bool_],
) -> tuple[float, int]:
    """Return the largest known lower bound, and the row that alone causes it, or -1."""
    row_class = classes.class_of_row
    rows = np.flatnonzero(row_class >= 0)
    by_class = np.bincount(row_class[rows], load[rows], minlength=len(classes.size))
    # The load that the members of a class must share: all classes without subscribers outside of it.
    outside = classes.eligible.astype(np.int64) @ (~classes.eligible).astype(np.int64).T
    must = (by_class[:, None] * (outside == 0)).sum(axis=0)
    shares = must / (classes.eligible * capacity).sum(axis=1)
    everybody = classes.eligible.any(axis=0)
    bound = max(float(shares.max()), float(by_class.sum() / capacity[everybody].sum()))
    fixed = np.flatnonzero(pinned & (group.live_owner >= 0))
    if len(fixed):
        held = np.bincount(group.live_owner[fixed], load[fixed], minlength=group.num_members)
        bound = max(bound, float((held / capacity).max()))
    largest = (classes.eligible * capacity).max(axis=1)
    single = load[rows] / largest[row_class[rows]]
    heaviest = int(single.argmax()) if len(single) else -1
    if heaviest >= 0 and float(single[heaviest]) > bound:
        return float(single[heaviest]), int(rows[heaviest])
    return bound, -1
