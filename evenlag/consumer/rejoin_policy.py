"""When a member requests a rebalance: rarely, and only if the rebalance can improve the assignment.

Pure: time and randomness are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from assignor_core.hint import Hint
from evenlag.consumer.hint_arrays import FlatHint

_MAX_ASKS_PER_PLAN = 3
# Two phases need two generations, and one more if a member syncs late. If a plan is not followed after that
# many generations, it never will be: the leader rejects it.
_MAX_GENERATIONS_PER_PLAN = 4
_MAX_BALANCE_ASKS_IN_A_ROW = 2


class Stance(Enum):
    """What a leader knows about a hint: refused, not considered yet, or followed as far as it can be."""

    REFUSES = auto()
    CAN_FOLLOW = auto()
    FOLLOWS = auto()


@dataclass(frozen=True, slots=True)
class Standing:
    """A member's part of a hint and of its group, in one stable generation.

    hint, flat: A hint that may be started now.
    owned: The (topic id, partition) pairs that the member owns.
    joined_with: The plan that the member knew when it sent the join of this generation; None without one.
    claimed: The (topic id, partition) pairs that it claimed in that join, and in earlier ones with the same
        plan.
    stance: What this member knows as the leader; None for a follower, and before it has led.
    was_there: Whether the hint was on the topic when this process first read it.
    """

    hint: Hint
    flat: FlatHint
    generation: int
    key: str
    owned: frozenset[tuple[str, int]]
    joined_with: str | None = None
    claimed: frozenset[tuple[str, int]] = frozenset()
    stance: Stance | None = None
    was_there: bool = False


@dataclass(slots=True)
class HintInterest:
    """Which plan a member asks for: it names the member, differs from what it owns, and is not refused.

    The leader knows why it does not follow a plan. A follower concludes that a plan is refused from a join
    that it sent when it knew the plan: if it was assigned a partition that the plan gives to another member,
    or lost one that the plan gives to itself. A leader that follows the plan does neither. Receiving less
    than the plan's part is no refusal at first: partitions are withheld until their owners give them up.

    A plan that was there before this process is the concern of those who saw it come, and of a leader that
    has led without knowing it: else each restart would ask again for what was refused.

    refused_plan_id: The plan that this follower considers refused; None for none.
    """

    refused_plan_id: str | None = None
    _plan_id: str | None = None
    _known_since: int = -1

    def wants(self, now: Standing) -> bool:
        """Return whether the member wants the hint to be followed."""
        if now.hint.plan_id != self._plan_id:
            self._plan_id, self._known_since, self.refused_plan_id = now.hint.plan_id, now.generation, None
        if now.stance is Stance.REFUSES:
            return False
        if now.stance is Stance.CAN_FOLLOW:
            return True
        part = now.hint.payload.assignment.get(now.key)
        if now.stance is None and (part is None or now.was_there):
            return False
        # The part is not expanded: a record of a few bytes can name millions of partitions.
        part = part or {}
        owned_mine = _within(part, now.owned)
        differs = len(owned_mine) < len(now.owned) or len(owned_mine) < sum(map(len, part.values()))
        if now.stance is None and self._is_refused(now, part, now.owned - owned_mine, differs=differs):
            self.refused_plan_id = now.hint.plan_id
            return False
        return differs

    def _is_refused(
        self,
        now: Standing,
        part: Mapping[str, Sequence[int]],
        others: frozenset[tuple[str, int]],
        *,
        differs: bool,
    ) -> bool:
        if self.refused_plan_id == now.hint.plan_id:
            return True
        if now.joined_with == now.hint.plan_id:
            if _within(part, now.claimed) - now.owned:
                return True
            if now.flat.gives_to_another(now.key, others):
                return True
        return differs and now.generation - self._known_since >= _MAX_GENERATIONS_PER_PLAN


def _within(
    part: Mapping[str, Sequence[int]], pairs: frozenset[tuple[str, int]]
) -> frozenset[tuple[str, int]]:
    return frozenset((topic, number) for topic, number in pairs if number in part.get(topic, ()))


@dataclass(frozen=True, slots=True)
class Situation:
    """State of a member at one moment.

    now_s: Monotonic time in seconds.
    generation: The generation; None while the group rebalances.
    is_leader: Whether this member leads the current generation, as far as it knows.
    wanted_plan_id: The plan whose part for this member differs from its partitions; None if there is no
        such plan.
    counts: Number of partitions of each subscribed topic that exists.
    owes_balance: Whether this member, as the leader, left an assignment that one more rebalance makes more
        even.
    """

    now_s: float
    generation: int | None
    is_leader: bool
    wanted_plan_id: str | None
    counts: Mapping[str, int]
    owes_balance: bool = False


@dataclass(slots=True)
class RejoinAsker:
    """Decides step by step whether to request a rebalance now.

    For a hint the leader requests a rebalance at once. Other members wait one to three heartbeats, at random,
    and restart the wait with each generation: a follower's request covers a leader that did not request one.
    For changed partition counts, which only a leader monitors, a member requests a rebalance if none happened
    within twice the metadata age: a static leader that was restarted does not know that it leads.

    heartbeat_interval_s, metadata_max_age_s: Settings of the consumer, in seconds.
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
    _balance_asks: int = 0
    _counts_generation: int = -1
    _counts: Mapping[str, int] = field(default_factory=dict)
    _counts_differ_since_s: float | None = None

    def step(self, now: Situation) -> bool:
        """Return whether the caller must request a rebalance now.

        Returns whether to request one. The request counts as made.
        """
        if now.generation is None:
            return False
        asks = self._step_hint(now, now.generation) or self._step_counts(now, now.generation)
        asks = self._step_balance(now, now.generation) or asks
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

    def _step_balance(self, now: Situation, generation: int) -> bool:
        if not now.owes_balance:
            self._balance_asks = 0
            return False
        if self._asked_generation == generation or self._balance_asks >= _MAX_BALANCE_ASKS_IN_A_ROW:
            return False
        self._balance_asks += 1
        return True

    def _step_counts(self, now: Situation, generation: int) -> bool:
        if generation != self._counts_generation:
            self._counts_generation, self._counts = generation, dict(now.counts)
            self._counts_differ_since_s = None
            return False
        # Topics that disappeared are ignored: their metadata comes and goes while brokers restart.
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
