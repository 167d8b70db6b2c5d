"""Four ways to keep a group even: cooperative-sticky, today's hints, living hints, and an oracle.

Each answers what a leader assigns at a rebalance, and what the pipeline publishes after a snapshot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assignor_core.algorithms.place_by_load import place_by_load
from assignor_core.assignors import get_assignor
from assignor_core.assignors.lag_aware_sticky import LagAwareStickyAssignor
from assignor_core.hint import member_key
from assignor_core.metrics import count_moves
from assignor_core.objective import Load
from assignor_core.verify import find_violations, largest_count_gap
from evenlag.policy.candidates import CandidateSettings, parse_candidate
from evenlag.policy.group_settings import CapacityRule, GroupSettings
from evenlag.publishing.scaled_loads import scale_loads
from evenlag.simulation.scenarios import Planner
from tests.bench.field.contenders.group import TOPIC_IDS
from tests.bench.field.contenders.published import Published

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.group import Assignment, Group
    from assignor_core.loads import LoadsPayload
    from tests.bench.living.world import Day

# Of a plan of a cycle: what an assignor declares for simulations, a twentieth of the time.
EFFORT = 0
ORACLE_EFFORT = 5


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A rebalance as its leader sees it.

    at_s: Seconds of the day.
    group: The members with their claims.
    pods: Pod by member of the group.
    """

    at_s: float
    group: Group
    pods: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SimHint:
    """A hint: the group that it is made for, and its target."""

    view: View
    target: Assignment
    expires_s: float

    @property
    def pods(self) -> frozenset[int]:
        """The pods of the group."""
        return frozenset(self.view.pods)

    @property
    def owner(self) -> NDArray[np.int64]:
        """The pod of each row."""
        return np.array(self.view.pods)[self.target]


class Policy:
    """What all have in common: no hint and no loads.

    rule: The day's limits, with the defaults of a policy.
    """

    def __init__(self, day: Day) -> None:
        self.day = day
        self.rule = GroupSettings(
            load=Load.RATE,
            count_slack=day.count_slack,
            max_moves=day.max_moves,
            capacities=tuple(
                CapacityRule(match=pod.instance, capacity=pod.capacity / 1000)
                for pod in day.pods
                if pod.instance is not None
            ),
        )

    def decide(self, view: View) -> Assignment:
        """Return the target of a rebalance."""
        return cooperative_sticky(view.group, 0)

    def measure(self, at_s: int, loads: NDArray[np.float64]) -> None:
        """Take over a loads record."""

    def publish(self, view: View, loads: NDArray[np.float64]) -> SimHint | None:  # noqa: ARG002
        """Return the hint that a cycle of the pipeline makes; None without one."""
        return None

    def receive(self, hint: SimHint) -> None:
        """Take over a hint."""


class TodaysHints(Policy):
    """Hints as they were before loads: for one exact membership, and their slack steers what comes after.

    A hint is followed if its fingerprint is that of the group. Otherwise the leader assigns as
    cooperative-sticky with the ``count_slack`` of the newest hint, fitting or not, expired or not.
    """

    def __init__(self, day: Day) -> None:
        super().__init__(day)
        self.hint: SimHint | None = None
        self._last_hint_s = math.nan
        self._planner = Planner(
            parse_candidate(self.rule.assignor), CandidateSettings(self.rule, {"effort": EFFORT})
        )

    def decide(self, view: View) -> Assignment:
        """Return the target of a rebalance."""
        target = self._hinted(view)
        if target is not None and (self._is_valid(view) or not count_moves(view.group, target)):
            return target
        return cooperative_sticky(view.group, self.day.count_slack if self.hint is not None else 0)

    def publish(self, view: View, loads: NDArray[np.float64]) -> SimHint | None:
        """Plan as the pipeline does, and return the hint if it passes the gates."""
        if not self._planner.may_plan(view.at_s - self._last_hint_s):
            return None
        target = self._planner.target(view.group, loads, np.zeros(len(loads), dtype=np.bool_))
        if not count_moves(view.group, target) or not self._planner.passes_gates(view.group, target):
            return None
        return SimHint(view, target, view.at_s + self.rule.hint_ttl_s)

    def receive(self, hint: SimHint) -> None:
        """Take over a hint: the cooldown begins."""
        self.hint, self._last_hint_s = hint, hint.view.at_s

    def _is_valid(self, view: View) -> bool:
        return self.hint is not None and view.at_s < self.hint.expires_s

    def _hinted(self, view: View) -> Assignment | None:
        """Return the hint's target if it fits the group."""
        if self.hint is None or self.hint.pods != frozenset(view.pods):
            return None
        index = np.full(len(self.day.pods), -1, dtype=np.int32)
        index[list(view.pods)] = np.arange(len(view.pods), dtype=np.int32)
        target: Assignment = index[self.hint.owner]
        limits: dict[str, Any] = {"max_moves": self.day.max_moves, "count_slack": self.day.count_slack}
        return None if find_violations(view.group, target, **limits) else target


