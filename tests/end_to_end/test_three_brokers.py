"""On three nodes: a plan is published and followed while the node that coordinates its group is away."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest

from evenlag.publishing.publish import publish_hints
from evenlag.publishing.writing.hint_publisher import hint_publisher, publisher_id
from tests.support.kafka_cluster import offsets_partition
from tests.support.live_plan import LiveGroup
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.policy.cluster_settings import ClusterSettings
    from tests.support.kafka_cluster import Cluster

_TRANSACTIONS: Final = "__transaction_state"

pytestmark = [pytest.mark.extended, pytest.mark.broker]


def move_transaction_coordinator(cluster: Cluster, settings: ClusterSettings, node_id: int) -> None:
    """Make a node the coordinator of the publisher's transactions, after a first one that makes the topic."""
    with cluster.admin() as client:
        kafka_id = client.describe_cluster()["cluster_id"]
    with hint_publisher(kafka_id, settings) as publisher:
        publisher.check_fence()
    partition = offsets_partition(
        publisher_id(kafka_id, settings.hint_topic), len(cluster.partitions(_TRANSACTIONS))
    )
    cluster.move_leader(_TRANSACTIONS, partition, node_id)


def test_a_plan_is_published_and_followed_though_a_node_has_ended(
    three_brokers: Cluster, spark: SparkSession, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    with closing(LiveGroup(three_brokers, spark, tmp_path, unique, mode="auto")) as group:
        plan_id = group.plan(mode="auto", approved=True)
        ended = three_brokers.coordinator(group.group_id)
        # What is written next needs this node most: it leads the hint's partition, and coordinates the
        # publisher's transactions.
        three_brokers.move_leader(group.kafka.hint_topic, group.kafka.hint_partition(), ended)
        move_transaction_coordinator(three_brokers, group.loaded.policy.clusters[group.name], ended)
        three_brokers.nodes[ended].kill()
        try:
            # A run that does not wait long enough for a coordinator holds the plan for the next one.
            wait_until(lambda: publish_hints(group.loaded, group.name, datetime.now(UTC), "r").published)
            group.wait_until_followed(plan_id)
        finally:
            three_brokers.restart(ended)
        assert set(group.events(plan_id)) == {"PROPOSED", "APPROVED", "PUBLISHED"}
        hint = group.topic_state.hints[group.group_id]
        assert (hint.plan_id, hint.sequence) == (plan_id, 1)
