"""Plans by time: how many record-seconds a group's records wait under an assignment, and one with fewer.

A member is one queue: ``Q = X - min(0, min X)``, with ``X(t) = backlog + arrivals - speed * t``, is exact for
work, whatever order a member takes its partitions in. Expected waiting is the mean over quantiles of what
arrives: errors of partitions are independent, so their variances add up. A moved partition waits without an
owner, then comes to its new member at once; the others stop for a shorter time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from assignor_core.algorithms.rack_search import racks_of

if TYPE_CHECKING:
    from assignor_core.group import Group
    from evenlag.lag.arrays import Bools, Floats, Int32s, Int64s
    from evenlag.planning.group_work import GroupWork

# Means of the fifths of a normal distribution: equally likely.
_QUANTILES: Final = np.array([-1.3998, -0.5319, 0.0, 0.5319, 1.3998])
# Loads of the candidates: lag and what arrives in these shares of the horizon.
_SHARES: Final = (0.0, 0.2, 0.5, 1.0)
# A change must save this share of the waiting.
_LEAST: Final = 0.002
# Changes that are compared at once; groups of more rows times members are not improved.
_MOST_CHANGES, _MOST_CELLS, _MOST_ROUNDS = 1_000, 20_000, 40
# Members where most waits, whose rows go to those where least waits.
_GIVERS, _TAKERS = 2, 4
# A plan whose waiting is so near to the bound, as a share of what may be saved, is not improved.
_NEAR: Final = 0.01


class Prediction(NamedTuple):
    """What is expected under an assignment.

    record_s: Record-seconds that records wait within the horizon, those that the plan costs included.
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

    target, kept: int32 [P], row → member, -1 for none. Kept: nothing moves, free rows are placed.
    cost_record_s: Record-seconds that the plan itself costs, within `planned`.
    """

    target: Int32s
    kept: Int32s
    stay: Prediction
    planned: Prediction
    cost_record_s: float

    @property
    def saved_record_s(self) -> float:
        """Record-seconds that the plan saves within the horizon, without its own costs."""
        return self.net_record_s + self.cost_record_s

    @property
    def net_record_s(self) -> float:
        """Record-seconds that the plan saves within the horizon, its own costs deducted."""
        return self.stay.record_s - self.planned.record_s

    @property
    def gain(self) -> float:
        """The share of the waiting that the plan saves, its own costs deducted."""
        return self.net_record_s / self.stay.record_s if self.stay.record_s > 0 else 0.0


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
    """Return the plan whose records are expected to wait least; of equal ones that with the fewest moves.

    keep: [P] rows that stay where they are.
    assign: Returns the assignment for loads [P] with at most so many moves.

    Nothing is searched where even the lower bound of waiting saves less than the limits require.
    """
    model = WaitingModel.of(group, work)
    inflow = model.inflow[0]
    kept = group.live_owner
    if (kept < 0).any():
        kept = assign(inflow[:, -1], 0)
    best, least = kept, model.value(kept)
    saved = (least - model.least_value()) / model.per_record
    floor = max(limits.min_saved_record_s, limits.min_gain * least / model.per_record)
    # What waits later than the next plan can be followed that plan can save, too, and it will know more.
    if saved >= floor and model.value(kept, work.next_s) > model.least_value(work.next_s):
        found = {kept.tobytes()}
        for load in _distinct(inflow[:, np.searchsorted(model.at_s, np.array(_SHARES) * work.horizon_s)]):
            target = assign(load, limits.max_moves)
            if target.tobytes() in found:
                continue
            found.add(target.tobytes())
            value = model.value(target)
            if value < least:
                best, least = target, value
        # Leaving an owner that no longer subscribes is a move, too.
        forced = int(((group.owner >= 0) & (group.live_owner < 0)).sum())
        within = limits._replace(max_moves=limits.max_moves - forced)
        search = _Search(group, model, within, keep, model.value(kept))
        best = min((search.improve(start) for start in (best, kept)), key=search.rank)
        if model.value(best, work.next_s) >= model.value(kept, work.next_s):
            best = kept
    return TimePlan(best, kept, model.predict(kept), model.predict(best), model.cost(best))


def judge(group: Group, work: GroupWork, target: Int32s) -> TimePlan:
    """Return what is expected of another planner's target for a group without free rows."""
    model, kept = WaitingModel.of(group, work), group.live_owner
    return TimePlan(target, kept, model.predict(kept), model.predict(target), model.cost(target))


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


