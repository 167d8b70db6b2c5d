"""The search of `lag-aware-sticky`: from the most loaded member, the best move or swap, repeatedly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from assignor_core.algorithms.load_all_pairs import best_of_all
from assignor_core.algorithms.load_pairs import pair_steps
from assignor_core.algorithms.load_state import LoadState, Step

if TYPE_CHECKING:
    from assignor_core.algorithms.partition_classes import Classes
    from assignor_core.group import Assignment, Group

__all__ = ["LoadSearch"]

_PARTNERS = 6
# A large group's search ends here: the most loaded come first, so what is left out matters least.
_MOST_STEPS = 1_500
_PASSES = 3
_EPSILON = 1e-12
# Up to this many cells of a member's rows x all rows, every swap is evaluated.
_DENSE = 16_000
# A member above the average by no more than this share is skipped (but in small groups).
_LEVEL = 2e-4


class LoadSearch(LoadState):
    """A state and the steps that even it out.

    Parameters
    ----------
    group, classes, assignment, state
        As for `LoadState`.
    thrift
        How much a step's cost weighs against its gain: 0 takes the largest gain, 1 the largest gain a move.
    most_effort
        After how many searched steps no new start is tried; `effort` counts them.
    """

    def __init__(
        self,
        group: Group,
        classes: Classes,
        assignment: Assignment,
        *,
        thrift: float = 1.0,
        most_effort: int = 0,
        **state: Any,
    ) -> None:
        super().__init__(group, classes, assignment, **state)
        self.thrift = thrift
        self.effort = 0
        self.most_effort = most_effort

    def even_counts(self, allowed: int) -> None:
        """Move rows until no gap is larger than allowed, as far as the budget goes."""
        while True:
            most, least = self.class_extremes()
            if not len(most) or int((most - least).max()) <= allowed:
                return
            number = int((most - least).argmax())
            giver_counts = np.where(self.held[number] > 0, self.counts, -1)
            taker_counts = np.where(self.eligible[number], self.counts, np.iinfo(np.int64).max)
            # Of equals, the most loaded gives and the least loaded takes.
            ratios = self.ratios
            giver = int(np.lexsort((-ratios, -giver_counts))[0])
            taker = int(np.lexsort((ratios, taker_counts))[0])
            rows = self.movable_rows(giver, taker)
            costs = self.move_costs(rows, giver, taker)
            rows, costs = rows[costs <= self.limits.budget], costs[costs <= self.limits.budget]
            if not len(rows):
                return
            value = self.pair_value(giver, taker, self.load[rows])
            best = int(np.lexsort((rows, costs, value))[0])
            self.apply(Step(float(value[best]), int(costs[best]), int(rows[best]), taker, -1))

    def improve(self, smallest_gain: float) -> None:
        """Take steps from the most loaded members down until none gains more than `smallest_gain`."""
        self.limits.gap = max(self.gap(), self.limits.gap)
        frozen = np.zeros(len(self.loads), dtype=np.bool_)
        passes, stepped = 0, False
        average = float(self.loads.sum() / self.capacity.sum())
        level = average * (1 + (_EPSILON if self.is_small else _LEVEL))
        smallest_gain = max(smallest_gain, 0.0 if self.is_small else _LEVEL * average)
        while True:
            ratios = np.where(frozen, -1.0, self.ratios)
            member = int(ratios.argmax())
            if self.effort > _MOST_STEPS and not self.is_small:
                return
            if ratios[member] <= level:
                passes += 1
                if self.is_small or not stepped or passes == _PASSES:
                    return
                frozen[:], stepped = False, False
                continue
            step = self.best_step(member, smallest_gain)
            frozen[member] = step is None
            if step is not None:
                stepped = True
                self.apply(step)
                # A step can open others for anybody; to look again at all at once is for small groups.
                frozen[slice(None) if self.is_small else step.to] = False

    def best_step(self, member: int, smallest_gain: float) -> Step | None:
        """Return the step from this member that gains most for what it costs, or None."""
        self.effort += 1
        ratio = float(self.loads[member] / self.capacity[member])
        threshold = ratio - max(smallest_gain, _EPSILON * ratio)
        if len(self.rows[member]) * len(self.load) <= _DENSE:
            return best_of_all(self, member, ratio, threshold, self.thrift)
        best: Step | None = None
        for partner in self._partners(member):
            for step in pair_steps(self, member, partner):
                if step.value < threshold and (
                    best is None or self._rank(step, ratio) < self._rank(best, ratio)
                ):
                    best = step
        return best

    def _rank(self, step: Step, ratio: float) -> tuple[float, float, int]:
        return (-(ratio - step.value) / max(step.cost, 0.5) ** self.thrift, step.value, step.row)

    def _partners(self, member: int) -> list[int]:
        ratios = self.ratios
        order = np.argsort(ratios, kind="stable")
        order = order[(order != member) & (ratios[order] < ratios[member])]
        classes = self.eligible[:, member]
        order = order[self.eligible[classes][:, order].any(axis=0)]
        if not self.is_small and len(order) > 2 * _PARTNERS:
            # The least loaded, and some from all the way up: the least may lack a row that fits.
            order = np.concatenate([order[:_PARTNERS], order[_PARTNERS :: len(order) // _PARTNERS]])
        return [int(partner) for partner in order]
