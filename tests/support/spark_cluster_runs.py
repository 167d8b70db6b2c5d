"""What tests and benches do with the sandbox's Spark cluster: run a cycle's steps on it, see who worked."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import find_marker
from evenlag.lake.tables import (
    COMMITS,
    DECISIONS,
    GATE_RESULTS,
    LAG,
    MEMBERS,
    OFFSETS,
    PLAN_ASSIGNMENTS,
    PLANS,
    SNAPSHOTS,
    Table,
)
from evenlag.policy.loader import load_policy
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.compute_lag import compute_lag
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from spark_jobs.steps.snapshot_rows import SnapshotRows

if TYPE_CHECKING:
    from datetime import datetime

    import pytest
    from pyspark.sql import SparkSession

    from tests.support.spark_cluster import SparkCluster

ROOT = Path(__file__).resolve().parents[2]


def driver_environment(cluster: SparkCluster) -> dict[str, str]:
    """Variables for a driver on this machine: as an Airflow worker has them."""
    bin_folder = str(Path(sys.executable).parent)
    return cluster.environment() | {
        "AIRFLOW_CONN_SPARK_DEFAULT": cluster.connection(),
        "EVENLAG_SPARK_MASTER": cluster.master_url,
        "PATH": os.pathsep.join([bin_folder, os.environ.get("PATH", os.defpath)]),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }


def events_of(cluster: SparkCluster) -> list[dict[str, Any]]:
    """All events of all applications that have run, in order; one that is killed leaves what it wrote."""
    events = []
    for path in sorted((cluster.directory / "events").glob("eventlog_*/events_*")):
        lines = path.read_text(encoding="utf-8").splitlines()
        events += [json.loads(line) for line in lines if line.endswith("}")]
    return events


def tasks_by_executor(events: list[dict[str, Any]]) -> dict[str, int]:
    """How many tasks came to a good end, by the application's and the executor's id."""
    done: dict[str, int] = defaultdict(int)
    application = ""
    for event in events:
        if event["Event"] == "SparkListenerApplicationStart":
            application = event["App ID"]
        if event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
            done[f"{application}/{event['Task Info']['Executor ID']}"] += 1
    return dict(done)


def assert_one_machine_gives_the_same(
    spark: SparkSession,
    patch: pytest.MonkeyPatch,
    config: Path,
    *,
    cluster: str,
    slot: datetime,
    run_id: str,
    there: Path,
    here: Path,
) -> None:
    """Repeat a cluster's cycle from the same reading, in another lake and this session: equal tables."""
    for table in (OFFSETS, COMMITS, MEMBERS):
        shutil.copytree(there / table.name, here / table.name)
    patch.setenv("EVENLAG_LAKE", str(here))
    loaded = load_policy(config)
    marker = find_marker(LakeReader(str(there)), cluster, slot)
    assert marker is not None
    compute_lag(SnapshotRows(Lake(spark, str(here)), LakeReader(str(here)), marker), loaded.policy)
    # A snapshot with a marker has its lag.
    shutil.copytree(there / SNAPSHOTS.name, here / SNAPSHOTS.name)
    assert run_observe(spark, loaded, cluster, slot, run_id)["is_new"] is False
    run_decide(spark, loaded, cluster, slot, run_id)
    for table in (LAG, DECISIONS, PLANS, PLAN_ASSIGNMENTS):
        assert _rows(there, table) == _rows(here, table), table.name
        assert _rows(there, table), table.name
    # How old the snapshot was when it was judged is the clock's, and the seal is of that, too.
    clocks = ("observed", "message", "seal")
    assert _rows(there, GATE_RESULTS, *clocks) == _rows(here, GATE_RESULTS, *clocks)


def _rows(lake: Path, table: Table, *leave_out: str) -> list[str]:
    """A table's rows in an order of their own, without some columns."""
    found = LakeReader(str(lake)).read(table).to_pylist()
    return sorted(str({name: value for name, value in row.items() if name not in leave_out}) for row in found)
