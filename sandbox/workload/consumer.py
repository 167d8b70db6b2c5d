"""A consumer with a limited speed that logs all it does: ``python -m sandbox.workload.consumer SPEC.json``.

It commits only processed records, after every batch and again for revoked partitions, so a planned move
neither loses nor repeats a record. SIGTERM ends it cleanly.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError, UnknownBrokerIdError

from evenlag.consumer import HintedConsumer, ProcessedOffsets
from sandbox.kafka.topic_admin import DEFAULT_HINT_TOPIC
from sandbox.workload.journal import Journal

BATCHES_PER_S = 10


@dataclass(frozen=True)
class ConsumerSpec:
    """Configuration of one consumer process.

    name: Name of the process in the logs; also its client id.
    client: Settings of kafka-python's clients. They include secrets: so the specification is in a file that
        only its owner can read, not on a command line.
    instance_id: ``group.instance.id`` of a static member; None: a dynamic member.
    protocol: ``classic``, or ``consumer`` (KIP-848), which `sandbox.workload.kip848_consumer` runs.
    language: ``python``, or ``java`` for a classic consumer of Kafka's Java client
        (`sandbox.workload.java_consumer`).
    asks: Whether a consumer in Java asks for the rebalance of a hint; those in Python always do.
    assignor: ``evenlag``, or another one that the consumer's module knows.
    is_sync: Whether its rebalance listener is to be synchronous, where the consumer's module knows one.
    listener_delay_s: How long its rebalance listener blocks at each assignment and revocation.
    """

    name: str
    client: Mapping[str, Any]
    topics: tuple[str, ...]
    group_id: str
    log_file: str
    records_per_s: float = 500.0
    instance_id: str | None = None
    protocol: str = "classic"
    language: str = "python"
    asks: bool = True
    assignor: str = "evenlag"
    hint_topic: str = DEFAULT_HINT_TOPIC
    hint_key_hex: str | None = None
    heartbeat_interval_ms: int = 500
    # A process that gets no turn for seconds on a busy machine is no dead member.
    session_timeout_ms: int = 20_000
    is_sync: bool = False
    listener_delay_s: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def configs(self) -> dict[str, Any]:
        """Return the settings of kafka-python's consumer."""
        return {
            **self.client,
            "client_id": self.name,
            "group_id": self.group_id,
            "group_instance_id": self.instance_id,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "allow_auto_create_topics": False,
            "heartbeat_interval_ms": self.heartbeat_interval_ms,
            "session_timeout_ms": self.session_timeout_ms,
            "max_poll_records": max(1, round(self.records_per_s / BATCHES_PER_S)),
            **self.extra,
        }

    def write(self, path: Path, **more: Any) -> None:
        """Write the specification, and more fields, to a file that only its owner can read."""
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self) | more, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> ConsumerSpec:
        """Return the specification that `write` wrote."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**content, "topics": tuple(content["topics"])})


class Worker:
    """Consumes until it is stopped."""

    def __init__(self, spec: ConsumerSpec) -> None:
        self.spec = spec
        self.stopping = threading.Event()
        self.journal = Journal(Path(spec.log_file), spec.name)
        self.offsets = _LoggingOffsets(self)
        self.consumer: Any = None

    def run(self) -> None:
        """Consume until stopped, then leave the group cleanly."""
        self.journal.write("started", spec={"records_per_s": self.spec.records_per_s})
        self.consumer = self.connect()
        try:
            while not self.stopping.is_set():
                self.poll()
        finally:
            self.commit()
            self.consumer.close()
            self.journal.write("closed")
            self.journal.close()

    def connect(self) -> Any:
        """Return the consumer, which is to call `offsets` at each rebalance."""
        spec = self.spec
        return HintedConsumer(
            *spec.topics,
            listener=self.offsets,
            hint_topic=spec.hint_topic,
            hint_key=bytes.fromhex(spec.hint_key_hex) if spec.hint_key_hex else None,
            on_hint_event=lambda event: self.journal.write(
                "hint", reason=event.reason, plan_id=event.plan_id, detail=event.detail
            ),
            **spec.configs(),
        )

    def poll(self) -> None:
        """Process what one request returns at the specified rate, and commit it."""
        try:
            batches = self.consumer.poll(timeout_ms=200)
        except UnknownBrokerIdError as error:
            # A leader has just left the metadata; kafka-python would not fetch from it again.
            self.journal.write("error", error=repr(error))
            self.consumer.close()
            self.new_offsets()
            self.consumer = self.connect()
            return
        generation = self.consumer.group_metadata().generation_id
        for tp, records in batches.items():
            offsets = [record.offset for record in records]
            self.stopping.wait(len(offsets) / self.spec.records_per_s)
            self.log_processed(tp.topic, tp.partition, offsets, generation=generation)
            self.offsets.processed_to(tp, offsets[-1] + 1)
        self.commit()

    def new_offsets(self) -> None:
        """Forget what is processed and not committed."""
        self.offsets = _LoggingOffsets(self)
        self.offsets.attach(self.consumer)

    def commit(self) -> None:
        """Commit what is processed."""
        try:
            self.log_committed({tuple(tp): offset for tp, offset in self.offsets.commit().items()})
        except KafkaError as error:
            # The group rebalances: partitions still owned are committed with the next batch or on revocation.
            self.journal.write("commit_failed", error=repr(error))

    def log_partitions(self, event: str, partitions: Iterable[Any]) -> None:
        """Log assigned or revoked partitions with the generation, after the specified delay."""
        if self.spec.listener_delay_s:
            time.sleep(self.spec.listener_delay_s)  # on the I/O thread, as some real listeners do
        pairs = sorted([tp.topic, tp.partition] for tp in partitions)
        generation = self.consumer.group_metadata().generation_id
        self.journal.write(event, partitions=pairs, generation=generation)

    def log_processed(self, topic: str, partition: int, offsets: Iterable[int], **fields: Any) -> None:
        """Log processed records as ranges of offsets."""
        for first, last in _runs_of(offsets):
            self.journal.write(
                "processed", topic=topic, partition=partition, first=first, last=last, **fields
            )

    def log_committed(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Log committed offsets by partition."""
        if offsets:
            listed = sorted([topic, partition, offset] for (topic, partition), offset in offsets.items())
            self.journal.write("committed", offsets=listed)


class _LoggingOffsets(ProcessedOffsets):
    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker

    async def on_partitions_assigned(self, assigned: Any) -> None:
        await super().on_partitions_assigned(assigned)
        self._worker.log_partitions("assigned", assigned)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await super().on_partitions_revoked(revoked)
        self._worker.log_partitions("revoked", revoked)

    async def on_partitions_lost(self, lost: Any) -> None:
        await super().on_partitions_lost(lost)
        self._worker.log_partitions("lost", lost)

    def committed(self, offsets: Mapping[Any, int]) -> None:
        self._worker.log_committed({tuple(tp): offset for tp, offset in offsets.items()})

    def not_committed(self, offsets: Mapping[Any, int], error: KafkaError) -> None:  # noqa: ARG002  # as there
        self._worker.journal.write("commit_failed", error=repr(error))


def _runs_of(offsets: Iterable[int]) -> Iterable[tuple[int, int]]:
    """Return consecutive offsets as (first, last)."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs


def main(kind: type[Worker] = Worker) -> None:
    """Run one consumer from the specification file that the command line names, until SIGTERM."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    worker = kind(ConsumerSpec.read(Path(sys.argv[1])))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stopping.set())
    worker.run()


if __name__ == "__main__":
    main()
