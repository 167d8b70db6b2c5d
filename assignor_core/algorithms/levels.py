"""Even counts by arithmetic: filling the low, cutting the high, and how much of it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from assignor_core.algorithms.partition_classes import Classes


Counts = NDArray[np.int64]


def raise_lowest(counts: Counts, amount: int) -> Counts:
    """Return the counts after `amount` more, each given to the least (of equals to the first)."""
    if amount == 0 or not len(counts):
        return counts.copy()
    order = np.argsort(counts, kind="stable")
    ascending = counts[order]
    total = np.cumsum(ascending)
    # needed[i]: how many bring the first i + 1 up to the level of the last of them.
    needed = ascending * np.arange(1, len(counts) + 1) - total
    raised = int(np.searchsorted(needed, amount, side="right"))
    level, rest = divmod(int(total[raised - 1]) + amount, raised)
    filled = counts.copy()
    low = np.sort(order[:raised])
    filled[low] = level
    filled[low[:rest]] += 1
    return filled


def lower_highest(counts: Counts, amount: int) -> Counts:
    """Return the counts after `amount` fewer, each taken from the most (of equals from the last)."""
    return -raise_lowest(-counts[::-1], amount)[::-1]


def even_out(counts: Counts, free: int, count_slack: int) -> tuple[Counts, Counts]:
    """Return int64 [M] given up and [M] newly got so that counts differ by 1 + `count_slack` at most.

    First the free ones fill the low. Then moves from the highest to the lowest, as few as bring the
    difference down: cutting k from the top and filling k into the bottom are each the best that k moves
    can do, so the least sufficient k is the least there is.
    """
    low, high = 0, int(counts.sum())
    while low < high:
        moves = (low + high) // 2
        if _gap(counts, free, moves) <= 1 + count_slack:
            high = moves
        else:
            low = moves + 1
    given = counts - lower_highest(counts, low)
    got = raise_lowest(counts, free + low) - counts
    return given, got


def even_one_class(classes: Classes, count_slack: int) -> NDArray[np.int64]:
    """Return the counts wanted, int64 [1, M], for one class: by arithmetic alone."""
    members = np.flatnonzero(classes.eligible[0])
    owned = classes.owned[0, members]
    given, got = even_out(owned, int(classes.size[0] - owned.sum()), count_slack)
    wanted = classes.owned.copy()
    wanted[0, members] += got - given
    return wanted


def _gap(counts: Counts, free: int, moves: int) -> int:
    return int(lower_highest(counts, moves).max()) - int(raise_lowest(counts, free + moves).min())
