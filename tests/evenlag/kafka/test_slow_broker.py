"""One broker of two stalls: what the other has is read all the same, and the stalled one is asked seldom."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from evenlag.kafka.broker_requests import BrokerCalls, RequestBudget, RequestLimits
from evenlag.kafka.cluster_reader import ClusterReader
from evenlag.kafka.connection import admin_client
from evenlag.kafka.coordinators import find_coordinators
from evenlag.policy.cluster_settings import ClusterSettings
from sandbox.kafka.broker import Broker
from tests.support.commits import commit_offsets
from tests.support.two_brokers import SecondBroker, StallingProxy, shorten_requests
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlag.kafka.cluster_reader import ClusterSnapshot

pytestmark = [pytest.mark.extended, pytest.mark.broker]

TOPIC, NUM_PARTITIONS, NUM_GROUPS = "orders", 12, 8
GROUPS = [f"group-{number}" for number in range(NUM_GROUPS)]
PATIENT = RequestLimits(requests_per_s=1_000, request_timeout_s=60, max_broker_failures=3, deadline_s=900)
# Nobody takes over here: the wait for who does is tested in test_failover.
ALONE = replace(PATIENT, failover_s=0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, StallingProxy]]:
    """Return an admin client of two brokers that lead and coordinate half each, and the second's proxy."""
    folder = tmp_path_factory.mktemp("two")
    with Broker.start(folder / "first") as first:
        second = SecondBroker(folder / "second", first)
        with StallingProxy(second.bootstrap_servers) as proxy:
            try:
                second.start_behind(proxy)
                settings = ClusterSettings(bootstrap_servers=(first.bootstrap_servers,))
                with admin_client(settings) as admin:
                    fill(admin)
                    yield admin, proxy
            finally:
                # It holds nothing that is looked at again, and a clean end waits for its peer.
                second.kill()


def fill(admin: Any) -> None:
    """Lay half of everything on each broker, and commit something for each group."""
    halves = {number: [1 + number % 2] for number in range(NUM_PARTITIONS)}
    admin.create_topics({TOPIC: {"assignments": halves}}, wait_for_metadata=True)
    moves = {TopicPartition("__consumer_offsets", number): [1 + number % 2] for number in range(4)}
    admin.alter_partition_reassignments(moves)
    calls = BrokerCalls(admin, RequestLimits(1_000, 60, 90, deadline_s=900, failover_s=0))
    # kafka-python remembers coordinators: it is asked only when they have moved.
    wait_until(
        lambda: set(find_coordinators(calls, GROUPS).values()) == {1, 2}, what="the coordinators did not move"
    )
    commits = {TopicPartition(TOPIC, number): OffsetAndMetadata(0, "", -1) for number in halves}
    for group_id in GROUPS:
        commit_offsets(admin, group_id, commits)


def errors_by_leader(reading: ClusterSnapshot) -> dict[int, set[str | None]]:
    leaders = reading.inventory.partitions.leader.tolist()
    found: dict[int, set[str | None]] = {}
    for leader, error in zip(leaders, reading.offsets["error"].to_pylist(), strict=True):
        found.setdefault(leader, set()).add(error)
    return found


def test_a_stalled_broker_is_left_alone_and_the_other_is_read(
    cluster: tuple[Any, StallingProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, proxy = cluster
    whole = ClusterReader(admin, limits=PATIENT).read()
    assert whole.problems == []
    assert whole.num_unread_partitions == 0
    assert {row["group_id"] for row in whole.commits.to_pylist()} == set(GROUPS)
    mine = {name for name, node in whole.inventory.coordinators.items() if node == 2}
    assert mine
    assert mine < set(GROUPS)

    shorten_requests(monkeypatch, 2)
    proxy.stall()
    try:
        reading = ClusterReader(
            admin, limits=ALONE, known_groups=lambda: dict.fromkeys(GROUPS, "classic")
        ).read()
        num_asked = proxy.requests.total()
    finally:
        proxy.flow()

    errors = errors_by_leader(reading)
    assert errors[1] == {None}
    (error,) = errors[2]
    assert error is not None
    assert error.startswith(f"broker 2 ({proxy.address}) did not answer")
    # Asked three times in all, whatever there was to be asked; kafka-python may look at metadata by itself.
    assert num_asked - proxy.requests[3] <= ALONE.max_broker_failures
    offsets = [problem for problem in reading.problems if problem.kind == "offsets"]
    assert [problem.count for problem in offsets] == [NUM_PARTITIONS // 2]
    assert {problem.kind for problem in reading.problems} == {"broker", "group", "commits", "offsets"}

    # The groups that it coordinates are there still, and not known.
    members = {row["group_id"]: row for row in reading.members.to_pylist()}
    assert set(members) == set(GROUPS)
    assert {name for name, row in members.items() if row["error"]} == mine
    commits = reading.commits.to_pylist()
    assert {row["group_id"] for row in commits if row["error"]} == mine
    assert {row["group_id"] for row in commits if row["partition"] is not None} == set(GROUPS) - mine


def test_a_broker_that_answers_again_is_read_by_the_next_reading(cluster: tuple[Any, StallingProxy]) -> None:
    admin, _ = cluster

    def num_requests() -> int:
        budget = RequestBudget(1_000)
        reading = ClusterReader(admin, limits=PATIENT, budget=budget).read()
        assert reading.num_unread_partitions == 0
        assert {row["group_id"] for row in reading.commits.to_pylist()} == set(GROUPS)
        assert budget.num_requests == reading.num_requests
        return reading.num_requests

    # Metadata twice, coordinators once; of each broker groups, members, commits, and three kinds of offsets.
    # What a busy broker refuses for a moment is requested once more.
    assert 3 + 2 * 6 in (num_requests() for _ in range(5))
