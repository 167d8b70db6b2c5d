"""The checks of a snapshot: one row, verdicts that are written once, and what a failure stops."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.enums import OnFailure
from evenlag.errors import QualityCheckError
from evenlag.lake import snapshot_reader
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import COMMITS, DECISIONS, LAG, MEMBERS, OFFSETS, PLANS, QUALITY_RESULTS, RUNS
from evenlag.policy.cluster_settings import QualitySettings
from evenlag.policy.loader import parse_policy
from evenlag.quality.checks import CHECKS
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps import check_snapshot as checking
from spark_jobs.steps import cycle_steps
from spark_jobs.steps.check_snapshot import check_snapshot, stop_reason, try_check_snapshot
from spark_jobs.steps.snapshot_rows import SnapshotRows
from tests.support.lakes.cycle_lake import FIRST, POLICY, SECOND, write_snapshot
from tests.support.lakes.snapshots import NOW

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm

# The lake's times are of a fixed day.
LATER = NOW + timedelta(hours=1)
WARN = QualitySettings(max_age_s=86_400)
STOP = WARN.model_copy(update={"on_failure": OnFailure.STOP})


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Mapping[str, Any]]:
    """The markers of two snapshots by id, and their lake: in the second one partition has two owners."""
    lake = Lake(spark, str(tmp_path_factory.mktemp("checked") / "lake"))
    two_owners = {"billing": {"m-1": [0, 1], "m-2": [1, 2, 3]}}
    found = {
        snapshot_id: write_snapshot(lake, snapshot_id, owners, is_kept=True).marker
        for snapshot_id, owners in ((FIRST, {}), (SECOND, two_owners))
    }
    return {**found, "root": {"path": lake.paths.root}}


@pytest.fixture
def snapshot(
    spark: SparkSession, written: dict[str, Mapping[str, Any]], tmp_path: Path
) -> Callable[..., SnapshotRows]:
    """Return a function that returns a snapshot's rows in a copy of the lake."""
    root = shutil.copytree(Path(written["root"]["path"]), tmp_path / "lake")

    def of(snapshot_id: str, **more: Any) -> SnapshotRows:
        return SnapshotRows(Lake(spark, str(root)), LakeReader(str(root)), {**written[snapshot_id], **more})

    return of


def failed(results: list[dict[str, Any]]) -> dict[str, str]:
    return {row["check_name"]: row["observed"] for row in results if not row["passed"]}


