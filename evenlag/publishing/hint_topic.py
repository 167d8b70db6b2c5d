"""The hint topic: its current records.

Nothing on the topic can block a reader: it reads on for as long as there is progress, to the end as it was at
the start. Batches that are compressed are skipped, values are kept of the groups that are asked for, up to a
limit, and one that cannot be decoded is an entry of its own.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, TypeVar

from kafka import KafkaConsumer, TopicPartition
from kafka.partitioner import murmur2

from assignor_core.errors import HintError
from assignor_core.hint import GROUP_KEY_PREFIX, STOP_KEY, Hint, hint_key
from assignor_core.loads import LOADS_KEY_PREFIX, MAX_CLOCK_AHEAD_MS, Loads
from assignor_core.record import MAX_KEY_UNITS, check_text
from assignor_core.topic_reading import READER_CONFIG, records_until, skip_compressed
from evenlag.errors import PublishError
from evenlag.kafka.connection import Grants, admin_client, kafka_client_settings, kafka_errors
from evenlag.kafka.topic_metadata import TOPIC_DENIED
from evenlag.logging_setup import named_logger
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.sealing.signed_records import decode_group_hint, decode_group_loads

_LOG = named_logger(__name__)
_Record = TypeVar("_Record")

_STOP: Final = STOP_KEY.encode()
_PREFIXES: Final = (GROUP_KEY_PREFIX, LOADS_KEY_PREFIX)
_BYTE_PREFIXES: Final = tuple(prefix.encode() for prefix in _PREFIXES)
# A UTF-16 unit has three bytes of UTF-8 at most.
_MAX_KEY_BYTES: Final = 3 * MAX_KEY_UNITS + max(map(len, _PREFIXES))
# Our sequences rise by one with each hint, or begin with the time in seconds. What is larger is not ours.
MAX_PLAUSIBLE_SEQUENCE: Final = 2**32
# Longest `hint_ttl_s` of a policy, and a day more.
_MAX_VALID_MS: Final = 8 * 86_400_000
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
# A record that is kept takes some more than its key and value.
_ENTRY_BYTES: Final = 256
# Of so many foreign keys the newest value is known; each record of the others counts.
_MAX_FOREIGN_KEYS: Final = 100_000


@dataclass(frozen=True, slots=True)
class ForeignRecords:
    """Records that nobody reads: their key is not evenlag's, or is in a partition that is not its group's."""

    num_keys: int = 0
    num_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TopicState:
    """Current records of the hint topic, each in the partition where consumers look for it.

    unreadable, unreadable_loads: By group, why its record is not valid.
    stopped_partitions: Partitions with ``control/stop``. A consumer reads only that of its group's key.
    other_keys: Keys of hints and loads of groups that were not asked for.
    num_unkept: Number of records that did not fit into the limit of what is kept.
    """

    exists: bool
    hints: Mapping[str, Hint]
    unreadable: Mapping[str, str]
    num_partitions: int = 0
    stopped_partitions: frozenset[int] = frozenset()
    loads: Mapping[str, Loads] = field(default_factory=dict)
    unreadable_loads: Mapping[str, str] = field(default_factory=dict)
    other_keys: frozenset[str] = frozenset()
    num_unkept: int = 0
    foreign: ForeignRecords = ForeignRecords()
    num_compressed: int = 0

    @property
    def stopped(self) -> bool:
        """Whether any partition has ``control/stop``."""
        return bool(self.stopped_partitions)

    def has_record_of(self, group_id: str) -> bool:
        """Return whether the topic has any record of a group that was asked for, valid or not."""
        return any(
            group_id in records
            for records in (self.hints, self.unreadable, self.loads, self.unreadable_loads)
        )

    def other_groups(self, prefix: str) -> set[str]:
        """Return the groups that were not asked for and have a record."""
        return {key.removeprefix(prefix) for key in self.other_keys if key.startswith(prefix)}


def own_partition(group_id: str, num_partitions: int) -> int:
    """Return the partition of a group's records: that of its hint's key, by Kafka's default partitioner."""
    return int(murmur2(hint_key(group_id)) & 0x7FFFFFFF) % num_partitions


def is_plausible(hint: Hint, now_ms: int) -> bool:
    """Whether a hint can be from evenlag, going by its numbers; else it is never counted or recorded."""
    return (
        hint.sequence <= MAX_PLAUSIBLE_SEQUENCE
        and hint.issued_at_ms <= now_ms + MAX_CLOCK_AHEAD_MS
        and hint.expires_at_ms - hint.issued_at_ms <= _MAX_VALID_MS
    )


