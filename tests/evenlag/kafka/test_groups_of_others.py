"""Groups as other people's clients make them, on a real broker: in raw bytes, and of every type."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from evenlag.enums import GroupType
from evenlag.kafka.broker_requests import BrokerCalls, RequestLimits
from evenlag.kafka.cluster_reader import ClusterReader
from evenlag.kafka.connection import admin_client
from evenlag.kafka.coordinators import find_coordinators
from evenlag.kafka.groups import describe_groups, list_groups
from evenlag.kafka.live_groups import read_live_groups
from sandbox.jars import OWN_KAFKA
from sandbox.kafka.broker import default_version
from tests.support.brokers import settings_of
from tests.support.commits import commit_offsets
from tests.support.kip848.members import ShareMember, StreamsMember, set_share_offsets
from tests.support.raw_member import RawMember
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evenlag.kafka.cluster_reader import ClusterSnapshot
    from sandbox.kafka.broker import Broker

pytestmark = pytest.mark.broker

NUM_RECORDS = 10
NULL_TOPICS = bytes.fromhex("0000ffffffffffffffff")
# All types of groups are stable features from this version on.
ALL_TYPES = "4.2"


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def kafka_go(*topics: str) -> bytes:
    """Return metadata as kafka-go sends it: version 1, ending after the user data."""
    names = b"".join(text(topic) for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", 0)


@dataclass
class Scene:
    """A topic with three partitions of ten records, and a client."""

    broker: Broker
    admin: Any
    unique: Callable[[str], str]
    topic: str
    stack: ExitStack

    def group(self, name: str, commits: dict[int, int] | None = None) -> str:
        """Return a new group, with these commits."""
        group_id = self.unique(name)
        if commits:
            offsets = {
                TopicPartition(self.topic, n): OffsetAndMetadata(o, "", -1) for n, o in commits.items()
            }
            commit_offsets(self.admin, group_id, offsets)
        return group_id

    def join(self, group_id: str, assignment: bytes | None = None, **more: Any) -> RawMember:
        """Let a member join, alone; it assigns itself these bytes."""
        member = self.stack.enter_context(
            RawMember(self.broker.bootstrap_servers, group_id, session_timeout_ms=600_000, **more)
        )
        member.join()
        if assignment is None:
            member.sync([(self.topic, [0, 1, 2])])
        else:
            member.sync_bytes(assignment)
        return member

    def read(self) -> ClusterSnapshot:
        return ClusterReader(self.admin).read()


@pytest.fixture
def scene(broker: Broker, unique: Callable[[str], str]) -> Iterator[Scene]:
    with admin_client(settings_of(broker)) as admin, ExitStack() as stack:
        topic = unique("rx-orders")
        admin.create_topics({topic: {"num_partitions": 3}}, wait_for_metadata=True)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        for number in range(3 * NUM_RECORDS):
            producer.send(topic, b"x", partition=number % 3)
        producer.close()
        yield Scene(broker, admin, unique, topic, stack)


def rows_of(reading: ClusterSnapshot, group_id: str) -> list[dict[str, Any]]:
    return [row for row in reading.members.to_pylist() if row["group_id"] == group_id]


def commits_of(reading: ClusterSnapshot, group_id: str) -> dict[int, int]:
    return {
        row["partition"]: row["committed_offset"]
        for row in reading.commits.to_pylist()
        if row["group_id"] == group_id
    }


def problems_of(reading: ClusterSnapshot, group_id: str) -> list[str]:
    return [problem.error for problem in reading.problems if problem.name == group_id]


def states_of(reading: ClusterSnapshot, group_id: str) -> set[str]:
    return {row["group_state"] for row in rows_of(reading, group_id)}


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        (NULL_TOPICS, "the array of topics is null"),
        (
            struct.pack(">hi", 0, 1) + text("t") + bytes.fromhex("ffffffff00000000"),
            "the array of partitions is null",
        ),
        (b"", "there are no bytes"),
        (b"\0", "the bytes end within the version"),
    ],
    ids=("null topics", "null partitions", "empty", "one byte"),
)
def test_any_assignment_of_one_leader_is_the_problem_of_its_group(
    scene: Scene, assignment: bytes, reason: str
) -> None:
    bad, good = scene.group("bad", {0: 4}), scene.group("good", {0: 4})
    member = scene.join(bad, assignment, topics=[scene.topic])
    other = scene.join(good, topics=[scene.topic])
    reading = scene.read()
    message = f"the assignment cannot be decoded: {reason}"
    (row,) = rows_of(reading, bad)
    assert (row["subscription"], row["subscription_error"], row["error"]) == ([scene.topic], None, None)
    assert (row["assignment"], row["assignment_error"]) == (None, message)
    assert problems_of(reading, bad) == [f"assignment of {member.member_id!r}: {message}"]
    assert commits_of(reading, bad) == {0: 4}
    (row,) = rows_of(reading, good)
    assert row["assignment"] == [{"topic": scene.topic, "partitions": [0, 1, 2]}]
    assert problems_of(reading, good) == []
    # The check before publishing reads both by the same module.
    live = read_live_groups(scene.admin, dict.fromkeys((bad, good), GroupType.CLASSIC))
    assert live[bad].fingerprint is None
    assert live[bad].unreadable == f"assignment of {member.member_id!r}: {message}"
    assert live[good].unreadable is None
    assert live[good].fingerprint is not None
    assert sum(map(len, live[good].held[f"m:{other.member_id}"].values())) == 3


def test_a_subscription_that_ends_before_its_owned_partitions_is_known(scene: Scene) -> None:
    group = scene.group("go", {0: 1, 1: 2})
    scene.join(group, subscription=kafka_go(scene.topic))
    reading = scene.read()
    (row,) = rows_of(reading, group)
    assert (row["subscription"], row["subscription_error"]) == ([scene.topic], None)
    assert row["assignment"] == [{"topic": scene.topic, "partitions": [0, 1, 2]}]
    assert problems_of(reading, group) == []


def test_a_rebalancing_group_has_its_commits_and_the_reason(scene: Scene) -> None:
    group = scene.group("slow", {0: 5})
    first = scene.join(group, topics=[scene.topic])
    second = scene.stack.enter_context(RawMember(scene.broker.bootstrap_servers, group, topics=[scene.topic]))
    # The first one does not rejoin: the join of the second one is not answered, and the group waits.
    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(second.join)
        try:
            wait_until(lambda: states_of(scene.read(), group) == {"PreparingRebalance"})
            reading = scene.read()
        finally:
            first.leave()
            joining.result()
    rows = rows_of(reading, group)
    assert {row["member_id"] for row in rows} == {first.member_id, second.member_id}
    for row in rows:
        assert (row["subscription"], row["assignment"]) == (None, None)
        assert (row["subscription_error"], row["assignment_error"]) == ("the group is rebalancing",) * 2
    assert commits_of(reading, group) == {0: 5}
    assert problems_of(reading, group) == []


def test_a_group_of_another_protocol_is_listed_as_what_it_is(scene: Scene) -> None:
    group = scene.group("connect-cluster")
    scene.join(group, b"\0\1", subscription=b"\0\1\2", protocol_type="connect")
    reading = scene.read()
    (row,) = rows_of(reading, group)
    assert (row["group_type"], row["protocol_type"], row["error"]) == ("classic", "connect", None)
    reason = "not a consumer group: its protocol type is 'connect'"
    assert (row["subscription_error"], row["assignment_error"]) == (reason, reason)
    assert problems_of(reading, group) == []
    assert commits_of(reading, group) == {}


def test_an_expression_subscribes_to_the_topics_that_it_matches(scene: Scene) -> None:
    if (default_version() or OWN_KAFKA) < ALL_TYPES:
        pytest.skip("expressions need Kafka 4.0")
    group, other = scene.group("regex", {0: 3}), scene.unique("other-rx-orders")
    scene.admin.create_topics({other: {"num_partitions": 1}}, wait_for_metadata=True)
    pattern = f"^{scene.topic[:-1]}."
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": scene.broker.bootstrap_servers,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([pattern])
        wait_until(lambda: consumer.poll(0.2) is None and len(consumer.assignment()) == 3)
        (row,) = wait_until(lambda: [r for r in rows_of(scene.read(), group) if r["assignment"]])
        # librdkafka puts it into parentheses.
        assert (row["subscription_pattern"], row["subscription_error"]) == (f"({pattern})", None)
        assert row["subscription"] == [scene.topic]
        assert row["assignment"] == [{"topic": scene.topic, "partitions": [0, 1, 2]}]
        live = read_live_groups(scene.admin, {group: GroupType.CONSUMER})[group]
        assert [name for name, _, _ in live.topics] == [scene.topic]
        hidden = read_live_groups(
            scene.admin, {group: GroupType.CONSUMER}, ignored_topics=frozenset({scene.topic})
        )[group]
        assert hidden.topics == ()
    finally:
        consumer.close()


def test_streams_and_share_groups_are_listed_and_measured(scene: Scene) -> None:
    if (default_version() or OWN_KAFKA) < ALL_TYPES:
        pytest.skip("streams and share groups need Kafka 4.2")
    streams, share = scene.group("streams", {0: 4}), scene.group("share")
    runner = StreamsMember(scene.admin, streams, scene.topic)
    wait_until(lambda: runner.beat() == [0, 1, 2])
    starter = ShareMember(scene.admin, share, [scene.topic])
    wait_until(lambda: starter.beat() == [0, 1, 2])
    starter.beat(leaves=True)
    wait_until(lambda: set_share_offsets(scene.admin, share, scene.topic, {0: 3, 1: 10}))
    reader = ShareMember(scene.admin, share, [scene.topic])
    wait_until(lambda: reader.beat() == [0, 1, 2])
    reading = scene.read()
    assert reading.inventory.listed[streams].group_type == "streams"
    assert reading.inventory.listed[share].group_type == "share"
    (row,) = rows_of(reading, streams)
    assert (row["member_id"], row["subscription"]) == (runner.member_id, [scene.topic])
    assert row["assignment"] == [{"topic": scene.topic, "partitions": [0, 1, 2]}]
    (row,) = rows_of(reading, share)
    assert (row["member_id"], row["subscription"]) == (reader.member_id, [scene.topic])
    assert row["assignment"] == [{"topic": scene.topic, "partitions": [0, 1, 2]}]
    measured = {
        row["partition"]: (row["committed_offset"], row["reported_lag_records"])
        for row in reading.commits.to_pylist()
        if row["group_id"] == share
    }
    assert measured == {0: (3, 7), 1: (10, 0)}
    assert problems_of(reading, share) == problems_of(reading, streams) == []
    assert commits_of(reading, streams) == {0: 4}


def test_a_response_that_cannot_be_read_is_asked_for_in_halves_down_to_its_group(scene: Scene) -> None:
    """A client that takes frames of at most 60 kB stands for responses beyond kafka-python's 100 MB."""
    small = [scene.group(f"small-{number}", {0: number}) for number in range(5)]
    large = scene.group("large", {0: 1})
    for group in small:
        scene.join(group, topics=[scene.topic], user_data=b"u" * 20_000)
    scene.join(large, topics=[scene.topic], user_data=b"u" * 70_000)
    client = KafkaAdminClient(
        bootstrap_servers=scene.broker.bootstrap_servers, receive_message_max_bytes=60_000
    )
    try:
        calls = BrokerCalls(client, replace(RequestLimits(), request_timeout_s=60.0))
        listed, failed = list_groups(calls)
        assert failed == {}
        wanted = {name: listed[name] for name in (*small, large)}
        rows = {
            row["group_id"]: row
            for row in describe_groups(calls, wanted, find_coordinators(calls, list(wanted)), tuple)
        }
    finally:
        client.close()
    assert "InvalidReceiveError" in rows[large]["error"]
    for group in small:
        assert (rows[group]["error"], rows[group]["subscription"]) == (None, [scene.topic])
