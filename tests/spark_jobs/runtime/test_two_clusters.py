"""Clusters share tables, and no write of one conflicts with a write of another: each names its own rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake import conflicts
from evenlag.lake.tables import AUDITED_SNAPSHOTS, LAG, OWNERSHIP, RUNS, Table
from evenlag.lake.upkeep.erasure import ERASED, Erasure
from evenlag.lake.writer import append_once
from spark_jobs.erase import erase
from spark_jobs.maintain import maintain_lake
from spark_jobs.maintenance.maintenance_run import MaintenanceRun
from spark_jobs.maintenance.retention import delete_rows, remove_clients
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.frames import run_in_parallel
from tests.spark_jobs.test_maintain import policy
from tests.support.lakes.run_rows import run
from tests.support.lakes.snapshots import DAY, NOW, commit, frame
from tests.truth.oracle.delta_files import read_rows

if TYPE_CHECKING:
    from datetime import date

pytestmark = [pytest.mark.extended, pytest.mark.jvm]

CLUSTERS = ("north", "o'st", "south")
DAYS = (DAY, DAY + timedelta(days=1))
MEMBERS = ("alice", "bob")


def rows(cluster: str, day: date, table: Table) -> list[dict[str, Any]]:
    times = dict.fromkeys(("slot", "started_at", "finished_at", "first_seen_at", "last_seen_at"), NOW)
    snapshot = {"snapshot_id": f"{day}", "first_snapshot_id": f"{day}", "last_snapshot_id": f"{day}"}
    own = {"cluster": cluster, "day": day, "input_hash": "h", "num_snapshots": 1, "longest_gap_ms": 0}
    head = own | snapshot | times | {"group_id": "g", "topic": "t", "partition": 0, "state": "OWNED"}
    found = [commit(0, 5, owner_member_id=name, status="OK") | head | {"member_id": name, "client_id": name}
             for name in MEMBERS]  # fmt: skip
    return [{name: row[name] for name in table.column_names if name in row} for row in found]


def writes(lake: Lake, cluster: str) -> None:
    """All that the audit, the maintenance and an erasure write for a cluster."""
    mine = Lake(lake.spark, lake.paths.root)
    work = MaintenanceRun(mine, policy().maintenance, datetime.now(UTC), frozenset({cluster}))
    for day in DAYS:
        for table in (AUDITED_SNAPSHOTS, OWNERSHIP):
            mine.replace_days(table, frame(mine.spark, table, rows(cluster, day, table)), cluster, [day])
    remove_clients(work, cluster, DAYS[:1])
    delete_rows(work, LAG, (cluster, DAYS[0]))
    erase(mine, Erasure("alice", is_group=False), clusters=[cluster])
    done = maintain_lake(
        mine,
        policy(target_file_mb=64, retention_days={"runs": 30}),
        NOW + timedelta(days=400),
        clusters=[cluster],
        steps=("expire", "compact"),
    )
    assert (done.left, done.failures) == ([], [])


def test_writes_of_clusters_at_the_same_time_never_conflict(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in (AUDITED_SNAPSHOTS, OWNERSHIP, LAG):
        every = [row for cluster in CLUSTERS for day in DAYS for row in rows(cluster, day, table)]
        lake.append(table, frame(lake.spark, table, every))
    for cluster in CLUSTERS:
        for day in DAYS:
            append_once(lake.paths.root, RUNS, [run(f"{day}", day, cluster=cluster)], None)
    # Each conflict waits before its repeat.
    waits: list[int] = []

    def note(attempt: int) -> float:
        waits.append(attempt)
        return 0.0

    monkeypatch.setattr(conflicts, "pause_s", note)
    run_in_parallel(*(partial(writes, lake, cluster) for cluster in CLUSTERS))
    assert waits == []
    root = lake.paths.local_root
    owners = read_rows(root, OWNERSHIP.name)
    for cluster in CLUSTERS:
        mine = {
            (str(row["day"])[:10], row["member_id"], row["client_id"])
            for row in owners
            if row["cluster"] == cluster
        }
        # The first day's clients have no names any more, and one member is erased.
        first = {(str(DAYS[0]), name, None) for name in (ERASED, "bob")}
        assert mine == first | {(str(DAYS[1]), name, name) for name in (ERASED, "bob")}
    left = {(row["cluster"], str(row["day"])[:10]) for row in read_rows(root, LAG.name)}
    assert left == {(cluster, str(DAYS[1])) for cluster in CLUSTERS}
    assert read_rows(root, RUNS.name) == []
