"""Where a partition was with two consumers at once, by their own accounts."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

OWNERSHIP_EVENTS = ("assigned", "revoked", "lost")


def find_double_owners(events: Iterable[tuple[str, str, int, int]]) -> list[str]:
    """Return a line for each pair of owners of one partition at once.

    A consumer that lost its partitions hears of it after the coordinator has given them to another: a span
    that ends so may overlap.

    events: Name, one of `OWNERSHIP_EVENTS`, partition and time, those of one consumer by time.
    """
    spans: dict[int, list[tuple[int, int, str, str]]] = {}
    since: dict[tuple[str, int], int] = {}
    for name, kind, number, at in events:
        if kind == "assigned":
            since[name, number] = at
        elif kind in OWNERSHIP_EVENTS:
            spans.setdefault(number, []).append((since.pop((name, number)), at, name, kind))
    for (name, number), at in since.items():
        spans.setdefault(number, []).append((at, sys.maxsize, name, "held"))
    return [
        f"partition {number}: {one} and {other}"
        for number, of_partition in spans.items()
        for one, other in pairwise(sorted(of_partition))
        if other[0] < one[1] and one[3] != "lost"
    ]
