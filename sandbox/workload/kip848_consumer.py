"""A confluent-kafka consumer for a group of the consumer protocol (KIP-848).

``python -m sandbox.workload.kip848_consumer SPEC``. It has the configuration, the events and the behavior of
`sandbox.workload.consumer`: it commits only processed records, after every batch and again for revoked
partitions, so a planned move neither loses nor repeats a record. It knows nothing of hints, only the name of
the broker's assignor.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from evenlag.kafka.connection import to_librdkafka
from sandbox.workload.consumer import BATCHES_PER_S, ConsumerSpec, Worker, main

_POLL_S = 0.1


class NewerWorker(Worker):
    """Consumes until it is stopped."""

    def __init__(self, spec: ConsumerSpec) -> None:
        super().__init__(spec)
        self._batch_size = max(1, round(spec.records_per_s / BATCHES_PER_S))
        # Fetched, not yet processed: offsets by partition.
        self._in_hand: dict[tuple[str, int], list[int]] = defaultdict(list)
        # Processed, not yet committed: the next offset by partition.
        self._to_commit: dict[tuple[str, int], int] = {}

    def connect(self) -> Any:
        """Return the consumer."""
        from confluent_kafka import Consumer

        spec = self.spec
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
            on_assign=lambda _, given: self.log_partitions("assigned", given),
            on_revoke=lambda _, taken: self._give_up(taken),
            on_lost=lambda _, taken: self._lose(taken),
        )
        return consumer

    def poll(self) -> None:
        """Take one record; process and commit a batch that is whole, or waits for more."""
        message = self.consumer.poll(_POLL_S)
        if message is None:
            self.commit()
            return
        error = message.error()
        if error is not None:
            self.journal.write("error", error=str(error))
            if error.fatal():
                raise RuntimeError(f"{self.spec.name} cannot go on: {error}")
            return
        self._in_hand[message.topic(), message.partition()].append(message.offset())
        if sum(map(len, self._in_hand.values())) >= self._batch_size:
            self.commit()

    def _give_up(self, taken: Iterable[Any]) -> None:
        """Finish the current batch: afterwards another member may own the partitions."""
        self.commit()
        self.log_partitions("revoked", taken)

    def _lose(self, taken: Iterable[Any]) -> None:
        for partition in taken:
            self._in_hand.pop((partition.topic, partition.partition), None)
            self._to_commit.pop((partition.topic, partition.partition), None)
        self.log_partitions("lost", taken)

    def commit(self) -> None:
        """Process the batch at the specified rate, log it, and commit."""
        from confluent_kafka import KafkaException, TopicPartition

        in_hand, self._in_hand = self._in_hand, defaultdict(list)
        self.stopping.wait(sum(map(len, in_hand.values())) / self.spec.records_per_s)
        for place, offsets in sorted(in_hand.items()):
            self.log_processed(*place, offsets)
            self._to_commit[place] = offsets[-1] + 1
        if not self._to_commit:
            return
        listed = [TopicPartition(*place, offset) for place, offset in sorted(self._to_commit.items())]
        try:
            self.consumer.commit(offsets=listed, asynchronous=False)
        except KafkaException as error:
            # Partitions still owned are committed with the next batch or on revocation.
            self.journal.write("commit_failed", error=str(error))
            return
        self.log_committed(self._to_commit)
        self._to_commit.clear()

    def log_partitions(self, event: str, partitions: Iterable[Any]) -> None:
        """Log assigned or revoked partitions: no generation is known."""
        pairs = sorted([each.topic, each.partition] for each in partitions)
        self.journal.write(event, partitions=pairs)


if __name__ == "__main__":
    main(NewerWorker)