@dataclass(frozen=True, slots=True, eq=False)
class WaitingModel:
    """Expected waiting of R rows with M members, at G moments of the horizon.

    owner: [R], -1 for none.
    at_s: [G] moments; one of them twice: before and after moved rows come to their members.
    inflow: [2, R, G] work that came to a row's member: of a row that stays, and of one that moves.
    variance, common: [R, G] of the work that arrived: variance, and error that all rows have in common.
    served: [2, M, G] work that a member can have done: without a plan, and with one.
    unowned: [R] unit-seconds that a moved row waits for its new owner.
    per_record: Units of work of a mean record.
    """

    owner: Int32s
    at_s: Floats
    inflow: Floats
    variance: Floats
    common: Floats
    served: Floats
    unowned: Floats
    per_record: float
    ends: Int64s

    @classmethod
    def of(cls, group: Group, work: GroupWork) -> WaitingModel:
        """Return the model of a group."""
        inflow = _inflow(group, work)
        steps_s = np.linspace(0.0, work.horizon_s, inflow.shape[1])
        unowned_s = min(work.unowned_s, work.horizon_s)
        at_s: Floats = np.union1d(steps_s, np.minimum([work.stopped_s, work.next_s], work.horizon_s))
        place = int(np.searchsorted(at_s, unowned_s))
        at_s = np.insert(at_s, place, [unowned_s] * (1 if at_s[place] == unowned_s else 2))
        stays = _interpolate(at_s, steps_s, inflow)
        comes = stays.copy()
        comes[:, : place + 1] = 0.0
        error = np.column_stack([np.zeros(len(inflow)), work.error]) * work.cost[:, None]
        waited = (stays[:, 1:] + stays[:, :-1]) / 2 * np.diff(at_s)
        served_s = np.stack([at_s, np.maximum(at_s - work.stopped_s, 0.0)])
        records = inflow[:, -1] / work.cost
        total = records.sum()
        return cls(
            owner=group.live_owner,
            at_s=at_s,
            inflow=np.stack([stays, comes]),
            variance=_interpolate(at_s, steps_s, error) ** 2,
            common=work.common_error * (stays - stays[:, :1]),
            served=work.speed[:, None] * served_s[:, None],
            unowned=waited[:, :place].sum(axis=1),
            per_record=float(inflow[:, -1].sum() / total) if total > 0 else 1.0,
            ends=np.searchsorted(at_s, steps_s[1:], side="right") - 1,
        )

    def moved(self, target: Int32s) -> Bools:
        """Return which rows leave a live owner: [R]."""
        return np.asarray((self.owner >= 0) & (target != self.owner))

    def flows(self, target: Int32s, is_moved: Bools) -> Floats:
        """Return inflow, variance and common error of each member: [3, M, G]."""
        sums = np.zeros((3, self.served.shape[1], len(self.at_s)))
        rows = np.flatnonzero(target >= 0)
        for place, part in enumerate(self.parts(rows, is_moved[rows])):
            np.add.at(sums[place], target[rows], part)
        return sums

    def parts(self, rows: Int64s, is_moved: Bools) -> Floats:
        """Return what rows bring to their members: [3, N, G]."""
        inflow = self.inflow[is_moved.astype(np.int64), rows]
        return np.stack([inflow, self.variance[rows], self.common[rows]])

    def queues(self, flows: Floats, served: Floats) -> tuple[Floats, Floats]:
        """Return the work that waits at N members [N, Q, G], and the same before it is bound by 0."""
        inflow, variance, common = flows
        error = np.sqrt(variance.clip(min=0.0) + common**2)
        level = (inflow - served)[:, None] + _QUANTILES[:, None] * error[:, None]
        queue = level - np.minimum(np.minimum.accumulate(level, axis=2), 0.0)
        return queue, queue[:, :, :-1] + np.diff(level, axis=2)

    def waits(self, flows: Floats, served: Floats, until_s: float = np.inf) -> Floats:
        """Return the expected unit-seconds that wait at N members: [N], of flows [3, N, G]."""
        queue, ahead = self.queues(flows, served)
        begun = queue[:, :, :-1]
        # A queue that runs empty on the way is a triangle.
        share = np.divide(begun, begun - ahead, out=np.ones_like(begun), where=ahead < 0)
        area = (begun + queue[:, :, 1:]) * share
        length_s = np.diff(self.at_s.clip(max=until_s))
        return np.asarray((area @ length_s).sum(axis=1) / (2 * len(_QUANTILES)))

    def value(self, target: Int32s, until_s: float = np.inf) -> float:
        """Return the expected unit-seconds of an assignment until a moment, its own costs included."""
        is_moved = self.moved(target)
        served = self.served[int(is_moved.any())]
        waits = self.waits(self.flows(target, is_moved), served, until_s)
        return float(waits.sum() + self.unowned[is_moved].sum())

    def least_value(self, until_s: float = np.inf) -> float:
        """Return a lower bound for any assignment: the members as one, without errors."""
        flows = np.zeros((3, 1, len(self.at_s)))
        flows[0, 0] = self.inflow[0].sum(axis=0)
        return float(self.waits(flows, self.served[0].sum(axis=0, keepdims=True), until_s)[0])

    def cost(self, target: Int32s) -> float:
        """Return the record-seconds that a plan itself costs: of moved rows, and of stopped ones."""
        is_moved = self.moved(target)
        if not is_moved.any():
            return 0.0
        nobody = np.zeros_like(is_moved)
        free = self.waits(self.flows(target, nobody), self.served[0]).sum()
        return (self.value(target) - float(free)) / self.per_record

    def predict(self, target: Int32s) -> Prediction:
        """Return what is expected of an assignment."""
        is_moved = self.moved(target)
        queue, _ = self.queues(self.flows(target, is_moved), self.served[int(is_moved.any())])
        speed = self.served[0, :, -1] / self.at_s[-1]
        waiting = queue.mean(axis=1)[:, self.ends]
        return Prediction(
            record_s=self.value(target) / self.per_record,
            step_s=float(self.at_s[-1]) / len(self.ends),
            lag=waiting.sum(axis=0) / self.per_record,
            largest_wait_s=(waiting / speed[:, None]).max(axis=0),
        )


