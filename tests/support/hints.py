"""Helpers of the hint client's tests: a publisher in miniature and consumers that run in threads."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from kafka import (
    AsyncConsumerRebalanceListener,
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
)
from kafka.admin import NewTopic
from kafka.structs import MemberState

from assignor_core.hint import HintPayload, encode_hint, fingerprint, hint_key, member_key
from assignor_core.record import topic_id_text
from evenlag.consumer import HintedConsumer
from tests.support.kafka_python_rejoin_fix import finish_joins
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.brokers import Brokers

HOUR_MS = 3_600_000
NUM_PARTITIONS = 6
_HEARTBEAT_MS = 300


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Cluster:
    """One group's view of the session's brokers: topics of its own and a publisher."""

    def __init__(
        self,
        broker: Brokers,
        *,
        group_id: str,
        topics: Mapping[str, int],
        hint_topic: str,
        make_topics: bool = True,
    ) -> None:
        self.bootstrap_servers = broker.bootstrap_servers
        self.cluster_id = broker.cluster_id
        self.group_id, self.topics, self.hint_topic = group_id, dict(topics), hint_topic
        self.admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        if make_topics:
            self.create({**topics})
            self.create({hint_topic: 3}, {"cleanup.policy": "compact", "compression.type": "uncompressed"})
        self.producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0)
        self.publisher = self._make_publisher()
        self.sequence = 0
        self.send_timeout_s = 600.0

    def create(self, topics: Mapping[str, int], configs: Mapping[str, str] | None = None) -> None:
        self.admin.create_topics(
            [
                NewTopic(n, num_partitions=c, replication_factor=-1, topic_configs=configs)
                for n, c in topics.items()
            ]
        )

    def renew_publisher(self) -> None:
        """Start again, as every run of the real publisher does: it then knows the current topic."""
        self.publisher.close()
        self.publisher = self._make_publisher()

    def renew_admin(self) -> None:
        """Start again: an admin client that was there before a broker's restart may never find it again."""
        self.admin.close()
        self.admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)

    def _make_publisher(self) -> Any:
        publisher = KafkaProducer(
            bootstrap_servers=self.bootstrap_servers, transactional_id=f"publisher-{uuid.uuid4()}"
        )
        publisher.init_transactions()
        return publisher

    def close(self) -> None:
        self.publisher.close()
        self.producer.close()
        self.admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def hint_partition(self) -> int:
        """Return the partition of the group's hints, as the producer's own partitioner chooses it."""
        self.publisher.partitions_for(self.hint_topic)
        key = hint_key(self.group_id)
        return int(self.publisher._partition(self.hint_topic, None, key, None, key, None))

    def topic_ids(self) -> dict[str, str]:
        described = self.admin.describe_topics(list(self.topics))
        return {topic["name"]: topic_id_text(topic["topic_id"]) for topic in described}

    def payload(
        self,
        placement: Mapping[str, Mapping[str, Sequence[int]]],
        *,
        count_slack: int = 10,
        max_moves: int = 100,
        **changes: Any,
    ) -> HintPayload:
        """Make the payload for partitions by topic name by member key, all members taking all topics."""
        ids = self.topic_ids()
        identity = fingerprint(
            [(key, ids.values()) for key in placement], {ids[n]: c for n, c in self.topics.items()}
        )
        fields: dict[str, Any] = {
            "cluster_id": self.cluster_id,
            "group_id": self.group_id,
            "snapshot_id": "snapshot",
            "fingerprint": identity,
            "assignment": {
                key: {ids[name]: tuple(numbers) for name, numbers in by_topic.items()}
                for key, by_topic in placement.items()
            },
            "count_slack": count_slack,
            "max_moves": max_moves,
        }
        return HintPayload(**{**fields, **changes})

    def publish(
        self,
        payload: HintPayload,
        *,
        ttl_ms: int = HOUR_MS,
        sequence: int | None = None,
        key: bytes | None = None,
    ) -> bytes:
        """Publish a payload in a transaction as the real publisher does; return the record's value."""
        self.sequence = self.sequence + 1 if sequence is None else sequence
        issued = now_ms()
        value = encode_hint(
            payload.encode(),
            sequence=self.sequence,
            issued_at_ms=issued,
            expires_at_ms=max(0, issued + ttl_ms),
            group_key=key,
        )
        self.send(hint_key(self.group_id), value)
        return value

    def send(
        self, key: bytes, value: bytes | None, *, commit: bool = True, partition: int | None = None
    ) -> None:
        self.publisher.begin_transaction()
        self.publisher.send(self.hint_topic, key=key, value=value, partition=partition).get(
            timeout=self.send_timeout_s
        )
        if commit:
            self.publisher.commit_transaction()
        else:
            self.publisher.abort_transaction()


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python ships no types
    """Notes what comes and goes, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[tuple[str, int]]]] = []

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.calls.append(("assigned", {tuple(tp) for tp in assigned}))

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.calls.append(("revoked", {tuple(tp) for tp in revoked}))

    def on_partitions_lost(self, lost: Any) -> None:
        self.calls.append(("lost", {tuple(tp) for tp in lost}))

    def all_of(self, kind: str) -> list[set[tuple[str, int]]]:
        return [partitions for called, partitions in self.calls if called == kind]

    def knows(self) -> set[tuple[str, int]]:
        """Return what is held, going by what was told."""
        held: set[tuple[str, int]] = set()
        for kind, partitions in self.calls:
            held = held | partitions if kind == "assigned" else held - partitions
        return held

    @property
    def revoked(self) -> list[set[tuple[str, int]]]:
        return self.all_of("revoked")

    @property
    def lost(self) -> list[set[tuple[str, int]]]:
        return self.all_of("lost")


class AsyncListener(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # as above
    """The same, as coroutines that let others run before they note anything."""

    def __init__(self) -> None:
        self._inner = Listener()
        self.calls = self._inner.calls
        self.knows = self._inner.knows
        self.consumer: Any = None

    async def on_partitions_assigned(self, assigned: Any) -> None:
        await self.consumer._net.sleep(0.02)
        self._inner.on_partitions_assigned(assigned)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self.consumer._net.sleep(0.02)
        self._inner.on_partitions_revoked(revoked)

    async def on_partitions_lost(self, lost: Any) -> None:
        await self.consumer._net.sleep(0.02)
        self._inner.on_partitions_lost(lost)


class Runner:
    """A consumer that polls in a thread: a hinted one, or kafka-python's own with `plain` assignors."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        start: bool = True,
        topics: Sequence[str] = (),
        plain: Sequence[Any] = (),
        **configs: Any,
    ) -> None:
        self.listener = configs.pop("listener", None) or Listener()
        self.poll_ms = configs.pop("poll_ms", 100)
        self.records: list[tuple[str, int, int]] = []
        self.error: BaseException | None = None
        self.events: list[Any] = []
        self.looked_at_s = 0.0
        self._applied_in = -1
        self._stop = threading.Event()
        settings: dict[str, Any] = {
            "group_id": cluster.group_id,
            "bootstrap_servers": cluster.bootstrap_servers,
            "heartbeat_interval_ms": _HEARTBEAT_MS,
            # A thread that gets no turn for seconds on a busy machine is no dead member.
            "session_timeout_ms": 60_000,
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 200,
            "allow_auto_create_topics": False,
            "reconnect_backoff_max_ms": 1000,
        }
        self.consumer: Any
        if plain:
            strategy = {"partition_assignment_strategy": plain}
            self.consumer = finish_joins(KafkaConsumer(**{**settings, **strategy, **configs}))
        else:
            hints = {"hint_topic": cluster.hint_topic, "on_hint_event": self.events.append}
            self.consumer = HintedConsumer(**{**settings, **hints, **configs})
            self._note_looks()
        if isinstance(self.listener, AsyncListener):
            self.listener.consumer = self.consumer
        self.consumer.subscribe(topics=list(topics or cluster.topics), listener=self.listener)
        self._thread = threading.Thread(target=self._run, daemon=True)
        if start:
            self._thread.start()

    def _note_looks(self) -> None:
        """Note when the consumer has last looked whether to request a rebalance."""
        requests = self.consumer._requests
        step = requests.step

        def step_and_note(now_s: float, now_ms: int) -> None:
            step(now_s, now_ms)
            self.looked_at_s = now_s

        requests.step = step_and_note

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for batch in self.consumer.poll(timeout_ms=self.poll_ms).values():
                    self.take(batch)
                group = self.consumer.group_metadata()
                self._applied_in = group.generation_id if group.state is MemberState.STABLE else -1
        except BaseException as error:  # noqa: BLE001  # shown by the test
            self.error = error

    def take(self, batch: Sequence[Any]) -> None:
        """Process the records of a partition that a poll returned."""
        self.records += [(record.topic, record.partition, record.offset) for record in batch]

    @property
    def held(self) -> set[tuple[str, int]]:
        return {tuple(tp) for tp in self.consumer.assignment()}

    @property
    def generation(self) -> int:
        return int(self.consumer.group_metadata().generation_id)

    @property
    def is_behind(self) -> bool:
        """Whether its thread has not yet applied the assignment of its generation.

        kafka-python is STABLE a moment before that.
        """
        return self._thread.is_alive() and self._applied_in != self.generation

    @property
    def key(self) -> str:
        data = self.consumer.group_metadata()
        return member_key(str(data.member_id), data.group_instance_id)

    def reasons(self) -> list[str]:
        return [event.reason.value for event in self.events]

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(600)
        self.consumer.close()
        if self.error is not None:
            raise self.error


