"""The lag of groups as other people make them, on a real broker; some beside what their clients read."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.structs import OffsetAndMetadata

from evenlag.cli.cluster_target import find_target
from evenlag.kafka.connection import admin_client
from evenlag.lag.group_lag import GroupLag, measure_lag
from evenlag.live_lag.answer import list_groups, preview_plans
from evenlag.live_lag.snapshot import LiveReader, policy_target
from tests.support.brokers import settings_of
from tests.support.commits import commit_offsets
from tests.support.hints import now_ms
from tests.support.raw_member import RawMember
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from evenlag.live_lag.snapshot import LiveSnapshot, ReadTarget
    from sandbox.kafka.broker import Broker

pytestmark = pytest.mark.broker

MINUTE_MS = 60_000
NUM_RECORDS = 10


def read_target(broker: Broker, reset_policy: str | None = None) -> ReadTarget:
    found = find_target(broker.bootstrap_servers, None, None, reset_policy=reset_policy)
    return policy_target(found.loaded.policy, found.name, is_named=True)


@dataclass
class Scene:
    """A broker, a client, and what ends with the test."""

    broker: Broker
    admin: Any
    unique: Callable[[str], str]
    stack: ExitStack

    def topic(self, name: str, *ages_min: float, partitions: int = 1) -> str:
        """Create a topic with a record of each age in its first partition."""
        topic = self.unique(name)
        self.admin.create_topics({topic: {"num_partitions": partitions}}, wait_for_metadata=True)
        # One record in a batch: the broker finds records by the times of their batches.
        producer = KafkaProducer(bootstrap_servers=self.broker.bootstrap_servers, batch_size=0)
        for age in ages_min:
            at = now_ms() - round(age * MINUTE_MS)
            producer.send(topic, b"x", partition=0, timestamp_ms=at).get(600)
        producer.close()
        return topic

    def commit(self, group_id: str, offsets: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """Commit (offset, leader epoch) by topic and partition."""
        wanted = {
            TopicPartition(*place): OffsetAndMetadata(at, "", epoch) for place, (at, epoch) in offsets.items()
        }
        commit_offsets(self.admin, group_id, wanted)

    def member(self, group_id: str, *topics: str) -> RawMember:
        servers = self.broker.bootstrap_servers
        return self.stack.enter_context(
            RawMember(servers, group_id, topics=topics, session_timeout_ms=600_000)
        )

    def read(self, group_id: str, reset: str | None = None) -> tuple[LiveSnapshot, GroupLag]:
        target = read_target(self.broker, reset)
        snapshot = LiveReader(self.admin, target).read(group_id)
        return snapshot, measure_lag(snapshot.lag, snapshot.members)[group_id]


@pytest.fixture
def scene(broker: Broker, unique: Callable[[str], str]) -> Iterator[Scene]:
    with admin_client(settings_of(broker)) as admin, ExitStack() as stack:
        yield Scene(broker, admin, unique, stack)


def rows_of(snapshot: LiveSnapshot, *names: str) -> dict[tuple[str, int], tuple[Any, ...]]:
    rows = snapshot.lag.to_pylist()
    return {(row["topic"], row["partition"]): tuple(row[name] for name in names) for row in rows}


def test_a_log_that_retention_emptied_and_one_without_records_have_no_lag(scene: Scene) -> None:
    topic, group = scene.topic("emptied", *range(NUM_RECORDS), partitions=2), scene.unique("g")
    scene.commit(group, {(topic, 0): (3, -1)})
    scene.admin.delete_records({TopicPartition(topic, 0): NUM_RECORDS})
    member = scene.member(group, topic)
    member.join()
    member.sync([(topic, [0, 1])])
    snapshot, lag = scene.read(group)
    assert rows_of(snapshot, "status", "lag_records", "time_lag_ms") == {
        (topic, 0): ("DATA_LOSS", 0, 0),
        (topic, 1): ("NO_COMMIT", 0, 0),
    }
    assert (lag.total_lag_records, lag.lag_bound, lag.time_lag_ms) == (0, None, 0)
    settings = read_target(scene.broker).settings_of
    assert preview_plans(snapshot, [group], settings)[group].blocker is None


def read_by(client: str, servers: str, group: str, topic: str) -> int:
    """Number of records that a client reads which begins at the group's commit."""
    if client == "kafka-python":
        consumer = KafkaConsumer(
            bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )
        consumer.assign([TopicPartition(topic, 0)])
        found: list[Any] = []

        def polled() -> bool:
            found.extend(chain(*consumer.poll(500).values()))
            return len(found) >= NUM_RECORDS

        wait_until(polled)
        consumer.close()
        return len(found)
    other = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    other.assign([confluent_kafka.TopicPartition(topic, 0)])
    read: list[Any] = []

    def consumed() -> bool:
        read.extend(other.consume(100, timeout=1))
        return len(read) >= NUM_RECORDS

    wait_until(consumed)
    other.close()
    return len(read)


