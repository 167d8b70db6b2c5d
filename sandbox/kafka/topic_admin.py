"""Topics of the sandbox: creation, and offsets of their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic, OffsetSpec
from kafka.errors import TopicAlreadyExistsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_HINT_TOPIC = "evenlag-hints"


def create_topic(
    client: Mapping[str, Any], name: str, num_partitions: int, *, configs: Mapping[str, str] | None = None
) -> bool:
    """Create a topic with as many replicas as the brokers give by default.

    Parameters
    ----------
    client
        Connection settings, as keyword arguments of kafka-python's clients.
    name, num_partitions
        The topic.
    configs
        The topic's settings, for example ``{"cleanup.policy": "compact"}``.

    Returns
    -------
    bool
        True if it was created, False if it exists already.
    """
    admin = KafkaAdminClient(**client)
    try:
        topic = NewTopic(name, num_partitions=num_partitions, replication_factor=-1, topic_configs=configs)
        admin.create_topics([topic])
    except TopicAlreadyExistsError:
        return False
    else:
        return True
    finally:
        admin.close()


def create_hint_topic(client: Mapping[str, Any], name: str = DEFAULT_HINT_TOPIC) -> bool:
    """Create the compacted hint topic with 3 partitions.

    Parameters
    ----------
    client
        Connection settings, as keyword arguments of kafka-python's clients.
    name
        Name of the topic.

    Returns
    -------
    bool
        True if it was created, False if it exists already.
    """
    return create_topic(
        client, name, 3, configs={"cleanup.policy": "compact", "compression.type": "uncompressed"}
    )


def read_offsets(
    client: Mapping[str, Any], group_id: str, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, int, int | None]]:
    """Read the offsets of partitions.

    Parameters
    ----------
    client
        Connection settings, as keyword arguments of kafka-python's clients.
    group_id
        Group whose committed offsets are read.
    partitions
        Topics and partition numbers.

    Returns
    -------
    dict
        (log start offset, log end offset, committed offset or None) by partition.
    """
    wanted = [TopicPartition(*pair) for pair in partitions]
    admin = KafkaAdminClient(**client)
    try:
        committed = admin.list_group_offsets({group_id: None})[group_id]
        # Commits before ends: in the other order, a commit could be past the end.
        starts = admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        ends = admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
    finally:
        admin.close()
    return {
        (tp.topic, tp.partition): (
            int(starts[tp].offset),
            int(ends[tp].offset),
            int(committed[tp].offset) if tp in committed and committed[tp].offset >= 0 else None,
        )
        for tp in wanted
    }
