"""`lag-aware-sticky`: load evened out by few moves, within the limits of a policy."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from assignor_core.algorithms.load_search import (
    LoadSearch,
    RankedAssignment,
    bound_of_counts,
    bound_of_moves,
    lower_bound,
    place_free_by_load,
    ranked_assignment,
    search_from_heavy_moves,
    search_without_each_move,
)
from assignor_core.algorithms.partition_classes import Classes, classes_of
from assignor_core.algorithms.rack_search import racks_of, search_near
from assignor_core.assignors.base import COOPERATIVE, COUNT_SLACK, EAGER, WHOLE_BELOW, Assignor, Parameter
from assignor_core.errors import ProblemError
from assignor_core.group import Assignment, Group
from assignor_core.metrics import count_moves
from assignor_core.verify import largest_count_gap

# Where moves are scarce, neither the largest gain first nor the largest gain a move is always better: a
# group of few partitions is planned with each, and the best plan taken.
_THRIFTS = (1.0, 0.0)
_SMALL = 10_000
# A plan as near to the bound as this is not worth more search.
_NEAR = 0.002
# Sums of loads in another order may differ by less than this share.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class LoadPlan:
    """A target and its figures.

    Attributes
    ----------
    assignment
        int32 [P].
    moves
        Rows that leave a live owner, or an owner that no longer subscribes to them.
    max_ratio_before, max_ratio
        The largest load by capacity: with free rows placed and nothing moved, and in the plan.
    bound
        A lower bound of it for any assignment: from eligible capacity, single partitions and pinned ones.
    count_excess
        By how much counts differ more than allowed because moves ran out; 0 when they do not.
    """

    assignment: Assignment
    moves: int
    max_ratio_before: float
    max_ratio: float
    bound: float
    count_excess: int

    @property
    def optimality_gap(self) -> float:
        """How far the plan is above the bound, as a share of it; 0.0 without any load."""
        return self.max_ratio / self.bound - 1.0 if self.bound > 0 else 0.0


@dataclass(frozen=True, slots=True)
class LagAwareStickyAssignor(Assignor):
    """Even load by few moves and swaps, within `max_moves` and `count_slack`; the default of policies.

    In this order: (1) valid, and free partitions placed, which is no move; (2) at most `max_moves` moves;
    (3) no partition can go to a member with 2 + `count_slack` fewer, else an excess, reported: the least
    where all members take the same topics and nothing is pinned, else what single moves reach; (4) the
    descending vector of load by capacity as small as the search finds it; (5) few moves. Where racks are
    known, (4) gives way to less load across racks, within `rack_tolerance`. The search takes moves and swaps
    from the most loaded member down: it is near the optimum, not proved to reach it, so `LoadPlan.bound` says
    how far off it can be at most. Partitions without load spread by count.

    Parameters
    ----------
    max_moves
        None for no limit.
    count_slack
        See (3).
    min_gain
        The relative fall of the largest load that a plan must bring, and that every single move or swap
        in it must add, from 0 to below 1. A plan that brings less keeps everything where it is.
    rack_tolerance
        By what share the largest load may exceed the least that the search finds, so that members read less
        load from partitions without a replica in their rack. Without known racks it has no effect.
    effort
        How many steps may be searched, in all, before a small group's plan is final. With 0 the search
        descends once and tries nothing else: a twentieth of the time, and a slightly larger maximum.

    Notes
    -----
    The target is planned once: follow-up rounds complete it (`protocol.settle`) and open no new budget.
    """

    name: ClassVar[str] = "lag-aware-sticky"
    protocols: ClassVar[tuple[str, ...]] = (COOPERATIVE, EAGER)
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("max_moves", int, "partitions that may change owner", below=WHOLE_BELOW),
        COUNT_SLACK,
        Parameter(
            "min_gain", float, "relative fall of the largest member load that a plan must bring", below=1
        ),
        Parameter(
            "rack_tolerance",
            float,
            "share by which the largest load may exceed the least found, for less load across racks",
            below=1,
        ),
        Parameter(
            "effort",
            int,
            "searched steps before a small group's plan is final",
            below=WHOLE_BELOW,
            in_simulations=0,
        ),
    )
    uses_lag: ClassVar[bool] = True
    uses_load: ClassVar[bool] = True
    plans_once: ClassVar[bool] = True
    max_moves: int | None = None
    count_slack: int = 1
    min_gain: float = 0.0
    rack_tolerance: float = 0.02
    effort: int = 250

    def assign(self, group: Group) -> Assignment:
        """Return the target for the lag as load and equal capacities; see the class for its promise."""
        return self.plan(group).assignment

    def target(
        self, group: Group, *, load: NDArray[Any], capacity: NDArray[Any], pinned: NDArray[Any]
    ) -> Assignment:
        """Return the assignment planned around the pinned rows.

        Parameters
        ----------
        group, load, capacity, pinned
            As for `Assignor.target`.
        """
        return self.plan(group, load=load, capacity=capacity, pinned=pinned).assignment

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
        group
            Members, subscriptions, owners and lags; not changed.
        load
            [P], what each row adds to its member's load, none negative; the lag without it.
        capacity
            [M], what each member can process, relative to the others; all alike without it. All positive.
        pinned
            [P], rows that must stay where they are, e.g. because their lag is unknown.

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
            return LoadPlan(nothing, count_moves(group, nothing), 0.0, 0.0, 0.0, 0)
        return self._plan(group, classes, loads, capacities, fixed)

    def _plan(
        self, group: Group, classes: Classes, load: NDArray[Any], capacity: NDArray[Any], pinned: NDArray[Any]
    ) -> LoadPlan:
        start = place_free_by_load(group, classes, load, capacity)
        forced = count_moves(group, start)
        budget = group.num_partitions if self.max_moves is None else max(self.max_moves - forced, 0)
        held = start >= 0
        before = float((np.bincount(start[held], load[held], minlength=group.num_members) / capacity).max())
        allowed = 1 + self.count_slack
        is_small = group.num_partitions * group.num_members <= _SMALL
        bound = lower_bound(group, classes, load, capacity, pinned)
        # No plan within the limits is below this: where even that gains too little, there is nothing to do.
        within = max(
            bound,
            bound_of_counts(classes, load, capacity, allowed),
            bound_of_moves(group, load, capacity, pinned, budget),
        )
        gains_too_little = within * (1 - _ROUNDING) > before * (1 - self.min_gain)
        if self.min_gain > 0 and gains_too_little and largest_count_gap(group, start) <= allowed:
            return LoadPlan(start, forced, before, before, bound, 0)
        # What is left above the bound, then, is less than a single move has to bring.
        nearest = within * (1 + _NEAR)
        enough = max(nearest, bound + self.min_gain * before)
        best: RankedAssignment | None = None
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
                nearest=nearest,
            )
            found = self._search(search, allowed, enough)
            best = found if best is None or found.rank < best.rank else best
            if best.rank[0] == 0 and best.rank[1][0] <= enough:
                break
        assert best is not None  # noqa: S101 - there is one thrift at least
        best = self._nearer(group, search, start, budget, best)
        return LoadPlan(
            assignment=best.assignment,
            moves=count_moves(group, best.assignment),
            max_ratio_before=before,
            max_ratio=best.rank[1][0],
            bound=bound,
            count_excess=best.rank[0],
        )

    def _nearer(
        self, group: Group, search: LoadSearch, start: Assignment, budget: int, found: RankedAssignment
    ) -> RankedAssignment:
        """Return the plan with less load across racks, within the tolerance; as it is without racks."""
        racks, allowed = racks_of(group), 1 + self.count_slack
        if racks is None:
            return found
        search.restore((start, budget))
        search.even_counts(allowed)
        kept, kept_max = search.assignment, float(search.ratios.max())
        largest = found.rank[1][0]
        ceiling, movable = largest * (1 + self.rack_tolerance), None
        if self.min_gain > 0:
            least_gain = kept_max * (1 - self.min_gain)
            if largest > least_gain:
                # Nothing moves for its load, and so nothing for its racks: only free rows have a choice.
                movable = search.owner < 0
            ceiling = max(largest, min(ceiling, least_gain))
        search.restore((found.assignment, budget))
        search.max_gap = allowed
        search.restore((search_near(search, racks, kept, ceiling, movable), 0))
        return ranked_assignment(search, allowed)

    def _search(self, search: LoadSearch, allowed: int, enough: float) -> RankedAssignment:
        begin = search.save()
        search.even_counts(allowed)
        search.max_gap = allowed
        kept, kept_found = search.save(), ranked_assignment(search, allowed)
        kept_max = kept_found.rank[1][0]
        smallest = self.min_gain * kept_max
        search.improve(smallest)
        found = ranked_assignment(search, allowed)
        if search.is_small and self.effort and found.rank[1][0] > enough:
            found = search_without_each_move(search, allowed, found, smallest)
            found = search_from_heavy_moves(search, allowed, found, smallest, begin)
        if self.min_gain > 0 and found.rank[1][0] > kept_max * (1 - self.min_gain):
            search.restore(kept)
            return kept_found
        return found


def _check_inputs(group: Group, load: NDArray[Any], capacity: NDArray[Any], pinned: NDArray[Any]) -> None:
    shapes = load.shape, capacity.shape, pinned.shape
    if shapes != ((group.num_partitions,), (group.num_members,), (group.num_partitions,)):
        raise ProblemError(f"load, capacity and pinned have the shapes {shapes}")
    if not (np.isfinite(load).all() and np.isfinite(capacity).all()):
        raise ProblemError("loads and capacities must be finite")
    if (load < 0).any() or (capacity <= 0).any():
        raise ProblemError("a load cannot be negative, and a capacity must be positive")