class LivingHints(TodaysHints):
    """What the product's leader does: the hint while it fits, else placed by load, else without slack."""

    def __init__(self, day: Day) -> None:
        super().__init__(day)
        self._published = Published(self.rule)

    def measure(self, at_s: int, loads: NDArray[np.float64]) -> None:
        """Take over a loads record, if the publisher would write it."""
        self._published.write_loads(instances_of(self.day), (scale_loads(loads), None), at_s, at_s)

    def receive(self, hint: SimHint) -> None:
        """Take over a hint as the record that consumers read."""
        super().receive(hint)
        self._published.write_hint(hint.view.group, hint.target, hint.view.at_s)

    def decide(self, view: View) -> Assignment:
        """Return the target of a rebalance."""
        return self._published.choose(view.group, view.at_s).target


class Oracle(TodaysHints):
    """Knows the loads of the moment, and plans at each change again, with the same budget of moves.

    Between changes it plans when the pipeline does, within the same gates, without a delay.
    """

    def decide(self, view: View) -> Assignment:
        """Return the best target that is known; a follow-up completes it."""
        target = self._hinted(view)
        if target is not None:
            return target
        found = self._best(view)
        self.hint = SimHint(view, found, float("inf"))
        return found

    def _best(self, view: View) -> Assignment:
        group, loads = view.group, self.day.loads[int(view.at_s) // 60]
        capacity = self.day.capacity[list(view.pods)]
        budget = max(self.day.max_moves, budget_of_empty(group))
        planned = LagAwareStickyAssignor(
            max_moves=budget, count_slack=self.day.count_slack, effort=ORACLE_EFFORT
        ).plan(group, load=loads, capacity=capacity)
        record = self._loads_record(view, loads)
        placed = place_by_load(group, TOPIC_IDS, record).target
        allowed = 1 + self.day.count_slack

        def rank(target: Assignment) -> tuple[int, float]:
            level = np.bincount(target, loads, minlength=group.num_members) / capacity
            return max(0, largest_count_gap(group, target) - allowed), float(level.max())

        return min((planned.assignment, placed), key=rank)

    def _loads_record(self, view: View, loads: NDArray[np.float64]) -> LoadsPayload:
        return Published(self.rule).loads(instances_of(self.day), (scale_loads(loads), None), view.at_s)


def cooperative_sticky(group: Group, count_slack: int) -> Assignment:
    """Return what cooperative-sticky assigns."""
    return get_assignor("cooperative-sticky", count_slack=count_slack).assign(group)


def budget_of_empty(group: Group) -> int:
    """Return how many partitions the members that own nothing may receive in all."""
    counts = np.bincount(group.live_owner[group.live_owner >= 0], minlength=group.num_members)
    return int((counts == 0).sum()) * max(1, group.num_partitions // group.num_members)


def instances_of(day: Day) -> dict[str, str | None]:
    """Return the instance ids of a day's pods, by member key."""
    return {member_key(pod.name, pod.instance): pod.instance for pod in day.pods}
