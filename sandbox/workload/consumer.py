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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

from evenlag.consumer import HintedConsumer, ProcessedOffsets
from sandbox.kafka.topic_admin import DEFAULT_HINT_TOPIC
from sandbox.workload.journal import Journal
from sandbox.workload.kafka_python_rejoin_fix import finish_joins

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BATCHES_PER_S = 10
_KAFKA_ASSIGNORS = {"cooperative-sticky": CooperativeStickyAssignor, "range": RangePartitionAssignor}


@dataclass(frozen=True)
class ConsumerSpec:
    """Configuration of one consumer process.

    name: Name of the process in the logs; also its client id.
    client: Connection settings, as keyword arguments of kafka-python's clients. They include secrets: so
        the specification is in a file that only its owner can read, not on a command line.
    log_file: Path of its journal; several runs append to it.
    records_per_s: Its processing rate.
    instance_id: ``group.instance.id`` of a static member; None: a dynamic member.
    protocol: ``classic``, or ``consumer`` (KIP-848), which `sandbox.workload.kip848_consumer` runs.
    language: ``python``, or ``java`` for a classic consumer of Kafka's Java client
        (`sandbox.workload.java_consumer`).
    asks: Whether a consumer in Java asks for the rebalance of a hint; those in Python always do.
    assignor: ``evenlag``, or kafka-python's own ``range`` or ``cooperative-sticky`` for comparison.
    hint_topic, hint_key_hex: The hint topic, and the group's signing key.
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
    listener_delay_s: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the specification to a file that only its owner can read."""
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> ConsumerSpec:
        """Return the specification that `write` wrote."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**content, "topics": tuple(content["topics"])})


class Worker:
    """Consumes until it is stopped."""

    def __init__(self, spec: ConsumerSpec) -> None:
        self._spec = spec
        self._stopping = threading.Event()
        self._journal = Journal(Path(spec.log_file), spec.name)
        self._offsets = _LoggingOffsets(self)
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
                batches = self._consumer.poll(timeout_ms=200)
                generation = self._consumer.group_metadata().generation_id
                for tp, records in batches.items():
                    self._process(tp, [record.offset for record in records], generation)
                self._commit()
        finally:
            self._commit()
            self._consumer.close()
            self._journal.write("closed")
            self._journal.close()

    def log_partitions(self, event: str, partitions: Iterable[Any]) -> None:
        """Log assigned or revoked partitions with the generation, after the specified delay."""
        if self._spec.listener_delay_s:
            time.sleep(self._spec.listener_delay_s)  # on the I/O thread, as some real listeners do
        pairs = sorted([tp.topic, tp.partition] for tp in partitions)
        generation = self._consumer.group_metadata().generation_id
        self._journal.write(event, partitions=pairs, generation=generation)

    def log_committed(self, offsets: Mapping[Any, int]) -> None:
        """Log committed offsets."""
        if offsets:
            pairs = sorted([tp.topic, tp.partition, offset] for tp, offset in offsets.items())
            self._journal.write("committed", offsets=pairs)

    def log_failed_commit(self, error: KafkaError) -> None:
        """Log a failed commit."""
        self._journal.write("commit_failed", error=repr(error))

    def _log_led(self, generation: int, assigned: Mapping[str, Any]) -> None:
        """Log the assignment that this member computes as the group leader."""
        given = {
            # "<instance id or client id>-<uuid>"; both ids are the consumer's name here.
            member_id[: -len("-00000000-0000-0000-0000-000000000000")]: sorted(
                [tp.topic, tp.partition] for tp in assignment.partitions()
            )
            for member_id, assignment in assigned.items()
        }
        self._journal.write("led", generation=generation, given=given)

    def _connect(self) -> Any:
        spec = self._spec
        configs: dict[str, Any] = {
            **spec.client,
            "client_id": spec.name,
            "group_id": spec.group_id,
            "group_instance_id": spec.instance_id,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "allow_auto_create_topics": False,
            "heartbeat_interval_ms": spec.heartbeat_interval_ms,
            "session_timeout_ms": spec.session_timeout_ms,
            "max_poll_records": max(1, round(spec.records_per_s / BATCHES_PER_S)),
            **spec.extra,
        }
        if spec.assignor == "evenlag":
            consumer = HintedConsumer(
                *spec.topics,
                listener=self._offsets,
                hint_topic=spec.hint_topic,
                hint_key=bytes.fromhex(spec.hint_key_hex) if spec.hint_key_hex else None,
                on_hint_event=lambda event: self._journal.write(
                    "hint", reason=event.reason, plan_id=event.plan_id, detail=event.detail
                ),
                **configs,
            )
            assign = consumer.hint_assignor.assign

            def assign_and_log(cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
                assigned = assign(cluster, members)
                self._log_led(consumer.group_metadata().generation_id, assigned)
                return assigned

            consumer.hint_assignor.assign = assign_and_log  # type: ignore[method-assign]  # for the journal
            return consumer
        strategy = [_KAFKA_ASSIGNORS[spec.assignor]]
        consumer = finish_joins(KafkaConsumer(partition_assignment_strategy=strategy, **configs))
        self._offsets.attach(consumer)
        consumer.subscribe(topics=spec.topics, listener=self._offsets)
        return consumer

    def _process(self, tp: Any, offsets: list[int], generation: int) -> None:
        """Process one batch at the specified rate, then log it as ranges of offsets."""
        self._stopping.wait(len(offsets) / self._spec.records_per_s)
        for first, last in runs_of(offsets):
            self._journal.write(
                "processed",
                topic=tp.topic,
                partition=tp.partition,
                first=first,
                last=last,
                generation=generation,
            )
        self._offsets.processed_to(tp, offsets[-1] + 1)

    def _commit(self) -> None:
        try:
            self.log_committed(self._offsets.commit())
        except KafkaError as error:
            # The group rebalances: partitions still owned are committed with the next batch or on revocation.
            self.log_failed_commit(error)


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
        self._worker.log_committed(offsets)

    def not_committed(self, offsets: Mapping[Any, int], error: KafkaError) -> None:  # noqa: ARG002  # as there
        self._worker.log_failed_commit(error)


def runs_of(offsets: Iterable[int]) -> Iterable[tuple[int, int]]:
    """Return consecutive offsets as (first, last)."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs


def main(argv: list[str]) -> int:
    """Run one consumer from its specification file."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    worker = Worker(ConsumerSpec.read(Path(argv[0])))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    worker.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
