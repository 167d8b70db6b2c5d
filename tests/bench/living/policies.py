"""Four ways to keep a group even: cooperative-sticky, today's hints, living hints, and an oracle.

Each answers what a leader assigns at a rebalance, and what the pipeline publishes after a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from assignor_core.algorithms.place_by_load import place_by_load
from assignor_core.assignors import get_assignor
from assignor_core.assignors.lag_aware_sticky import LagAwareStickyAssignor
from assignor_core.hint import HintPayload, decode_hint, encode_hint, fingerprint, member_key
from assignor_core.loads import Loads, LoadsPayload
from assignor_core.metrics import count_moves
from assignor_core.objective import relative_gain
from assignor_core.verify import find_violations, largest_count_gap
from evenlag.consumer.cache import HintView
from evenlag.consumer.hint_arrays import FlatHint
from evenlag.consumer.target_selection import choose_target
from evenlag.publishing.loads import material_change, scale_loads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.group import Assignment, Group
    from tests.bench.living.world import Day

TOPIC, TOPIC_ID = "orders", "AAAAAAAAAAAAAAAAAAAAAQ"
TOPIC_IDS = {TOPIC: TOPIC_ID}
# The defaults of a policy.
COOLDOWN_S = 600
HINT_TTL_S = 900
MIN_GAIN = 0.05
LOADS_VALID_S = 1_800
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
    """A hint: the pods that it is made for, and the pod of each row."""

    pods: frozenset[int]
    owner: NDArray[np.int64]
    expires_s: float


class Policy:
    """What all have in common: no hint and no loads."""

    def __init__(self, day: Day) -> None:
        self.day = day

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

    def capacity(self, view: View) -> NDArray[np.float64]:
        """Capacity by member of the group, relative."""
        return self.day.capacity[list(view.pods)]


class TodaysHints(Policy):
    """Hints as they were before loads: for one exact membership, and their slack steers what comes after.

    A hint is followed if its fingerprint is that of the group. Otherwise the leader assigns as
    cooperative-sticky with the ``count_slack`` of the newest hint, fitting or not, expired or not.
    """

    def __init__(self, day: Day) -> None:
        super().__init__(day)
        self.hint: SimHint | None = None
        self._last_hint_s = float("-inf")

    def decide(self, view: View) -> Assignment:
        """Return the target of a rebalance."""
        target = self._hinted(view)
        if target is not None and (self._is_valid(view) or not count_moves(view.group, target)):
            return target
        return cooperative_sticky(view.group, self.day.count_slack if self.hint is not None else 0)

    def publish(self, view: View, loads: NDArray[np.float64]) -> SimHint | None:
        """Plan as the pipeline does, and return the hint if it passes the gates."""
        if view.at_s - self._last_hint_s < COOLDOWN_S:
            return None
        capacity = self.capacity(view)
        plan = LagAwareStickyAssignor(
            max_moves=self.day.max_moves, count_slack=self.day.count_slack, min_gain=MIN_GAIN, effort=EFFORT
        ).plan(view.group, load=loads, capacity=capacity)
        target, now = plan.assignment, view.group.live_owner
        gain = relative_gain(loads, capacity, now, target)
        is_even = largest_count_gap(view.group, target) <= 1 + self.day.count_slack
        if gain < MIN_GAIN or not plan.moves or not is_even:
            return None
        owner = np.array(view.pods)[target]
        return SimHint(frozenset(view.pods), owner, view.at_s + HINT_TTL_S)

    def receive(self, hint: SimHint) -> None:
        """Take over a hint: the cooldown begins."""
        self.hint, self._last_hint_s = hint, hint.expires_s - HINT_TTL_S

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
        self._view = HintView(is_cold=False)
        self._sequence = 0

    def measure(self, at_s: int, loads: NDArray[np.float64]) -> None:
        """Take over a loads record, if the publisher would write it."""
        measured, known = payload_of(self.day, at_s, loads), self._view.loads
        if known is None or material_change(known.payload, measured, at_s * 1000):
            record = Loads(payload=measured, payload_bytes=b"", signed=False)
            self._view = replace(self._view, loads=record)

    def receive(self, hint: SimHint) -> None:
        """Take over a hint as the record that consumers read."""
        super().receive(hint)
        self._sequence += 1
        pods = [self.day.pods[pod] for pod in sorted(hint.pods, key=lambda pod: self.day.pods[pod].name)]
        keys = {pod: member_key(self.day.pods[pod].name, self.day.pods[pod].instance) for pod in hint.pods}
        payload = HintPayload(
            cluster_id="cluster",
            group_id="group",
            snapshot_id="snapshot",
            fingerprint=fingerprint(
                [(member_key(pod.name, pod.instance), [TOPIC_ID]) for pod in pods],
                {TOPIC_ID: self.day.num_partitions},
            ),
            assignment={
                keys[pod]: {TOPIC_ID: tuple(np.flatnonzero(hint.owner == pod).tolist())} for pod in hint.pods
            },
            count_slack=self.day.count_slack,
            max_moves=self.day.max_moves,
        )
        record = decode_hint(
            encode_hint(
                payload.encode(),
                sequence=self._sequence,
                issued_at_ms=round(1000 * (hint.expires_s - HINT_TTL_S)),
                expires_at_ms=round(1000 * hint.expires_s),
            ),
            group_id="group",
        )
        self._view = replace(self._view, hint=record, flat=FlatHint.of(record.payload))

    def decide(self, view: View) -> Assignment:
        """Return the target of a rebalance."""
        return choose_target(view.group, self._view, TOPIC_IDS, now_ms=round(1000 * view.at_s)).target


class Oracle(TodaysHints):
    """Knows the loads of the moment, and plans at each change again, with the same budget of moves.

    Between changes it plans when the pipeline does, within the same gates, without a delay.
    """

    def __init__(self, day: Day) -> None:
        super().__init__(day)
        self._target: SimHint | None = None

    def decide(self, view: View) -> Assignment:
        """Return the best target that is known; a follow-up completes it."""
        target = self._hinted(view)
        if target is not None:
            return target
        found = self._best(view)
        self.hint = SimHint(frozenset(view.pods), np.array(view.pods)[found], float("inf"))
        return found

    def _best(self, view: View) -> Assignment:
        group, loads = view.group, self.day.loads[int(view.at_s) // 60]
        capacity = self.capacity(view)
        budget = max(self.day.max_moves, budget_of_empty(group))
        planned = LagAwareStickyAssignor(
            max_moves=budget, count_slack=self.day.count_slack, effort=ORACLE_EFFORT
        ).plan(group, load=loads, capacity=capacity)
        placed = place_by_load(group, TOPIC_IDS, payload_of(self.day, int(view.at_s), loads)).target
        allowed = 1 + self.day.count_slack

        def rank(target: Assignment) -> tuple[int, float]:
            level = np.bincount(target, loads, minlength=group.num_members) / capacity
            return max(0, largest_count_gap(group, target) - allowed), float(level.max())

        return min((planned.assignment, placed), key=rank)


def cooperative_sticky(group: Group, count_slack: int) -> Assignment:
    """Return what cooperative-sticky assigns."""
    return get_assignor("cooperative-sticky", count_slack=count_slack).assign(group)


def budget_of_empty(group: Group) -> int:
    """Return how many partitions the members that own nothing may receive in all."""
    counts = np.bincount(group.live_owner[group.live_owner >= 0], minlength=group.num_members)
    return int((counts == 0).sum()) * max(1, group.num_partitions // group.num_members)


def payload_of(day: Day, at_s: int, loads: NDArray[np.float64]) -> LoadsPayload:
    """Return the loads record of a moment."""
    keys = {member_key(pod.name, pod.instance): pod.capacity for pod in day.pods}
    return LoadsPayload(
        cluster_id="cluster",
        group_id="group",
        snapshot_id=f"at {at_s} s",
        measured_at_ms=at_s * 1000,
        valid_until_ms=(at_s + LOADS_VALID_S) * 1000,
        loads={TOPIC_ID: scale_loads(loads).tolist()},
        capacities={key: capacity for key, capacity in keys.items() if capacity != 1000},
        default_capacity=1000,
        count_slack=day.count_slack,
        max_moves=day.max_moves,
    )
