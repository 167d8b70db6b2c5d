"""The hint topic: its current records.

Nothing on the topic can block a reader: batches that are compressed are skipped, a record counts only in the
partition of its group, and one that cannot be decoded is an entry of its own.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from assignor_core.errors import HintError
from assignor_core.hint import GROUP_KEY_PREFIX, STOP_KEY, hint_key
from assignor_core.loads import LOADS_KEY_PREFIX, MAX_CLOCK_AHEAD_MS
from evenlag.errors import PublishError
from evenlag.kafka.connection import kafka_client_settings, kafka_errors
from evenlag.kafka.uncompressed import skip_compressed
from evenlag.logging_setup import named_logger
from evenlag.publishing.sealing.signed_records import decode_group_hint, decode_group_loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from assignor_core.hint import Hint
    from assignor_core.loads import Loads
    from evenlag.policy.cluster_settings import ClusterSettings

_LOG = named_logger(__name__)

_POLL_MS: Final = 200
_STOP: Final = STOP_KEY.encode()
_PREFIXES: Final = (GROUP_KEY_PREFIX.encode(), LOADS_KEY_PREFIX.encode())
# Our sequences rise by one with each hint, or begin with the time in seconds. What is larger is not ours.
MAX_PLAUSIBLE_SEQUENCE: Final = 2**32
# Longest `hint_ttl_s` of a policy, and a day more.
_MAX_VALID_MS: Final = 8 * 86_400_000

_Values = dict[tuple[int, bytes], bytes | None]


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
    loads, unreadable_loads
        By group: its current record of loads, or why its record is not valid.
    strays
        Group → partitions that have a record of the group and are not the group's own. Nobody reads them.
    num_compressed
        Number of compressed batches that were skipped.
    """

    exists: bool
    hints: Mapping[str, Hint]
    unreadable: Mapping[str, str]
    num_partitions: int = 0
    stopped_partitions: frozenset[int] = frozenset()
    loads: Mapping[str, Loads] = field(default_factory=dict)
    unreadable_loads: Mapping[str, str] = field(default_factory=dict)
    strays: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    num_compressed: int = 0

    @property
    def stopped(self) -> bool:
        """Whether any partition has ``control/stop``."""
        return bool(self.stopped_partitions)

    def has_record_of(self, group_id: str) -> bool:
        """Return whether the topic has any record of a group, valid or not.

        Parameters
        ----------
        group_id
            The group.
        """
        return any(
            group_id in records
            for records in (self.hints, self.unreadable, self.loads, self.unreadable_loads, self.strays)
        )


def own_partition(group_id: str, num_partitions: int) -> int:
    """Return the partition of a group's records: that of its hint's key, by Kafka's default partitioner.

    Parameters
    ----------
    group_id, num_partitions
        The group, and the number of partitions of the topic.
    """
    from kafka.partitioner import murmur2

    return int(murmur2(hint_key(group_id)) & 0x7FFFFFFF) % num_partitions


def is_plausible(hint: Hint, now_ms: int) -> bool:
    """Return whether a hint can be from a publisher of evenlag, going by its numbers.

    One with other numbers is never counted on, and never recorded.

    Parameters
    ----------
    hint, now_ms
        The hint, and the time in milliseconds since the epoch.
    """
    return (
        hint.sequence <= MAX_PLAUSIBLE_SEQUENCE
        and hint.issued_at_ms <= now_ms + MAX_CLOCK_AHEAD_MS
        and hint.expires_at_ms - hint.issued_at_ms <= _MAX_VALID_MS
    )


