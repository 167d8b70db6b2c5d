"""Changes to one consumer's fetcher: compressed batches are skipped before they are decompressed.

kafka-python decompresses a batch as a whole: a batch of 300 kB can become 300 MB. A fetcher looks up its
class of fetched records on itself, so one consumer can have another. Read against 3.0.1 to 3.0.12;
``tests/evenlag/consumer/test_kafka_contract.py`` fails when a name no longer exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.consumer.fetcher import Fetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAGIC = 2


def skip_compressed(consumer: Any, on_skip: Callable[[int], None]) -> None:
    """Make a consumer skip compressed batches, with bounded memory.

    Parameters
    ----------
    consumer
        The `KafkaConsumer`.
    on_skip
        Called with the offset of each skipped batch, from within ``poll()``.
    """

    class PlainRecords(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python ships no types
        def _unpack_records(self, tp: Any, records: Any, *args: Any, **kwargs: Any) -> Any:
            return super()._unpack_records(tp, _PlainBatches(records, on_skip), *args, **kwargs)

    consumer._fetcher.PartitionRecords = PlainRecords  # noqa: SLF001  # the purpose of this module


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
