"""evenlag: its planner and gates each cycle, its hints and loads, and its clients' choice at each rebalance.

The code is the product's: `Planner` (``assign_rows``, the gates that a simulation can evaluate: cooldown,
``min_gain``, ``max_moves``, ``count_slack``), ``scale_measured`` and ``material_change``, ``choose_target``
with ``place_by_load``. Not in it: the back-off, which needs three plans evaluated half an hour after each
without another in between, and evaluations themselves.

A cycle reads lag and end offsets and publishes later: a time measured with ``evenlag run --watch``
(``docs/bench/burst.json``), or through Airflow with a Spark Connect server
(``docs/bench/airflow_cycle.json``). A plan whose group has changed meanwhile is not published. Capacities are
not configured, as who sets up a policy seldom knows them; `EvenlagCapacities` shows what they bring.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from assignor_core.metrics import count_moves
from assignor_core.objective import Load
from evenlag.enums import Mode
from evenlag.lag.speeds import COMMIT_INTERVAL_S, BusyReports
from evenlag.planning import group_work
from evenlag.planning.group_work import FollowTimes, GroupFacts, expected_work
from evenlag.policy.candidates import CandidateSettings, parse_candidate
from evenlag.policy.group_settings import CapacityRule, GateLimits, GroupSettings
from evenlag.publishing.scaled_loads import Measured, scale_measured
from evenlag.simulation.scenarios import Planner
from tests.bench.field.contenders.group import Fleet, GroupContender, SentWork
from tests.bench.field.contenders.published import Published, instances_of
from tests.bench.field.timings import airflow_cycle_s, watched_cycle_s
from tests.support.group_forecast import GroupForecast
from tests.support.group_speeds import GroupSpeeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assignor_core.group import Group
    from evenlag.lag.arrays import Floats, Int32s, Int64s
    from evenlag.planning.group_work import GroupWork
    from tests.bench.field.contenders.group import Observed
    from tests.bench.field.contenders.published import Scaled
    from tests.bench.field.traces import Trace


class Evenlag(GroupContender):
    """Mode ``auto``, a cycle each minute by Airflow, a classic group with Kafka's Java client."""

    publishes_hints: ClassVar[bool] = True
    # One group on one broker: python -m tests.bench.reading --groups 1 --partitions 48.
    SNAPSHOT_REQUESTS: ClassVar[int] = 9
    # Three to read the hint topic, five of a transaction, four of a temporary member.
    PUBLISH_REQUESTS: ClassVar[int] = 12

    def __init__(
        self,
        trace: Trace,
        *,
        load: str,
        count_slack: int | None,
        max_moves: int,
        min_gain: float,
        cooldown_s: int | None,
        every_s: float = 60.0,
        horizon_s: float = 300.0,
        capacities: Sequence[CapacityRule] = (),
        fleet: Fleet | None = None,
    ) -> None:
        self.rule = GroupSettings(
            mode=Mode.AUTO,
            load=Load(load),
            count_slack=count_slack,
            max_moves=max_moves,
            min_gain=min_gain,
            horizon_s=round(horizon_s),
            gates=GateLimits.model_validate({"cooldown_s": cooldown_s}),
            capacities=tuple(capacities),
        )
        self.planner = Planner(parse_candidate(self.rule.assignor), CandidateSettings(self.rule, {}))
        self.published = Published(self.rule)
        self.last_hint_s = math.nan
        self._hint_slot_s = math.nan
        self._every_s = every_s
        self._horizon_s = horizon_s
        self._forecast = GroupForecast(trace.num_partitions, horizon_s)
        num_pods = len((fleet or trace).pods)
        self._speeds = GroupSpeeds(num_pods, trace.num_partitions)
        self._last: Observed | None = None
        super().__init__(trace, fleet=fleet)

    def start(self, seen: Observed) -> None:
        """Start the group and the cycles."""
        super().start(seen)
        self.at(float(self.chance.uniform(0.0, self._every_s)), self._cycle)

    def target(self, group: Group, members: Sequence[int], seen: Observed) -> Int32s:
        """Return what the leader, or the broker's assignor, chooses."""
        del members
        decision = self.published.choose(group, seen.now_s)
        if decision.is_uneven and count_moves(group, decision.target):
            self.at(self._busy_until_s, self.rebalance_on_request)
        return decision.target

    def cycle_length_s(self) -> float:
        """Return how long a cycle takes, until what it publishes is on the topic."""
        return float(self.chance.choice(airflow_cycle_s()))

    def _cycle(self, seen: Observed) -> None:
        length_s = self.cycle_length_s()
        # Slots that became due meanwhile are skipped.
        self.at(seen.now_s + self._every_s * math.ceil(length_s / self._every_s), self._cycle)
        self.counts.broker_requests += self.SNAPSHOT_REQUESTS
        last, self._last = self._last, seen
        is_rebalancing = self.is_rebalancing(seen)
        with self.deciding():
            self._observe_speeds(seen, is_rebalancing=is_rebalancing)
            self._forecast.observe(seen.now_s, seen.end)
        if last is None or not self.members or is_rebalancing:
            return
        members = self.ordered(self.members)
        rate = (seen.end - last.end) / (seen.now_s - last.now_s)
        with self.deciding():
            group = self.group(members, seen.lag)
            target = self._plan(group, members, rate, last, seen)
        scaled = scale_measured(self.rule.load, self._measured(group, members, rate, last, seen))
        self.at(seen.now_s + length_s, lambda later: self._publish(group, target, scaled, seen.now_s, later))

    def _observe_speeds(self, seen: Observed, *, is_rebalancing: bool) -> None:
        self._speeds.observe(seen.now_s, seen.lag, seen.end, self.owner, is_rebalancing=is_rebalancing)

    def _plan(
        self, group: Group, members: Sequence[int], rate: Floats, last: Observed, seen: Observed
    ) -> Int32s | None:
        """Return the target of a plan that passes the gates."""
        if not self.publishes_hints or not self.planner.may_plan(
            seen.now_s - self._hint_slot_s, self.costs.follow.follow.median
        ):
            return None
        work = self._work(group, members, self._consumed(last, seen)) if self.rule.load is Load.TIME else None
        target = self.planner.target(group, rate, np.zeros(len(rate), dtype=np.bool_), work)
        is_change = not np.array_equal(target, group.owner)
        return target if is_change and self.planner.passes_gates(group, target) else None

    def _consumed(self, last: Observed, seen: Observed) -> Floats:
        committed = (seen.end - seen.lag) - (last.end - last.lag)
        return np.asarray(committed.clip(min=0) / (seen.now_s - last.now_s))

    def _work(self, group: Group, members: Sequence[int], consumed: Floats) -> GroupWork:
        """Return the measured speeds and costs, and the forecast of arrivals."""
        measured, cost = self._speeds.measured, self.costs.follow
        pods = list(members)
        known = group_work.Measured(
            measured.speed[pods], measured.is_bound[pods], self._speeds.cost, consumed, self._forecast.rates()
        )
        times = FollowTimes(cost.follow.median, cost.unowned.median, cost.stop.median)
        work = expected_work(group, self.rule, known, GroupFacts(interval_s=self._every_s), times)
        return work.expecting(self._forecast.arrivals())

    def _measured(
        self, group: Group, members: Sequence[int], rate: Floats, last: Observed, seen: Observed
    ) -> Measured:
        """Return what a cycle knows; speeds, where the plan does not need them, as of the last interval."""
        owner, is_timed = group.owner.astype(np.int64), self.rule.load is Load.TIME
        consumed = self._consumed(last, seen)
        speed = np.bincount(owner[owner >= 0], consumed[owner >= 0], minlength=len(members))
        if is_timed:
            speed = np.fmax(self._speeds.measured.speed[list(members)], speed)
        return Measured(
            lag=group.lag,
            arrival_rate=rate,
            owner=owner,
            speed=speed.astype(np.float64),
            cost=self._speeds.cost if is_timed else np.ones(len(rate)),
        )

    def _publish(
        self, group: Group, target: Int32s | None, scaled: Scaled, measured_s: float, seen: Observed
    ) -> None:
        with self.deciding():
            self.published.write_loads(instances_of(group), scaled, measured_s, seen.now_s)
            now = tuple(self.member_id(pod) for pod in self.ordered(self.members))
            if target is None or now != group.member_ids or self.is_rebalancing(seen):
                return
            self.published.write_hint(group, target, seen.now_s)
        self.counts.broker_requests += self.PUBLISH_REQUESTS
        self.last_hint_s, self._hint_slot_s = seen.now_s, measured_s
        self.rebalance_on_request(seen)