def test_a_commit_beyond_the_log_is_reset_as_clients_reset_it(scene: Scene) -> None:
    topic, group = scene.topic("short", *range(NUM_RECORDS)), scene.unique("mirrored")
    scene.commit(group, {(topic, 0): (100, -1)})
    for reset, message in (
        ("earliest", ("NO_MEMBERS", NUM_RECORDS, None)),
        ("latest", ("NO_MEMBERS", 0, None)),
        (None, ("UNKNOWN", None, None)),
    ):
        snapshot, _ = scene.read(group, reset)
        (row,) = rows_of(snapshot, "status", "lag_records", "lag_bound").values()
        assert row[1:] == message[1:]
    for client in ("kafka-python", "confluent-kafka"):
        assert read_by(client, scene.broker.bootstrap_servers, group, topic) == NUM_RECORDS
    scene.commit(group, {(topic, 0): (100, 0)})
    snapshot, lag = scene.read(group, "earliest")
    assert rows_of(snapshot, "lag_records", "lag_bound") == {(topic, 0): (0, "LOWER")}
    assert (lag.num_unknown_partitions, lag.lag_bound) == (1, "LOWER")


def test_a_topic_that_a_group_left_is_beside_its_totals(scene: Scene) -> None:
    old, new = scene.topic("old", *range(90, 0, -1)), scene.topic("new", 3, 2, 1)
    group = scene.unique("left")
    scene.commit(group, {(old, 0): (0, -1), (new, 0): (2, -1)})
    member = scene.member(group, new)
    member.join()
    member.sync([(new, [0])])
    snapshot, lag = scene.read(group)
    assert rows_of(snapshot, "status", "lag_records", "owner_member_id") == {
        (old, 0): ("NOT_SUBSCRIBED", 90, None),
        (new, 0): ("OK", 1, member.member_id),
    }
    assert (lag.total_lag_records, lag.num_partitions) == (1, 1)
    assert (lag.num_not_subscribed_partitions, lag.not_subscribed_lag_records) == (1, 90)
    assert lag.time_lag_ms is not None
    assert lag.time_lag_ms < 5 * MINUTE_MS


def test_a_group_that_rebalances_has_its_lag_and_no_plan(scene: Scene) -> None:
    topic, group = scene.topic("moving", *range(NUM_RECORDS)), scene.unique("moving")
    scene.commit(group, {(topic, 0): (4, -1)})
    # It has joined, and its leader assigns nothing yet.
    scene.member(group, topic).join()
    snapshot, lag = scene.read(group)
    assert lag.total_lag_records == NUM_RECORDS - 4
    assert None not in {lag.subscription_problem, lag.owner_problem}
    assert lag.commit_problem is None
    (row,) = list_groups(snapshot)
    assert (row["lag_records"], row["max_member_lag_records"]) == (NUM_RECORDS - 4, None)
    settings = read_target(scene.broker).settings_of
    assert preview_plans(snapshot, [group], settings)[group].blocker is not None


def test_two_owners_of_a_partition_are_named_and_get_no_plan(scene: Scene) -> None:
    topic, group = scene.topic("twice", *range(NUM_RECORDS)), scene.unique("twice")
    scene.commit(group, {(topic, 0): (4, -1)})
    leader, other = (scene.member(group, topic) for _ in range(2))
    leader.join()
    leader.sync([(topic, [0])])
    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(other.join)
        wait_until(lambda: leader.heartbeat() == 27)
        leader.join()
        joined.result(600)
    leader.sync_bytes(ConsumerProtocolAssignment(0, [(topic, [0])], b"").encode(), other.member_id)
    snapshot, lag = scene.read(group)
    first, second = sorted((leader.member_id, other.member_id))
    message = f"owned by 2 members: {first}, {second}"
    assert rows_of(snapshot, "lag_records", "owner_problem") == {(topic, 0): (NUM_RECORDS - 4, message)}
    assert (lag.total_lag_records, lag.lag_skew) == (NUM_RECORDS - 4, None)
    settings = read_target(scene.broker).settings_of
    assert message in str(preview_plans(snapshot, [group], settings)[group].blocker)


@pytest.mark.parametrize(
    ("ages_min", "committed", "time_min"),
    [
        # The record before the next one is 50 minutes ahead of the clock: nothing tells the age of the next.
        ((200, 199, -50, 97, 96), 3, None),
        # It comes after the next one, which it only bounds.
        ((200, 199, 97, -50, 96), 2, 97),
    ],
)
def test_a_record_ahead_of_the_clock_never_makes_a_group_look_caught_up(
    scene: Scene, ages_min: tuple[float, ...], committed: int, time_min: float | None
) -> None:
    begun = time.monotonic()
    topic, group = scene.topic("ahead", *ages_min), scene.unique("ahead")
    scene.commit(group, {(topic, 0): (committed, -1)})
    _, lag = scene.read(group)
    assert lag.total_lag_records == len(ages_min) - committed
    if time_min is None:
        assert (lag.time_lag_ms, lag.time_lag_at_least_ms, lag.num_unknown_times) == (None, None, 1)
        return
    assert lag.time_lag_ms is not None
    passed_min = (time.monotonic() - begun) / 60
    assert 0.95 * time_min <= lag.time_lag_ms / MINUTE_MS <= 1.05 * (time_min + passed_min)
