"""Many small consumer groups on one broker, a thread a member: what a cycle sees at once."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from kafka import KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError, KafkaError, RebalanceInProgressError
from kafka.structs import OffsetAndMetadata

from tests.support.kafka_python_rejoin_fix import finish_joins
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class EvenlagByName(RangePartitionAssignor):  # type: ignore[misc]  # kafka-python ships no types
    """Deals as `range` does, so that owners are known beforehand, under the name that hints ask for."""

    name = "evenlag"


@dataclass(frozen=True)
class GroupSpec:
    """A group: what its two members take, with which assignor, and their instance ids (none: dynamic)."""

    topics: Sequence[str]
    assignor: Any = EvenlagByName
    instances: Sequence[str | None] = (None, None)


@dataclass
class ManyGroups:
    """Groups of two consumers each, that hold partitions and process nothing."""

    bootstrap_servers: str
    specs: Mapping[str, GroupSpec]
    _consumers: dict[str, list[Any]] = field(default_factory=dict)
    _locks: dict[int, threading.Lock] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        for name, spec in self.specs.items():
            self._consumers[name] = [self._consumer(name, spec, instance) for instance in spec.instances]
            for member in self._consumers[name]:
                self._locks[id(member)] = threading.Lock()
                thread = threading.Thread(target=self._poll, args=(member,), daemon=True)
                thread.start()
                self._threads.append(thread)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        for consumers in self._consumers.values():
            for consumer in consumers:
                consumer.close(timeout_ms=1000)

    def wait_until_owned(self) -> None:
        """Wait until both members of each group hold something."""

        def waiting() -> list[str]:
            members = self._consumers
            return [name for name in self.specs if not all(m.assignment() for m in members[name])]

        wait_until(lambda: not waiting(), what=lambda: f"not settled: {waiting()}", progress=waiting)

    def commit(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets by (topic, partition), each by its owner, and again while the group rebalances."""
        left = {TopicPartition(*key): OffsetAndMetadata(offset, "", -1) for key, offset in offsets.items()}

        def is_done() -> bool:
            for member in self._consumers[name]:
                with self._locks[id(member)], suppress(CommitFailedError, RebalanceInProgressError):
                    held = {tp: left[tp] for tp in member.assignment() if tp in left}
                    if held:
                        member.commit(held)
                    for partition in held:
                        del left[partition]
            return not left

        wait_until(is_done, what=lambda: f"not committed by {name}: {left}")

    def held(self, name: str) -> list[set[TopicPartition]]:
        """What each member holds."""
        return [set(member.assignment()) for member in self._consumers[name]]

    def _consumer(self, name: str, spec: GroupSpec, instance: str | None) -> Any:
        consumer = KafkaConsumer(
            *spec.topics,
            group_id=name,
            group_instance_id=instance,
            bootstrap_servers=self.bootstrap_servers,
            partition_assignment_strategy=[spec.assignor],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            heartbeat_interval_ms=2_000,
            session_timeout_ms=300_000,
            max_poll_records=1,
        )
        return finish_joins(consumer)

    def _poll(self, member: Any) -> None:
        while not self._stopping.is_set():
            # poll() fails while a broker is away; with its thread the member would leave its group.
            with self._locks[id(member)], suppress(KafkaError):
                member.poll(timeout_ms=1_000)
                member.pause(*member.assignment())
            # Whoever waits for the lock gets its turn.
            time.sleep(0.02)
