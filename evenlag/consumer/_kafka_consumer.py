"""Adapter to the private attributes of kafka-python: state that is read and rejoins that are requested.

kafka-python has no public call that requests a rebalance, and does not pass its consumer's owned partitions
to an assignor. `_kafka_coordinator` and `_group_metadata` change the behaviour of a consumer's coordinator,
`assignor_core.topic_reading` that of the watcher's fetcher. No other module uses a private name. Written
against 3.0.1 to 3.0.12; ``tests/evenlag/consumer/test_kafka_contract.py`` fails when a name no longer exists.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.errors import UnknownTopicOrPartitionError
from kafka.metrics import AnonMeasurable
from kafka.partitioner.default import murmur2

from assignor_core.errors import HintFormatError
from assignor_core.record import topic_id_text
from evenlag.consumer._kafka_coordinator import Membership

_ABSENT_ID = "A" * 22


class ConsumerPort:
    """View of one `KafkaConsumer` for an assignor and a watcher.

    consumer: The `KafkaConsumer`, before its first join.
    heartbeat_interval_s, metadata_max_age_s: Settings of the consumer, in seconds.
    """

    def __init__(self, consumer: Any, membership: Membership) -> None:
        self._coordinator = consumer._coordinator  # noqa: SLF001  # the purpose of this module
        self._subscription = consumer._subscription  # noqa: SLF001
        self._manager = consumer._manager  # noqa: SLF001
        self._cluster = consumer._cluster  # noqa: SLF001
        self.heartbeat_interval_s: float = consumer.config["heartbeat_interval_ms"] / 1000
        self.metadata_max_age_s: float = consumer.config["metadata_max_age_ms"] / 1000
        self._membership = membership

    def held(self) -> list[tuple[str, int]]:
        """Return the partitions that the consumer owns now, as sorted (topic, partition) pairs."""
        return sorted((tp.topic, tp.partition) for tp in self._membership.held())

    def claims(self) -> tuple[list[tuple[str, int]], int]:
        """Return the claims for a join: the owned partitions and the generation that assigned them."""
        return self._membership.claims()

    @property
    def is_eager(self) -> bool:
        """Whether the consumer revokes all its partitions before the next join."""
        return self._membership.mode is RebalanceProtocol.EAGER

    @property
    def is_leader(self) -> bool:
        """Whether this member computed the assignment of the current generation."""
        return bool(self._coordinator._is_leader)  # noqa: SLF001

    @property
    def member_id(self) -> str:
        """The member id that the coordinator assigned; empty before the first join."""
        return str(self._coordinator.group_metadata().member_id)

    @property
    def instance_id(self) -> str | None:
        """The ``group.instance.id``; None for a dynamic member."""
        instance: str | None = self._coordinator.group_instance_id
        return instance

    def stable_generation(self) -> int | None:
        """Return the generation; None during a rebalance, while not joined, or while a rejoin is pending."""
        coordinator = self._coordinator
        generation = coordinator.generation_if_stable()
        if generation is None or coordinator.rejoin_needed:
            return None
        number = int(generation.generation_id)
        return None if number == self._membership.postponed_generation else number

    def ask_from_io_thread(self) -> None:
        """Make the next poll rejoin the group. Call it only from kafka-python's I/O thread."""
        self._coordinator.request_rejoin()

    def ask_if_still(self, generation: int) -> None:
        """Make the next poll rejoin, unless the generation has changed. Safe to call from any thread.

        The request goes through the I/O thread. A join ends there by clearing the flag, so a flag that
        another thread sets meanwhile would be lost or would cause one more rebalance.
        """

        def ask() -> None:
            if self.stable_generation() == generation:
                self._coordinator.request_rejoin()

        self._manager.call_soon(ask)

    def subscribed_counts(self) -> dict[str, int]:
        """Return the number of partitions of each subscribed topic that exists."""
        return partition_counts(self._cluster, self._subscription.subscription or ())

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return topic ids by name, in the text form of hints. Topics without a known id are left out."""
        return topic_ids(self._cluster, topics)

    @property
    def metadata_time_s(self) -> float:
        """When the newest metadata were received, in seconds of the monotonic clock."""
        return metadata_time_s(self._cluster)


def ignore_slow_steps(consumer: Any) -> None:
    """Turn off kafka-python's warning that a task "is blocking the event loop" for more than 100 ms.

    It measures elapsed time: on a busy machine any task is named.
    """
    consumer._net.config["slow_task_threshold_secs"] = 0  # noqa: SLF001


def add_metric(consumer: Any, group: str, name: str, description: str, measure: Callable[[], float]) -> None:
    """Add a gauge to a consumer's metric registry. Does nothing if the consumer has no registry."""
    registry = consumer._metrics  # noqa: SLF001
    if registry is not None:
        metric_name = registry.metric_name(name, group, description)
        registry.add_metric(metric_name, AnonMeasurable(lambda _config, _now: measure()))


