"""Two attempts at one slot of a real cluster: one marker, and one snapshot for all that follows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from evenlag.kafka.connection import admin_client
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, OFFSETS, SNAPSHOTS
from evenlag.lake.writer import append_once
from evenlag.policy.loader import parse_policy
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps import collect_snapshot as collecting
from spark_jobs.steps.collect_snapshot import Collected, collect_snapshot
from tests.support.commits import commit_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlag.lake.tables import Table
    from sandbox.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.jvm]

SLOT = datetime(2026, 11, 21, 13, 5, tzinfo=UTC)
POLICY = """
lake: {lake}
clusters: {{c: {{bootstrap_servers: "{servers}"}}}}
groups: [{{match: "*", mode: observe, reset_policy: earliest}}]
"""


def test_an_attempt_whose_marker_comes_second_goes_on_with_the_first_one_s_snapshot(
    lake: Lake, broker: Broker, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, reader = lake.paths.root, LakeReader(lake.paths.root)
    policy = parse_policy(POLICY.format(lake=root, servers=broker.bootstrap_servers), environ={}).policy
    topic, group = unique("orders"), unique("billing")
    with admin_client(policy.clusters["c"]) as client:
        client.create_topics({topic: {"num_partitions": 3}}, wait_for_metadata=True)
        commits = {TopicPartition(topic, number): OffsetAndMetadata(0, "", -1) for number in range(3)}
        commit_offsets(client, group, commits)
    others: list[Collected] = []

    def append_later(root: str, table: Table, *given: Any) -> bool:
        """Let another attempt come to its end before this one writes its marker."""
        if table is SNAPSHOTS and not others:
            monkeypatch.setattr(collecting, "append_once", append_once)
            others.append(collect_snapshot(Lake(lake.spark, root), policy, "c", SLOT, run_id="other"))
        return append_once(root, table, *given)

    monkeypatch.setattr(collecting, "append_once", append_later)
    late = collect_snapshot(lake, policy, "c", SLOT, run_id="late")
    (first,) = others
    assert (first.is_new, late.is_new) == (True, False)
    name = first.rows.snapshot_id
    assert late.rows.snapshot_id == name
    (found,) = reader.read(SNAPSHOTS).to_pylist()
    assert (found["snapshot_id"], found["run_id"]) == (name, "other")
    # Both attempts have written their rows, under two ids.
    for table in (OFFSETS, LAG):
        ids = set(reader.read(table)["snapshot_id"].to_pylist())
        assert len(ids) == 2, table.name
        assert name in ids, table.name
        rows = late.rows.rows(table)
        assert set(rows["snapshot_id"].to_pylist()) == {name}
        assert rows.num_rows == first.rows.rows(table).num_rows
    mine = [row for row in late.rows.rows(LAG).to_pylist() if row["group_id"] == group]
    assert [(row["topic"], row["lag_records"]) for row in mine] == [(topic, 0)] * 3
    again = collect_snapshot(lake, policy, "c", SLOT, run_id="again")
    assert (again.is_new, again.rows.snapshot_id) == (False, name)
    # All three tell of the one snapshot, whoever took it.
    seen = first.summary() | {"is_new": False}
    assert (late.summary(), again.summary()) == (seen, seen)
    assert (seen["num_groups"], seen["num_partitions"]) == (found["num_groups"], found["num_partitions"])
    assert seen["num_groups"] > 0
