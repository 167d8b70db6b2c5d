"""What the members of a group can process and what will arrive: the inputs of ``load: time``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from assignor_core.objective import Load
from evenlag.enums import GroupType
from evenlag.lag.arrays import Bools, Floats, Int64s
from evenlag.lag.forecast import SCENARIOS, draw_arrivals
from evenlag.lag.speeds import uncommitted
from evenlag.planning.capacities import speeds_of

if TYPE_CHECKING:
    from assignor_core.group import Group
    from evenlag.policy.group_settings import GroupSettings

# Standard deviation of arrivals, relative to the forecast, before any forecast is scored.
_UNKNOWN_ERROR: Final = 0.2
# A group of unknown speed that keeps up is taken to be so busy.
_UNKNOWN_BUSY: Final = 0.8


@dataclass(frozen=True, slots=True)
class FollowTimes:
    """How long a group takes to follow a plan, and stops for it.

    follow_s: Until all partitions are processed by their new members.
    unowned_s, stopped_s: As in :class:`GroupWork`.
    """

    follow_s: float
    unowned_s: float
    stopped_s: float


# Measured with Kafka's Java client and with librdkafka: docs/bench/following.json.
_CLIENTS: Final = {
    GroupType.CLASSIC: FollowTimes(6.5, 0.8, 0.4),
    GroupType.CONSUMER: FollowTimes(7.6, 2.6, 0.6),
}


@dataclass(frozen=True, slots=True, eq=False)
class GroupFacts:
    """What earlier snapshots and plans of a group tell about its next one; None: not known.

    follow_s, rebalancing_s: How long it has taken to follow plans, and rebalanced for them.
    interval_s: Seconds between the last two snapshots.
    common, own: Errors of its forecasts, as in :class:`evenlag.lag.forecast.Errors`.
    """

    follow_s: float | None = None
    rebalancing_s: float | None = None
    interval_s: float | None = None
    common: Floats | None = None
    own: Floats | None = None

    def times(self, group_type: str | None) -> FollowTimes:
        """Return the group's own times where they are known, else those of its client."""
        client = _CLIENTS.get(
            GroupType(group_type) if group_type else GroupType.CLASSIC, _CLIENTS[GroupType.CLASSIC]
        )
        follow_s = client.follow_s if self.follow_s is None else self.follow_s
        unowned_s = client.unowned_s if self.rebalancing_s is None else min(self.rebalancing_s, follow_s)
        return FollowTimes(follow_s, unowned_s, min(client.stopped_s, unowned_s))


