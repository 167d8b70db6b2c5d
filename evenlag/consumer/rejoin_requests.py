"""One member's requests for rebalances: what it owns, what its hint says, and what its last join brought."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from assignor_core.hint import member_key
from evenlag.consumer._kafka_consumer import ConsumerPort
from evenlag.consumer.assignor import HintAssignor
from evenlag.consumer.cache import HintCache
from evenlag.consumer.events import Reason
from evenlag.consumer.record_marks import is_from_future
from evenlag.consumer.rejoin_policy import HintInterest, RejoinAsker, Situation, Standing


@dataclass(frozen=True, slots=True)
class Join:
    """What a member knew when it sent its last join.

    plan_id: The plan; None without a hint.
    claimed: The (topic, partition) pairs that it claimed in this join, and in earlier ones with the same
        plan.
    """

    plan_id: str | None
    claimed: frozenset[tuple[str, int]]


class RejoinRequests:
    """Requests a rebalance when the hint, the leader's last assignment or changed topics require one.

    cache, assignor, port: Those of the consumer.
    uniform: ``random.uniform`` or a replacement.
    """

    def __init__(
        self,
        cache: HintCache,
        assignor: HintAssignor,
        port: ConsumerPort,
        uniform: Callable[[float, float], float],
    ) -> None:
        self._cache, self._assignor, self._port = cache, assignor, port
        self._asker = RejoinAsker(port.heartbeat_interval_s, port.metadata_max_age_s, uniform)
        self._interest = HintInterest()
        self._join: Join | None = None

    def note_join(self) -> None:
        """Record what this member knows and claims; called when a join is about to be sent."""
        hint, before = self._cache.view.usable_hint, self._join
        plan_id = None if hint is None else hint.plan_id
        claims, generation = self._port.claims()
        claimed = frozenset(claims)
        # A rebalance that takes partitions away is followed by the next one before anything looks at it. What
        # a member gave up by itself, in EAGER mode or after a loss, was not taken away by a leader.
        if before is not None and before.plan_id == plan_id and generation >= 0 and not self._port.is_eager:
            claimed |= before.claimed
        self._join = Join(plan_id, claimed)

    def step(self, now_s: float, now_ms: int) -> None:
        """Request a rebalance if one is required.

        now_s: Monotonic time in seconds.
        """
        port = self._port
        generation = port.stable_generation()
        counts = port.subscribed_counts()
        situation = Situation(
            now_s=now_s,
            generation=generation,
            is_leader=port.is_leader,
            wanted_plan_id=self._wanted_plan(generation, now_ms),
            counts=counts,
            owes_balance=port.is_leader and self._assignor.owes_balance(counts, port.metadata_time_s),
        )
        if generation is not None and self._asker.step(situation):
            self._cache.note(Reason.ASKED, situation.wanted_plan_id, f"in generation {generation}")
            port.ask_if_still(generation)

    def _wanted_plan(self, generation: int | None, now_ms: int) -> str | None:
        view, port, join = self._cache.view, self._port, self._join
        hint, flat = view.usable_hint, view.flat
        if generation is None or hint is None or flat is None:
            return None
        if hint.is_expired(now_ms) or is_from_future(hint.issued_at_ms, now_ms):
            return None
        held, claimed = port.held(), frozenset() if join is None else join.claimed
        topics = {topic for topic, _ in claimed.union(held)} | set(port.subscribed_counts())
        ids = port.topic_ids(topics)
        standing = Standing(
            hint=hint,
            flat=flat,
            generation=generation,
            key=member_key(port.member_id, port.instance_id),
            owned=_with_ids(held, ids),
            joined_with=None if join is None else join.plan_id,
            claimed=_with_ids(claimed, ids),
            stance=self._assignor.stance(hint, flat) if port.is_leader else None,
            was_there=hint.plan_id == self._cache.first_plan_id,
        )
        if port.stable_generation() != generation:
            return None  # a join has been sent meanwhile: it is not the one that brought this assignment
        known = self._interest.refused_plan_id
        wants = self._interest.wants(standing)
        if self._interest.refused_plan_id not in (None, known):
            self._cache.note(Reason.REFUSED, hint.plan_id, f"by the leader of generation {generation}")
        return hint.plan_id if wants else None


def _with_ids(pairs: Iterable[tuple[str, int]], ids: dict[str, str]) -> frozenset[tuple[str, int]]:
    return frozenset((ids.get(topic, topic), partition) for topic, partition in pairs)
