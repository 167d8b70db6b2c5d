"""The audit day by day: killed between two days, a new version under a budget, a late snapshot.

These tests are of the days that are committed, and of the snapshots that each is of. What the rows of a day
say is tested in ``test_audit.py``; here days have none, so that Spark plans no large queries for them.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.audit.pending_days import hash_snapshots, read_audit_days, read_progress
from evenlag.errors import LakeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import (
    AUDITED_SNAPSHOTS,
    MEMBERS,
    MEMBERSHIPS,
    OFFSETS,
    OWNERSHIP,
    SNAPSHOTS,
    Table,
)
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps import audit_ownership
from spark_jobs.steps.audit_ownership import audit_assignments
from spark_jobs.transforms import audit_intervals
from tests.support.lakes.aged import copy_aged
from tests.support.lakes.snapshots import HEAD, marker, member, offset
from tests.support.spark_tables import together, write_rows
from tests.truth.oracle.delta_files import read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.extended, pytest.mark.jvm]

DAYS = (date(2026, 1, 10), date(2026, 1, 31), date(2026, 3, 1))


@pytest.fixture(autouse=True)
def no_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the intervals of a day out; all that decides about days, and every commit, is the product's."""
    for name, table in (("build_memberships", MEMBERSHIPS), ("build_ownership", OWNERSHIP)):
        empty = spark.createDataFrame([], table.ddl)
        monkeypatch.setattr(audit_intervals, name, lambda *_, rows=empty: rows)


def write_snapshots(lake: Lake, *moments: datetime, slot_day: date | None = None) -> list[str]:
    """Write finished snapshots of one group, which started at these moments."""
    rows: dict[Table, list[Any]] = {MEMBERS: [], OFFSETS: [], SNAPSHOTS: []}
    for at in moments:
        slot = at if slot_day is None else datetime.combine(slot_day, at.timetz())
        own = HEAD | {"day": slot.date(), "snapshot_id": f"{slot:%Y%m%dT%H%M%S}000Z-{at:%m%d%H%M}"}
        rows[MEMBERS].append(own | member(held={"t": [0]}, read_at=at))
        rows[OFFSETS].append(own | offset(0, 10, end_read_at=at))
        rows[SNAPSHOTS].append(own | marker(slot=slot, started_at=at, finished_at=at + timedelta(seconds=5)))
    with together(lake.spark):
        for table, found in rows.items():
            write_rows(lake.paths.root, table, found)
    return [row["snapshot_id"] for row in rows[SNAPSHOTS]]


def noon(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def audited(lake: Lake) -> dict[date, tuple[set[str], set[str]]]:
    """Snapshots and hashes by day, as a reader of its own finds them."""
    found: dict[date, tuple[set[str], set[str]]] = {}
    for row in read_rows(lake.paths.local_root, AUDITED_SNAPSHOTS.name):
        ids, hashes = found.setdefault(date.fromisoformat(str(row["day"])[:10]), (set(), set()))
        ids.add(row["snapshot_id"])
        hashes.add(row["input_hash"])
    return found


class _DyingLake(Lake):
    """A lake whose process ends while it writes the ownership of one of the days."""

    dies_on = DAYS[1]

    def replace_days(
        self, table: Table, frame: DataFrame, cluster: str, days: Any, *, sort_by: tuple[str, ...] = ()
    ) -> None:
        if table is OWNERSHIP and self.dies_on in days:
            raise LakeError("killed")
        super().replace_days(table, frame, cluster, days, sort_by=sort_by)


def test_days_are_committed_one_by_one_and_continued(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, str(tmp_path / "lake"))
    ids = write_snapshots(lake, *map(noon, DAYS))
    expected = {day: ({name}, {hash_snapshots({name}, 1)}) for day, name in zip(DAYS, ids, strict=True)}

    # Killed in the second day: the first one is there, and is not audited again.
    with pytest.raises(LakeError, match="killed"):
        audit_assignments(_DyingLake(spark, lake.paths.root), "c")
    assert audited(lake) == {DAYS[0]: expected[DAYS[0]]}
    found: list[tuple[int, int]] = []
    done = audit_assignments(lake, "c", progress=lambda _, done, total: found.append((done, total)))
    assert (done.days, done.left_from) == (DAYS[1:], None)
    assert audited(lake) == expected
    # 51 days from the first to the last one; the second is 21 days after the first.
    assert found == [(21, 51), (50, 51), (51, 51)]

    # A new version, and time for one day in each run.
    monkeypatch.setattr(audit_ownership, "AUDIT_VERSION", 2)
    for number, day in enumerate(DAYS):
        done = audit_assignments(lake, "c", budget_s=0)
        left = DAYS[number + 1] if number < len(DAYS) - 1 else None
        assert (done.days, done.left_from) == ((day,), left)
    assert {day: hashes for day, (_, hashes) in audited(lake).items()} == {
        day: {hash_snapshots({name}, 2)} for day, name in zip(DAYS, ids, strict=True)
    }
    assert audit_assignments(lake, "c", budget_s=0).days == ()

    # A rebuild is continued too, though no hash says which days it has done, and only once.
    assert audit_assignments(lake, "c", rebuild=True, budget_s=0).days == DAYS[:1]
    assert audit_assignments(lake, "c").days == DAYS[1:]
    assert audit_assignments(lake, "c").days == ()


def test_a_late_snapshot_of_an_old_day_is_found_without_reading_all_days(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = Lake(spark, str(tmp_path / "lake"))
    write_snapshots(young, *map(noon, DAYS[:2]))
    assert audit_assignments(young, "c").days == DAYS[:2]
    assert read_progress(LakeReader(young.paths.root), "c") is not None
    # Written ten days before the last audit.
    lake = Lake(spark, str(copy_aged(tmp_path / "lake", tmp_path / "aged", 10)))

    compared: list[date] = []
    compare = read_audit_days

    def note(reader: LakeReader, cluster: str, days: Any, **options: Any) -> Any:
        for day in compare(reader, cluster, days, **options):
            compared.append(day.day)
            yield day

    monkeypatch.setattr(audit_ownership, "read_audit_days", note)
    assert audit_assignments(lake, "c").days == ()
    assert compared == []
    # Its marker is written today. It started on an old day, for a slot of the day before.
    (late,) = write_snapshots(lake, noon(DAYS[0]) + timedelta(hours=1), slot_day=DAYS[0] - timedelta(days=1))
    assert audit_assignments(lake, "c").days == DAYS[:1]
    assert compared == [DAYS[0]]
    assert late in audited(lake)[DAYS[0]][0]

    # Maintenance asks for the days of some slots only, and leaves the others.
    write_snapshots(lake, *(noon(day) + timedelta(hours=2) for day in DAYS))
    assert audit_assignments(lake, "c", slot_days={DAYS[1]}).days == (DAYS[1],)
    assert audit_assignments(lake, "c").days == (DAYS[0], DAYS[2])
