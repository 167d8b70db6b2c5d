"""Fifty consumers of Kafka's Java client, and what a group survives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient

from sandbox.kafka.broker import Broker
from tests.support.hints import Cluster
from tests.support.java_client.group import JavaGroup

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.java_client.harness import ClientHarness

pytestmark = [pytest.mark.broker, pytest.mark.soak]


def settings(name: str) -> dict[str, str]:
    return {"group.instance.id": name, "evenlag.check.interval.ms": "1000"}


@pytest.mark.parametrize("size", [4, 50])
def test_a_group_survives_restarts_of_broker_and_topic(
    client_harness: ClientHarness, tmp_path: Path, size: int
) -> None:
    """It follows, keeps the plan over a restart of the broker, and follows again on a new hint topic."""
    broker = Broker.start(tmp_path / "broker")
    try:
        topics = {"orders": 2 * size}
        with (
            Cluster(broker, group_id=f"group-{size}", topics=topics, hint_topic="hints") as cluster,
            JavaGroup(client_harness, cluster) as group,
        ):
            names = [f"pod-{number:02}" for number in range(size)]
            for name in names:
                group.start_java(name, configs=settings(name))
            group.settle()
            group.wait_for_count("ReadyTotal", 1)
            plan = {name: [number, 2 * size - 1 - number] for number, name in enumerate(names)}
            group.publish(plan)
            group.wait_for_count("ReceivedTotal", 1)
            group.rebalance(names[0])
            group.wait_for(plan)
            broker.restart()
            # The test's own connection would wait before it tries again.
            cluster.admin.close()
            cluster.admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
            group.rebalance(names[1])
            group.settle()
            assert group.held() == plan
            # A static member that restarts keeps its place.
            group.stop(names[0])
            group.start_java(names[0], configs=settings(names[0]))
            group.wait_for(plan)
            cluster.admin.delete_topics(["hints"])
            group.wait_for_count("UnavailableTotal", 1)
            cluster.create({"hints": 3}, {"cleanup.policy": "compact", "compression.type": "uncompressed"})
            cluster.renew_publisher()
            ready = group.counts()["ReadyTotal"]
            group.wait_for_count("ReadyTotal", ready)
            other = {name: plan[names[(number + 1) % size]] for number, name in enumerate(names)}
            received = group.counts()["ReceivedTotal"]
            group.publish(other)
            group.wait_for_count("ReceivedTotal", received + 1)
            group.rebalance(names[0])
            group.wait_for(other)
            assert group.double_owners() == []
            assert group.counts()["InternalErrorTotal"] == 0
    finally:
        broker.kill()
