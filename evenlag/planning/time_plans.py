"""Plans by time: how many record-seconds a group's records wait under an assignment, and one with fewer.

A member is one queue: ``Q = X - min(0, min X)``, with ``X(t) = backlog + arrivals - speed * t``, is exact for
work, whatever order a member takes its partitions in. Expected waiting is the mean over quantiles of what
arrives: errors of partitions are independent, so their variances add up. A moved partition waits without an
owner, then comes to its new member at once; the others stop for a shorter time.

With a target only the time beyond it counts: of what has come until `t`, the work that came before
``t - target`` and is not done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from assignor_core.algorithms.rack_search import racks_of
from assignor_core.verify import largest_count_gap

if TYPE_CHECKING:
    from assignor_core.group import Group
    from evenlag.lag.arrays import Bools, Floats, Int32s, Int64s
    from evenlag.planning.group_work import GroupWork

# Means of the fifths of a normal distribution: equally likely.
_QUANTILES: Final = np.array([-1.3998, -0.5319, 0.0, 0.5319, 1.3998])
# Loads of the candidates: lag and what arrives in these shares of the horizon.
_SHARES: Final = (0.0, 0.2, 0.5, 1.0)
# Sums in another order may differ by so much.
_ROUNDING: Final = 1 + 1e-9
# A change must save this share of the waiting, without that of an overload.
_LEAST: Final = 0.002
# Changes and swaps that are compared at once; groups of more rows times members are not improved.
_MOST_CHANGES, _MOST_SWAPS, _MOST_CELLS, _MOST_ROUNDS = 1_000, 100, 20_000, 40
# Members where most waits, whose rows go to those where least waits.
_GIVERS, _TAKERS = 2, 4
# A plan that leaves this share of what may be saved is not improved, or not compared with the assignor's.
_NEAR, _FAR = 0.01, 0.1


class Prediction(NamedTuple):
    """What is expected under an assignment.

    record_s: Record-seconds that records wait within the horizon, those that the plan costs included; with a
        target beyond it.
    step_s: Seconds of a step.
    lag: [K] records that wait at the end of each step.
    largest_wait_s: [K] seconds until the last member has processed what waits at the end of each step.
    """

    record_s: float
    step_s: float
    lag: Floats
    largest_wait_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class TimePlan:
    """A target, and what is expected without and with it.

    target: int32 [P], row → member, -1 for none.
    cost_record_s: Record-seconds that the plan itself costs, within `planned`.
    overload_record_s: Those of `stay` that are of records which no assignment processes within the horizon.
    """

    target: Int32s
    stay: Prediction
    planned: Prediction
    cost_record_s: float
    overload_record_s: float

    @property
    def saved_record_s(self) -> float:
        """Record-seconds that the plan saves within the horizon, without its own costs."""
        return self.net_record_s + self.cost_record_s

    @property
    def net_record_s(self) -> float:
        """Record-seconds that the plan saves within the horizon, its own costs deducted."""
        return self.stay.record_s - self.planned.record_s

    @property
    def shortened_record_s(self) -> float:
        """Record-seconds of records that some assignment may process within the horizon."""
        return max(self.stay.record_s - self.overload_record_s, 0.0)

    @property
    def gain(self) -> float:
        """The share of that waiting that the plan saves, its own costs deducted."""
        return self.net_record_s / self.shortened_record_s if self.shortened_record_s > 0 else 0.0


class Limits(NamedTuple):
    """Limits of a plan; see the settings of these names."""

    max_moves: int
    count_slack: int
    min_saved_record_s: float = 0.0
    min_gain: float = 0.0


def plan_by_time(
    group: Group,
    work: GroupWork,
    limits: Limits,
    *,
    keep: Bools,
    assign: Callable[[Floats, int], Int32s],
) -> TimePlan:
    """Return the plan whose records are expected to wait least, each move paid for by what it saves.

    keep: [P] rows that stay where they are.
    assign: Returns the assignment for loads [P] with at most so many moves.

    Counts within the slack come first. Else nothing is searched where even the lower bound of waiting saves
    less than the limits require.
    """
    model = WaitingModel.of(group, work)
    kept = group.live_owner
    if (kept < 0).any():
        kept = assign(model.inflow[:, -1], 0)
    stay = model.judge(kept)
    bound = model.bound() if stay.value > 0 else Bound(0.0, 0.0, 0.0)
    best = stay
    floor = max(limits.min_saved_record_s * model.per_record, limits.min_gain * (stay.value - bound.overload))
    excess = _count_excess(group, limits.count_slack, stay.target)
    # What waits later than the next plan can be followed that plan can save, too, and it will know more.
    if excess or (stay.value - bound.value >= floor and stay.early > bound.early):
        # Leaving an owner that no longer subscribes is a move, too.
        forced = int(((group.owner >= 0) & (group.live_owner < 0)).sum())
        search = _Search(
            group, model, limits._replace(max_moves=limits.max_moves - forced), keep, stay, bound
        )
        best = search.improve(stay)
        if search.rank(best)[0] or search.left(best) > _FAR:
            loads = model.inflow[:, np.searchsorted(model.at_s, np.array(_SHARES) * work.horizon_s)]
            found = [model.judge(assign(load, limits.max_moves)) for load in _distinct(loads)]
            best = min((best, search.improve(min(found, key=search.rank))), key=search.rank)
        if best.early >= stay.early and search.rank(best)[0] >= excess:
            best = stay
    return model.plan(stay, best, bound.overload)


def _count_excess(group: Group, slack: int, target: Int32s) -> int:
    """Return by how much more counts differ than by 1 and the slack."""
    return max(largest_count_gap(group, target) - 1 - slack, 0) if slack < len(target) else 0


def judge(group: Group, work: GroupWork, target: Int32s) -> TimePlan:
    """Return what is expected of another planner's target for a group without free rows."""
    model = WaitingModel.of(group, work)
    return model.plan(model.judge(group.live_owner), model.judge(target), model.overload())


