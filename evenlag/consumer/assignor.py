"""The assignor that kafka-python calls: true claims, hints and loads, two phases (KIP-429), no exceptions."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor

from assignor_core.errors import HintMismatchError
from assignor_core.group import Group
from assignor_core.hint import Hint
from assignor_core.members import Member
from assignor_core.protocol import cooperative_step
from evenlag.consumer import _kafka_consumer, _wire_format
from evenlag.consumer._kafka_coordinator import PROTOCOLS
from evenlag.consumer.cache import HintCache
from evenlag.consumer.events import Reason, named_logger
from evenlag.consumer.hint_arrays import FlatHint
from evenlag.consumer.rejoin_policy import Stance
from evenlag.consumer.target_selection import Decision, choose_target, fall_back, hint_target, place_free

_log = named_logger(__name__)
# A withheld partition is free in the next round, or one round later if a member syncs late. More rounds in
# a row mean that a member never drops its claim: the group then stays as it is until its members change.
_MAX_FOLLOW_UPS = 5
# Why a hint was not followed that may be followed in the next rebalance of the same members.
_PASSING = frozenset({Reason.EXPIRED, Reason.FUTURE, Reason.NO_TOPIC_IDS})
# After this time all brokers know a change of a topic, and metadata read since then are newer than the claim.
_BROKERS_AGREE_AFTER_S = 10.0


class HintAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # kafka-python ships no types
    """Follows the hint if it fits the group, else places by fresh loads, else as cooperative-sticky.

    It never waits, because it reads a cache. It never raises: kafka-python calls it on its I/O thread, and an
    exception there ends the application's ``poll()``. One instance serves one consumer.

    Parameters
    ----------
    cache
        Updated by a `HintWatcher`. Without a watcher the cache stays cold, and the assignor moves no
        partition.
    client_rack
        The consumer's rack, which the leader receives.
    now_ms
        Returns milliseconds since the epoch; replaced in tests.

    Attributes
    ----------
    last_decision : Decision or None
        The decision of the last rebalance that this member led.
    last_assign_ms : float
        Duration of the last call of `assign`, in milliseconds.
    """

    name = "evenlag"
    version = 2

    def __init__(
        self,
        cache: HintCache,
        *,
        client_rack: str | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.cache = cache
        self.last_decision: Decision | None = None
        self.last_assign_ms = 0.0
        self._rack = client_rack or None
        self._now_ms = now_ms
        self._port: _kafka_consumer.ConsumerPort | None = None
        self._assigned: tuple[tuple[str, int], ...] = ()
        self._assigned_generation = -1
        self._asks_for_follow_up = False
        self._num_follow_ups = 0
        self._beyond = _BeyondMetadata()
        # The group of the last decision with its topic ids; both are set before the decision is.
        self._last_group: tuple[Group, Mapping[str, str]] | None = None
        self._stance: tuple[str, Decision, Stance] | None = None

    def attach(self, port: _kafka_consumer.ConsumerPort) -> None:
        """Set the consumer that the assignor serves. Before that, it claims its last assignment.

        Parameters
        ----------
        port
            The consumer's port.
        """
        self._port = port

    def supported_protocols(self) -> list[Any]:
        """Return COOPERATIVE and EAGER: a rolling upgrade lists it together with Kafka's eager assignors."""
        return list(PROTOCOLS)

    def metadata(self, topics: Iterable[str]) -> Any:
        """Return the subscription that this member sends at a join, with its true claims.

        Parameters
        ----------
        topics
            Names of the subscribed topics.

        Returns
        -------
        ConsumerProtocolSubscription
            The topics, owned partitions, their generation and the rack.
        """
        self._asks_for_follow_up = False
        owned, generation = self._claims()
        return _wire_format.make_subscription(topics, owned, generation, self._rack)

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Record the assignment. The leader requests the next round if it withheld partitions.

        Parameters
        ----------
        assignment
            kafka-python's assignment of this member.
        generation
            The generation of the assignment.
        """
        self._assigned = tuple((tp.topic, tp.partition) for tp in assignment.partitions())
        self._assigned_generation = generation
        if self._asks_for_follow_up and self._port is not None:
            self._asks_for_follow_up = False
            self._port.ask_from_io_thread()

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        """Compute the assignment of every member for this round. Only the leader's assignor is called.

        Parameters
        ----------
        cluster
            kafka-python's cluster metadata.
        members
            kafka-python's members, with their subscriptions.

        Returns
        -------
        dict of str to ConsumerProtocolAssignment
            By member id. After an internal error each member keeps the partitions that it alone claims.
        """
        started = time.perf_counter()
        parsed: list[Member] = []
        temporary: list[str] = []
        try:
            parsed = _wire_format.read_members(members)
            temporary = [each.member_id for each in members if _wire_format.is_temporary(each)]
            assigned = self._assign(cluster, parsed)
        except Exception as error:  # noqa: BLE001  # it would end the application's poll
            _log.exception("assigning group %s failed: everybody keeps what it has", self.cache.group_id)
            self.cache.note(Reason.INTERNAL_ERROR, None, f"{type(error).__name__}: {error}")
            assigned = _keep_claims(parsed)
        # They leave again, but get an answer as every member does.
        assigned |= {member_id: [] for member_id in temporary}
        self.last_assign_ms = (time.perf_counter() - started) * 1000
        return _wire_format.make_assignments(assigned)

    def stance(self, hint: Hint, flat: FlatHint) -> Stance | None:
        """Return what this member knows about a hint as the leader; None if it has made no decision.

        Parameters
        ----------
        hint, flat
            A hint that may be started now.
        """
        decision, cached = self.last_decision, self._stance
        if decision is None or self._last_group is None:
            return None
        if cached is None or cached[0] != hint.plan_id or cached[1] is not decision:
            cached = hint.plan_id, decision, self._find_stance(decision, hint, flat)
            self._stance = cached
        return cached[2]

    def owes_balance(self, counts: Mapping[str, int], metadata_time_s: float) -> bool:
        """Return whether one more rebalance improves what this member assigned as the leader.

        Parameters
        ----------
        counts
            Number of partitions of each subscribed topic, now.
        metadata_time_s
            When these metadata were received, in seconds of the monotonic clock.
        """
        decision = self.last_decision
        if decision is None:
            return False
        waited = decision.is_provisional and not self.cache.view.is_cold
        return waited or decision.is_uneven or self._beyond.owes_answer(counts, metadata_time_s)

    def _find_stance(self, decision: Decision, hint: Hint, flat: FlatHint) -> Stance:
        if decision.plan_id == hint.plan_id and decision.hint_reason not in _PASSING:
            return Stance.FOLLOWS if decision.hint_reason is Reason.FOLLOWED else Stance.REFUSES
        if decision.fingerprint not in (None, hint.payload.fingerprint) or self._last_group is None:
            return Stance.REFUSES
        try:
            target = hint_target(self._last_group[0], flat, self._last_group[1])
        except HintMismatchError:
            return Stance.CAN_FOLLOW if decision.fingerprint is None else Stance.REFUSES
        return Stance.FOLLOWS if np.array_equal(target, decision.target) else Stance.CAN_FOLLOW

    def _claims(self) -> tuple[Sequence[tuple[str, int]], int]:
        return (self._assigned, self._assigned_generation) if self._port is None else self._port.claims()

    def _assign(self, cluster: Any, members: list[Member]) -> dict[str, list[tuple[str, int]]]:
        topics = {topic for member in members for topic in member.topics}
        counts = _kafka_consumer.partition_counts(cluster, topics)
        topic_ids = _kafka_consumer.topic_ids(cluster, counts)
        refreshed_s = _kafka_consumer.metadata_time_s(cluster)
        gone = self._beyond.find_gone(members, counts, topic_ids, refreshed_s)
        if gone:
            members = [replace(m, owned=tuple(pair for pair in m.owned if pair not in gone)) for m in members]
        group = Group.from_members(counts, members)
        decision = self._decide(group, topic_ids)
        step = cooperative_step(group, decision.target)
        self._num_follow_ups = self._num_follow_ups + 1 if step.follow_up else 0
        self._asks_for_follow_up = step.follow_up and self._num_follow_ups <= _MAX_FOLLOW_UPS
        assigned = group.to_mapping(step.assignment)
        for member, topic, partition in step.kept_unknown:
            assigned[group.member_ids[member]].append((topic, partition))
        return assigned

    def _decide(self, group: Group, topic_ids: Mapping[str, str]) -> Decision:
        view = self.cache.view
        try:
            decision = choose_target(group, view, topic_ids, now_ms=self._now_ms())
        except Exception as error:  # noqa: BLE001  # as above: an assignment without the hint is better
            _log.exception("deciding on a hint for group %s failed", self.cache.group_id)
            decision = Decision(
                _any_target(group), Reason.INTERNAL_ERROR, Reason.INTERNAL_ERROR, detail=repr(error)
            )
        self._last_group, self.last_decision = (group, topic_ids), decision
        if decision.reason is not decision.hint_reason and decision.plan_id is not None:
            self.cache.note(decision.hint_reason, decision.plan_id, decision.detail)
        self.cache.note(decision.reason, decision.plan_id, decision.detail)
        return decision


def _any_target(group: Group) -> Any:
    try:
        return fall_back(group)
    except Exception:  # noqa: BLE001  # as above
        _log.exception("cooperative-sticky failed: only free partitions are handed out")
        return place_free(group)


def _keep_claims(members: Iterable[Member]) -> dict[str, list[tuple[str, int]]]:
    """Give each member the subscribed partitions that it alone claims in the newest generation."""
    best: dict[tuple[str, int], tuple[int, str | None]] = {}
    assigned: dict[str, list[tuple[str, int]]] = {}
    for member in members:
        assigned[member.member_id] = []
        for pair in member.owned:
            generation, _ = best.get(pair, (-2, None))
            if member.generation > generation:
                best[pair] = (member.generation, member.member_id if pair[0] in member.topics else None)
            elif member.generation == generation:
                best[pair] = (generation, None)
    for pair, (_, owner) in best.items():
        if owner is not None:
            assigned[owner].append(pair)
    return assigned


@dataclass(slots=True)
class _BeyondMetadata:
    """Decides whether partitions beyond a topic's known count are new, or no longer exist.

    A leader with older metadata sees claims on partitions that it does not know. Their owners keep them. If
    metadata that were read later still do not show them, or the topic has another id, they do not exist.
    """

    _first_seen_s: dict[tuple[str, int], float] = field(default_factory=dict)
    _topic_ids: dict[str, str] = field(default_factory=dict)

    def find_gone(
        self,
        members: Iterable[Member],
        counts: Mapping[str, int],
        topic_ids: Mapping[str, str],
        refreshed_s: float,
    ) -> set[tuple[str, int]]:
        """Return the claimed (topic, partition) pairs that do not exist.

        refreshed_s: When the metadata were received; monotonic time in seconds.
        """
        beyond = {
            pair for member in members for pair in member.owned if pair[1] >= counts.get(pair[0], pair[1] + 1)
        }
        seen = {(topic, counts[topic]) for topic, _ in beyond}
        self._first_seen_s = {key: self._first_seen_s.get(key, refreshed_s) for key in seen}
        recreated = {
            t for t, _ in seen if t in topic_ids and self._topic_ids.get(t, topic_ids[t]) != topic_ids[t]
        }
        # A recreated topic stays one until no old claim is left.
        self._topic_ids.update({t: i for t, i in topic_ids.items() if t not in recreated})
        is_old = {t for (t, _), first_s in self._first_seen_s.items() if _is_settled(first_s, refreshed_s)}
        gone = recreated | is_old
        self._first_seen_s = {key: s for key, s in self._first_seen_s.items() if key[0] not in gone}
        return {pair for pair in beyond if pair[0] in gone}

    def owes_answer(self, counts: Mapping[str, int], refreshed_s: float) -> bool:
        """Return whether kept partitions turned out not to exist since the last call of `find_gone`.

        refreshed_s: When these metadata were received; monotonic time in seconds.
        """
        return any(
            counts.get(topic) == count and _is_settled(first_s, refreshed_s)
            for (topic, count), first_s in list(self._first_seen_s.items())
        )


def _is_settled(first_s: float, refreshed_s: float) -> bool:
    return refreshed_s - first_s >= _BROKERS_AGREE_AFTER_S