@dataclass(frozen=True, slots=True, eq=False)
class GroupWork:
    """The work of one group of M members and P partitions over a horizon of K steps.

    A record of cost 1 is one unit of work; costs have median 1.

    speed: [M] units of work per second of a member that always has records; positive.
    cost: [P] units of work per record.
    consumed: [P] records per second: lag that may be :func:`~evenlag.lag.speeds.uncommitted` is no backlog.
    arrivals: [P, K] records that are expected in each step.
    error: [P, K] standard deviation of the records that arrive until the end of each step, beside what all
        partitions have in common.
    common_error: Standard deviation of the group's arrivals, relative to the expected ones.
    step_s: Seconds of a step.
    unowned_s, stopped_s: Seconds that a plan stops a moved partition, and all others.
    next_s: Seconds until the next plan can be followed: what waits later may wait for that.
    target_s: How long records may wait; None: no target.
    """

    speed: Floats
    cost: Floats
    consumed: Floats
    arrivals: Floats
    error: Floats
    common_error: float
    step_s: float
    unowned_s: float
    stopped_s: float
    next_s: float
    target_s: float | None = None

    @property
    def horizon_s(self) -> float:
        """Seconds of all steps."""
        return float(self.step_s * self.arrivals.shape[1])

    def expecting(self, scenarios: Floats) -> GroupWork:
        """Return the same work with what arrives in equally likely scenarios: [S, P, K] records by step."""
        until = np.cumsum(scenarios, axis=2)
        mean, total = until.mean(axis=0), until[:, :, -1].sum(axis=1)
        common = float(total.std() / total.mean()) if total.mean() > 0 else 0.0
        own = until.var(axis=0) - (common * mean) ** 2
        if (scenarios == scenarios[0]).all():
            # No forecast is scored yet. Sums of equal numbers are rounded: variances need not be 0.
            own, common = (_UNKNOWN_ERROR * mean) ** 2, _UNKNOWN_ERROR
        # Rates drift: an error is not there at once.
        steps = np.arange(1, mean.shape[1] + 1) / mean.shape[1]
        error = np.sqrt(own.clip(min=0.0) * steps)
        return replace(self, arrivals=scenarios.mean(axis=0), error=error, common_error=common)

    def backlog(self, lag: Int64s) -> Floats:
        """Return the records of lag that wait: [P]."""
        return np.where(lag < uncommitted(self.consumed), 0.0, lag)

    def united(self, unit: Int64s, num_units: int) -> GroupWork:
        """Return the work of units of partitions: [P] unit of each."""
        weight = self.arrivals.sum(axis=1) + 1e-9
        total = np.bincount(unit, weight, num_units)
        cost = np.bincount(unit, weight * self.cost, num_units) / total
        sums = np.zeros((2, num_units, self.arrivals.shape[1]))
        np.add.at(sums[0], unit, self.arrivals)
        np.add.at(sums[1], unit, (self.error * self.cost[:, None]) ** 2)
        consumed = np.bincount(unit, self.consumed, num_units).astype(np.float64)
        error = np.sqrt(sums[1]) / cost[:, None]
        return replace(self, cost=cost, consumed=consumed, arrivals=sums[0], error=error)


NO_FACTS: Final = GroupFacts()


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What is measured of a group's members and partitions.

    speed: [M] units of work per second; NaN: unknown. is_bound: [M], whether it is at least that.
    cost: [P]. consumed: [P] records per second; NaN: unknown.
    rates: [P, K] records per second that are expected in the steps of the horizon.
    """

    speed: Floats
    is_bound: Bools
    cost: Floats
    consumed: Floats
    rates: Floats


def expected_work(
    group: Group, settings: GroupSettings, known: Measured, facts: GroupFacts, times: FollowTimes
) -> GroupWork:
    """Return the work of a group as far as it is known.

    Where no speed is known, those that the group needs; of some unknown ones the median of the others, and at
    least a known bound.
    """
    horizon_s = float(settings.plan_horizon_s)
    rates = np.fmax(known.rates, 0.0)
    step_s = horizon_s / rates.shape[1]
    arrivals = rates * step_s
    needed = float(((group.lag + arrivals.sum(axis=1)) * known.cost).sum()) / horizon_s
    work = GroupWork(
        speed=speeds_of(
            settings, group.instance_ids, known.speed, known.is_bound, max(needed, 1.0) / _UNKNOWN_BUSY
        ),
        cost=known.cost,
        consumed=np.fmax(known.consumed, 0.0),
        arrivals=arrivals,
        error=np.zeros_like(arrivals),
        common_error=0.0,
        step_s=step_s,
        unowned_s=times.unowned_s + settings.move_cost_s,
        stopped_s=times.stopped_s,
        next_s=next_plan_s(step_s if facts.interval_s is None else facts.interval_s, times.follow_s),
        target_s=settings.target_wait_s if settings.load is Load.TIME else None,
    )
    if facts.common is None or facts.own is None:
        return work.expecting(arrivals[None])
    return work.expecting(draw_arrivals(rates, step_s, facts.common, facts.own, SCENARIOS))


def next_plan_s(interval_s: float, follow_s: float) -> float:
    """Return when the next plan can be followed: an interval between snapshots, a cycle's time, and that."""
    return 1.5 * interval_s + follow_s