def test_rows_of_the_tables_and_rows_in_memory_have_the_same_verdicts(
    snapshot: Callable[..., SnapshotRows], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failed(check_snapshot(snapshot(FIRST), WARN, "r", LATER)) == {}
    read = check_snapshot(snapshot(SECOND), WARN, "r", LATER)
    assert failed(read) == {"one_owner": "1"}
    assert [row["check_name"] for row in read] == [check.name for check in CHECKS]
    assert {row["observed"] for row in read if row["check_name"] == "offsets_not_backwards"} == {"0"}

    shutil.rmtree(tmp_path / "lake" / QUALITY_RESULTS.name)
    kept = snapshot(SECOND)
    for table in (OFFSETS, COMMITS, MEMBERS, LAG):
        kept.keep(table, kept.reader.read(table, filters=kept.filters))
    assert check_snapshot(kept, WARN, "r", LATER) == read

    shutil.rmtree(tmp_path / "lake" / QUALITY_RESULTS.name)
    monkeypatch.setattr(snapshot_reader, "MAX_DRIVER_ROWS", 3)
    monkeypatch.setattr(snapshot_reader, "_ROWS_PER_BATCH", 8)
    large = snapshot(SECOND)
    assert len(list(large.group_batches(large.rows(MEMBERS)["group_id"].to_pylist()))) > 1
    assert check_snapshot(large, WARN, "r", LATER) == read


def test_an_end_that_fell_is_found_beside_the_snapshot_before(snapshot: Callable[..., SnapshotRows]) -> None:
    # As if the first snapshot, whose ends are lower, had been taken after the second one.
    at = LATER - timedelta(minutes=1)
    rows = snapshot(FIRST, end_read_at=at, finished_at=at)
    # Four partitions of one topic, and one of the other.
    assert failed(check_snapshot(rows, WARN, "r", LATER)) == {"offsets_not_backwards": "5"}


def test_the_first_verdicts_count(snapshot: Callable[..., SnapshotRows]) -> None:
    first = check_snapshot(snapshot(FIRST), QualitySettings(max_age_s=60), "one", LATER)
    assert failed(first) == {"snapshot_fresh": "3600.0"}
    assert failed(check_snapshot(snapshot(FIRST), WARN, "two", LATER)) == failed(first)
    recorded = snapshot(FIRST).reader.read(QUALITY_RESULTS)
    assert recorded.num_rows == len(CHECKS)
    assert set(recorded["run_id"].to_pylist()) == {"one"}


def test_a_failed_check_stops_planning_only_where_the_policy_says_so(
    snapshot: Callable[..., SnapshotRows],
) -> None:
    assert stop_reason(snapshot(SECOND), WARN, "r", LATER) is None
    # A snapshot whose observe was killed before its checks is checked by decide.
    assert snapshot(SECOND).reader.read(QUALITY_RESULTS).num_rows == 0
    # Two members own a partition of one group, which gets no plan: the others do.
    assert failed(check_snapshot(snapshot(SECOND), STOP, "r", LATER)).keys() == {"one_owner"}
    assert stop_reason(snapshot(SECOND), STOP, "r", LATER) is None
    old = STOP.model_copy(update={"max_age_s": 60})
    reason = stop_reason(snapshot(FIRST), old, "r", LATER)
    assert reason is not None
    assert reason.startswith("snapshot_fresh: ")


def test_decide_makes_no_plan_of_a_snapshot_that_fails_and_keeps_a_decision(
    snapshot: Callable[..., SnapshotRows], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = snapshot(SECOND)
    monkeypatch.setattr(cycle_steps, "_fresh_marker", lambda *_: rows.marker)
    check_snapshot(rows, QualitySettings(max_age_s=60), "observe", LATER)

    def run(on_failure: str, run_id: str) -> dict[str, Any]:
        text = POLICY.replace("/nowhere", rows.reader.paths.root)
        text = text.replace(
            '"localhost:9092"', f'"localhost:9092", quality: {{on_failure: {on_failure}, max_age_s: 60}}'
        )
        loaded = parse_policy(text, environ={})
        return cycle_steps.run_decide(rows.lake.spark, loaded, "c", rows.marker["slot"], run_id)

    stopped = run("stop", "one")
    assert (stopped["plans"], stopped["failed"]) == (0, 0)
    assert "snapshot_fresh" in stopped["stopped"]
    assert not rows.reader.exists(DECISIONS)
    assert not rows.reader.exists(PLANS)
    (record,) = rows.reader.read(RUNS).to_pylist()
    assert "snapshot_fresh" in json.loads(record["summary"])["stopped"]

    warned = run("warn", "two")
    assert warned["plans"] > 0
    assert "stopped" not in warned
    # The decision is made: a stricter policy keeps it.
    assert run("stop", "three")["plans"] == warned["plans"]


def test_checks_that_cannot_run_cost_no_snapshot_but_stop_planning(
    snapshot: Callable[..., SnapshotRows], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = replace(CHECKS[0], observed="made_up")
    monkeypatch.setattr(checking, "CHECKS", (broken, *CHECKS[1:]))
    shown = try_check_snapshot(snapshot(FIRST), WARN, "r", LATER)
    assert shown["checks"] == 0
    assert "made_up" in shown["unchecked"]
    assert "made_up" in caplog.text
    with pytest.raises(QualityCheckError, match="made_up"):
        stop_reason(snapshot(FIRST), STOP, "r", LATER)
    assert not snapshot(FIRST).reader.exists(QUALITY_RESULTS)
