"""The search of `lag-aware-sticky`: from the most loaded member, the best move or swap, repeatedly.

It is in floats and near the optimum; `assignor_core.algorithms.place_by_load` is the search of a group's
leader, exact in integers and faster (ADR 98).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assignor_core.algorithms.chains import fill_free
from assignor_core.algorithms.partition_classes import Classes, assignment_of_counts

if TYPE_CHECKING:
    from assignor_core.group import Assignment, Group


def lower_bound(
    group: Group,
    classes: Classes,
    load: NDArray[np.float64],
    capacity: NDArray[np.float64],
    pinned: NDArray[np.bool_],
) -> float:
    """Return a lower bound of the largest load by capacity, over all assignments of a group."""
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
    return max(bound, float(single.max(initial=0.0)))


def bound_of_counts(
    classes: Classes, load: NDArray[np.float64], capacity: NDArray[np.float64], gap: int
) -> float:
    """Return a lower bound of the largest load by capacity where counts differ by no more than `gap`.

    Of the k M + 1 heaviest rows, some of M members has k + 1. Where all members subscribe to all rows, it has
    as many rows as the counts ask for, the others at least as heavy as the lightest.
    """
    everybody = classes.eligible.any(axis=0)
    members = int(everybody.sum())
    heaviest = -np.sort(-load[classes.class_of_row >= 0])
    num_rows = len(heaviest)
    if not num_rows:
        return 0.0
    least = -(((members - 1) * gap - num_rows) // members) if len(classes.size) == 1 else 0
    sums = np.concatenate([[0.0], np.cumsum(heaviest)])
    more = np.arange((num_rows - 1) // members + 1)
    lightest = (least - more - 1).clip(min=0)
    shared = sums[more * members + 1] - sums[more * members - more]
    shared += sums[num_rows] - sums[num_rows - lightest]
    return float(shared.max() / capacity[everybody].max())


def bound_of_moves(
    group: Group,
    load: NDArray[np.float64],
    capacity: NDArray[np.float64],
    pinned: NDArray[np.bool_],
    most: int,
) -> float:
    """Return a lower bound of the largest load by capacity where at most so many rows leave their live owner.

    The most loaded members give their heaviest rows, and nobody has to take them.
    """
    rows = np.flatnonzero(group.live_owner >= 0)
    owner = group.live_owner[rows]
    loads = np.bincount(owner, load[rows], minlength=group.num_members)
    movable, owner = rows[~pinned[rows]], owner[~pinned[rows]]
    order = np.lexsort((-load[movable], owner))
    given, owner = load[movable[order]], owner[order]
    fixed = loads - np.bincount(owner, given, minlength=group.num_members)
    bound = float((fixed / capacity).max())
    if most >= len(given):
        return bound
    # What its owner has before it gives a row away.
    before = np.cumsum(given) - given
    first = np.searchsorted(owner, owner)
    ratios = (loads[owner] - (before - before[first])) / capacity[owner]
    return max(bound, float(-np.partition(-ratios, most)[most]))


def place_free_by_load(
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
        return assignment_of_counts(group, classes, fill_free(classes.owned, classes.eligible, classes.size))
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


# Below this many cells of rows x members a group is small: all pairs are searched.
_SMALL = 2_000
# More than any count of partitions.
_MANY = np.iinfo(np.int64).max // 2
# A step that a bound on loads excludes is excluded by more than the rounding error of a sum.
_ROUNDING = 1e-9
_PARTNERS = 6
# A large group's search ends here: the most loaded come first, so what is left out matters least.
_MOST_STEPS = 1_500
_PASSES = 3
_EPSILON = 1e-12
# Up to this many cells of a member's rows x all rows, every swap is evaluated.
_DENSE = 16_000
# A member above the average by no more than this share is skipped (but in small groups).
_LEVEL = 2e-4
# How many moves are forbidden in turn, in how many rounds, and which heavy moves a search begins with.
_MOST_ROUNDS = 4
_MOST_FORBIDDEN = 16
_HEAVY_ROWS = 3
_HEAVY_PARTNERS = 8


class Step(NamedTuple):
    """A move of `row` to `to`, with `back` in exchange if that is no -1."""

    value: float
    cost: int
    row: int
    to: int
    back: int


class RankedAssignment(NamedTuple):
    """An assignment and its rank: excess of counts, loads by capacity in descending order, moves."""

    rank: tuple[int, list[float], int]
    assignment: Assignment


class LoadSearch:
    """Which member has which rows, with loads and counts kept up to date, and the steps that even loads out.

    `rows` are each member's rows ascending by load, `held` int64 [K, M] how many of a class a member has,
    `max_gap` the largest difference of counts over which a partition may be movable, and `budget` how many
    more rows may leave their live owners. `thrift` is how much a step's cost weighs against its gain: 0 takes
    the largest gain, 1 the largest gain a move. After `most_effort` searched steps no new start is tried, and
    none once the largest load by capacity is `nearest`.
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
        nearest: float = 0.0,
    ) -> None:
        self.load = load
        self.capacity = capacity
        self.owner = group.live_owner
        self.pinned: NDArray[np.bool_] = pinned & (self.owner >= 0)
        self.has_pins = bool(self.pinned.any())
        self.row_class = classes.class_of_row
        self.eligible = classes.eligible
        self.budget, self.max_gap = budget, 0
        self.thrift, self.effort, self.most_effort, self.nearest = thrift, 0, most_effort, nearest
        self.is_small = group.num_partitions * group.num_members <= _SMALL
        self._set(assignment)

    def _set(self, assignment: Assignment) -> None:
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

    def save(self) -> tuple[Assignment, int]:
        """Return what `restore` needs to return to this state."""
        return self.assignment.copy(), self.budget

    def force(self, row: int, to: int) -> None:
        """Give a row to a member, whatever that does to loads and counts, and pin it there."""
        giver = int(self.assignment[row])
        cost = int(self.move_costs(np.array([row]), giver, to)[0])
        self.apply(Step(0.0, cost, row, to, -1))
        self.pinned[row] = self.has_pins = True

    def restore(self, saved: tuple[Assignment, int]) -> None:
        """Return to a saved state; see `save`."""
        self._set(saved[0])
        self.budget = saved[1]

    def may_start(self, best: RankedAssignment) -> bool:
        """Whether another start may be tried: the best so far is not good enough, and effort is left."""
        excess, loads, _ = best.rank
        return self.effort <= self.most_effort and (excess > 0 or loads[0] > self.nearest)

    @property
    def ratios(self) -> NDArray[np.float64]:
        """Load by capacity: float64 [M]."""
        return np.asarray(self.loads / self.capacity, dtype=np.float64)

    def gap(self) -> int:
        """Return the largest difference of counts over which a partition could go."""
        most, least = self.class_extremes()
        return int((most - least).max(initial=0))

    def class_extremes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the most partitions of an owner of each class and the fewest of a subscriber: [K] each."""
        most = np.where(self.held > 0, self.counts, 0).max(axis=1, initial=0)
        least = np.where(self.eligible, self.counts, _MANY).min(axis=1, initial=_MANY)
        return most, np.where(most > 0, least, 0)

    def pair_value(self, giver: int, taker: int, shift: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the larger load by capacity of two members after each shift of load from giver to taker."""
        left = (self.loads[giver] - shift) / self.capacity[giver]
        right = (self.loads[taker] + shift) / self.capacity[taker]
        return np.asarray(np.maximum(left, right), dtype=np.float64)

    def movable_rows(self, giver: int, taker: int) -> NDArray[np.int64]:
        """Return the giver's rows that are not pinned and that the taker subscribes to, ascending by load."""
        rows = self.rows[giver]
        movable: NDArray[np.int64] = rows[self.eligible[self.row_class[rows], taker] & ~self.pinned[rows]]
        return movable

    def move_costs(self, rows: NDArray[np.int64], giver: int, taker: int) -> NDArray[np.int64]:
        """Return what each move costs of the budget: 1 from the live owner, -1 back to it, else 0."""
        owner = self.owner[rows]
        return np.asarray((owner == giver).astype(np.int64) - (owner == taker), dtype=np.int64)

    def apply(self, step: Step) -> None:
        """Take a step."""
        giver = int(self.assignment[step.row])
        self._hand_over(step.row, giver, step.to)
        if step.back >= 0:
            self._hand_over(step.back, step.to, giver)
        self.budget -= step.cost

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
            rows, costs = rows[costs <= self.budget], costs[costs <= self.budget]
            if not len(rows):
                return
            value = self.pair_value(giver, taker, self.load[rows])
            best = int(np.lexsort((rows, costs, value))[0])
            self.apply(Step(float(value[best]), int(costs[best]), int(rows[best]), taker, -1))

    def improve(self, smallest_gain: float) -> None:
        """Take steps from the most loaded members down until none gains more than `smallest_gain`."""
        self.max_gap = max(self.gap(), self.max_gap)
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
            return best_of_all_steps(self, member, ratio, threshold, self.thrift)
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


