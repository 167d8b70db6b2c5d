"""A consumer that follows hints and neither loses nor repeats a record on a planned move.

``python -m examples.consume BROKERS TOPIC GROUP [INSTANCE_ID]`` prints topic, partition and offset of each
record. Start it several times with the same group. Ctrl-C or SIGTERM stops it cleanly.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from kafka.errors import KafkaError

from evenlag.consumer import ProcessedOffsets, hinted_consumer

if TYPE_CHECKING:
    from collections.abc import Callable


def consume(
    handle: Callable[[Any], None], stopping: threading.Event, *topics: str, group_id: str, **configs: Any
) -> None:
    """Handle records until `stopping` is set. Commits handled records only.

    Parameters
    ----------
    handle
        Handles one `ConsumerRecord`. An exception ends the consumer, and the record is not committed.
    stopping
        Set it to stop.
    topics, group_id, **configs
        As in `hinted_consumer`.
    """
    offsets = ProcessedOffsets()
    consumer = hinted_consumer(
        *topics, group_id=group_id, listener=offsets, enable_auto_commit=False, **configs
    )
    try:
        while not stopping.is_set():
            for records in consumer.poll(timeout_ms=500).values():
                for record in records:
                    handle(record)
                    offsets.processed(record)
            try:
                offsets.commit()
            except KafkaError:
                # A rebalance, or no coordinator: committed with the next batch, or at the revocation.
                continue
    finally:
        consumer.close()  # revokes owned partitions, and so commits


def main(argv: list[str]) -> int:
    """Print topic, partition and offset of each record."""
    brokers, topic, group_id, *instance_id = argv
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    consume(
        lambda record: print(record.topic, record.partition, record.offset, flush=True),  # noqa: T201
        stopping,
        topic,
        group_id=group_id,
        bootstrap_servers=brokers,
        group_instance_id=instance_id[0] if instance_id else None,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=500,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