def _interpolate(at_s: Floats, known_s: Floats, values: Floats) -> Floats:
    """Return values [R, G] at moments, of values at known moments [R, K + 1]."""
    after = np.searchsorted(known_s, at_s).clip(1, len(known_s) - 1)
    share = (at_s - known_s[after - 1]) / (known_s[after] - known_s[after - 1])
    return np.asarray(values[:, after - 1] + share * (values[:, after] - values[:, after - 1]))


class _Search:
    """Improves assignments by single moves and swaps, the best one first."""

    def __init__(
        self, group: Group, model: WaitingModel, limits: Limits, keep: Bools, kept_value: float
    ) -> None:
        self._model, self._limits = model, limits
        self._may = group.subscribed[:, group.row_topic].T.copy()
        racks, owner = racks_of(group), group.live_owner
        if racks is not None:
            rows = np.arange(group.num_partitions)
            far = racks.far(rows[:, None], np.arange(group.num_members))
            self._may &= ~far | (far[rows, owner] & (owner >= 0))[:, None]
        self._may[keep] = False
        self._is_small = self._may.size <= _MOST_CELLS
        self._speed = model.served[0, :, -1]
        self._kept, self._least = kept_value, model.least_value()

    def rank(self, target: Int32s) -> tuple[float, int]:
        """Return the order of assignments."""
        return self._model.value(target), int(self._model.moved(target).sum())

    def improve(self, target: Int32s) -> Int32s:
        """Return the assignment after the changes that save most, one after the other."""
        model = self._model
        target, now = target.copy(), model.value(target)
        # Not worth a search: what is left above the bound.
        enough = self._least + _NEAR * (self._kept - self._least)
        for _ in range(_MOST_ROUNDS if self._is_small else 0):
            if now <= enough:
                break
            change = self._best_change(target)
            if change is None:
                break
            after = target.copy()
            after[change[0]] = change[1]
            value = model.value(after)
            if value >= now * (1 - _LEAST):
                break
            target, now = after, value
        return target

    def _best_change(self, target: Int32s) -> tuple[Int64s, Int64s] | None:
        model = self._model
        is_moved = model.moved(target)
        flows = model.flows(target, is_moved)
        waits = model.waits(flows, model.served[1])
        for rows, to in self._changes(target, is_moved, waits):
            gain = self._gains(rows, to, target, is_moved, flows) - waits[to[0]] - waits[target[rows[0]]]
            least = int(gain.argmin())
            # Swaps are many: they are tried where no single move gains.
            if gain[least] < -_LEAST * float(waits.sum()):
                return rows[:, least], to[:, least]
        return None

    def _gains(self, rows: Int64s, to: Int64s, target: Int32s, is_moved: Bools, flows: Floats) -> Floats:
        """Return what waits at both members after each change, with the change of what moves cost: [N]."""
        model = self._model
        giver, taker = target[rows[0]], to[0]
        moves = (model.owner[rows] >= 0) & (model.owner[rows] != to)
        at_giver = flows[:, giver] - model.parts(rows[0], is_moved[rows[0]])
        at_taker = flows[:, taker] + model.parts(rows[0], moves[0])
        if len(rows) > 1:
            at_giver += model.parts(rows[1], moves[1])
            at_taker -= model.parts(rows[1], is_moved[rows[1]])
        price = ((moves.astype(np.float64) - is_moved[rows]) * model.unowned[rows]).sum(axis=0)
        served = model.served[1]
        return np.asarray(price + model.waits(at_giver, served[giver]) + model.waits(at_taker, served[taker]))

    def _changes(self, target: Int32s, is_moved: Bools, waits: Floats) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield rows [1 or 2, N] and their new members: single moves, then swaps, within the limits."""
        left = self._limits.max_moves - int(is_moved.sum())
        givers = np.argsort(-waits)[:_GIVERS]
        is_heavy = np.isin(target, givers[waits[givers] > 0])
        takers = np.argsort(waits / self._speed, kind="stable")[:_TAKERS]
        for kind in (self._moves, self._swaps):
            rows, to = kind(target, is_moved, is_heavy, takers)
            owner = self._model.owner[rows]
            more = (((owner >= 0) & (owner != to)).astype(np.int64) - is_moved[rows]).sum(axis=0)
            fits = np.flatnonzero(self._may[rows, to].all(axis=0) & (more <= left))[:_MOST_CHANGES]
            if len(fits):
                yield rows[:, fits], to[:, fits]

    def _moves(
        self, target: Int32s, is_moved: Bools, is_heavy: Bools, takers: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Moves of rows of the members where most waits, and back to the owners of all moved rows."""
        counts = np.bincount(target[target >= 0], minlength=self._may.shape[1])
        row, place = np.nonzero(is_heavy[:, None] & (target[:, None] != takers))
        to = takers[place]
        back = np.flatnonzero(is_moved & ~is_heavy)
        row, to = np.append(row, back), np.append(to, self._model.owner[back])
        gap = max(int(counts.max() - counts.min()), 1 + self._limits.count_slack)
        most, least = (
            np.maximum(counts.max(), counts[to] + 1),
            np.minimum(counts.min(), counts[target[row]] - 1),
        )
        fits = most - least <= gap
        return row[None, fits], to[None, fits]

    def _swaps(
        self, target: Int32s, is_moved: Bools, is_heavy: Bools, takers: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Swaps of rows of the members where most waits with those of others."""
        del is_moved
        one, two = np.nonzero(is_heavy[:, None] & np.isin(target, takers) & (target[:, None] != target))
        return np.stack([one, two]), np.stack([target[two], target[one]]).astype(np.int64)