def best_of_all_steps(
    search: LoadSearch, giver: int, ratio: float, threshold: float, thrift: float
) -> Step | None:
    """Return the best of all moves and swaps of the giver's rows, looked at together.

    A step must bring the larger of both loads by capacity below `threshold`. Most cannot by their loads
    alone, and are excluded first.
    """
    rows = search.rows[giver]
    if search.has_pins:
        rows = rows[~search.pinned[rows]]
    # A step has to take this much from the giver, and its taker has to have room for as much.
    least_shift = float(search.loads[giver]) - (threshold + _ROUNDING * ratio) * float(search.capacity[giver])
    given = search.load[rows]
    first = int(given.searchsorted(least_shift, side="right"))
    room = threshold * search.capacity - search.loads
    viable = room > least_shift - _ROUNDING * threshold * search.capacity
    if first == len(rows) or not viable.any():
        return None
    rows, given = rows[first:], given[first:]
    most_back = float(given[-1]) - least_shift
    movers, others, allowed = _columns(search, giver, rows, viable, most_back)
    if not len(movers) and not len(others):
        return None
    # The first columns are moves, one a member; the others are swaps, one a row.
    takers = np.concatenate([movers, search.assignment[others]])
    back = np.concatenate([np.zeros(len(movers)), search.load[others]])
    shift = given[:, None] - back
    left = (search.loads[giver] - shift) / search.capacity[giver]
    value = np.maximum(left, (search.loads[takers] + shift) / search.capacity[takers])
    good = value < threshold if allowed is None else allowed & (value < threshold)
    lines, columns = good.nonzero()
    if not len(lines):
        return None
    value, taker = value[lines, columns], takers[columns]
    owner = search.owner[rows[lines]]
    cost = (owner == giver).astype(np.int64) - (owner == taker)
    swapped = columns >= len(movers)
    if swapped.any():
        other_owner = search.owner[others[columns[swapped] - len(movers)]]
        cost[swapped] += (other_owner == taker[swapped]).astype(np.int64) - (other_owner == giver)
    weighed = np.where(cost <= search.budget, (ratio - value) / np.maximum(cost, 0.5) ** thrift, 0.0)
    best = int(weighed.argmax())
    if weighed[best] <= 0:
        return None
    other = int(others[columns[best] - len(movers)]) if swapped[best] else -1
    return Step(float(value[best]), int(cost[best]), int(rows[lines[best]]), int(taker[best]), other)


