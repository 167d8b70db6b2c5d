"""The hint topic: reading its current records, and writing to it in one transaction.

Each cluster has one transactional id: a publisher that hangs and resumes is fenced by the newer one, and
writes nothing. The topic is read behind the fence, so no other publisher writes between read and write.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from assignor_core.errors import HintError, HintSignatureError
from assignor_core.hint import (
    GROUP_KEY_PREFIX,
    STOP_KEY,
    Hint,
    decode_hint,
    derive_broker_key,
    derive_group_key,
    hint_key,
)
from evenlag.errors import FencedPublisherError, PublishError
from evenlag.kafka.connection import kafka_client_settings, kafka_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from evenlag.policy.cluster_settings import ClusterSettings

_LOG = logging.getLogger(__name__)

_POLL_MS: Final = 200
_PROBE_KEY: Final = b"control/probe"
_STOP: Final = STOP_KEY.encode()


@dataclass(frozen=True, slots=True)
class TopicState:
    """Current records of the hint topic.

    Attributes
    ----------
    exists, num_partitions
        Whether the topic exists, and its number of partitions (0 when it does not exist).
    hints, unreadable
        By group: its current hint, or why its record is not a valid hint.
    stopped_partitions
        Partitions with ``control/stop``. A consumer reads only the partition of its group's key.
    """

    exists: bool
    hints: Mapping[str, Hint]
    unreadable: Mapping[str, str]
    num_partitions: int = 0
    stopped_partitions: frozenset[int] = frozenset()

    @property
    def stopped(self) -> bool:
        """Whether any partition has ``control/stop``."""
        return bool(self.stopped_partitions)


def ensure_hint_topic(client: Any, cluster: ClusterSettings) -> None:
    """Create the hint topic, compacted, unless it exists.

    Parameters
    ----------
    client, cluster
        A ``KafkaAdminClient``, and the cluster's settings.

    Raises
    ------
    PublishError
        When the topic exists and is not compacted: retention would delete hints.
    """
    import kafka.errors

    name = cluster.hint_topic
    if name in client.list_topics():
        _check_compacted(client, name)
        return
    try:
        client.create_topics(
            {
                name: {
                    "num_partitions": cluster.hint_topic_partitions,
                    "replication_factor": cluster.hint_topic_replication_factor,
                    "configs": {"cleanup.policy": "compact"},
                }
            },
            wait_for_metadata=True,
        )
    except kafka.errors.TopicAlreadyExistsError:
        _check_compacted(client, name)


def read_max_bytes(client: Any, name: str) -> int | None:
    """Return the topic's ``max.message.bytes``; None when it does not exist, or is not reported.

    Parameters
    ----------
    client, name
        A ``KafkaAdminClient``, and the topic's name.
    """
    import kafka.errors

    try:
        value = _topic_setting(client, name, "max.message.bytes")
    except kafka.errors.KafkaError as error:
        _LOG.info("max.message.bytes of %s does not show: %s", name, error)
        return None
    return None if value is None else int(value)


def read_hint_topic(cluster: ClusterSettings) -> TopicState:
    """Return the topic's committed records; raises PublishError, and the errors of :func:`kafka_errors`."""
    from kafka import KafkaConsumer, TopicPartition

    with kafka_errors(cluster):
        consumer = KafkaConsumer(
            **kafka_client_settings(cluster),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            allow_auto_create_topics=False,
        )
        try:
            numbers = consumer.partitions_for_topic(cluster.hint_topic)
            if not numbers:
                return TopicState(exists=False, hints={}, unreadable={})
            partitions = [TopicPartition(cluster.hint_topic, number) for number in sorted(numbers)]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            values = _read_to_end(consumer, partitions, cluster.request_timeout_ms / 1000)
        finally:
            consumer.close()
    hints, unreadable = _decode_all({key: value for (_, key), value in values.items()}, cluster)
    stopped = {number for (number, key), value in values.items() if key == _STOP and value is not None}
    return TopicState(
        exists=True,
        hints=hints,
        unreadable=unreadable,
        num_partitions=len(partitions),
        stopped_partitions=frozenset(stopped),
    )


class HintPublisher:
    """A transactional producer for one cluster's hint topic, from :func:`hint_publisher`."""

    def __init__(self, producer: Any, cluster: ClusterSettings) -> None:
        self._producer = producer
        self._topic = cluster.hint_topic
        self._timeout_s = cluster.request_timeout_ms / 1000

    def write(self, values: Mapping[str, bytes | None]) -> None:
        """Write hints by group (None: a tombstone) in one transaction; errors as :meth:`check_fence`."""
        # Without a partition number: consumers find a key's partition by the same default partitioner.
        self._write([(None, hint_key(group_id), value) for group_id, value in values.items()])

    def write_stop(self, num_partitions: int, value: bytes | None) -> None:
        """Write ``control/stop`` (None: a tombstone) to all partitions; errors as :meth:`check_fence`.

        Parameters
        ----------
        num_partitions, value
            Number of partitions of the topic, and the record's value.
        """
        self._write([(number, _STOP, value) for number in range(num_partitions)])

    def _write(self, records: list[tuple[int | None, bytes, bytes | None]]) -> None:
        import kafka.errors

        if not records:
            return
        try:
            self._producer.begin_transaction()
            futures = [
                self._producer.send(self._topic, key=key, value=value, partition=partition)
                for partition, key, value in records
            ]
            self._producer.flush(timeout=self._timeout_s)
            for future in futures:
                future.get(timeout=self._timeout_s)
            self._producer.commit_transaction()
        except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as error:
            raise FencedPublisherError(
                "another publisher of this cluster has taken over; nothing written"
            ) from error
        except kafka.errors.KafkaError as error:
            self._abort()
            raise PublishError(f"the hints could not be written: {type(error).__name__}: {error}") from error

    def check_fence(self) -> None:
        """Check that no other publisher has taken over, by a transaction that is aborted.

        Raises
        ------
        FencedPublisherError
            When another publisher has taken over.
        PublishError
            When the transaction failed; none of its records is visible.
        """
        import kafka.errors

        try:
            self._producer.begin_transaction()
            future = self._producer.send(self._topic, key=_PROBE_KEY, value=None)
            self._producer.flush(timeout=self._timeout_s)
            future.get(timeout=self._timeout_s)
            self._producer.abort_transaction()
        except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as error:
            raise FencedPublisherError("another publisher of this cluster has taken over") from error
        except kafka.errors.KafkaError as error:
            self._abort()
            raise PublishError(f"the hint topic does not answer: {type(error).__name__}: {error}") from error

    def _abort(self) -> None:
        import kafka.errors

        try:
            self._producer.abort_transaction()
        except kafka.errors.KafkaError:
            # The coordinator aborts it after its timeout; read_committed consumers never see it.
            return


