"""The adapter to kafka-python's private parts: what is seen and asked here, what is changed next door.

kafka-python has no public call that asks for a rebalance, and an assignor is not told what its consumer
holds. `_kafka_coordinator` has what is changed in a consumer's coordinator, and nothing else of the package
touches a private name. Written against 3.0.12; ``tests/evenlag/consumer/test_kafka_contract.py`` fails loudly
when a name is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.errors import UnknownTopicOrPartitionError
from kafka.metrics import AnonMeasurable
from kafka.partitioner.default import murmur2

from assignor_core.errors import HintFormatError
from assignor_core.hint import topic_id_text
from evenlag.consumer._kafka_coordinator import Membership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_ABSENT_ID = "A" * 22


class ConsumerPort:
    """What an assignor and a watcher see of one `KafkaConsumer`."""

    def __init__(
        self,
        consumer: Any,
        *,
        on_commit_refused: Callable[[list[tuple[str, int]]], None] | None = None,
        settle_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._coordinator = consumer._coordinator  # noqa: SLF001  # the purpose of this module
        self._subscription = consumer._subscription  # noqa: SLF001
        self._manager = consumer._manager  # noqa: SLF001
        self._cluster = consumer._cluster  # noqa: SLF001
        self.heartbeat_interval_s: float = consumer.config["heartbeat_interval_ms"] / 1000
        self.metadata_max_age_s: float = consumer.config["metadata_max_age_ms"] / 1000
        self._membership = Membership(consumer, on_commit_refused=on_commit_refused, settle_s=settle_s)

    def held(self) -> list[tuple[str, int]]:
        """Return the partitions that the consumer holds at this moment, sorted."""
        return sorted((tp.topic, tp.partition) for tp in self._membership.held())

    def claims(self) -> tuple[list[tuple[str, int]], int]:
        """Return what the consumer says at a join: what it really holds, and since which generation."""
        return self._membership.claims()

    @property
    def is_eager(self) -> bool:
        """Whether everything is given up before the next join."""
        return self._membership.mode is RebalanceProtocol.EAGER

    @property
    def is_leader(self) -> bool:
        """Whether this member computed the assignment of the present generation."""
        return bool(self._coordinator._is_leader)  # noqa: SLF001

    @property
    def member_id(self) -> str:
        """The member id that the broker gave, empty before the first join."""
        return str(self._coordinator.group_metadata().member_id)

    @property
    def instance_id(self) -> str | None:
        """The static id, None without one."""
        instance: str | None = self._coordinator.group_instance_id
        return instance

    def stable_generation(self) -> int | None:
        """Return the generation, or None while the group rebalances or is not joined or is about to be."""
        coordinator = self._coordinator
        generation = coordinator.generation_if_stable()
        if generation is None or coordinator.rejoin_needed:
            return None
        number = int(generation.generation_id)
        return None if number == self._membership.postponed_generation else number

    def ask_from_io_thread(self) -> None:
        """Have the next poll join the group again. Only from kafka-python's I/O thread."""
        self._coordinator.request_rejoin()

    def ask_if_still(self, generation: int) -> None:
        """Have the next poll join again, from any thread, unless another generation has come.

        It goes through the I/O thread: there a join ends by clearing the flag, and a flag set beside it
        would either be lost or ask once too often.
        """

        def ask() -> None:
            if self.stable_generation() == generation:
                self._coordinator.request_rejoin()

        self._manager.call_soon(ask)

    def subscribed_counts(self) -> dict[str, int]:
        """Return the number of partitions by subscribed topic, of those that exist."""
        return partition_counts(self._cluster, self._subscription.subscription or ())

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the topics' ids in the text form of hints, by name; unknown ones are left out."""
        return topic_ids(self._cluster, topics)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, None before the first metadata."""
        cluster_id: str | None = self._cluster.cluster_id
        return cluster_id


def add_metric(consumer: Any, group: str, name: str, description: str, measure: Callable[[], float]) -> None:
    """Add a metric to a consumer's registry; it is measured when somebody looks."""
    registry = consumer._metrics  # noqa: SLF001
    if registry is not None:
        metric_name = registry.metric_name(name, group, description)
        registry.add_metric(metric_name, AnonMeasurable(lambda _config, _now: measure()))


async def commit_offsets(consumer: Any, offsets: Mapping[Any, Any], timeout_ms: int) -> None:
    """Commit from within a rebalance listener, with repetitions, until it is done.

    ``commit()`` must not wait on the thread that listeners run on, and while the coordinator is being
    looked for, the future of ``commit_async()`` is done before the commit is.

    Raises
    ------
    KafkaError
        When it failed, or not within `timeout_ms`.
    """
    await consumer._coordinator._commit_offsets_sync_async(offsets, timeout_ms=timeout_ms)  # noqa: SLF001


def known_cluster_id(consumer: Any) -> str | None:
    """Return the id of the cluster that a consumer is connected to, None before the first metadata."""
    cluster_id: str | None = consumer._cluster.cluster_id  # noqa: SLF001
    return cluster_id


def fetch_partition_count(consumer: Any, topic: str, *, timeout_ms: int) -> int:
    """Return how many partitions a topic has now, 0 when there is none; asks the broker for it alone.

    The public calls either answer from metadata that keep a deleted topic for minutes, or ask for all
    topics of the cluster.

    Raises
    ------
    KafkaError
        When nobody answers in time.
    """
    cluster, manager = consumer._cluster, consumer._manager  # noqa: SLF001
    cluster.set_topics([topic])
    try:
        manager.run(manager.wait_for, cluster.request_update(), timeout_ms)
    except UnknownTopicOrPartitionError:
        return 0
    return len(cluster.partitions_for_topic(topic) or ())


def partition_counts(cluster: Any, topics: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions by topic, of the topics that the client has metadata of."""
    found = ((topic, cluster.partitions_for_topic(topic)) for topic in topics)
    # Numbers, not their count: a partition whose metadata failed must not renumber the others.
    return {topic: max(partitions) + 1 for topic, partitions in found if partitions}


def topic_ids(cluster: Any, topics: Iterable[str]) -> dict[str, str]:
    """Return the topics' ids in the text form of hints, by name; unknown ones are left out."""
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


def hint_partition(key: bytes, num_partitions: int) -> int:
    """Return the partition that every Kafka client's default partitioner gives a key."""
    return int(murmur2(key) & 0x7FFFFFFF) % num_partitions