def _columns(
    search: LoadSearch, giver: int, rows: NDArray[np.int64], viable: NDArray[np.bool_], most_back: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_] | None]:
    """Return members to move to, rows to swap with, and which pairs are allowed; None for all.

    `viable` members have room; a row as heavy as `most_back`, or more, would give back too much.
    """
    if len(search.eligible) == 1:
        movable, swappable = _allowed_to_all(search, giver)
        # The last place is what -1, nobody, looks up.
        holds = np.append(swappable & viable, False)
        exchanged = holds[search.assignment]
        exchanged &= search.load < most_back
        if search.has_pins:
            exchanged &= ~search.pinned
        return (movable & viable).nonzero()[0], exchanged.nonzero()[0], None
    others = np.flatnonzero((search.assignment >= 0) & (search.assignment != giver) & ~search.pinned)
    others = others[viable[search.assignment[others]] & (search.load[others] < most_back)]
    others = others[search.eligible[search.row_class[others], giver]]
    members = np.flatnonzero(viable)
    allowed = _allowed(search, giver, rows, others)
    kept = np.concatenate([members, len(search.loads) + np.arange(len(others))])
    return members, others, allowed[:, kept]


def _allowed_to_all(search: LoadSearch, giver: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """As `_allowed`, where all rows are of one class: bool [M], who may take one more, who may swap."""
    gap, counts, eligible = search.max_gap, search.counts, search.eligible[0]
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


def _allowed(
    search: LoadSearch, giver: int, rows: NDArray[np.int64], others: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which moves and swaps subscriptions and counts allow: bool [rows, M + others]."""
    gap, counts = search.max_gap, search.counts
    least = np.where(search.eligible, counts, _MANY).min(axis=1)
    keeps = search.eligible & (counts[None, :] - least[:, None] <= gap)
    gains = search.eligible & (counts[None, :] + 1 - least[:, None] <= gap)
    gains &= (gains | (search.held == 0)).all(axis=0)
    most = np.where(search.held[search.eligible[:, giver]] > 0, counts, 0).max(initial=0)
    shifts = np.maximum(most, counts + 1) - (counts[giver] - 1) <= gap
    if len(search.eligible) == 1:
        shifts |= counts < counts[giver]
    shifts[giver] = False
    classes = search.row_class[rows]
    moves = gains[classes] & shifts
    fits_giver = keeps[search.row_class[others], giver]
    swaps = keeps[classes][:, search.assignment[others]] & fits_giver
    return np.concatenate([moves, swaps], axis=1)


def pair_steps(search: LoadSearch, giver: int, taker: int) -> list[Step]:
    """Return the best moves and swaps from one member to another that counts and the budget allow."""
    rows = search.movable_rows(giver, taker)
    if not len(rows):
        return []
    out_costs = search.move_costs(rows, giver, taker)
    steps = []
    if _may_shift(search, giver, taker):
        allowed = _may_hold(search, rows, taker, 1)
        steps += _best(search, giver, taker, rows[allowed], None, out_costs[allowed])
    back = search.movable_rows(taker, giver)
    if len(back):
        steps += _swaps(search, giver, taker, rows, out_costs, back)
    return steps


def _swaps(
    search: LoadSearch,
    giver: int,
    taker: int,
    rows: NDArray[np.int64],
    out_costs: NDArray[np.int64],
    back: NDArray[np.int64],
) -> list[Step]:
    keep = _may_hold(search, rows, taker, 0)
    rows, out_costs = rows[keep], out_costs[keep]
    back = back[_may_hold(search, back, giver, 0)]
    if not len(rows) or not len(back):
        return []
    back_costs = search.move_costs(back, taker, giver)
    capacity = search.capacity
    ideal = (search.loads[giver] * capacity[taker] - search.loads[taker] * capacity[giver]) / (
        capacity[giver] + capacity[taker]
    )
    steps: list[Step] = []
    # Once with all rows in exchange, and once with those that cost nothing more.
    for cheap in (False, True):
        pool = back_costs <= 0 if cheap else np.ones(len(back), dtype=np.bool_)
        if not pool.any() or (cheap and pool.all()):
            continue
        steps += _nearest_swaps(
            search, giver, taker, (rows, out_costs), (back[pool], back_costs[pool]), ideal
        )
    return steps


def _nearest_swaps(
    search: LoadSearch,
    giver: int,
    taker: int,
    out: tuple[NDArray[np.int64], NDArray[np.int64]],
    back: tuple[NDArray[np.int64], NDArray[np.int64]],
    ideal: float,
) -> list[Step]:
    rows, out_costs = out
    others, back_costs = back
    place = np.searchsorted(search.load[others], search.load[rows] - ideal)
    steps: list[Step] = []
    for shift in (-1, 0):
        index = np.clip(place + shift, 0, len(others) - 1)
        steps += _best(search, giver, taker, rows, others[index], out_costs + back_costs[index])
    return steps


def _best(
    search: LoadSearch,
    giver: int,
    taker: int,
    rows: NDArray[np.int64],
    back: NDArray[np.int64] | None,
    costs: NDArray[np.int64],
) -> list[Step]:
    """Return the best affordable step, and the best of the cheaper ones."""
    shift = search.load[rows] if back is None else search.load[rows] - search.load[back]
    value = search.pair_value(giver, taker, shift)
    steps = []
    for limit in sorted({min(search.budget, most) for most in (0, 1, 2)}):
        affordable = np.flatnonzero(costs <= limit)
        if len(affordable):
            i = int(affordable[np.lexsort((costs[affordable], value[affordable]))[0]])
            other = -1 if back is None else int(back[i])
            steps.append(Step(float(value[i]), int(costs[i]), int(rows[i]), taker, other))
    return steps


def _may_shift(search: LoadSearch, giver: int, taker: int) -> bool:
    """Whether the giver can do with one fewer, by the counts of those that could give to it."""
    if len(search.eligible) == 1 and search.counts[giver] > search.counts[taker]:
        return True
    reachable = search.eligible[:, giver]
    most = np.where(search.held[reachable] > 0, search.counts, 0).max(initial=0)
    return bool(max(most, search.counts[taker] + 1) - (search.counts[giver] - 1) <= search.max_gap)


def _may_hold(search: LoadSearch, rows: NDArray[np.int64], taker: int, more: int) -> NDArray[np.bool_]:
    """Whether the taker, then with `more` partitions, may hold these rows beside who else takes them."""
    least = np.where(search.eligible, search.counts, _MANY).min(axis=1)
    fits = search.counts[taker] + more - least <= search.max_gap
    if more and not bool(fits[search.held[:, taker] > 0].all()):
        return np.zeros(len(rows), dtype=np.bool_)
    return np.asarray(fits[search.row_class[rows]], dtype=np.bool_)


def ranked_assignment(search: LoadSearch, allowed: int) -> RankedAssignment:
    """Return the present assignment of a search with its rank: the smaller, the better."""
    loads = np.sort(search.ratios)[::-1]
    moved = int(((search.owner >= 0) & (search.owner != search.assignment)).sum())
    return RankedAssignment((max(search.gap() - allowed, 0), loads.tolist(), moved), search.assignment.copy())


def search_without_each_move(
    search: LoadSearch, allowed: int, found: RankedAssignment, smallest_gain: float
) -> RankedAssignment:
    """Take back each move in turn, forbid it, and search again; this often spends a scarce budget better."""
    best = found
    for _ in range(_MOST_ROUNDS):
        before = best
        moved = np.flatnonzero((search.owner >= 0) & (search.owner != search.assignment))
        tries = [(row, int(search.owner[row])) for row in moved[:_MOST_FORBIDDEN].tolist()]
        best = _try_each(search, allowed, best, smallest_gain, (search.save(), tries))
        if best is before:
            break
    return best


def search_from_heavy_moves(
    search: LoadSearch,
    allowed: int,
    found: RankedAssignment,
    smallest_gain: float,
    begin: tuple[Assignment, int],
) -> RankedAssignment:
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
    best: RankedAssignment,
    smallest_gain: float,
    start: tuple[tuple[Assignment, int], list[tuple[int, int]]],
) -> RankedAssignment:
    """From the same start, force each of (row, member) and search on; leave the search at the best."""
    saved, tries = start
    chosen = saved
    for row, member in tries:
        if not search.may_start(best):
            break
        search.restore(saved)
        if search.budget < 1 and search.assignment[row] == search.owner[row]:
            continue
        search.force(row, member)
        search.even_counts(allowed)
        search.max_gap = allowed
        search.improve(smallest_gain)
        search.pinned[row] = False
        other = ranked_assignment(search, allowed)
        if other.rank < best.rank:
            best, chosen = other, search.save()
    search.restore(chosen)
    return best