@contextmanager
def hint_publisher(name: str, cluster: ClusterSettings) -> Iterator[HintPublisher]:
    """Build the publisher of a cluster, fence the earlier one, and close it after the block.

    Parameters
    ----------
    name, cluster
        The cluster's name in the policy, which is part of the transactional id, and its settings.
    """
    from kafka import KafkaProducer

    with kafka_errors(cluster):
        producer = KafkaProducer(
            **kafka_client_settings(cluster),
            transactional_id=f"evenlag-publisher-{name}",
            acks="all",
            compression_type="gzip",
            max_request_size=16 * 1024 * 1024,
        )
        try:
            producer.init_transactions()
            yield HintPublisher(producer, cluster)
        finally:
            producer.close(timeout=cluster.request_timeout_ms / 1000)


def group_signing_key(
    cluster: ClusterSettings, group_id: str, *, is_for_brokers: bool = False
) -> bytes | None:
    """Return the key that signs a group's hints; None when the policy configures no signatures.

    Parameters
    ----------
    cluster, group_id, is_for_brokers
        The cluster's settings, the group, and whether brokers follow the hint (consumer protocol): no
        application has that key.
    """
    if cluster.hint_signing_key is None:
        return None
    derive = derive_broker_key if is_for_brokers else derive_group_key
    return derive(cluster.hint_signing_key.resolve().encode(), group_id)


def decode_group_hint(value: bytes, group_id: str, cluster: ClusterSettings) -> Hint:
    """Return the hint in a record, for either protocol.

    Parameters
    ----------
    value, group_id, cluster
        The record's value, its group, and the cluster's settings.

    Raises
    ------
    HintError, HintSignatureError
        When it is not a valid hint, or has the other protocol's signature: applications have the key for
        clients, and must not pass for the publisher where brokers follow.
    """
    try:
        hint = decode_hint(value, group_id=group_id, group_key=group_signing_key(cluster, group_id))
        is_for_brokers = False
    except HintSignatureError:
        key = group_signing_key(cluster, group_id, is_for_brokers=True)
        hint = decode_hint(value, group_id=group_id, group_key=key)
        is_for_brokers = True
    if hint.signed and is_for_brokers != (hint.payload.member_ids is not None):
        raise HintSignatureError("the hint is signed by a key that is not for the group's protocol")
    return hint


def _read_to_end(
    consumer: Any, partitions: list[Any], timeout_s: float
) -> dict[tuple[int, bytes], bytes | None]:
    """Newest value by (partition, key), up to the current end; transaction markers are not records."""
    ends = consumer.end_offsets(partitions)
    values: dict[tuple[int, bytes], bytes | None] = {}
    deadline = time.monotonic() + timeout_s
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        if time.monotonic() > deadline:
            raise PublishError(f"the hint topic could not be read to its end in {timeout_s:.0f} s")
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            values.update(
                ((record.partition, record.key), record.value) for record in records if record.key is not None
            )
    return values


def _decode_all(
    values: Mapping[bytes, bytes | None], cluster: ClusterSettings
) -> tuple[dict[str, Hint], dict[str, str]]:
    """Hints, and why other records are not valid hints, both by group."""
    hints: dict[str, Hint] = {}
    unreadable: dict[str, str] = {}
    for key, value in values.items():
        name = key.decode("utf-8", "replace")
        if value is None or not name.startswith(GROUP_KEY_PREFIX):
            continue
        group_id = name.removeprefix(GROUP_KEY_PREFIX)
        try:
            hints[group_id] = decode_group_hint(value, group_id, cluster)
        except HintError as error:
            unreadable[group_id] = str(error)
    return hints, unreadable


def _check_compacted(client: Any, name: str) -> None:
    if "compact" not in str(_topic_setting(client, name, "cleanup.policy")):
        raise PublishError(
            f"the topic {name} is not compacted: set cleanup.policy=compact on it, or name another "
            "hint_topic in the policy"
        )


def _topic_setting(client: Any, name: str, setting: str) -> str | None:
    from kafka.admin import ConfigResource, ConfigResourceType

    described = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)], config_filter="all")
    value = described.get("topic", {}).get(name, {}).get(setting, {}).get("value")
    return None if value is None else str(value)