async def commit_offsets(consumer: Any, offsets: Mapping[Any, Any], timeout_ms: int) -> None:
    """Commit from within a rebalance listener, with retries, until the commit succeeds.

    ``commit()`` must not wait on the thread that runs listeners. While the client looks up the coordinator,
    the future of ``commit_async()`` completes before the commit does.

    offsets: `OffsetAndMetadata` by `TopicPartition`.
    timeout_ms: Time limit in milliseconds.
    """
    await consumer._coordinator._commit_offsets_sync_async(offsets, timeout_ms=timeout_ms)  # noqa: SLF001


def end_io_thread(consumer: Any) -> None:
    """End a consumer's I/O thread: from now on the thread that calls it drives its connections."""
    consumer._manager._net.stop()  # noqa: SLF001


def is_quiet(consumer: Any, timeout_s: float) -> bool:
    """Wait for a consumer without I/O thread; return whether nothing happened while a fetch was in flight.

    Its ``poll()`` costs ten times as much.
    """
    started = time.monotonic()
    if not consumer._fetcher.in_flight_fetches():  # noqa: SLF001
        return False
    consumer._manager._net.poll(timeout_ms=timeout_s * 1000)  # noqa: SLF001
    return time.monotonic() - started >= timeout_s


def known_cluster_id(consumer: Any) -> str | None:
    """Return the id of the cluster that a consumer is connected to; None before the first metadata."""
    cluster_id: str | None = consumer._cluster.cluster_id  # noqa: SLF001
    return cluster_id


def known_topic(consumer: Any, topic: str) -> tuple[str | None, int]:
    """Return a topic's id and number of partitions in the consumer's newest metadata; None and 0 without."""
    cluster = consumer._cluster  # noqa: SLF001
    return topic_ids(cluster, [topic]).get(topic), len(cluster.partitions_for_topic(topic) or ())


def metadata_age_s(consumer: Any) -> float:
    """Return how long ago a consumer received its newest metadata, in seconds."""
    return time.monotonic() - metadata_time_s(consumer._cluster)  # noqa: SLF001


def fetch_partition_count(consumer: Any, topic: str, *, timeout_ms: int) -> int:
    """Return the current number of partitions of a topic, 0 if it does not exist. Requests only this topic.

    The public calls either use cached metadata, which keeps a deleted topic for minutes, or request all
    topics of the cluster.

    timeout_ms: Time limit in milliseconds.
    """
    cluster, manager = consumer._cluster, consumer._manager  # noqa: SLF001
    cluster.set_topics([topic])
    count = 0
    for _ in range(2):
        try:
            manager.run(manager.wait_for, cluster.request_update(), timeout_ms)
        except UnknownTopicOrPartitionError:
            break
        # A request that was on its way has not asked for this topic.
        if count := known_topic(consumer, topic)[1]:
            break
    return count


def partition_counts(cluster: Any, topics: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions of each topic that the client has metadata for."""
    found = ((topic, cluster.partitions_for_topic(topic)) for topic in topics)
    # The largest number, not the count: a partition without metadata must not renumber the others.
    return {topic: max(partitions) + 1 for topic, partitions in found if partitions}


def topic_ids(cluster: Any, topics: Iterable[str]) -> dict[str, str]:
    """Return topic ids by name, in the text form of hints. Topics without a known id are left out.

    Returns by topic name. Brokers without topic ids (KIP-516) send a zero id, which is left out.
    """
    known = {}
    for topic in topics:
        topic_id = cluster.topic_id(topic)
        try:
            text = topic_id_text(topic_id) if topic_id else _ABSENT_ID
        except HintFormatError:
            continue
        if text != _ABSENT_ID:
            known[topic] = text
    return known


def metadata_time_s(cluster: Any) -> float:
    """Return when the client received its newest metadata, in seconds of the monotonic clock."""
    return float(getattr(cluster, "_last_successful_refresh_ms", 0.0)) / 1000


def hint_partition(key: bytes, num_partitions: int) -> int:
    """Return the partition that the default partitioner of Kafka clients chooses for a key (murmur2)."""
    return int(murmur2(key) & 0x7FFFFFFF) % num_partitions
