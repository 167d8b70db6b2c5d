"""The workload's consumer as tests need it: ``python -m tests.support.workload_consumer SPEC.json``.

It also logs what it computes as the leader, and knows kafka-python's own assignors, ``range`` and
``cooperative-sticky``, auto-commit and synchronous listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from sandbox.workload.consumer import Worker, main
from tests.support.kafka_python_rejoin_fix import finish_joins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_KAFKA_ASSIGNORS = {"cooperative-sticky": CooperativeStickyAssignor, "range": RangePartitionAssignor}


class LeaderLoggingWorker(Worker):
    """A consumer that logs its assignments."""

    def connect(self) -> Any:
        """Return a consumer with the assignor of the specification."""
        spec = self.spec
        if spec.assignor == "evenlag":
            return self._connect_hinted()
        strategy = [_KAFKA_ASSIGNORS[spec.assignor]]
        consumer = finish_joins(KafkaConsumer(partition_assignment_strategy=strategy, **spec.configs()))
        self.offsets.attach(consumer)
        consumer.subscribe(topics=spec.topics, listener=self.offsets)
        return consumer

    def _connect_hinted(self) -> Any:
        consumer = super().connect()
        if self.spec.extra.get("enable_auto_commit"):
            # Without processed offsets it commits nothing itself.
            self.offsets.processed_to = lambda _tp, _offset: None  # type: ignore[assignment,method-assign]
        if self.spec.is_sync:
            consumer.subscribe(topics=self.spec.topics, listener=_SyncListener(self))
        assign = consumer.hint_assignor.assign

        def assign_and_log(cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
            assigned: dict[str, Any] = assign(cluster, members)
            # After a loss the group's metadata show the former membership until an assignment arrives.
            self._log_led(consumer._coordinator._generation.generation_id, assigned)
            return assigned

        consumer.hint_assignor.assign = assign_and_log
        return consumer

    def _log_led(self, generation: int, assigned: Mapping[str, Any]) -> None:
        given = {
            # "<instance id or client id>-<uuid>"; both ids are the consumer's name here.
            member_id[: -len("-00000000-0000-0000-0000-000000000000")]: sorted(
                [tp.topic, tp.partition] for tp in assignment.partitions()
            )
            for member_id, assignment in assigned.items()
        }
        self.journal.write("led", generation=generation, given=given)


class _SyncListener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python ships no types
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._worker.log_partitions("assigned", assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._worker.log_partitions("revoked", revoked)

    def on_partitions_lost(self, lost: Any) -> None:
        # All are. What it has processed of them is not to be committed when it gets them back.
        self._worker.new_offsets()
        self._worker.log_partitions("lost", lost)


if __name__ == "__main__":
    main(LeaderLoggingWorker)
