"""A confluent-kafka consumer for a group of the consumer protocol (KIP-848).

``python -m sandbox.workload.kip848_consumer SPEC``. It has the configuration, the events and the behavior of
`sandbox.workload.consumer`: it commits only processed records, after every batch and again for revoked
partitions, so a planned move neither loses nor repeats a record. It knows nothing of hints, only the name of
the broker's assignor.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenlag.kafka.connection import to_librdkafka
from sandbox.workload.consumer import BATCHES_PER_S, ConsumerSpec, runs_of
from sandbox.workload.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterable

_POLL_S = 0.1


class NewerWorker:
    """Consumes until it is stopped."""

    def __init__(self, spec: ConsumerSpec) -> None:
        self._spec = spec
        self._stopping = threading.Event()
        self._journal = Journal(Path(spec.log_file), spec.name)
        self._batch_size = max(1, round(spec.records_per_s / BATCHES_PER_S))
        # Fetched, not yet processed: offsets by partition.
        self._in_hand: dict[tuple[str, int], list[int]] = defaultdict(list)
        # Processed, not yet committed: the next offset by partition.
        self._to_commit: dict[tuple[str, int], int] = {}
        self._consumer: Any = None

    def stop(self) -> None:
        """Make `run` return after the current batch."""
        self._stopping.set()

    def run(self) -> None:
        """Consume until stopped, then leave the group cleanly."""
        self._journal.write("started", spec={"records_per_s": self._spec.records_per_s})
        self._consumer = self._connect()
        try:
            while not self._stopping.is_set():
                self._poll()
        finally:
            self._finish_batch()
            # Revokes all partitions first, as a rebalance would.
            self._consumer.close()
            self._journal.write("closed")
            self._journal.close()

    def _connect(self) -> Any:
        from confluent_kafka import Consumer

        spec = self._spec
        config = {
            **to_librdkafka(spec.client),
            "client.id": spec.name,
            "group.id": spec.group_id,
            "group.protocol": "consumer",
            "group.remote.assignor": spec.assignor,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **spec.extra,
        }
        if spec.instance_id is not None:
            config["group.instance.id"] = spec.instance_id
        consumer = Consumer(config)
        # The callbacks run in poll() and close(), on this thread.
        consumer.subscribe(
            list(spec.topics),
            on_assign=lambda _, given: self._log_partitions("assigned", given),
            on_revoke=lambda _, taken: self._give_up(taken),
            on_lost=lambda _, taken: self._lose(taken),
        )
        return consumer

    def _poll(self) -> None:
        message = self._consumer.poll(_POLL_S)
        if message is None:
            self._finish_batch()
            return
        error = message.error()
        if error is not None:
            self._journal.write("error", error=str(error))
            if error.fatal():
                raise RuntimeError(f"{self._spec.name} cannot go on: {error}")
            return
        self._in_hand[message.topic(), message.partition()].append(message.offset())
        if sum(map(len, self._in_hand.values())) >= self._batch_size:
            self._finish_batch()

    def _give_up(self, taken: Iterable[Any]) -> None:
        """Finish the current batch: afterwards another member may own the partitions."""
        self._finish_batch()
        self._log_partitions("revoked", taken)

    def _lose(self, taken: Iterable[Any]) -> None:
        for partition in taken:
            self._in_hand.pop((partition.topic, partition.partition), None)
            self._to_commit.pop((partition.topic, partition.partition), None)
        self._log_partitions("lost", taken)

    def _finish_batch(self) -> None:
        """Process the batch at the specified rate, log it as ranges of offsets, and commit."""
        in_hand, self._in_hand = self._in_hand, defaultdict(list)
        self._stopping.wait(sum(map(len, in_hand.values())) / self._spec.records_per_s)
        for (topic, partition), offsets in sorted(in_hand.items()):
            for first, last in runs_of(offsets):
                self._journal.write("processed", topic=topic, partition=partition, first=first, last=last)
            self._to_commit[topic, partition] = offsets[-1] + 1
        self._commit()

    def _commit(self) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        if not self._to_commit:
            return
        offsets = [TopicPartition(*place, offset) for place, offset in sorted(self._to_commit.items())]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # Partitions still owned are committed with the next batch or on revocation.
            self._journal.write("commit_failed", error=str(error))
            return
        pairs = [[topic, partition, offset] for (topic, partition), offset in sorted(self._to_commit.items())]
        self._journal.write("committed", offsets=pairs)
        self._to_commit.clear()

    def _log_partitions(self, event: str, partitions: Iterable[Any]) -> None:
        pairs = sorted([each.topic, each.partition] for each in partitions)
        self._journal.write(event, partitions=pairs)


def main(argv: list[str]) -> int:
    """Run one consumer from its specification file."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    worker = NewerWorker(ConsumerSpec.read(Path(argv[0])))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    worker.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