def read_hint_topic(
    cluster: ClusterSettings,
    groups: Collection[str] | None = None,
    *,
    before: Mapping[tuple[int, bytes], int] | None = None,
) -> TopicState:
    """Return the topic's committed records of some groups, or of all.

    before: (partition, key) → offset: later records of the key are left out, to read an earlier state.
    """
    skipped: set[tuple[int, int]] = set()
    stopped: set[int] = set()
    kept, foreign = _Kept(cluster, groups), _Foreign()
    with _reader(cluster, lambda partition, offset: skipped.add((partition, offset))) as consumer:
        num_partitions = len(consumer.partitions_for_topic(cluster.hint_topic) or ())
        if not num_partitions:
            _require_visible(cluster)
            return TopicState(exists=False, hints={}, unreadable={})
        for record in chain.from_iterable(_all_records(consumer, cluster)):
            if before and record.offset >= before.get((record.partition, record.key), record.offset + 1):
                continue
            if record.key == _STOP:
                (stopped.discard if record.value is None else stopped.add)(record.partition)
            elif (key := _readers_key(record, num_partitions)) is not None:
                kept.add(key, record.value)
            else:
                foreign.add(record)
    if skipped:
        _LOG.warning("compressed batches on the hint topic are skipped: %d", len(skipped))
    return kept.state(
        exists=True,
        num_partitions=num_partitions,
        stopped_partitions=frozenset(stopped),
        foreign=foreign.total(),
        num_compressed=len(skipped),
    )


def foreign_keys(cluster: ClusterSettings) -> Iterator[set[tuple[int, bytes]]]:
    """Yield partition and key of the records that nobody reads, in parts of bounded size."""
    with _reader(cluster) as consumer:
        num_partitions = len(consumer.partitions_for_topic(cluster.hint_topic) or ())
        for records in _all_records(consumer, cluster):
            yield {
                (record.partition, record.key)
                for record in records
                if record.key not in (None, _STOP)
                and record.value is not None
                and _readers_key(record, num_partitions) is None
            }


def _require_visible(cluster: ClusterSettings) -> None:
    """Raise an error if evenlag may not describe the hint topic, which then looks as if it did not exist."""
    with admin_client(cluster) as client:
        (topic,) = client.describe_topics([cluster.hint_topic])
    if topic["error_code"] == TOPIC_DENIED:
        raise Grants.of(cluster.bootstrap_servers, cluster.kafka).missing_describe(
            f"the topic {cluster.hint_topic!r}", f"--topic {cluster.hint_topic}"
        )


def is_committed(cluster: ClusterSettings, partition: int, offset: int) -> bool:
    """Return whether a record of a transaction that has ended is visible: committed, not aborted."""
    with _reader(cluster) as consumer:
        place = TopicPartition(cluster.hint_topic, partition)
        consumer.assign([place])
        consumer.seek(place, offset)
        records = chain.from_iterable(_records_until(consumer, {place: offset + 1}, cluster))
        return any(record.offset == offset for record in records)


@contextmanager
def _reader(cluster: ClusterSettings, on_skip: Callable[[int, int], None] | None = None) -> Iterator[Any]:
    """Open a consumer of committed records that never decompresses."""
    with (
        kafka_errors(cluster),
        closing(KafkaConsumer(**{**kafka_client_settings(cluster), **READER_CONFIG})) as consumer,
    ):
        skip_compressed(consumer, on_skip or (lambda _partition, _offset: None))
        yield consumer


