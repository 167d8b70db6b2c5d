"""The sandbox's cluster: its shape, its rights, and the faults that tests cause in it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    NewTopic,
    ResourcePattern,
    ResourceType,
)
from kafka.errors import TopicAuthorizationFailedError
from kafka.structs import OffsetAndMetadata

from sandbox.kafka.broker import BrokerError
from tests.support.commits import commit_offsets
from tests.support.kafka_cluster import Cluster, offsets_partition
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.extended, pytest.mark.broker]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster") / "nodes"
    with Cluster.start(folder, users=("alice", "bob"), has_acls=True) as running:
        with running.admin() as admin:
            admin.create_topics([NewTopic("t", num_partitions=2, replication_factor=3)])
        yield running
        assert any(node.is_running for node in running.nodes.values())
    assert not any(node.is_running for node in running.nodes.values())


def test_partitions_lie_on_three_nodes_in_three_racks(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.admin() as admin:
        found = admin.describe_cluster()
    assert found["cluster_id"] == cluster.cluster_id
    assert {one["broker_id"]: one["rack"] for one in found["brokers"]} == {
        1: "rack-1",
        2: "rack-2",
        3: "rack-3",
    }
    assert sorted(cluster.replicas("t", 0)) == [1, 2, 3]
    with pytest.raises(BrokerError, match="has no partition 2"):
        cluster.leader("t", 2)
    (tmp_path / "file").touch()
    with pytest.raises(BrokerError, match="not empty"):
        Cluster.start(tmp_path)


def test_a_user_may_do_what_an_acl_allows_only(cluster: Cluster) -> None:
    def produce(user: str) -> Any:
        producer = KafkaProducer(**cluster.login(user).client_config(), acks="all", retries=0)
        try:
            return producer.send("t", b"x", partition=0).get(timeout=600)
        finally:
            producer.close()

    pattern = ResourcePattern(ResourceType.TOPIC, "t")
    with cluster.admin() as admin:
        admin.create_acls([ACL("User:alice", "*", ACLOperation.WRITE, ACLPermissionType.ALLOW, pattern)])

    def is_allowed() -> bool:
        with suppress(TopicAuthorizationFailedError):
            produce("alice")
            return True
        return False

    # Each node takes a right up a moment after it is granted.
    wait_until(is_allowed)
    with pytest.raises(TopicAuthorizationFailedError):
        produce("bob")
    assert cluster.login("bob").password not in repr(cluster.nodes[1].place)


def test_a_group_is_coordinated_where_the_broker_says(cluster: Cluster) -> None:
    commit = {TopicPartition("t", 0): OffsetAndMetadata(0, "", -1)}
    with cluster.admin() as admin:
        commit_offsets(admin, "orders-é", commit)

    def is_listed() -> bool:
        """Whether the node that is said to coordinate the group lists it: the broker's own answer."""
        node_id = cluster.coordinator("orders-é")
        admin = KafkaAdminClient(bootstrap_servers=cluster.nodes[node_id].bootstrap_servers)
        try:
            return "orders-é" in {group["group_id"] for group in admin.list_groups([node_id])}
        finally:
            admin.close()

    # On a busy machine a node may lose its leadership for a moment, and the coordinator moves.
    wait_until(is_listed)
    # Calculated: "abc" is 97 * 31 * 31 + 98 * 31 + 99 = 96354.
    assert offsets_partition("abc", 50) == 96354 % 50


def test_leaders_move_and_nodes_fail_and_return(cluster: Cluster) -> None:
    first = cluster.leader("t", 0)
    second = next(id_ for id_ in cluster.nodes if id_ != first)
    cluster.move_leader("t", 0, second)
    assert cluster.leader("t", 0) == second
    cluster.reassign("t", 1, [first, second])
    assert cluster.replicas("t", 1) == [first, second]

    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
    producer.send("t", b"before", partition=0).get(timeout=600)
    cluster.nodes[second].kill()
    assert cluster.running == [id_ for id_ in cluster.nodes if id_ != second]
    wait_until(lambda: cluster.leader("t", 0) not in {second, -1})
    producer.send("t", b"meanwhile", partition=0).get(timeout=600)
    cluster.restart(second)
    wait_until(lambda: cluster.in_sync("t", 0) == [1, 2, 3])

    third = next(id_ for id_ in cluster.nodes if id_ not in {first, second})
    cluster.freeze(third)
    wait_until(lambda: third not in cluster.in_sync("t", 0))
    cluster.thaw(third)
    wait_until(lambda: third in cluster.in_sync("t", 0))
    with cluster.slowed(third, share=0.5):
        producer.send("t", b"after", partition=0).get(timeout=600)
    producer.close()

    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", 0)])
    values: list[bytes] = []

    def are_read() -> bool:
        values.extend(record.value for batch in consumer.poll(200).values() for record in batch)
        return values[-3:] == [b"before", b"meanwhile", b"after"]

    wait_until(are_read)
    consumer.close()
