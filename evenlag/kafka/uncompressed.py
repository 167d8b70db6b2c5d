"""A consumer that never decompresses: record batches that are compressed have no records for it.

A batch of 300 kB can expand to a gigabyte, and kafka-python decompresses a batch before its caller sees
anything of it. Its parser of fetched data is replaced by one that knows a compressed batch by its header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAGIC_WITH_HEADER = 2


def skip_compressed(consumer: Any, on_skip: Callable[[int, int], None]) -> None:
    """Let a consumer pass over compressed batches.

    Parameters
    ----------
    consumer
        A ``KafkaConsumer`` that has not polled yet.
    on_skip
        Called with partition and offset of each batch that is passed over.

    Raises
    ------
    UnsupportedCodecError
        From ``poll``, for a compressed batch in a format before Kafka 0.11: it has no such header.
    """
    from kafka.errors import UnsupportedCodecError
    from kafka.record.default_records import DefaultRecordBatch

    # kafka-python has no public hook before decompression.
    fetcher = consumer._fetcher  # noqa: SLF001

    class SkippedBatch(DefaultRecordBatch):  # type: ignore[misc]  # kafka-python has no types
        """The header of a batch, without its records. Clients cannot write control batches."""

        is_control_batch = False

        def __iter__(self) -> Iterator[Any]:
            return iter(())

    class Batches:
        """The batches of fetched data."""

        def __init__(self, records: Any, partition: int) -> None:
            self._records, self._partition = records, partition

        def next_batch(self) -> Any:
            batch = self._records.next_batch()
            if batch is None or not batch.compression_type:
                return batch
            if batch.magic != _MAGIC_WITH_HEADER:
                raise UnsupportedCodecError("compressed messages in a format before Kafka 0.11")
            on_skip(self._partition, batch.base_offset)
            return SkippedBatch(batch._buffer)  # noqa: SLF001 - as above

    class PartitionRecords(fetcher.PartitionRecords):  # type: ignore[misc,name-defined]
        def _unpack_records(self, tp: Any, records: Any, *deserializers: Any) -> Any:
            return super()._unpack_records(tp, Batches(records, tp.partition), *deserializers)

    fetcher.PartitionRecords = PartitionRecords
