"""The example loses and repeats nothing on planned moves, and cleans up only what really left."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from kafka import TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor

from evenlag.consumer import ProcessedOffsets
from evenlag.enums import GroupType
from evenlag.kafka.live_groups import read_live_groups
from examples.consume import consume
from tests.support.hints import Cluster, Runner, is_settled
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox.kafka.broker import Broker

pytestmark = pytest.mark.broker
NUM_PARTITIONS = 6


@pytest.fixture
def cluster(broker: Broker, unique: Callable[[str], str]) -> Iterator[Cluster]:
    with Cluster(
        broker,
        group_id=unique("group"),
        topics={unique("orders"): NUM_PARTITIONS},
        hint_topic=unique("hints"),
    ) as made:
        yield made


def test_the_example_handles_every_record_once_while_hints_move_its_partitions(cluster: Cluster) -> None:
    topic = next(iter(cluster.topics))
    handled: list[tuple[str, int, int]] = []

    def handle(who: str, record: Any) -> None:
        time.sleep(0.002)
        handled.append((who, record.partition, record.offset))

    def is_placed(parts: list[list[int]]) -> bool:
        live = read_live_groups(cluster.admin, {cluster.group_id: GroupType.CLASSIC})[cluster.group_id]
        held = {key: sorted(n for numbers in by.values() for n in numbers) for key, by in live.held.items()}
        return held == {f"i:pod-{index}": numbers for index, numbers in enumerate(parts)}

    with ExitStack() as stack:
        for name in ("pod-0", "pod-1"):
            stopping = threading.Event()
            thread = threading.Thread(
                target=consume,
                args=(lambda record, name=name: handle(name, record), stopping, topic),
                kwargs={
                    "group_id": cluster.group_id,
                    "bootstrap_servers": cluster.bootstrap_servers,
                    "hint_topic": cluster.hint_topic,
                    "group_instance_id": name,
                    "auto_offset_reset": "earliest",
                    "heartbeat_interval_ms": 300,
                    "session_timeout_ms": 300_000,
                    "max_poll_records": 20,
                },
                daemon=True,
            )
            thread.start()
            stack.callback(thread.join, 600)
            stack.callback(stopping.set)
        num_sent = 0

        def send(count: int) -> int:
            for number in range(count):
                cluster.producer.send(topic, b"x", partition=number % NUM_PARTITIONS)
            cluster.producer.flush()
            return count

        for parts in ([[0], [1, 2, 3, 4, 5]], [[0, 1, 2, 3, 4], [5]], [[4, 5], [0, 1, 2, 3]]):
            num_sent += send(900)  # more than is handled until the partitions move
            placement = {f"i:pod-{i}": {topic: numbers} for i, numbers in enumerate(parts)}
            cluster.publish(cluster.payload(placement))
            wait_until(lambda wanted=parts: is_placed(wanted))  # type: ignore[misc]
            num_sent += send(60)
            wait_until(lambda wanted=num_sent: len(handled) >= wanted)  # type: ignore[misc]
        # What is handled twice is handled before these.
        num_sent += send(NUM_PARTITIONS)
        wait_until(lambda: len({(partition, offset) for _, partition, offset in handled}) == num_sent)
    counts = Counter((partition, offset) for _, partition, offset in handled)
    assert len(counts) == num_sent, "nothing is lost"
    assert not [place for place, times in counts.items() if times > 1], "nothing is repeated"
    assert len({who for who, partition, _ in handled if partition == 1}) > 1, "and partitions did move"


def test_state_is_cleaned_up_when_a_partition_is_anothers_and_not_before(cluster: Cluster) -> None:
    gained: list[Any] = []
    left: list[Any] = []

    def listener() -> ProcessedOffsets:
        return ProcessedOffsets(on_gained=gained.extend, on_left=left.extend)

    with ExitStack() as stack:

        def start(**configs: Any) -> Runner:
            runner = Runner(cluster, **configs)
            stack.callback(runner.close)
            return runner

        # Range has everything revoked in each rebalance, and given back for the most part.
        both = {"partition_assignment_strategy": [RangePartitionAssignor]}
        plain = start(plain=[RangePartitionAssignor])
        first = start(listener=listener(), **both)
        wait_until(lambda: is_settled([plain, first], NUM_PARTITIONS) and len(first.held) == 3)
        wait_until(lambda: len(gained) == 3)
        second = start(**both)
        trio = [plain, first, second]
        wait_until(lambda: is_settled(trio, NUM_PARTITIONS) and all(len(r.held) == 2 for r in trio))
        wait_until(lambda: left)
        wait_until(lambda: {tuple(tp) for tp in gained} - {tuple(tp) for tp in left} == first.held)
        assert len(gained) - len(left) == 2


def test_what_was_in_hand_at_a_loss_is_not_committed_when_the_partition_comes_back() -> None:
    place = TopicPartition("orders", 0)

    class Member:
        """Owns the partition, whatever its listener was told."""

        def assignment(self) -> set[Any]:
            return {place}

        def commit(self, offsets: dict[Any, Any], *, timeout_ms: int) -> None:
            assert timeout_ms > 0
            committed.append({tp: entry.offset for tp, entry in offsets.items()})

    committed: list[dict[Any, int]] = []
    offsets = ProcessedOffsets()
    offsets.attach(Member())
    asyncio.run(offsets.on_partitions_assigned({place}))
    offsets.processed_to(place, 5)
    asyncio.run(offsets.on_partitions_lost({place}))
    offsets.processed_to(place, 8)
    # Meanwhile another member has committed 20, from where this one goes on.
    asyncio.run(offsets.on_partitions_assigned({place}))
    assert offsets.commit() == {}
    offsets.processed_to(place, 25)
    assert offsets.commit() == {place: 25}
    assert committed == [{place: 25}]
