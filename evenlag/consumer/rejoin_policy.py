"""When a member asks for a rebalance: rarely, and only while there is something to gain for it.

Pure: time and chance are given to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MAX_ASKS_PER_PLAN = 3
# Two phases take two generations, a member that syncs late one more. When a plan is still not followed
# after that many, it will not be: whoever leads refuses it.
_MAX_GENERATIONS_PER_PLAN = 4


@dataclass(frozen=True, slots=True)
class Situation:
    """What a member sees of itself at one moment.

    Attributes
    ----------
    now_s
        Monotonic time.
    generation
        None while the group rebalances.
    is_leader
        Whether this member leads the present generation, as far as it knows.
    wanted_plan_id
        The plan whose part for this member differs from what it holds, None when there is no such plan.
    counts
        Partitions by subscribed topic, of those that exist.
    owes_balance
        Whether this member, as the leader, left an uneven assignment because hints were not read yet.
    """

    now_s: float
    generation: int | None
    is_leader: bool
    wanted_plan_id: str | None
    counts: Mapping[str, int]
    owes_balance: bool = False


@dataclass(slots=True)
class RejoinAsker:
    """Decides, a step at a time, whether to ask for a rebalance now.

    For a hint the leader asks at once. Others wait one to three heartbeats, at random, and start to wait
    anew when a generation comes: a follower's request is for the case that nobody asked who could. For
    changed partition counts, which only a leader is told of, a member asks when nobody has rebalanced
    within twice the metadata age: a static leader that was restarted does not know that it leads.

    Parameters
    ----------
    heartbeat_interval_s, metadata_max_age_s
        Of the consumer.
    uniform
        ``random.uniform`` or the like.
    """

    heartbeat_interval_s: float
    metadata_max_age_s: float
    uniform: Callable[[float, float], float]
    _plan_id: str | None = None
    _first_generation: int = -1
    _asks: int = 0
    _asked_generation: int = -1
    _armed_generation: int = -1
    _due_s: float = 0.0
    _counts_generation: int = -1
    _counts: Mapping[str, int] = field(default_factory=dict)
    _counts_differ_since_s: float | None = None

    def step(self, now: Situation) -> bool:
        """Return whether to ask now; the caller then asks."""
        if now.generation is None:
            return False
        asks = self._step_hint(now, now.generation) or self._step_counts(now, now.generation)
        asks = asks or (now.owes_balance and self._asked_generation != now.generation)
        if asks:
            self._asked_generation = now.generation
        return asks

    def _step_hint(self, now: Situation, generation: int) -> bool:
        if now.wanted_plan_id is None:
            self._armed_generation = -1
            return False
        if now.wanted_plan_id != self._plan_id:
            self._plan_id, self._first_generation, self._asks = now.wanted_plan_id, generation, 0
            self._asked_generation = self._armed_generation = -1
        spent = generation - self._first_generation
        if self._asks >= _MAX_ASKS_PER_PLAN or not 0 <= spent < _MAX_GENERATIONS_PER_PLAN:
            return False
        if self._asked_generation == generation:
            return False
        if self._armed_generation != generation:
            self._armed_generation = generation
            self._due_s = now.now_s + self.uniform(1.0, 3.0) * self.heartbeat_interval_s
        if not now.is_leader and now.now_s < self._due_s:
            return False
        self._asks += 1
        return True

    def _step_counts(self, now: Situation, generation: int) -> bool:
        if generation != self._counts_generation:
            self._counts_generation, self._counts = generation, dict(now.counts)
            self._counts_differ_since_s = None
            return False
        # Topics that are gone for this client are left alone: metadata come and go while brokers restart.
        grown = {topic for topic, count in now.counts.items() if count != self._counts.get(topic)}
        if not grown:
            self._counts_differ_since_s = None
            return False
        if self._counts_differ_since_s is None:
            self._counts_differ_since_s = now.now_s
        if now.now_s - self._counts_differ_since_s < 2 * self.metadata_max_age_s:
            return False
        self._counts = dict(now.counts)
        return True
