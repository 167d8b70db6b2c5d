"""Topics of the sandbox: creation, and offsets of their partitions."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic, OffsetSpec
from kafka.errors import RetriableError, TopicAlreadyExistsError, UnknownBrokerIdError

DEFAULT_HINT_TOPIC = "evenlag-hints"
_CREATE_WITHIN_S: Final = 30.0
_RETRY_S: Final = 0.5


def create_topic(
    client: Mapping[str, Any], name: str, num_partitions: int, *, configs: Mapping[str, str] | None = None
) -> bool:
    """Create a topic with the brokers' default replicas; False if it exists already."""
    topic = NewTopic(name, num_partitions=num_partitions, replication_factor=-1, topic_configs=configs)
    deadline = time.monotonic() + _CREATE_WITHIN_S
    while True:
        with KafkaAdminClient(**client) as admin:
            try:
                admin.create_topics([topic])
            except TopicAlreadyExistsError:
                return False
            # The broker that the client has taken for the controller may leave the cluster meanwhile.
            except (RetriableError, UnknownBrokerIdError):
                if time.monotonic() >= deadline:
                    raise
            else:
                return True
        time.sleep(_RETRY_S)


def create_hint_topic(client: Mapping[str, Any], name: str = DEFAULT_HINT_TOPIC) -> bool:
    """Create the compacted hint topic with 3 partitions; False if it exists already."""
    return create_topic(
        client, name, 3, configs={"cleanup.policy": "compact", "compression.type": "uncompressed"}
    )


def read_offsets(
    client: Mapping[str, Any], group_id: str, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, int, int | None]]:
    """Return (log start offset, log end offset, committed offset or None) by partition."""
    wanted = [TopicPartition(*pair) for pair in partitions]
    with KafkaAdminClient(**client) as admin:
        committed = admin.list_group_offsets({group_id: None})[group_id]
        # Commits before ends: in the other order, a commit could be past the end.
        starts = admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        ends = admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
    return {
        (tp.topic, tp.partition): (
            int(starts[tp].offset),
            int(ends[tp].offset),
            int(committed[tp].offset) if tp in committed and committed[tp].offset >= 0 else None,
        )
        for tp in wanted
    }