def read_hint_topic(
    cluster: ClusterSettings, *, before: Mapping[tuple[int, bytes], int] | None = None
) -> TopicState:
    """Return the topic's committed records.

    Parameters
    ----------
    cluster
        The cluster's settings.
    before
        (partition, key) → offset: records of the key from this offset on are left out. Who has written first
        reads the earlier state.

    Returns
    -------
    TopicState
        The state.

    Raises
    ------
    PublishError
        When the topic cannot be read to its end. Other errors are those of ``kafka_errors``.
    """
    from kafka import TopicPartition

    skipped: set[tuple[int, int]] = set()
    with _reader(cluster, lambda partition, offset: skipped.add((partition, offset))) as consumer:
        numbers = consumer.partitions_for_topic(cluster.hint_topic)
        if not numbers:
            return TopicState(exists=False, hints={}, unreadable={})
        partitions = [TopicPartition(cluster.hint_topic, number) for number in sorted(numbers)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        values = _read_to_end(consumer, partitions, cluster.request_timeout_ms / 1000, before or {})
    if skipped:
        _LOG.warning("compressed batches on the hint topic are skipped: %d", len(skipped))
    return _decode_all(values, len(partitions), cluster, len(skipped))


def is_committed(cluster: ClusterSettings, partition: int, offset: int) -> bool:
    """Return whether a record of a transaction that has ended is visible: committed, not aborted.

    Parameters
    ----------
    cluster
        The cluster's settings.
    partition, offset
        Where the record was written.

    Raises
    ------
    PublishError
        When the topic cannot be read to the record.
    """
    from kafka import TopicPartition

    with _reader(cluster) as consumer:
        place = TopicPartition(cluster.hint_topic, partition)
        consumer.assign([place])
        consumer.seek(place, offset)
        deadline = time.monotonic() + cluster.request_timeout_ms / 1000
        while consumer.position(place) <= offset:
            if time.monotonic() > deadline:
                raise PublishError("the hint topic could not be read to what was written")
            for records in consumer.poll(timeout_ms=_POLL_MS).values():
                if any(record.offset == offset for record in records):
                    return True
    return False


@contextmanager
def _reader(cluster: ClusterSettings, on_skip: Callable[[int, int], None] | None = None) -> Iterator[Any]:
    """Open a consumer of committed records that never decompresses."""
    from kafka import KafkaConsumer

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
            skip_compressed(consumer, on_skip or (lambda _partition, _offset: None))
            yield consumer
        finally:
            consumer.close()


def _read_to_end(
    consumer: Any, partitions: list[Any], timeout_s: float, before: Mapping[tuple[int, bytes], int]
) -> _Values:
    """Newest value by (partition, key), up to the current end; transaction markers are not records."""
    ends = consumer.end_offsets(partitions)
    values: _Values = {}
    deadline = time.monotonic() + timeout_s
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        if time.monotonic() > deadline:
            raise PublishError(f"the hint topic could not be read to its end in {timeout_s:.0f} s")
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            for record in records:
                where = record.partition, record.key
                if _is_ours(record.key) and (where not in before or record.offset < before[where]):
                    values[where] = record.value
    return values


def _is_ours(key: bytes | None) -> bool:
    return key is not None and (key == _STOP or key.startswith(_PREFIXES))


def _decode_all(
    values: _Values, num_partitions: int, cluster: ClusterSettings, num_compressed: int
) -> TopicState:
    """Hints and loads of each group's own partition, why others are not valid, and what lies elsewhere."""
    hints: dict[str, Hint] = {}
    loads: dict[str, Loads] = {}
    unreadable: dict[str, str] = {}
    unreadable_loads: dict[str, str] = {}
    strays: dict[str, set[int]] = {}
    for number, is_hint, group_id, value in _group_records(values):
        if number != own_partition(group_id, num_partitions):
            strays.setdefault(group_id, set()).add(number)
            continue
        try:
            if is_hint:
                hints[group_id] = decode_group_hint(value, group_id, cluster)
            else:
                loads[group_id] = decode_group_loads(value, group_id, cluster)
        except HintError as error:
            (unreadable if is_hint else unreadable_loads)[group_id] = str(error)
    return TopicState(
        exists=True,
        hints=hints,
        unreadable=unreadable,
        num_partitions=num_partitions,
        stopped_partitions=frozenset(
            number for (number, key), value in values.items() if key == _STOP and value is not None
        ),
        loads=loads,
        unreadable_loads=unreadable_loads,
        strays={group_id: tuple(sorted(numbers)) for group_id, numbers in strays.items()},
        num_compressed=num_compressed,
    )


def _group_records(values: _Values) -> Iterator[tuple[int, bool, str, bytes]]:
    """(partition, whether it is a hint, group, value) of the groups' records that are no tombstones."""
    for (number, key), value in values.items():
        if value is None or key == _STOP:
            continue
        try:
            name = key.decode("utf-8")
        except UnicodeDecodeError:
            # No group has such a name, so nobody looks for the key.
            continue
        is_hint = name.startswith(GROUP_KEY_PREFIX)
        yield number, is_hint, name.removeprefix(GROUP_KEY_PREFIX if is_hint else LOADS_KEY_PREFIX), value