def _distinct(loads: Floats) -> Iterator[Floats]:
    """Yield columns of loads [P, N], of proportional ones the first: their assignments are equal."""
    total = loads.sum(axis=0)
    shares = (loads / np.where(total > 0, total, 1.0)).T
    for place, share in enumerate(shares):
        if not any(np.allclose(share, before, rtol=1e-9, atol=0.0) for before in shares[:place]):
            yield loads[:, place]


def _inflow(group: Group, work: GroupWork) -> Floats:
    """Work of each row until each step, from its backlog on: [P, K + 1]."""
    arriving = np.cumsum(work.arrivals, axis=1)
    backlog = work.backlog(group.lag)
    return np.column_stack([backlog, backlog[:, None] + arriving]) * work.cost[:, None]


class Judged(NamedTuple):
    """An assignment and what is expected under it.

    target: int32 [R], row → member. is_moved: bool [R], which rows leave a live owner.
    flows: [M, C, G] sums of the rows of each member.
    value, early: Unit-seconds within the horizon and until the next plan, with what the moves cost.
    longest_s: [M] the longest expected time until a member has processed what waits; with a target only.
    """

    target: Int32s
    is_moved: Bools
    flows: Floats
    value: float
    early: float
    longest_s: Floats | None = None

    @property
    def moves(self) -> int:
        """How many rows leave a live owner."""
        return int(np.count_nonzero(self.is_moved))


class Bound(NamedTuple):
    """Lower bounds of `value` and `early` of any assignment.

    overload: Those of `value` that are of work which no assignment does within the horizon.
    """

    value: float
    early: float
    overload: float