def place(
    runners: Sequence[Runner], topic: str, parts: Sequence[Sequence[int]]
) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return a placement: the i-th consumer gets the i-th list of partitions."""
    return {r.key: {topic: tuple(p)} if p else {} for r, p in zip(runners, parts, strict=True)}


def let_them_ask(runners: Sequence[Runner]) -> None:
    """Wait until each consumer has looked at what it knows now, after the heartbeats in which it asks."""
    asked_by_s = time.monotonic() + 4 * _HEARTBEAT_MS / 1000
    wait_until(lambda: all(runner.looked_at_s > asked_by_s for runner in runners))


def is_settled(runners: Sequence[Runner], num_partitions: int) -> bool:
    """Whether everything is with exactly one consumer and all are in one generation."""
    for runner in runners:
        assert runner.error is None, runner.error
    before = {runner.generation for runner in runners}
    held = [pair for runner in runners for pair in runner.held]
    groups = [runner.consumer.group_metadata() for runner in runners]
    # A rebalance between the two looks shows as a second generation.
    together = len(before | {group.generation_id for group in groups}) == 1
    stable = all(group.state is MemberState.STABLE for group in groups)
    stable = stable and not any(runner.is_behind for runner in runners)
    return together and stable and len(held) == len(set(held)) == num_partitions
