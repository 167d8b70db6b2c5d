"""The search of `lag-aware-sticky`: from the most loaded member, the best move or swap, again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.algorithms.partition_classes import Classes
    from assignor_core.group import Assignment, Group

__all__ = ["LoadSearch", "Step"]

# Below this many cells of rows x members the search looks at every pair; above, at the least loaded only.
_SMALL = 2_000
_PARTNERS = 6
# A large group's search ends here: the most loaded come first, so what is left out matters least.
_MOST_STEPS = 1_500
_PASSES = 3
_EPSILON = 1e-12
# What is left out by a bound on loads is left out by more than sums may be off.
_ROUNDING = 1e-9
# Up to this many cells of a member's rows x all rows, every swap is looked at.
_DENSE = 16_000
_MANY = np.iinfo(np.int64).max // 2
# Who is above the average by no more than this share is left alone (but in small groups).
_LEVEL = 2e-4


class Step(NamedTuple):
    """A move of `row` to `to`, with `back` in exchange if that is no -1."""

    value: float
    cost: int
    row: int
    to: int
    back: int


@dataclass(slots=True)
class _Limits:
    budget: int
    gap: int


class LoadSearch:
    """An assignment in the making: who holds which rows, loads and counts, changed step by step.

    Parameters
    ----------
    group, classes
        The group and its classes.
    assignment
        int32 [P] to begin with; a copy is taken.
    load, capacity
        float64 [P] and [M].
    pinned
        bool [P], rows that may not leave their live owner.
    budget
        How many rows may leave their live owners in all.
    thrift
        How much a step's cost weighs against its gain: 0 takes the largest gain, 1 the largest gain a move.
    most_effort
        After how many steps looked for no new beginning is tried; `effort` counts them.
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
        thrift: float = 1.0,
        most_effort: int = 0,
    ) -> None:
        self.load = load
        self.capacity = capacity
        self.owner = group.live_owner
        self.pinned: NDArray[np.bool_] = pinned & (self.owner >= 0)
        self.has_pins = bool(self.pinned.any())
        self.row_class = classes.class_of_row
        self.eligible = classes.eligible
        self.limits = _Limits(budget, 0)
        self.thrift = thrift
        self.effort = 0
        self.most_effort = most_effort
        self.is_small = group.num_partitions * group.num_members <= _SMALL
        self._hold(assignment)

    def _hold(self, assignment: Assignment) -> None:
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

    def snapshot(self) -> tuple[Assignment, int]:
        """Return what `restore` needs to come back to here."""
        return self.assignment.copy(), self.limits.budget

    def force(self, row: int, to: int) -> None:
        """Give a row to a member, whatever that does to loads and counts, and pin it there."""
        giver = int(self.assignment[row])
        cost = int(self._costs(np.array([row]), giver, to)[0])
        self.apply(Step(0.0, cost, row, to, -1))
        self.pinned[row] = self.has_pins = True

    def restore(self, saved: tuple[Assignment, int]) -> None:
        """Go back to an earlier `snapshot`."""
        self._hold(saved[0])
        self.limits.budget = saved[1]

    @property
    def ratios(self) -> NDArray[np.float64]:
        """Load by capacity: float64 [M]."""
        return np.asarray(self.loads / self.capacity, dtype=np.float64)

    def gap(self) -> int:
        """Return the largest difference of counts over which a partition could go."""
        most, least = self._class_extremes()
        return int((most - least).max(initial=0))

    def _class_extremes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        most = np.where(self.held > 0, self.counts, 0).max(axis=1, initial=0)
        least = np.where(self.eligible, self.counts, _MANY).min(axis=1, initial=_MANY)
        return most, np.where(most > 0, least, 0)

    def even_counts(self, allowed: int) -> None:
        """Move rows until no gap is larger than allowed, as far as the budget goes."""
        while True:
            most, least = self._class_extremes()
            if not len(most) or int((most - least).max()) <= allowed:
                return
            number = int((most - least).argmax())
            giver_counts = np.where(self.held[number] > 0, self.counts, -1)
            taker_counts = np.where(self.eligible[number], self.counts, np.iinfo(np.int64).max)
            # Of equals, the most loaded gives and the least loaded takes.
            ratios = self.ratios
            giver = int(np.lexsort((-ratios, -giver_counts))[0])
            taker = int(np.lexsort((ratios, taker_counts))[0])
            rows = self._movable(giver, taker)
            costs = self._costs(rows, giver, taker)
            rows, costs = rows[costs <= self.limits.budget], costs[costs <= self.limits.budget]
            if not len(rows):
                return
            value = self._pair_value(giver, taker, self.load[rows])
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
            return self._best_of_all(member, ratio, threshold)
        best: Step | None = None
        for partner in self._partners(member):
            for step in self._steps(member, partner):
                if step.value < threshold and (
                    best is None or self._rank(step, ratio) < self._rank(best, ratio)
                ):
                    best = step
        return best

    def _best_of_all(self, giver: int, ratio: float, threshold: float) -> Step | None:
        """Look at every move and every swap of the giver's rows at once: rows x (members + other rows).

        Most of them cannot reach the threshold by their loads alone, and are left out before.
        """
        rows = self.rows[giver]
        if self.has_pins:
            rows = rows[~self.pinned[rows]]
        # A step has to take this much from the giver, and its taker has to have room for as much.
        least_shift = float(self.loads[giver]) - (threshold + _ROUNDING * ratio) * float(self.capacity[giver])
        given = self.load[rows]
        first = int(given.searchsorted(least_shift, side="right"))
        room = threshold * self.capacity - self.loads
        viable = room > least_shift - _ROUNDING * threshold * self.capacity
        if first == len(rows) or not viable.any():
            return None
        rows, given = rows[first:], given[first:]
        most_back = float(given[-1]) - least_shift
        movers, others, allowed = self._columns(giver, rows, viable, most_back)
        if not len(movers) and not len(others):
            return None
        # The first columns are moves, one a member; the others are swaps, one a row.
        takers = np.concatenate([movers, self.assignment[others]])
        back = np.concatenate([np.zeros(len(movers)), self.load[others]])
        shift = given[:, None] - back
        left = (self.loads[giver] - shift) / self.capacity[giver]
        value = np.maximum(left, (self.loads[takers] + shift) / self.capacity[takers])
        good = value < threshold if allowed is None else allowed & (value < threshold)
        lines, columns = good.nonzero()
        if not len(lines):
            return None
        value, taker = value[lines, columns], takers[columns]
        owner = self.owner[rows[lines]]
        cost = (owner == giver).astype(np.int64) - (owner == taker)
        swapped = columns >= len(movers)
        if swapped.any():
            other_owner = self.owner[others[columns[swapped] - len(movers)]]
            cost[swapped] += (other_owner == taker[swapped]).astype(np.int64) - (other_owner == giver)
        weighed = np.where(
            cost <= self.limits.budget, (ratio - value) / np.maximum(cost, 0.5) ** self.thrift, 0.0
        )
        best = int(weighed.argmax())
        if weighed[best] <= 0:
            return None
        other = int(others[columns[best] - len(movers)]) if swapped[best] else -1
        return Step(float(value[best]), int(cost[best]), int(rows[lines[best]]), int(taker[best]), other)

    def _columns(
        self, giver: int, rows: NDArray[np.int64], viable: NDArray[np.bool_], most_back: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_] | None]:
        """Return members to move to, rows to swap with, and which pairs are allowed; None for all.

        Parameters
        ----------
        viable
            bool [M], who has room.
        most_back
            A row as heavy as this, or more, would give back too much.
        """
        if len(self.eligible) == 1:
            movable, swappable = self._allowed_to_all(giver)
            # The last place is what -1, nobody, looks up.
            holds = np.append(swappable & viable, False)
            exchanged = holds[self.assignment]
            exchanged &= self.load < most_back
            if self.has_pins:
                exchanged &= ~self.pinned
            return (movable & viable).nonzero()[0], exchanged.nonzero()[0], None
        others = np.flatnonzero((self.assignment >= 0) & (self.assignment != giver) & ~self.pinned)
        others = others[viable[self.assignment[others]] & (self.load[others] < most_back)]
        others = others[self.eligible[self.row_class[others], giver]]
        members = np.flatnonzero(viable)
        allowed = self._allowed(giver, rows, others)
        kept = np.concatenate([members, len(self.loads) + np.arange(len(others))])
        return members, others, allowed[:, kept]

    def _allowed_to_all(self, giver: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """As `_allowed`, where all rows are of one class: bool [M], who may take one more, who may swap."""
        gap, counts, eligible = self.limits.gap, self.counts, self.eligible[0]
        more = counts - (int(np.where(eligible, counts, _MANY).min()) + gap)
        most = int(counts.max()) if eligible[giver] else 0
        held = int(counts[giver])
        shifts = np.maximum(counts + 1, most) <= gap + held - 1
        shifts |= counts < held
        shifts[giver] = False
        swaps = eligible & (more <= 0)
        swaps = swaps if swaps[giver] else np.zeros_like(swaps)
        swaps[giver] = False
        return eligible & (more < 0) & shifts, swaps

    def _allowed(self, giver: int, rows: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which moves and swaps subscriptions and counts allow: bool [rows, M + others]."""
        gap, counts = self.limits.gap, self.counts
        least = np.where(self.eligible, counts, _MANY).min(axis=1)
        keeps = self.eligible & (counts[None, :] - least[:, None] <= gap)
        gains = self.eligible & (counts[None, :] + 1 - least[:, None] <= gap)
        gains &= (gains | (self.held == 0)).all(axis=0)
        most = np.where(self.held[self.eligible[:, giver]] > 0, counts, 0).max(initial=0)
        shifts = np.maximum(most, counts + 1) - (counts[giver] - 1) <= gap
        if len(self.eligible) == 1:
            shifts |= counts < counts[giver]
        shifts[giver] = False
        classes = self.row_class[rows]
        moves = gains[classes] & shifts
        fits_giver = keeps[self.row_class[others], giver]
        swaps = keeps[classes][:, self.assignment[others]] & fits_giver
        return np.concatenate([moves, swaps], axis=1)

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

    def _steps(self, giver: int, taker: int) -> list[Step]:
        rows = self._movable(giver, taker)
        if not len(rows):
            return []
        out_costs = self._costs(rows, giver, taker)
        steps = []
        if self._may_shift(giver, taker):
            allowed = self._may_hold(rows, taker, 1)
            steps += self._best(giver, taker, rows[allowed], None, out_costs[allowed])
        back = self._movable(taker, giver)
        if len(back):
            steps += self._swaps(giver, taker, rows, out_costs, back)
        return steps

    def _swaps(
        self,
        giver: int,
        taker: int,
        rows: NDArray[np.int64],
        out_costs: NDArray[np.int64],
        back: NDArray[np.int64],
    ) -> list[Step]:
        keep = self._may_hold(rows, taker, 0)
        rows, out_costs = rows[keep], out_costs[keep]
        back = back[self._may_hold(back, giver, 0)]
        if not len(rows) or not len(back):
            return []
        back_costs = self._costs(back, taker, giver)
        capacity = self.capacity
        ideal = (self.loads[giver] * capacity[taker] - self.loads[taker] * capacity[giver]) / (
            capacity[giver] + capacity[taker]
        )
        steps: list[Step] = []
        # Once with all rows in exchange, and once with those that cost nothing more.
        for cheap in (False, True):
            pool = back_costs <= 0 if cheap else np.ones(len(back), dtype=np.bool_)
            if not pool.any() or (cheap and pool.all()):
                continue
            steps += self._nearest_swaps(
                giver, taker, (rows, out_costs), (back[pool], back_costs[pool]), ideal
            )
        return steps

    def _nearest_swaps(
        self,
        giver: int,
        taker: int,
        out: tuple[NDArray[np.int64], NDArray[np.int64]],
        back: tuple[NDArray[np.int64], NDArray[np.int64]],
        ideal: float,
    ) -> list[Step]:
        rows, out_costs = out
        others, back_costs = back
        place = np.searchsorted(self.load[others], self.load[rows] - ideal)
        steps: list[Step] = []
        for shift in (-1, 0):
            index = np.clip(place + shift, 0, len(others) - 1)
            steps += self._best(giver, taker, rows, others[index], out_costs + back_costs[index])
        return steps

    def _best(
        self,
        giver: int,
        taker: int,
        rows: NDArray[np.int64],
        back: NDArray[np.int64] | None,
        costs: NDArray[np.int64],
    ) -> list[Step]:
        """Return the best affordable step, and the best of the cheaper ones."""
        shift = self.load[rows] if back is None else self.load[rows] - self.load[back]
        value = self._pair_value(giver, taker, shift)
        steps = []
        for limit in sorted({min(self.limits.budget, most) for most in (0, 1, 2)}):
            affordable = np.flatnonzero(costs <= limit)
            if len(affordable):
                i = int(affordable[np.lexsort((costs[affordable], value[affordable]))[0]])
                other = -1 if back is None else int(back[i])
                steps.append(Step(float(value[i]), int(costs[i]), int(rows[i]), taker, other))
        return steps

    def _pair_value(self, giver: int, taker: int, shift: NDArray[np.float64]) -> NDArray[np.float64]:
        left = (self.loads[giver] - shift) / self.capacity[giver]
        right = (self.loads[taker] + shift) / self.capacity[taker]
        return np.asarray(np.maximum(left, right), dtype=np.float64)

    def _movable(self, giver: int, taker: int) -> NDArray[np.int64]:
        rows = self.rows[giver]
        movable: NDArray[np.int64] = rows[self.eligible[self.row_class[rows], taker] & ~self.pinned[rows]]
        return movable

    def _costs(self, rows: NDArray[np.int64], giver: int, taker: int) -> NDArray[np.int64]:
        owner = self.owner[rows]
        return np.asarray((owner == giver).astype(np.int64) - (owner == taker), dtype=np.int64)

    def _may_shift(self, giver: int, taker: int) -> bool:
        """Whether the giver can do with one fewer, by the counts of those that could give to it."""
        if len(self.eligible) == 1 and self.counts[giver] > self.counts[taker]:
            return True
        reachable = self.eligible[:, giver]
        most = np.where(self.held[reachable] > 0, self.counts, 0).max(initial=0)
        return bool(max(most, self.counts[taker] + 1) - (self.counts[giver] - 1) <= self.limits.gap)

    def _may_hold(self, rows: NDArray[np.int64], taker: int, more: int) -> NDArray[np.bool_]:
        """Whether the taker, then with `more` partitions, may hold these rows beside who else takes them."""
        least = np.where(self.eligible, self.counts, _MANY).min(axis=1)
        fits = self.counts[taker] + more - least <= self.limits.gap
        if more and not bool(fits[self.held[:, taker] > 0].all()):
            return np.zeros(len(rows), dtype=np.bool_)
        return np.asarray(fits[self.row_class[rows]], dtype=np.bool_)

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