@dataclass(frozen=True, slots=True, eq=False)
class WaitingModel:
    """Expected waiting of R rows with M members, at G moments of the horizon.

    owner: [R], -1 for none.
    at_s: [G] moments; one of them twice: before and after moved rows come to their members.
    rows: [2, R, C, G] what a row brings to its member if it stays, and if it moves: work that has come;
        variance of the work that has arrived; its error that all rows have in common; with a target, what
        of the work may still wait, negative.
    served: [2, M, G] work that a member can have done: without a plan, and with one.
    unowned: [R] unit-seconds that a moved row waits for its new owner.
    length_s: [G - 1, 2] between the moments: within the horizon, and until the next plan.
    per_record: Units of work of a mean record.
    ends: [K] places of the ends of steps among the moments.
    target_s: See :class:`~evenlag.planning.group_work.GroupWork`.
    """

    owner: Int32s
    at_s: Floats
    rows: Floats
    served: Floats
    unowned: Floats
    length_s: Floats
    per_record: float
    ends: Int64s
    target_s: float | None

    @classmethod
    def of(cls, group: Group, work: GroupWork) -> WaitingModel:
        """Return the model of a group."""
        inflow = _inflow(group, work)
        steps_s = np.linspace(0.0, work.horizon_s, inflow.shape[1])
        unowned_s = min(work.unowned_s, work.horizon_s)
        others_s = np.array([work.stopped_s, work.next_s])
        if work.target_s is not None:
            others_s = np.append(others_s, steps_s + work.target_s)
        at_s: Floats = np.union1d(steps_s, others_s.clip(max=work.horizon_s))
        place = int(np.searchsorted(at_s, unowned_s))
        at_s = np.insert(at_s, place, [unowned_s] * (1 if at_s[place] == unowned_s else 2))
        stays = _interpolate(at_s, steps_s, inflow)
        comes = np.where(np.arange(len(at_s)) > place, stays, 0.0)
        error = np.column_stack([np.zeros(len(inflow)), work.error]) * work.cost[:, None]
        errors = [_interpolate(at_s, steps_s, error) ** 2, work.common_error * (stays - stays[:, :1])]
        late = stays
        kinds = [[stays, *errors], [comes, *errors]]
        if work.target_s is not None:
            late = _came_before(at_s - work.target_s, steps_s, inflow)
            kinds[0].append(late - stays)
            kinds[1].append(np.where(np.arange(len(at_s)) > place, late - stays, 0.0))
        waited = (late[:, 1:] + late[:, :-1]) / 2 * np.diff(at_s)
        served_s = np.stack([at_s, np.maximum(at_s - work.stopped_s, 0.0)])
        total = (inflow[:, -1] / work.cost).sum()
        return cls(
            owner=group.live_owner,
            at_s=at_s,
            rows=np.stack([np.stack(each, axis=1) for each in kinds]),
            served=work.speed[:, None] * served_s[:, None],
            unowned=waited[:, :place].sum(axis=1),
            length_s=np.diff(np.stack([at_s, at_s.clip(max=work.next_s)], axis=1), axis=0),
            per_record=float(inflow[:, -1].sum() / total) if total > 0 else 1.0,
            ends=np.searchsorted(at_s, steps_s[1:], side="right") - 1,
            target_s=work.target_s,
        )

    @property
    def inflow(self) -> Floats:
        """Work of each row that has come until each moment: [R, G]."""
        return self.rows[0, :, 0]

    def judge(self, target: Int32s) -> Judged:
        """Return what is expected under an assignment."""
        is_moved = np.asarray((self.owner >= 0) & (target != self.owner))
        flows = self._flows(target, is_moved)
        waits = self.waits(flows, self.served[int(is_moved.any())]).sum(axis=0)
        value, early = (waits + self.unowned[is_moved].sum()).tolist()
        longest_s = None
        if self.target_s is not None:
            longest_s = self.wait_s(flows, slice(None), is_plan=bool(is_moved.any())).max(axis=1)
        return Judged(target, is_moved, flows, value, early, longest_s)

    def bound(self) -> Bound:
        """Return lower bounds for any assignment: the members as one.

        Without errors, or with what all rows have in common where it is not too much: each quantile of a
        member's error is as far from 0 at least.
        """
        flows, served = self.rows[0].sum(axis=0, keepdims=True), self.served[0].sum(axis=0, keepdims=True)
        flows[0, 1] = 0.0
        common = self.waits(flows, served, _QUANTILES[_QUANTILES >= 0])
        flows[0, 2] = 0.0
        value, early = np.maximum(common, self.waits(flows, served))[0].tolist()
        return Bound(value, early, self.overload())

    def overload(self) -> float:
        """Return the unit-seconds of work that no assignment does within the horizon.

        That is what is left of all rows by the members as one, or of each row by the fastest member alone. A
        backlog of hours would hide what a plan saves in a horizon of minutes.
        """
        all_rows, speed = self.rows[0].sum(axis=0, keepdims=True), self.served[0, :, -1]
        as_one, alone = self.served[0].sum(axis=0, keepdims=True), self.served[0, [speed.argmax()]]
        found = 0.0
        for flows, served in ((all_rows, as_one), (self.rows[0], alone)):
            queue = self.queues(flows, served, np.zeros(1))[0][:, 0]
            if self.target_s is not None:
                queue = (queue + flows[:, 3]).clip(min=0.0)
            left = np.minimum(queue, queue[:, -1:])
            area = (left[:, 1:] + left[:, :-1]) / 2 * self.length_s[:, 0]
            found = max(found, float(area.sum()))
        return found

    def _flows(self, target: Int32s, is_moved: Bools) -> Floats:
        rows = np.flatnonzero(target >= 0)
        rows = rows[np.argsort(target[rows], kind="stable")]
        first = np.flatnonzero(np.diff(target[rows], prepend=-1))
        sums = np.zeros((self.served.shape[1], *self.rows.shape[2:]))
        if len(first):
            parts = self.rows[is_moved[rows].astype(np.int64), rows]
            sums[target[rows[first]]] = np.add.reduceat(parts, first, axis=0)
        return sums

    def queues(self, flows: Floats, served: Floats, quantiles: Floats = _QUANTILES) -> tuple[Floats, Floats]:
        """Return the work that waits at N members [N, Q, G], and the same before it is bound by 0."""
        inflow, variance, common = flows[:, 0], flows[:, 1], flows[:, 2]
        error = np.sqrt(variance.clip(min=0.0) + common**2)
        level = (inflow - served)[:, None] + quantiles[:, None] * error[:, None]
        queue = level - np.minimum(np.minimum.accumulate(level, axis=2), 0.0)
        return queue, queue[:, :, :-1] + np.diff(level, axis=2)

    def waits(self, flows: Floats, served: Floats, quantiles: Floats = _QUANTILES) -> Floats:
        """Return the expected unit-seconds that wait at N members: within the horizon, and early: [N, 2].

        quantiles: Those that are counted, of all of which this is a mean.
        """
        queue, ahead = self.queues(flows, served, quantiles)
        begun = queue[:, :, :-1]
        if self.target_s is not None:
            begun, ahead = begun + flows[:, 3:, :-1], ahead + flows[:, 3:, 1:]
        # A queue that runs empty on the way is a triangle.
        both = begun.clip(min=0.0) + ahead.clip(min=0.0)
        height = np.abs(begun) + np.abs(ahead)
        area = np.divide(both * both, height, out=np.zeros_like(both), where=height > 0)
        return np.asarray(area.sum(axis=1) @ self.length_s / (2 * len(_QUANTILES)))

    def wait_s(self, flows: Floats, members: Any, *, is_plan: bool = True) -> Floats:
        """Return how long N members take for what waits at the end of each step: [N, K]."""
        queue, _ = self.queues(flows, self.served[int(is_plan), members])
        return np.asarray(queue.mean(axis=1)[:, self.ends] / self._speed(members)[:, None])

    def _speed(self, members: Any) -> Floats:
        return np.asarray(self.served[0, members, -1] / self.at_s[-1])

    def plan(self, stay: Judged, best: Judged, overload: float) -> TimePlan:
        """Return a plan that makes one assignment of another."""
        stays, overload = self.predict(stay), overload / self.per_record
        if not best.moves:
            return TimePlan(best.target, stays, stays, 0.0, overload)
        free = self._flows(best.target, np.zeros_like(best.is_moved))
        cost = best.value - float(self.waits(free, self.served[0])[:, 0].sum())
        return TimePlan(best.target, stays, self.predict(best), cost / self.per_record, overload)

    def predict(self, found: Judged) -> Prediction:
        """Return what is expected of an assignment."""
        every = slice(None)
        wait_s = self.wait_s(found.flows, every, is_plan=found.moves > 0)
        return Prediction(
            record_s=found.value / self.per_record,
            step_s=float(self.at_s[-1]) / len(self.ends),
            lag=self._speed(every) @ wait_s / self.per_record,
            largest_wait_s=wait_s.max(axis=0),
        )