class EvenlagBusy(Evenlag):
    """The same with members that report their busy time in the metadata of their commits, each 5 s."""

    def __init__(self, trace: Trace, *, fleet: Fleet | None = None, **settings: Any) -> None:
        size, pods = trace.num_partitions, (fleet or trace).pods
        self._sent = SentWork(trace)
        self._pod_speed = np.array([pod.speed for pod in pods])
        self._done, self._committed = np.zeros(size), np.zeros(size, dtype=np.int64)
        self._reports = BusyReports(*np.full((2, size), -1))
        self._busy_s, self._since_s = np.zeros((2, len(pods)))
        super().__init__(trace, fleet=fleet, **settings)

    def start(self, seen: Observed) -> None:
        """Start the group, the cycles and the commits."""
        super().start(seen)
        for pod, first_s in enumerate(self.chance.integers(1, 6, len(self.speed)).tolist()):
            self.every(COMMIT_INTERVAL_S, first_s, partial(self._commit_all, pod))

    def act(self, now_s: float, lag: Int64s, end: Int64s) -> None:
        """Count the work that was done for the owners, and commit what is revoked."""
        owner, done = self.owner, self._sent.before(end - lag)
        work = np.bincount(owner[owner >= 0], (done - self._done)[owner >= 0], len(self.speed))
        self._busy_s, self._done = self._busy_s + work / self._pod_speed, done
        super().act(now_s, lag, end)
        revoked = np.flatnonzero((self.owner != owner) & (owner >= 0))
        self._commit(revoked, owner[revoked], end - lag)
        is_off = self.speed <= 0
        self._busy_s[is_off], self._since_s[is_off] = 0.0, now_s

    def _commit_all(self, pod: int, seen: Observed) -> None:
        rows = np.flatnonzero(self.owner == pod)
        self._commit(rows, self.owner[rows], seen.end - seen.lag)

    def _commit(self, rows: Int64s, pods: Int32s, offset: Int64s) -> None:
        self._committed[rows] = offset[rows]
        self._reports.busy_ms[rows] = np.rint(1000 * self._busy_s[pods])
        self._reports.since_ms[rows] = np.rint(1000 * self._since_s[pods])

    def _observe_speeds(self, seen: Observed, *, is_rebalancing: bool) -> None:
        reports = BusyReports(*(each.copy() for each in self._reports))
        self._speeds.observe(
            seen.now_s,
            seen.end - self._committed,
            seen.end,
            self.owner,
            is_rebalancing=is_rebalancing,
            reports=reports,
        )


class EvenlagWatch(Evenlag):
    """The same with cycles by ``evenlag run --watch --publish``."""

    def cycle_length_s(self) -> float:
        """Return how long a cycle takes."""
        return float(self.chance.choice(watched_cycle_s()))


class EvenlagKip848(Evenlag):
    """The same for a group of the consumer protocol, with librdkafka and the broker plug-in."""

    client = "kip848"
    waits_for_static = False


class EvenlagLoads(Evenlag):
    """Loads only: members place partitions by load when the group changes, and nothing else moves."""

    publishes_hints = False


class EvenlagCapacities(Evenlag):
    """With the true speeds configured as capacities, which needs static members."""

    def __init__(self, trace: Trace, **settings: Any) -> None:
        pods = [pod._replace(instance_id=pod.instance_id or pod.name) for pod in trace.pods]
        rules = [CapacityRule(match=str(pod.instance_id), capacity=pod.speed) for pod in pods]
        super().__init__(trace, capacities=rules, fleet=Fleet(pods, trace.changes), **settings)
