"""A snapshot asks for the groups of the one before that no broker lists; the lake says which these are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from evenlag.kafka import cluster_reader
from evenlag.kafka.connection import admin_client
from evenlag.kafka.groups import list_groups
from evenlag.lake.tables import LAG, MEMBERS
from evenlag.policy.loader import parse_policy
from spark_jobs.steps.collect_snapshot import collect_snapshot
from tests.support.commits import commit_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.kafka.broker import Broker
    from spark_jobs.runtime.delta_lake import Lake

pytestmark = [pytest.mark.broker, pytest.mark.jvm]

SLOT = datetime(2026, 11, 21, 13, 5, tzinfo=UTC)
POLICY = """
lake: {lake}
clusters: {{c: {{bootstrap_servers: "{servers}"}}}}
groups: [{{match: "*", mode: observe, reset_policy: earliest}}]
"""


def test_a_group_that_no_broker_lists_is_in_the_next_snapshot_unless_it_is_gone(
    lake: Lake, broker: Broker, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = POLICY.format(lake=lake.paths.root, servers=broker.bootstrap_servers)
    policy = parse_policy(text, environ={}).policy
    topic, kept, deleted = unique("orders"), unique("kept"), unique("deleted")

    def list_others(*given: Any) -> Any:
        listed, silent = list_groups(*given)
        return {name: row for name, row in listed.items() if name not in {kept, deleted}}, silent

    with admin_client(policy.clusters["c"]) as client:
        client.create_topics({topic: {"num_partitions": 1}}, wait_for_metadata=True)
        for group_id in (kept, deleted):
            commit_offsets(client, group_id, {TopicPartition(topic, 0): OffsetAndMetadata(0, "", -1)})
        collect_snapshot(lake, policy, "c", SLOT, run_id="r")
        client.delete_groups([deleted])
        monkeypatch.setattr(cluster_reader, "list_groups", list_others)
        second = collect_snapshot(lake, policy, "c", SLOT + timedelta(minutes=5), run_id="r").rows
    members = {row["group_id"]: row for row in second.rows(MEMBERS).to_pylist()}
    assert (members[kept]["group_state"], members[kept]["group_type"]) == ("Empty", "classic")
    assert members[kept]["error"] is None
    assert deleted not in members
    [lag] = [row for row in second.rows(LAG).to_pylist() if row["group_id"] == kept]
    assert (lag["topic"], lag["status"], lag["lag_records"]) == (topic, "NO_MEMBERS", 0)