def _interpolate(at_s: Floats, known_s: Floats, values: Floats) -> Floats:
    """Return values [R, G] at moments, of values at known moments [R, K + 1]."""
    after = np.searchsorted(known_s, at_s).clip(1, len(known_s) - 1)
    share = (at_s - known_s[after - 1]) / (known_s[after] - known_s[after - 1])
    return np.asarray(values[:, after - 1] + share * (values[:, after] - values[:, after - 1]))


def _came_before(at_s: Floats, known_s: Floats, inflow: Floats) -> Floats:
    """Return work that came before moments [R, G]; what waits now came at the present rate."""
    found = _interpolate(at_s.clip(min=0.0), known_s, inflow)
    rate = (inflow[:, 1] - inflow[:, 0]) / (known_s[1] - known_s[0])
    return np.asarray((found + rate[:, None] * at_s.clip(max=0.0)).clip(min=0.0))


class _Search:
    """Improves assignments by single moves and swaps, the best ones first.

    A move has a price: to move a share of the rows must save that share of the waiting that can be saved.
    What rows cost at other members is uncertain, and who is not moved can be measured.
    """

    def __init__(
        self, group: Group, model: WaitingModel, limits: Limits, keep: Bools, stay: Judged, bound: Bound
    ) -> None:
        self._group, self._model, self._limits = group, model, limits
        self._may = group.subscribed[:, group.row_topic].T.copy()
        racks, owner = racks_of(group), group.live_owner
        if racks is not None:
            rows = np.arange(group.num_partitions)
            far = racks.far(rows[:, None], np.arange(group.num_members))
            self._may &= ~far | (far[rows, owner] & (owner >= 0))[:, None]
        self._may[keep] = False
        self._speed = model.served[0, :, -1]
        self._bound, self._avoidable = bound, stay.value - bound.value
        # No row may wait longer than the target, and than where it is, beyond the stop of a rebalance.
        self._longest_s: Floats | None = None
        if model.target_s is not None:
            kept_s = model.wait_s(stay.flows, slice(None)).max(axis=1)
            self._longest_s = np.append(kept_s, 0.0)[stay.target].clip(min=model.target_s) * _ROUNDING
        # Groups that are too large to be improved take what the assignor finds.
        is_small = self._may.size <= _MOST_CELLS
        self._rounds = _MOST_ROUNDS if is_small else 0
        self._price = self._avoidable / len(owner) if is_small else 0.0

    def rank(self, found: Judged) -> tuple[int, bool, float, float, int]:
        """Return the order of assignments: first by the limits of counts, then of waiting."""
        longest_s = 0.0 if found.longest_s is None else float(found.longest_s.max())
        excess = _count_excess(self._group, self._limits.count_slack, found.target)
        return excess, not self._is_allowed(found), self._priced(found), longest_s, found.moves

    def _priced(self, found: Judged) -> float:
        return found.value + self._price * found.moves

    def _least(self, found: Judged) -> float:
        return _LEAST * (found.value - self._bound.overload)

    def _is_allowed(self, found: Judged) -> bool:
        """Return whether each row waits no longer than it may."""
        if self._longest_s is None or found.longest_s is None:
            return True
        rows = found.target >= 0
        return bool((found.longest_s[found.target[rows]] <= self._longest_s[rows]).all())

    def left(self, found: Judged) -> float:
        """Return the share of the waiting that can be saved at most, and is not."""
        return (found.value - self._bound.value) / self._avoidable if self._avoidable > 0 else 0.0

    def improve(self, found: Judged) -> Judged:
        """Return the assignment after the changes that save most, one after the other."""
        for _ in range(self._rounds):
            after = self._changed(found)
            if after is None or self._priced(after) >= self._priced(found) - self._least(found):
                break
            found = after
        return found

    def _changed(self, found: Judged) -> Judged | None:
        """Return the assignment after the best changes of members apart from each other; None: none gains."""
        model, is_enough = self._model, self.left(found) <= _NEAR
        if is_enough and not found.moves:
            return None
        waits = model.waits(found.flows, model.served[1])[:, 0]
        givers = np.argsort(-waits)[:_GIVERS]
        is_heavy = np.isin(found.target, givers[waits[givers] > 0])
        load = found.flows[:, 0, -1] / self._speed
        takers = np.lexsort((load, waits / self._speed))[:_TAKERS]
        # Swaps are many: they are tried where no single move gains.
        for kind in (self._moves, self._swaps)[: 1 if is_enough else 2]:
            rows, to, more = self._allowed(found, *kind(found, is_heavy, takers))
            if not rows.size:
                continue
            gain = self._gains(rows, to, found) + self._price * more
            gain -= waits[to[0]] + waits[found.target[rows[0]]]
            chosen = self._apart(found, rows, to, more, gain)
            if len(chosen):
                target = found.target.copy()
                target[rows[:, chosen]] = to[:, chosen]
                return model.judge(target)
        return None

    def _apart(self, found: Judged, rows: Int64s, to: Int64s, more: Int64s, gain: Floats) -> Int64s:
        """Return which changes save most, of members that no other one of them changes."""
        left = self._limits.max_moves - found.moves
        most = _GIVERS if self._limits.count_slack >= len(found.target) else 1
        chosen: list[int] = []
        used: set[int] = set()
        gap = self._largest_gap(found)
        for place in np.argsort(gain, kind="stable").tolist():
            if gain[place] >= -self._least(found) or len(chosen) == most:
                break
            pair = {int(to[0, place]), int(found.target[rows[0, place]])}
            is_allowed = not pair & used and more[place] <= left
            if is_allowed and (gap is None or self._gap_after(found, rows[:, place], to[:, place]) <= gap):
                used |= pair
                left -= int(more[place])
                chosen.append(place)
        return np.array(chosen, dtype=np.int64)

    def _largest_gap(self, found: Judged) -> int | None:
        """Return how far counts may be apart; None where all take the same: moves are known to keep it."""
        slack = self._limits.count_slack
        if self._group.has_equal_subscriptions or slack >= len(found.target):
            return None
        return max(largest_count_gap(self._group, found.target), 1 + slack)

    def _gap_after(self, found: Judged, rows: Int64s, to: Int64s) -> int:
        target = found.target.copy()
        target[rows] = to
        return largest_count_gap(self._group, target)

    def _gains(self, rows: Int64s, to: Int64s, found: Judged) -> Floats:
        """Return what waits at both members after each change, with the change of what moves cost: [N]."""
        model = self._model
        giver, taker = found.target[rows[0]], to[0]
        was = found.is_moved[rows].astype(np.int64)
        moves = ((model.owner[rows] >= 0) & (model.owner[rows] != to)).astype(np.int64)
        at_giver = found.flows[giver] - model.rows[was[0], rows[0]]
        at_taker = found.flows[taker] + model.rows[moves[0], rows[0]]
        if len(rows) > 1:
            at_giver += model.rows[moves[1], rows[1]]
            at_taker -= model.rows[was[1], rows[1]]
        members = np.stack([giver, taker])
        served = model.served[1, members.ravel()]
        flows = np.concatenate([at_giver, at_taker])
        gain = model.waits(flows, served)[:, 0].reshape(2, -1).sum(axis=0)
        gain += ((moves - was) * model.unowned[rows]).sum(axis=0)
        if self._longest_s is not None:
            longest_s = model.wait_s(flows, members.ravel()).max(axis=1).reshape(2, -1)
            gain[(longest_s > self._allowed_s(found, rows, members)).any(axis=0)] = np.inf
        return np.asarray(gain)

    def _allowed_s(self, found: Judged, rows: Int64s, members: Int64s) -> Floats:
        """Return how long giver and taker of each change may take for what waits: [2, N]."""
        assert self._longest_s is not None  # noqa: S101 - only with a target
        least_s = np.full(len(self._speed), np.inf)
        np.minimum.at(least_s, found.target[found.target >= 0], self._longest_s[found.target >= 0])
        allowed_s = least_s[members]
        for number, row in enumerate(rows):
            # The first row comes to the taker, the second one to the giver.
            np.minimum(allowed_s[1 - number], self._longest_s[row], out=allowed_s[1 - number])
        return np.asarray(allowed_s)

    def _allowed(self, found: Judged, rows: Int64s, to: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Return the changes within the limits, and how many more rows they move."""
        owner = self._model.owner[rows]
        more = (((owner >= 0) & (owner != to)).astype(np.int64) - found.is_moved[rows]).sum(axis=0)
        fits = self._may[rows, to].all(axis=0) & (more <= self._limits.max_moves - found.moves)
        chosen = np.flatnonzero(fits)[:_MOST_CHANGES]
        return rows[:, chosen], to[:, chosen], more[chosen]

    def _moves(self, found: Judged, is_heavy: Bools, takers: Int64s) -> tuple[Int64s, Int64s]:
        """Moves of rows of the members where most waits, and back to the owners of all moved rows."""
        target = found.target
        counts = np.bincount(target[target >= 0], minlength=self._may.shape[1])
        row, place = np.nonzero(is_heavy[:, None] & (target[:, None] != takers))
        back = np.flatnonzero(found.is_moved)
        row, to = np.append(row, back), np.append(takers[place], self._model.owner[back]).astype(np.int64)
        if not self._group.has_equal_subscriptions:
            return row[None], to[None]
        gap = max(int(counts.max() - counts.min()), 1 + self._limits.count_slack)
        most, least = (
            np.maximum(counts.max(), counts[to] + 1),
            np.minimum(counts.min(), counts[target[row]] - 1),
        )
        fits = most - least <= gap
        return row[None, fits], to[None, fits]

    def _swaps(self, found: Judged, is_heavy: Bools, takers: Int64s) -> tuple[Int64s, Int64s]:
        """Swaps of rows of the members where most waits with those of others: those that even out most."""
        target, load = found.target, found.flows[:, 0, -1]
        one, two = np.nonzero(is_heavy[:, None] & np.isin(target, takers) & (target[:, None] != target))
        giver, taker, inflow = target[one], target[two], self._model.inflow[:, -1]
        speed = self._speed
        even = (load[giver] * speed[taker] - load[taker] * speed[giver]) / (speed[giver] + speed[taker])
        off = np.abs(inflow[one] - inflow[two] - even)
        best = np.argsort(off, kind="stable")[:_MOST_SWAPS]
        one, two = one[best], two[best]
        return np.stack([one, two]), np.stack([target[two], target[one]]).astype(np.int64)
