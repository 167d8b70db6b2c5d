"""A node of a cluster ends: the same snapshot waits for those that take over, and nothing is unknown."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.protocol.admin.topics import ElectionType
from kafka.structs import OffsetAndMetadata

from evenlag.kafka import cluster_reader
from evenlag.kafka import connection as admin_module
from evenlag.kafka.broker_requests import Deadline, FailoverWindow, RequestLimits
from evenlag.kafka.cluster_reader import ClusterReader
from evenlag.kafka.connection import admin_client
from evenlag.kafka.groups import list_groups
from evenlag.policy.cluster_settings import ClusterSettings
from tests.support.commits import commit_offsets
from tests.support.kafka_cluster import OFFSETS_TOPIC, offsets_partition
from tests.support.two_brokers import shorten_requests

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlag.kafka.broker_requests import BrokerCalls
    from evenlag.kafka.cluster_reader import ClusterSnapshot
    from tests.support.kafka_cluster import Cluster

pytestmark = [pytest.mark.extended, pytest.mark.broker]

GROUPS = [f"group-{number}" for number in range(8)]
KNOWN = dict.fromkeys(GROUPS, "classic")
# A snapshot that waits until its deadline does not end within the test's time.
LIMITS = RequestLimits(requests_per_s=1_000, request_timeout_s=60, deadline_s=3_600, failover_s=90)


@pytest.fixture(scope="module")
def cluster(three_brokers: Cluster) -> Cluster:
    with three_brokers.admin() as admin:
        topics = [NewTopic("t", num_partitions=9, replication_factor=3)]
        # Each of these has one replica: what a dead node holds alone stays unknown.
        admin.create_topics([*topics, NewTopic("single", num_partitions=3, replication_factor=1)])
    producer = KafkaProducer(bootstrap_servers=three_brokers.bootstrap_servers, acks="all")
    for number in range(9):
        for _ in range(number + 1):
            producer.send("t", b"x", partition=number).get(timeout=600)
    producer.close()
    commits = {TopicPartition("t", number): OffsetAndMetadata(1, "", -1) for number in range(9)}
    for group_id in GROUPS:
        with three_brokers.admin() as admin:
            commit_offsets(admin, group_id, commits)
    return three_brokers


def errors_of_groups(reading: ClusterSnapshot) -> dict[str, str | None]:
    """Return the error by group; other tests leave groups of theirs in the cluster."""
    return {row["group_id"]: row["error"] for row in reading.members.to_pylist() if row["group_id"] in GROUPS}


def test_a_snapshot_waits_for_the_nodes_that_take_over(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test may have ended the same node less than a minute ago.
    monkeypatch.setattr(admin_module._SUMMARY, "_by_address", {})
    # However long the others take to take over.
    monkeypatch.setattr(admin_module, "INTERVAL_S", 3_600.0)
    # The lines of kafka-python are what the summary is made of.
    for name in ("kafka", admin_module.__name__):
        caplog.set_level(logging.WARNING, name)
    settings = ClusterSettings(bootstrap_servers=tuple(cluster.bootstrap_servers.split(",")))
    with admin_client(settings) as client:
        whole = ClusterReader(client, limits=LIMITS).read()
        assert (whole.problems, whole.num_unread_partitions) == ([], 0)
        ended = cluster.coordinator(GROUPS[0])
        alone = {number for number in range(3) if cluster.leader("single", number) == ended}
        cluster.nodes[ended].kill()
        try:
            reading = ClusterReader(client, limits=LIMITS, known_groups=lambda: KNOWN).read()
        finally:
            cluster.restart(ended)

    # One line, not one for each attempt to connect, and no error of kafka-python's.
    (line,) = [
        message for message in caplog.messages if message.startswith(f"no connection to broker {ended} ")
    ]
    address = cluster.nodes[ended].bootstrap_servers
    assert line.startswith(f"no connection to broker {ended} ({address}) (KafkaConnectionError: ")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    unread = {
        (row["topic"], row["partition"]) for row in reading.offsets.to_pylist() if row["error"] is not None
    }
    assert unread == {("single", number) for number in alone}
    # Partition n has n + 1 records.
    assert {
        row["partition"]: row["high_watermark"] for row in reading.offsets.to_pylist() if row["topic"] == "t"
    } == {number: number + 1 for number in range(9)}
    assert errors_of_groups(reading) == dict.fromkeys(GROUPS)
    commits = {
        (row["group_id"], row["partition"])
        for row in reading.commits.to_pylist()
        if row["topic"] == "t" and row["committed_offset"] == 1 and row["error"] is None
    }
    assert commits == {(group_id, number) for group_id in GROUPS for number in range(9)}


def test_groups_that_a_new_coordinator_does_not_list_yet_are_asked_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ClusterSettings(bootstrap_servers=tuple(cluster.bootstrap_servers.split(",")))
    with cluster.admin() as admin:
        commit = {TopicPartition("t", 0): OffsetAndMetadata(1, "", -1)}
        admin.alter_group_offsets("deleted", commit)
        admin.delete_groups(["deleted"])
    listings: list[int] = []

    def list_late(calls: BrokerCalls, brokers: Collection[int] | None = None) -> Any:
        """List as a broker between the election and its first load does; the moment is too short to meet."""
        listed, silent = list_groups(calls, brokers)
        listings.append(len(listed))
        # One of them moves on before it is listed again.
        late = GROUPS[2:5] if len(listings) == 1 else GROUPS[4:5]
        return {name: row for name, row in listed.items() if name not in late}, silent

    monkeypatch.setattr(cluster_reader, "list_groups", list_late)
    with admin_client(settings) as client:
        reading = ClusterReader(
            client, limits=LIMITS, known_groups=lambda: KNOWN | {"deleted": "classic"}
        ).read()
    # Once more where a coordinator moved meanwhile.
    assert len(listings) >= 2
    assert reading.problems == []
    assert errors_of_groups(reading) == dict.fromkeys(GROUPS)
    assert "deleted" not in reading.inventory.listed
    assert set(GROUPS) <= set(reading.commits["group_id"].to_pylist())


def test_a_group_is_not_gone_while_its_coordinator_moves(cluster: Cluster) -> None:
    """A commit is acknowledged, and the coordinator moves before the next one knows that it is replicated.

    Kafka's followers learn it up to half a second later. Until then the next coordinator, without an error,
    neither lists nor describes the group and has no commit of it. Whether one of these snapshots falls into
    that moment is chance: `test_unlisted_groups` has the answers of such a coordinator.
    """
    settings = ClusterSettings(bootstrap_servers=tuple(cluster.bootstrap_servers.split(",")))
    commit = {TopicPartition("t", 0): OffsetAndMetadata(1, "", -1)}
    with cluster.admin() as admin, admin_client(settings) as client:
        for attempt in range(3):
            group_id = f"moves-{attempt}"
            number = offsets_partition(group_id, len(cluster.partitions(OFFSETS_TOPIC)))
            first, second, third = cluster.replicas(OFFSETS_TOPIC, number)
            cluster.move_leader(OFFSETS_TOPIC, number, first)
            # The same replicas: only the preferred leader changes.
            order = [second, first, third]
            admin.alter_partition_reassignments({TopicPartition(OFFSETS_TOPIC, number): order})
            commit_offsets(admin, group_id, commit)
            admin.elect_leaders(ElectionType.PREFERRED, {OFFSETS_TOPIC: [number]}, raise_errors=False)
            known = partial(dict[str, str], {group_id: "classic"})
            reading = ClusterReader(client, limits=LIMITS, known_groups=known)
            assert group_id in reading.take_inventory().listed


def test_a_node_that_hangs_is_waited_for_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ClusterSettings(bootstrap_servers=tuple(cluster.bootstrap_servers.split(",")))
    hung = cluster.coordinator(GROUPS[0])
    shorten_requests(monkeypatch, hung)
    with admin_client(settings) as client:
        cluster.freeze(hung)
        try:
            reading = ClusterReader(client, limits=LIMITS, known_groups=lambda: KNOWN).read()
        finally:
            cluster.thaw(hung)
    unread = {row["topic"] for row in reading.offsets.to_pylist() if row["error"] is not None}
    assert unread <= {"single"}
    assert errors_of_groups(reading) == dict.fromkeys(GROUPS)


def test_the_window_opens_with_the_first_failure_and_closes_once() -> None:
    now = [0.0]

    def window(deadline_s: float) -> FailoverWindow:
        return FailoverWindow(15.0, Deadline(deadline_s, clock=lambda: now[0]), clock=lambda: now[0])

    first, seen = window(60.0), []
    # A second failure at 20 s does not open it again.
    for moment, fails in ((0.0, False), (10.0, True), (20.0, True), (25.0, False)):
        now[0] = moment
        if fails:
            first.begin()
        seen.append(first.is_open)
    assert seen == [False, True, True, False]
    late = window(2.0)
    late.begin()
    now[0] += 3.0
    assert not late.is_open
