"""Further starts of the search of `lag-aware-sticky`: a move undone, or a heavy row reassigned first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from assignor_core.algorithms.load_search import LoadSearch
    from assignor_core.group import Assignment

__all__ = ["Found", "judge", "reconsider", "try_heavy_moves"]

_RECONSIDERED = 4
_RECONSIDERED_ROWS = 16
_HEAVY_ROWS = 3
_HEAVY_PARTNERS = 8


class Found(NamedTuple):
    """An assignment and its rank: excess of counts, loads by capacity in descending order, moves."""

    rank: tuple[int, list[float], int]
    assignment: Assignment


def judge(search: LoadSearch, allowed: int) -> Found:
    """Return the present assignment of a search with its rank: the smaller, the better."""
    loads = np.sort(search.ratios)[::-1]
    moved = int(((search.owner >= 0) & (search.owner != search.assignment)).sum())
    return Found((max(search.gap() - allowed, 0), loads.tolist(), moved), search.assignment.copy())


def reconsider(search: LoadSearch, allowed: int, found: Found, smallest_gain: float) -> Found:
    """Take back each move in turn, forbid it, and search again; this often spends a scarce budget better."""
    best = found
    for _ in range(_RECONSIDERED):
        before = best
        moved = np.flatnonzero((search.owner >= 0) & (search.owner != search.assignment))
        tries = [(row, int(search.owner[row])) for row in moved[:_RECONSIDERED_ROWS].tolist()]
        best = _try_each(search, allowed, best, smallest_gain, (search.save(), tries))
        if best is before:
            break
    return best


def try_heavy_moves(
    search: LoadSearch, allowed: int, found: Found, smallest_gain: float, begin: tuple[Assignment, int]
) -> Found:
    """Begin with each move of a heavy row of the most loaded member, and search on from there.

    Giving the heaviest away looks bad at first, for its taker is then the most loaded; it is good when
    the taker can pass its own on.
    """
    search.restore(begin)
    member = int(search.ratios.argmax())
    heavy = search.rows[member][::-1][:_HEAVY_ROWS].tolist()
    partners = np.argsort(search.ratios, kind="stable")[:_HEAVY_PARTNERS]
    tries = [
        (row, int(partner))
        for row in heavy
        for partner in partners
        if partner != member and search.eligible[search.row_class[row], partner] and not search.pinned[row]
    ]
    return _try_each(search, allowed, found, smallest_gain, (begin, tries))


def _try_each(
    search: LoadSearch,
    allowed: int,
    best: Found,
    smallest_gain: float,
    start: tuple[tuple[Assignment, int], list[tuple[int, int]]],
) -> Found:
    """From the same start, force each of (row, member) and search on; leave the search at the best."""
    saved, tries = start
    chosen = saved
    for row, member in tries:
        if search.effort > search.most_effort:
            break
        search.restore(saved)
        if search.limits.budget < 1 and search.assignment[row] == search.owner[row]:
            continue
        search.force(row, member)
        search.even_counts(allowed)
        search.limits.gap = allowed
        search.improve(smallest_gain)
        search.pinned[row] = False
        other = judge(search, allowed)
        if other.rank < best.rank:
            best, chosen = other, search.save()
    search.restore(chosen)
    return best
