"""Each job on a Spark Connect server does to a lake what it does on a classic session."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from evenlag.cli.app import app
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.tables import (
    AUDITED_SNAPSHOTS,
    COMMITS,
    COMPARISONS,
    GATE_RESULTS,
    MEMBERS,
    MEMBERSHIPS,
    OFFSETS,
    OWNERSHIP,
    REPLAYS,
    RUNS,
    SNAPSHOTS,
    TABLES,
)
from evenlag.policy.gates import GATES
from evenlag.policy.loader import parse_policy
from spark_jobs.compare import Request, run_compare
from spark_jobs.maintain import maintain_lake
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.audit_ownership import audit_assignments
from tests.bench.support.backfill_data import CLUSTER, FIRST_DAY, Workload, write_days
from tests.support.connect_jobs import run_module
from tests.support.lakes.audit_histories import expected_ownership, make_readings
from tests.support.lakes.snapshots import DAY, HEAD, NOW, SNAPSHOT
from tests.support.spark_tables import together, write_rows

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table
    from sandbox.spark.connect_server import ConnectServer
    from tests.support.lakes.audit_histories import Reading

pytestmark = [pytest.mark.extended, pytest.mark.jvm]

# A policy file refuses such a name, but rows in the lake may have it.
HOSTILE = "c' OR cluster <> '\\` --"
POLICY = """\
lake: {lake}
clusters:
  c: {{bootstrap_servers: "nowhere:9092", schedule: null}}
  bench: {{bootstrap_servers: "nowhere:9092", schedule: null}}
comparison: {{policies: [range, lag-aware]}}
maintenance: {{target_file_mb: 64, raw_days: null, orphan_days: 3, vacuum_days: 9}}
"""
_COLUMNS = (
    "group_id", "topic_id", "topic", "partition", "member_id", "state", "reason", "owner_key", "num_owners",
    "first_snapshot_id", "last_snapshot_id", "previous_snapshot_id", "next_snapshot_id", "first_seen_at",
    "last_seen_at", "num_snapshots", "longest_gap_ms",
)  # fmt: skip


def write_policy(lake: Path) -> Path:
    file = lake.with_suffix(".yaml")
    file.write_text(POLICY.format(lake=lake), encoding="utf-8")
    return file


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the result that a job logs."""
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if ": {" in line]
    line = lines[-1]
    # The fields of the log record follow.
    result: dict[str, Any] = json.JSONDecoder().raw_decode(line, line.index(": {") + 2)[0]
    return result


def rows_of(lake: Path, table: Table, *without: str) -> list[dict[str, Any]]:
    rows = LakeReader(str(lake)).read(table).to_pylist()
    return sorted(
        ({name: value for name, value in row.items() if name not in without} for row in rows), key=str
    )


def readings_of_a_day() -> list[Reading]:
    """The snapshots before midnight; test_audit has them all."""
    readings = make_readings(7)
    first = readings[0].marker["started_at"].date()
    return [reading for reading in readings if reading.marker["started_at"].date() == first]


@pytest.fixture
def history(spark: SparkSession, tmp_path: Path) -> Path:
    """Six snapshots of twelve groups on one day."""
    root = tmp_path / "seen"
    readings = readings_of_a_day()
    with together(spark):
        write_rows(root, MEMBERS, [row for reading in readings for row in reading.members])
        write_rows(root, OFFSETS, [row for reading in readings for row in reading.offsets])
        write_rows(root, SNAPSHOTS, [reading.marker for reading in readings])
    return root


def test_the_audit_builds_the_same_intervals(
    connect_server: ConnectServer, spark: SparkSession, history: Path, tmp_path: Path
) -> None:
    classic = shutil.copytree(history, tmp_path / "classic")
    arguments = ("spark_jobs.audit", "--lake", str(history), "--cluster", "c")
    result = result_of(run_module(connect_server.url, *arguments))
    assert result == audit_assignments(Lake(spark, str(classic)), "c").summary()
    assert len(result["days"]) == 1
    for table in (MEMBERSHIPS, OWNERSHIP, AUDITED_SNAPSHOTS):
        assert rows_of(history, table) == rows_of(classic, table) != []
    found = {tuple(row[name] for name in _COLUMNS) for row in rows_of(history, OWNERSHIP)}
    assert found == expected_ownership(readings_of_a_day())
    answer = result_of(run_module(connect_server.url, *arguments))
    assert answer == {"days": [], "kept_days": [], "left_from": None}


