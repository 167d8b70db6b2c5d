"""`lag-aware-sticky`: load evened out by few moves, within limits that a person sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from assignor_core.algorithms.load_search import LoadSearch
from assignor_core.algorithms.load_start import place_free
from assignor_core.algorithms.partition_classes import classes_of
from assignor_core.assignors.base import COOPERATIVE, EAGER
from assignor_core.errors import ProblemError
from assignor_core.metrics import count_moves
from assignor_core.verify import largest_count_gap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.algorithms.partition_classes import Classes
    from assignor_core.group import Assignment, Group

__all__ = ["LagAwareStickyAssignor", "LoadPlan"]

_DOMINATES = 0.98
# Where moves are scarce, neither the largest gain first nor the largest gain a move is always better: a
# group of few partitions is planned with each, and the best plan taken.
_THRIFTS = (1.0, 0.0)
_SMALL = 10_000
_RECONSIDERED = 4
_RECONSIDERED_ROWS = 16
_UPSET_ROWS = 3
_UPSET_PARTNERS = 8
# A plan as near to the bound as this is not worth more search.
_NEAR = 0.002
# Sums of loads in another order may differ by less than this share.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class LoadPlan:
    """A target with what can be said about it.

    Attributes
    ----------
    assignment
        int32 [P].
    moves
        Rows that leave an owner that lives, also one that does not take them any more.
    max_ratio_before, max_ratio
        The largest load by capacity: with what is free placed and nothing moved, and in the plan.
    bound
        What no assignment can be below: eligible capacity, single partitions, and pinned ones.
    count_excess
        By how much the counts differ more than allowed, for want of moves; 0 when they do not.
    dominating_row
        The row that alone makes up the bound, or -1. Then the load is not fixable by rebalancing.
    """

    assignment: Assignment
    moves: int
    max_ratio_before: float
    max_ratio: float
    bound: float
    count_excess: int
    dominating_row: int

    @property
    def optimality_gap(self) -> float:
        """How far the plan is above the bound, as a share of it; 0.0 without any load."""
        return self.max_ratio / self.bound - 1.0 if self.bound > 0 else 0.0


@dataclass(frozen=True, slots=True)
class LagAwareStickyAssignor:
    """Even load by few moves; the pipeline's default.

    In this order: (1) valid, and free partitions placed, which is no move; (2) at most `max_moves` moves;
    (3) no partition can go to a member with 2 + `count_slack` fewer, else the least excess, reported;
    (4) the descending vector of load by capacity as small as the search finds it; (5) few moves. The
    search takes moves and swaps from the most loaded member down: it is near the optimum, not proved to
    reach it, so `LoadPlan.bound` says how far off it can be at most. Partitions without load spread by
    count.

    Parameters
    ----------
    max_moves
        None for no limit.
    count_slack
        See (3).
    min_gain
        The relative fall of the largest load that a plan must bring, and that every single move or swap
        in it must add, from 0 to below 1. A plan that brings less keeps everything where it is.
    effort
        How many steps may be looked for, in all, before a small group's plan is taken as it is. With 0 the
        search goes down once and tries nothing else: a twentieth of the time, and a little above.

    Notes
    -----
    The target is planned once: follow-up rounds complete it (`protocol.settle`) and open no new budget.
    """

    name: ClassVar[str] = "lag-aware-sticky"
    protocols: ClassVar[tuple[str, ...]] = (COOPERATIVE, EAGER)
    plans_once: ClassVar[bool] = True
    max_moves: int | None = None
    count_slack: int = 1
    min_gain: float = 0.0
    effort: int = 250

    def __post_init__(self) -> None:
        if min(self.count_slack, self.effort, self.max_moves or 0) < 0:
            raise ProblemError(
                f"limits cannot be negative: max_moves {self.max_moves}, count_slack {self.count_slack}, "
                f"effort {self.effort}"
            )
        if not 0 <= self.min_gain < 1:
            raise ProblemError(f"min_gain must be from 0 to below 1: {self.min_gain}")

    def assign(self, group: Group) -> Assignment:
        """Return the target for the lag as load and equal capacities; see the class for its promise."""
        return self.plan(group).assignment

    def plan(
        self,
        group: Group,
        *,
        load: NDArray[np.float64] | None = None,
        capacity: NDArray[np.float64] | None = None,
        pinned: NDArray[np.bool_] | None = None,
    ) -> LoadPlan:
        """Return the target and its figures.

        Parameters
        ----------
        load
            [P], what adds up to a member's load: lag, rate, or a mix; the lag without it. None negative.
        capacity
            [M], what a member can bear, relative to the others; all alike without it. All positive.
        pinned
            [P], rows that must stay where they are (their lag is not known, say).

        Raises
        ------
        ProblemError
            If a load is negative, a capacity not positive, or a shape wrong.
        """
        loads = group.lag.astype(np.float64) if load is None else np.asarray(load, dtype=np.float64)
        capacities = (
            np.ones(group.num_members) if capacity is None else np.asarray(capacity, dtype=np.float64)
        )
        fixed = np.zeros(group.num_partitions, dtype=np.bool_) if pinned is None else pinned
        _check_inputs(group, loads, capacities, fixed)
        classes = classes_of(group)
        if not len(classes.size) or not group.num_partitions:
            nothing = np.full(group.num_partitions, -1, dtype=np.int32)
            return LoadPlan(nothing, count_moves(group, nothing), 0.0, 0.0, 0.0, 0, -1)
        return self._plan(group, classes, loads, capacities, fixed)

    def _plan(
        self,
        group: Group,
        classes: Classes,
        load: NDArray[np.float64],
        capacity: NDArray[np.float64],
        pinned: NDArray[np.bool_],
    ) -> LoadPlan:
        start = place_free(group, classes, load, capacity)
        forced = count_moves(group, start)
        budget = group.num_partitions if self.max_moves is None else max(self.max_moves - forced, 0)
        held = start >= 0
        before = float((np.bincount(start[held], load[held], minlength=group.num_members) / capacity).max())
        allowed = 1 + self.count_slack
        is_small = group.num_partitions * group.num_members <= _SMALL
        bound, row = _bound(group, classes, load, capacity, pinned)
        # No plan is below the bound: where even that gains too little, there is nothing to look for.
        gains_too_little = bound * (1 - _ROUNDING) > before * (1 - self.min_gain)
        if self.min_gain > 0 and gains_too_little and largest_count_gap(group, start) <= allowed:
            only = row if bound >= _DOMINATES * before else -1
            return LoadPlan(start, forced, before, before, bound, 0, only)
        # What is left above the bound, then, is less than a single move has to bring.
        enough = bound + max(bound * _NEAR, self.min_gain * before)
        best: _Found | None = None
        for thrift in _THRIFTS if is_small and self.effort else _THRIFTS[:1]:
            search = LoadSearch(
                group,
                classes,
                start,
                load=load,
                capacity=capacity,
                pinned=pinned,
                budget=budget,
                thrift=thrift,
                most_effort=self.effort,
            )
            found = self._search(search, allowed, enough)
            best = found if best is None or found.rank < best.rank else best
            if best.rank[0] == 0 and best.rank[1][0] <= enough:
                break
        assert best is not None  # noqa: S101 - there is one thrift at least
        return LoadPlan(
            assignment=best.assignment,
            moves=count_moves(group, best.assignment),
            max_ratio_before=before,
            max_ratio=best.rank[1][0],
            bound=bound,
            count_excess=best.rank[0],
            dominating_row=row if row >= 0 and bound >= _DOMINATES * best.rank[1][0] else -1,
        )

    def _search(self, search: LoadSearch, allowed: int, enough: float) -> _Found:
        begin = search.snapshot()
        search.even_counts(allowed)
        search.limits.gap = allowed
        kept, kept_found = search.snapshot(), _found(search, allowed)
        kept_max = kept_found.rank[1][0]
        smallest = self.min_gain * kept_max
        search.improve(smallest)
        found = _found(search, allowed)
        if search.is_small and self.effort and found.rank[1][0] > enough:
            found = _reconsider(search, allowed, found, smallest)
            found = _upset(search, allowed, found, smallest, begin)
        if self.min_gain > 0 and found.rank[1][0] > kept_max * (1 - self.min_gain):
            search.restore(kept)
            return kept_found
        return found


class _Found(NamedTuple):
    """An assignment and what it is judged by: excess of counts, loads from the largest on, moves."""

    rank: tuple[int, list[float], int]
    assignment: Assignment


def _found(search: LoadSearch, allowed: int) -> _Found:
    loads = np.sort(search.ratios)[::-1]
    moved = int(((search.owner >= 0) & (search.owner != search.assignment)).sum())
    return _Found((max(search.gap() - allowed, 0), loads.tolist(), moved), search.assignment.copy())


def _reconsider(search: LoadSearch, allowed: int, found: _Found, smallest_gain: float) -> _Found:
    """Take back each move in turn, forbid it, and search again; a scarce budget is often spent better so."""
    best = found
    for _ in range(_RECONSIDERED):
        before = best
        moved = np.flatnonzero((search.owner >= 0) & (search.owner != search.assignment))
        tries = [(row, int(search.owner[row])) for row in moved[:_RECONSIDERED_ROWS].tolist()]
        best = _try_each(search, allowed, best, smallest_gain, (search.snapshot(), tries))
        if best is before:
            break
    return best


def _upset(
    search: LoadSearch, allowed: int, found: _Found, smallest_gain: float, begin: tuple[Assignment, int]
) -> _Found:
    """Begin with each move of a heavy row of the most loaded member, and search on from there.

    Giving the heaviest away looks bad at first, for its taker is then the most loaded; it is good when
    the taker can pass its own on.
    """
    search.restore(begin)
    member = int(search.ratios.argmax())
    heavy = search.rows[member][::-1][:_UPSET_ROWS].tolist()
    partners = np.argsort(search.ratios, kind="stable")[:_UPSET_PARTNERS]
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
    best: _Found,
    smallest_gain: float,
    start: tuple[tuple[Assignment, int], list[tuple[int, int]]],
) -> _Found:
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
        other = _found(search, allowed)
        if other.rank < best.rank:
            best, chosen = other, search.snapshot()
    search.restore(chosen)
    return best


def _check_inputs(
    group: Group,
    load: NDArray[np.float64],
    capacity: NDArray[np.float64],
    pinned: NDArray[np.bool_],
) -> None:
    shapes = load.shape, capacity.shape, pinned.shape
    if shapes != ((group.num_partitions,), (group.num_members,), (group.num_partitions,)):
        raise ProblemError(f"load, capacity and pinned have the shapes {shapes}")
    if not (np.isfinite(load).all() and np.isfinite(capacity).all()):
        raise ProblemError("loads and capacities must be finite")
    if (load < 0).any() or (capacity <= 0).any():
        raise ProblemError("a load cannot be negative, and a capacity must be positive")


def _bound(
    group: Group,
    classes: Classes,
    load: NDArray[np.float64],
    capacity: NDArray[np.float64],
    pinned: NDArray[np.bool_],
) -> tuple[float, int]:
    """Return the largest lower bound known of the largest ratio, and the row that alone makes it, or -1."""
    row_class = classes.class_of_row
    rows = np.flatnonzero(row_class >= 0)
    by_class = np.bincount(row_class[rows], load[rows], minlength=len(classes.size))
    # What the members of a class must bear: all classes that nobody outside of it can take.
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
