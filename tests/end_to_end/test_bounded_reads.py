"""No read of a cycle, of the commands and of the page goes through the history of a lake.

The lake has four months of rows in the tables that a cycle or a day writes, as far as they are kept. Each
read is recorded with the files that it selects: a read that is not bounded selects files of old months.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from typer.testing import CliRunner

from evenlag.audit.pending_days import AuditProgress, record_progress
from evenlag.cli.app import app
from evenlag.doctor.lake_checks import check_unfinished
from evenlag.lake.file_pruning import bounds
from evenlag.lake.reader import LakeReader
from evenlag.lake.run_records import keep_policy, open_since
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS, SNAPSHOTS, TABLES
from evenlag.lake.upkeep import orphans
from evenlag.monitoring.alerts import find_changes, record_changes
from evenlag.overview.metrics import read_metrics
from evenlag.overview.views import MAX_ROWS
from evenlag.planning.plan_history import read_history
from evenlag.policy.loader import parse_policy
from evenlag.publishing.approvals import find_waiting, open_requests
from evenlag.publishing.plan_outcomes import find_open_since, read_published, score_plans, settle_outcomes
from evenlag.publishing.publish import read_last_sequences
from evenlag.publishing.publishable_plans import read_publishable
from evenlag.report.read_report import read_report
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.audit_ownership import AUDIT_VERSION, audit_assignments
from spark_jobs.steps.cycle_steps import run_decide
from spark_jobs.steps.snapshot_rows import SnapshotRows
from tests.support.lakes.old_lake import OldLake
from tests.support.lakes.old_rows import OldRows
from tests.support.lakes.old_shape import Shape
from tests.support.spark_tables import together, write_rows
from tests.truth.oracle.delta_files import live_files, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table

pytestmark = pytest.mark.extended

DAYS: Final = 130
SHAPE: Final = Shape(groups=3, partitions=4, members=2, step_s=3_600)
# Whatever is older lies in a month that no bound reaches.
REACH: Final = timedelta(days=32)
POLICY: Final = """\
lake: {lake}
clusters: {{c: {{bootstrap_servers: "localhost:9092", schedule: null}}}}
groups: [{{match: "*", mode: auto, reset_policy: earliest, min_gain: 0.01}}]
"""


@dataclass
class Recorder:
    """Files that reads select: by table, the oldest of their newest possible days, and their number."""

    oldest: dict[str, date] = field(default_factory=dict)
    num_files: int = 0

    def note(self, table: Table, files: Any, schema: Any) -> None:
        found = bounds(files, "day", schema.field("day").type)
        days = [] if found is None else found[1].to_pylist()
        self.num_files += files.num_rows
        for day in days:
            self.oldest[table.name] = min(self.oldest.get(table.name, day), day)

    def take(self) -> dict[str, date]:
        """Return what was selected since the last call."""
        found, self.oldest = self.oldest, {}
        return found


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, now = tmp_path_factory.mktemp("old") / "lake", datetime.now(UTC)
    OldLake(root, DAYS, now, cluster="c", kafka_cluster_id="k", shape=SHAPE).write()
    # All files are of today. The audit compares what was written since its last run, less a day.
    record_progress(str(root), "c", AuditProgress(AUDIT_VERSION, now + timedelta(days=2)), now)
    return root


@pytest.fixture
def selected(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    made = LakeReader._dataset  # what a read touches is nowhere to be seen from outside

    def recording(reader: LakeReader, table: Table, files: Any, schema: Any) -> Any:
        recorder.note(table, files, schema)
        return made(reader, table, files, schema)

    monkeypatch.setattr(LakeReader, "_dataset", recording)
    return recorder


def test_a_cycle_and_all_that_follows_it_read_no_old_month(
    old: Path, selected: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All files are of today. The ids in files that were written before are not read again.
    monkeypatch.setattr(orphans, "_READ_FOR", -timedelta(days=365))
    loaded = parse_policy(POLICY.format(lake=old), environ={})
    reader, now = LakeReader(str(old)), datetime.now(UTC)
    marker = reader.latest_snapshot("c")
    assert marker is not None
    slot = marker["slot"]
    assert now - slot < timedelta(hours=25)
    for _ in range(2):
        keep_policy(reader, "c", slot, loaded)
    # Nothing here needs Spark.
    current = SnapshotRows(SimpleNamespace(paths=reader.paths), reader, marker)  # type: ignore[arg-type]  # as said
    published = read_published(reader, "c")
    # Of three days, not of four months.
    assert 2 * 24 * SHAPE.plans < len(published) <= 4 * 24 * SHAPE.plans
    settle_outcomes(current, published, "r")
    assert score_plans(current, published, "r") > 0
    find_open_since(current, published)
    assert open_since(reader, "c") is not None
    read_history(reader, loaded.policy, "c", slot)
    read_publishable(loaded, "c", slot)
    assert read_last_sequences(str(old), "c", now).by_group
    assert find_waiting(loaded, "c", slot) == []
    assert open_requests(reader, "c", now) == {}
    record_changes(loaded, "c", find_changes(loaded, "c", now), run_id="r", now=now)
    assert read_metrics(str(old), "c", now)["plans.made"] == SHAPE.plans
    check_unfinished(reader, now)
    report = read_report(reader, "c", "group-0001", hours=24, max_rows=MAX_ROWS)
    assert report.timeline is not None
    for words in (
        ["plans"],
        ["plans", "--group", "group-0001"],
        ["plans", published[0].plan_id],
        ["lag"],
        ["report", "group-0001", f"--file={tmp_path / 'report.html'}"],
        ["audit", "owner", "group-0001"],
        ["audit", "adherence", "group-0001"],
        ["audit", "anomalies"],
        ["lake", "status"],
    ):
        done = CliRunner().invoke(app, [*words, "--lake", str(old)])
        assert done.exit_code == 0, (words, done.output)
    limit = (now - REACH).date()
    assert {name: day for name, day in selected.take().items() if day < limit} == {}


def test_an_unbounded_read_is_noticed(old: Path, selected: Recorder) -> None:
    LakeReader(str(old)).read(SNAPSHOTS, columns=["slot"], filters=[("cluster", "=", "c")])
    assert selected.take()[SNAPSHOTS.name] < datetime.now(UTC).date() - timedelta(days=62)


def test_the_number_of_files_of_a_bounded_read_does_not_depend_on_the_age(
    old: Path, selected: Recorder
) -> None:
    assert LakeReader(str(old)).latest_snapshot("c") is not None
    # The newest file decides; with a tie in the statistics one more.
    assert 1 <= selected.num_files <= 2


def test_spark_decides_and_audits_on_the_old_lake_and_reads_no_old_month(
    spark: SparkSession, old: Path, selected: Recorder
) -> None:
    loaded, lake = parse_policy(POLICY.format(lake=old), environ={}), Lake(spark, str(old))
    now = datetime.now(UTC)
    slot = now.replace(microsecond=0) - timedelta(seconds=30)
    at = np.array([slot.replace(tzinfo=None)], dtype="datetime64[s]")
    with together(spark):
        for table in (OFFSETS, COMMITS, MEMBERS, LAG, SNAPSHOTS):
            write_rows(old, table, OldRows("c", "k", SHAPE).rows(table, at))
    keep_policy(LakeReader(str(old)), "c", slot, loaded)
    selected.take()
    decided = run_decide(spark, loaded, "c", slot, "r")
    assert decided["plans"] == SHAPE.groups, decided
    assert audit_assignments(lake, "c").left_from is None
    limit = (now - REACH).date()
    assert {name: day for name, day in selected.take().items() if day < limit} == {}


def test_spark_deltalake_and_an_independent_reader_read_the_old_lake(spark: SparkSession, old: Path) -> None:
    from deltalake import DeltaTable

    reader, lake = LakeReader(str(old)), Lake(spark, str(old))
    for table in TABLES.values():
        if not reader.exists(table):
            continue
        by_log = sum(file.num_rows_in_log or 0 for file in live_files(old / table.name))
        by_deltalake = DeltaTable(str(old / table.name)).to_pyarrow_dataset().count_rows()
        assert (by_deltalake, reader.count(table, filters=[("cluster", "=", "c")])) == (by_log, by_log)
        if table.writer == "spark":
            assert lake.read(table).count() == by_log, table.name
    # Whole rows, as all three read them.
    since = datetime.now(UTC).date() - timedelta(days=1)
    for table in (LAG, MEMBERS):
        ours = reader.read(table, filters=[("day", ">=", since)]).to_pylist()
        truth = [row for row in read_rows(old, table.name) if str(row["day"])[:10] >= since.isoformat()]
        by_spark = lake.read(table).where(f"day >= DATE '{since}'").toArrow().to_pylist()
        assert _texts(ours) == _texts(truth) == _texts(by_spark), table.name
        assert len(ours) > 0


def _texts(rows: list[dict[str, Any]]) -> list[str]:
    names = ("snapshot_id", "group_id", "partition", "member_id", "lag_records")
    return sorted(str([row.get(name) for name in names]) for row in rows)