def test_the_command_erases_a_group(connect_server: ConnectServer, history: Path) -> None:
    everything = {table: rows_of(history, table) for table in (MEMBERS, OFFSETS)}
    (group, *_) = sorted({row["group_id"] for row in everything[MEMBERS]})
    of_group = [row for row in everything[MEMBERS] if row["group_id"] == group]
    command = ["lake", "erase", "--group", group, "--config", str(write_policy(history)), "--yes", "--json"]
    for rows in ({"members": len(of_group)}, {}):
        answer = CliRunner().invoke(app, [*command, "--remote", connect_server.url])
        assert answer.exit_code == 0, answer.output
        assert json.loads(answer.stdout)["rows"] == rows
    assert rows_of(history, MEMBERS) == [row for row in everything[MEMBERS] if row not in of_group]
    assert rows_of(history, OFFSETS) == everything[OFFSETS]


def test_a_day_is_compared_to_the_same_rows(
    connect_server: ConnectServer, spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    write_days(str(lake), Workload(1, num_partitions=8), 1)
    classic = shutil.copytree(lake, tmp_path / "classic")
    policy = write_policy(lake)
    day = FIRST_DAY.isoformat()
    arguments = ("--config", str(policy), "--cluster", CLUSTER, "--day", day)
    result = result_of(run_module(connect_server.url, "spark_jobs.compare", *arguments))
    assert result == {"compared": [day], "skipped": [], "empty": [], "downsampled": []}
    loaded = parse_policy(policy.read_text(encoding="utf-8"), environ={})
    run_compare(Lake(spark, str(classic)), loaded, Request(CLUSTER, FIRST_DAY, FIRST_DAY))
    for table in (COMPARISONS, REPLAYS):
        assert rows_of(lake, table) == rows_of(classic, table) != []


def named(minute: int) -> str:
    return f"{NOW + timedelta(minutes=minute):%Y%m%dT%H%M%S}000Z-00000001"


def write_commits(root: Path, cluster: str, minutes: range) -> None:
    """Snapshots a minute apart, a file and a marker for each."""
    for minute in minutes:
        head = HEAD | {"cluster": cluster, "snapshot_id": named(minute)}
        row = {"group_id": "g", "topic_id": "x", "topic": "t", "partition": 0, "read_at": NOW}
        write_rows(root, COMMITS, [head | row | {"committed_offset": minute}])
        times = dict.fromkeys(("started_at", "commits_read_at", "end_read_at", "finished_at"), NOW)
        slot = NOW + timedelta(minutes=minute)
        write_rows(root, SNAPSHOTS, [head | times | {"slot": slot, "kafka_cluster_id": "k"}])


def shape_of(lake: Path) -> dict[str, Any]:
    """Files and properties of each table, as the log has them."""
    found = {}
    for table in TABLES.values():
        files = read_table_files(LakeReader(str(lake)), table)
        if files is not None:
            by_part = {part: len(parts) for part, parts in files.by_part.items()}
            found[table.name] = (by_part, files.protocol, sorted(files.properties.items()))
    return found


def test_maintenance_does_the_same_also_to_a_cluster_with_a_hostile_name(
    connect_server: ConnectServer, spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    for cluster in ("c", HOSTILE):
        write_commits(lake, cluster, range(4))
    classic = shutil.copytree(lake, tmp_path / "classic")
    policy = write_policy(lake)
    result = result_of(run_module(connect_server.url, "spark_jobs.maintain", "--config", str(policy)))
    loaded = parse_policy(policy.read_text(encoding="utf-8"), environ={})
    expected = maintain_lake(Lake(spark, str(classic)), loaded.policy, datetime.now(UTC)).summary()
    assert (result["done"], result["failures"]) == (expected["done"], [])
    assert result["left"] == expected["left"] == []
    assert shape_of(lake) == shape_of(classic)
    assert rows_of(lake, COMMITS) == rows_of(classic, COMMITS)
    files, _, properties = shape_of(lake)["commits"]
    assert files == {("c", DAY): 1, (HOSTILE, DAY): 1}
    retention = {
        "delta.deletedFileRetentionDuration": "interval 3 hours",
        "delta.logRetentionDuration": "interval 3 hours",
    }
    assert retention.items() <= dict(properties).items()


def test_data_docs_show_the_same_pages(
    connect_server: ConnectServer, spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    head = {"cluster": "c", "day": DAY, "snapshot_id": SNAPSHOT}
    rows = [
        head | {"plan_id": "p", "group_id": "g", "gate": gate.name, "passed": True, "message": "passed"}
        for gate in GATES
    ]
    with together(spark):
        write_rows(lake, GATE_RESULTS, rows)
        run = {"run_id": "r", "step": "decide", "slot": NOW, "started_at": NOW, "finished_at": NOW}
        write_rows(lake, RUNS, [head | run])
    folder = tmp_path / "docs"
    arguments = ("--config", str(write_policy(lake)), "--cluster", "c", "--folder", str(folder))
    result = result_of(run_module(connect_server.url, "spark_jobs.data_docs", *arguments))
    assert result == {"num_runs": 1, "folder": str(folder)}
    assert SNAPSHOT in (folder / "index.html").read_text(encoding="utf-8")
