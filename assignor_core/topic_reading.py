"""Reading the hint topic with a ``KafkaConsumer`` of kafka-python, whatever others wrote to it.

The consumer is an argument, so that this module imports nothing. What it relies on of kafka-python is
checked by ``evenlag.consumer.kafka_python``.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

READER_CONFIG: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "allow_auto_create_topics": False,
        # kafka-python computes CRC32C in Python, at 6 MB per second of processor time. Brokers check it when
        # they append, and TCP checks what they send.
        "check_crcs": False,
        # A response has no more, or one batch, which max.message.bytes of the topic bounds.
        "fetch_max_bytes": 4 * 1024 * 1024,
        "max_partition_fetch_bytes": 1024 * 1024,
    }
)
"""Settings of a consumer that reads the hint topic."""

_MAGIC: Final = 2
_POLL_MS: Final = 200
_POSITION_MS: Final = 10_000


def records_until(consumer: Any, ends: Mapping[Any, int], *, stall_s: float) -> Iterator[list[Any]]:
    """Yield the records of partitions up to offsets, poll by poll.

    No limit of time applies while reading makes progress, and the offsets limit how much is read: a topic
    that grows as fast as it is read does not hold the reader.

    `ends` is where to end, by partition of the consumer; records after it may be yielded, too. A poll without
    records yields an empty list. `TimeoutError` if no position has changed for `stall_s` seconds.
    """
    before: dict[Any, int] = {}
    deadline = time.monotonic() + stall_s
    while True:
        positions = {each: consumer.position(each, timeout_ms=_POSITION_MS) or 0 for each in ends}
        left = [each for each, end in ends.items() if positions[each] < end]
        if not left:
            return
        if positions != before:
            before, deadline = positions, time.monotonic() + stall_s
        elif time.monotonic() > deadline:
            raise TimeoutError(
                f"the hint topic could not be read to its end: no progress for {stall_s:.0f} s"
            )
        consumer.pause(*ends.keys() - left)
        yield [record for records in consumer.poll(timeout_ms=_POLL_MS).values() for record in records]


def skip_compressed(consumer: Any, on_skip: Callable[[int, int], None]) -> None:
    """Make a consumer skip compressed batches.

    kafka-python decompresses a batch as a whole: one of 300 kB can become 300 MB. A fetcher looks up its
    class of fetched records on itself, so one consumer can have another. `on_skip` gets
    partition and offset of each skipped batch, from within ``poll()``.
    """
    # The only hook before decompression.
    fetcher = consumer._fetcher  # noqa: SLF001

    class PlainRecords(fetcher.PartitionRecords):  # type: ignore[misc,name-defined]  # kafka-python has no types
        def _unpack_records(self, tp: Any, records: Any, *args: Any, **kwargs: Any) -> Any:
            plain = _PlainBatches(records, lambda offset: on_skip(tp.partition, offset))
            return super()._unpack_records(tp, plain, *args, **kwargs)

    fetcher.PartitionRecords = PlainRecords


class _PlainBatches:
    """Fetched batches, with an empty one in place of each that is compressed."""

    def __init__(self, records: Any, on_skip: Callable[[int], None]) -> None:
        self._records = records
        self._on_skip = on_skip

    def next_batch(self) -> Any:
        batch = self._records.next_batch()
        if batch is None or batch.compression_type == 0:
            return batch
        self._on_skip(batch.base_offset)
        return _SkippedBatch(batch)


class _SkippedBatch:
    """As much of a batch as a fetcher looks at, and no records.

    It has no producer: an aborted transaction is known by the batches after it.
    """

    magic = _MAGIC
    is_control_batch = False

    def __init__(self, batch: Any) -> None:
        self.base_offset = batch.base_offset
        # A batch of an older format has the offset of its last record, and no delta.
        self.last_offset = batch.last_offset if batch.magic >= _MAGIC else batch.base_offset
        self.next_offset = self.last_offset + 1
        self.leader_epoch = batch.leader_epoch if batch.magic >= _MAGIC else -1

    def validate_crc(self) -> bool:
        return True

    def has_producer_id(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())