def _all_records(consumer: Any, cluster: ClusterSettings) -> Iterator[list[Any]]:
    """All records up to the current end, poll by poll; transaction markers are not records."""
    numbers = consumer.partitions_for_topic(cluster.hint_topic) or ()
    partitions = [TopicPartition(cluster.hint_topic, number) for number in sorted(numbers)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    return _records_until(consumer, consumer.end_offsets(partitions), cluster)


def _records_until(consumer: Any, ends: Mapping[Any, int], cluster: ClusterSettings) -> Iterator[list[Any]]:
    try:
        yield from records_until(consumer, ends, stall_s=cluster.request_timeout_ms / 1000)
    except TimeoutError as error:
        raise PublishError(str(error)) from error


def _readers_key(record: Any, num_partitions: int) -> str | None:
    """Key of a group's record in the partition where its readers look for it; None of any other record."""
    raw: bytes | None = record.key
    if raw is None or len(raw) > _MAX_KEY_BYTES or not raw.startswith(_BYTE_PREFIXES):
        return None
    try:
        key = raw.decode("utf-8")
        group_id = check_text(_group_of(key), "group id")
    except (UnicodeDecodeError, HintError):
        # No group has such a name, so nobody looks for the key.
        return None
    return key if own_partition(group_id, num_partitions) == record.partition else None


def _group_of(key: str) -> str:
    return key.partition("/")[2]


class _Kept:
    """The newest record of each key, as far as the limit goes.

    Of a group that was not asked for the key is kept. A value stays as bytes, which take a fraction of the
    memory of what they decode to. One that is not valid becomes the reason why, at the end or at the limit.
    """

    def __init__(self, cluster: ClusterSettings, groups: Collection[str] | None) -> None:
        self._cluster = cluster
        self._groups = groups
        # By key: a value, why it is not valid, or None: the key only.
        self._kept: dict[str, bytes | str | None] = {}
        self._keys_only: set[str] = set()
        self._unchecked: set[str] = set()
        self._num_unkept = 0
        self._bytes = 0
        self._is_full = False

    def add(self, key: str, value: bytes | None) -> None:
        self._remove(key)
        if value is None:
            return
        is_wanted = self._groups is None or _group_of(key) in self._groups
        self._put(key, value if is_wanted else None)
        (self._unchecked if is_wanted else self._keys_only).add(key)
        while self._bytes > MAX_KEPT_BYTES and self._keys_only:
            self._leave_out(self._keys_only.pop())
        if self._bytes > MAX_KEPT_BYTES and not self._is_full:
            self._check()
            # Else each further value would be decoded for nothing.
            self._is_full = self._bytes > MAX_KEPT_BYTES // 2
        if self._bytes > MAX_KEPT_BYTES:
            self._leave_out(key)

    def state(self, **about: Any) -> TopicState:
        self._check()
        found: dict[tuple[str, type], dict[str, Any]] = {
            (prefix, kind): {} for prefix in _PREFIXES for kind in (bytes, str)
        }
        for key, value in self._kept.items():
            if value is not None:
                prefix = next(filter(key.startswith, _PREFIXES))
                found[prefix, type(value)][_group_of(key)] = value
        return TopicState(
            hints=_Decoded(self._cluster, found[GROUP_KEY_PREFIX, bytes], decode_group_hint),
            unreadable=found[GROUP_KEY_PREFIX, str],
            loads=_Decoded(self._cluster, found[LOADS_KEY_PREFIX, bytes], decode_group_loads),
            unreadable_loads=found[LOADS_KEY_PREFIX, str],
            other_keys=frozenset(self._keys_only),
            num_unkept=self._num_unkept,
            **about,
        )

    def _check(self) -> None:
        """Replace values that are not valid by the reasons."""
        for key in self._unchecked:
            decode = decode_group_hint if key.startswith(GROUP_KEY_PREFIX) else decode_group_loads
            value = self._kept[key]
            try:
                if isinstance(value, bytes):
                    decode(value, _group_of(key), self._cluster)
            except HintError as error:
                self._put(key, str(error))
        self._unchecked.clear()

    def _put(self, key: str, value: bytes | str | None) -> None:
        if key in self._kept:
            self._bytes -= self._size(key)
        self._kept[key] = value
        self._bytes += self._size(key)

    def _size(self, key: str) -> int:
        return _ENTRY_BYTES + len(key) + len(self._kept[key] or "")

    def _remove(self, key: str) -> None:
        if key in self._kept:
            self._bytes -= self._size(key)
            del self._kept[key]
            self._keys_only.discard(key)
            self._unchecked.discard(key)

    def _leave_out(self, key: str) -> None:
        self._remove(key)
        self._num_unkept += 1


class _Foreign:
    """Counts foreign keys by their hashes, so that a key of a megabyte takes no memory."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._num_more = self._num_more_bytes = 0

    def add(self, record: Any) -> None:
        if record.key is None:
            return  # a compacted topic takes no such record, and compaction removes those of before
        name = hash((record.partition, record.key))
        if record.value is None:
            self._sizes.pop(name, None)
            return
        size = len(record.key) + len(record.value)
        if name in self._sizes or len(self._sizes) < _MAX_FOREIGN_KEYS:
            self._sizes[name] = size
        else:
            self._num_more += 1
            self._num_more_bytes += size

    def total(self) -> ForeignRecords:
        return ForeignRecords(
            len(self._sizes) + self._num_more, sum(self._sizes.values()) + self._num_more_bytes
        )


class _Decoded(Mapping[str, _Record]):
    """Valid records by group, decoded whenever they are looked up."""

    def __init__(
        self,
        cluster: ClusterSettings,
        values: Mapping[str, bytes],
        decode: Callable[[bytes, str, ClusterSettings], _Record],
    ) -> None:
        self._cluster, self._values, self._decode = cluster, values, decode

    def __getitem__(self, group_id: str) -> _Record:
        return self._decode(self._values[group_id], group_id, self._cluster)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
