"""The lake's upkeep: what is compacted, thinned, removed and deleted, what stays, and that a kill is harmless."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.errors import LakeConflictError, LakeError
from spark_jobs.lake import Lake
from spark_jobs.lake_reader import LakeReader
from spark_jobs.maintain_tables import STEPS, Maintained, maintain_lake
from spark_jobs.settings import Policy
from spark_jobs.table_files import TableFiles, read_table_files
from spark_jobs.tables import (
    AUDITED_SNAPSHOTS,
    COMMITS,
    LAG,
    MEMBERS,
    MEMBERSHIPS,
    OFFSETS,
    OWNERSHIP,
    PLAN_ASSIGNMENTS,
    PLANS,
    RUNS,
    SNAPSHOTS,
    TABLE_HEALTH,
    THINNED_DAYS,
    Table,
)
from spark_jobs.upkeep.health import check_lake, newest_faults
from spark_jobs.upkeep.thinning import hourly
from tests.spark.aged import copy_aged
from tests.spark.snapshots import commit, frame, marker, member, offset

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.jvm

DAY = date(2026, 3, 1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
# The files of a test are written now, whatever day their rows are of.
NOW = datetime.now(UTC)


def policy(**maintenance: Any) -> Policy:
    """Return the settings: by default nothing is done that is not asked for."""
    off = {"target_file_mb": None, "raw_days": None, "orphan_days": None, "vacuum_days": None}
    return Policy(
        lake="unused",
        maintenance={**off, **maintenance},
        clusters={"c": {"bootstrap_servers": "nowhere:9092", "schedule": None}},
    )


def read_at(minute: int, *, is_finished: bool = True, suffix: str = "00000001") -> tuple[str, dict[str, Any]]:
    """Name a reading of the day, and make its marker."""
    at = NOON + timedelta(minutes=minute)
    name = f"{at:%Y%m%dT%H%M%S}000Z-{suffix}"
    times = dict.fromkeys(("started_at", "commits_read_at", "end_read_at", "finished_at"), at)
    return name, marker(snapshot_id=name, slot=at, **times) if is_finished else {}


def write_reading(lake: Lake, minute: int, *, is_finished: bool = True) -> str:
    """Write a reading of three groups as a cycle does: a file a table, the marker last."""
    name, row = read_at(minute, is_finished=is_finished)
    head = {"snapshot_id": name}
    at = NOON + timedelta(minutes=minute)
    groups = ("c", "a", "b")
    parts: tuple[tuple[Table, list[dict[str, Any]]], ...] = (
        (OFFSETS, [offset(0, 10 + minute)]),
        (COMMITS, [commit(0, minute, group=group) for group in groups]),
        (MEMBERS, [member(group=group, held={"t": [0]}, read_at=at) for group in groups]),
        (LAG, [commit(0, minute, group=group, status="OK", slot=at, lag_records=10) for group in groups]),
    )
    for table, rows in parts:
        kept = [{**{k: v for k, v in r.items() if k in table.column_names}, **head} for r in rows]
        lake.append(table, frame(lake.spark, table, kept), None)
    if is_finished:
        lake.append(SNAPSHOTS, frame(lake.spark, SNAPSHOTS, [row]), None)
    return name


def files_of(lake: Lake, table: Table) -> TableFiles:
    """Return what the log says of a table that is there."""
    found = read_table_files(LakeReader(lake.paths.root), table)
    assert found is not None
    return found


def rows_of(lake: Lake, table: Table) -> list[dict[str, Any]]:
    """Return all rows of a table, in a fixed order."""
    rows: list[dict[str, Any]] = LakeReader(lake.paths.root).read(table).to_pylist()
    return sorted(rows, key=str)


def maintain(lake: Lake, now: datetime = NOW, **settings: Any) -> Maintained:
    """Look after a lake; every failure fails the test."""
    steps = settings.pop("steps", STEPS)
    done = maintain_lake(lake, policy(**settings), now, steps=steps)
    assert done.failures == ()
    return done


def test_closed_days_are_compacted_sorted_by_group_and_nothing_else_changes(lake: Lake) -> None:
    for minute in range(4):
        write_reading(lake, minute)
    before = {table.name: rows_of(lake, table) for table in (OFFSETS, COMMITS, MEMBERS, LAG, SNAPSHOTS)}
    on_the_day = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
    assert maintain(lake, on_the_day, target_file_mb=64, steps=("compact",)).done == {}
    done = maintain(lake, target_file_mb=64, steps=("compact",))
    assert done.done == {"compacted": 5}
    for table in (OFFSETS, COMMITS, MEMBERS, LAG, SNAPSHOTS):
        files = files_of(lake, table)
        assert (files.num_files, files.protocol) == (1, (1, 2))
        assert rows_of(lake, table) == before[table.name]
    stored = lake.spark.read.format("delta").load(lake.paths.table(LAG)).select("group_id").collect()
    assert [row.group_id for row in stored] == ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    version = files_of(lake, LAG).version
    assert maintain(lake, target_file_mb=64, steps=("compact",)).done == {}
    assert files_of(lake, LAG).version == version
    # A reading that comes late for a compact day is no reason to write the day anew.
    write_reading(lake, 30)
    assert maintain(lake, target_file_mb=64, steps=("compact",)).done == {}


def test_what_was_never_finished_stays_apart_until_it_is_old_and_then_goes(
    lake: Lake, tmp_path: Path
) -> None:
    finished = [write_reading(lake, minute) for minute in range(3)]
    write_reading(lake, 3, is_finished=False)
    plans = [
        {"plan_id": name, "group_id": "a", "topic_id": "x", "topic": "t", "partition": 0} for name in "pq"
    ]
    for row in plans:
        lake.append(PLAN_ASSIGNMENTS, frame(lake.spark, PLAN_ASSIGNMENTS, [row]), None)
    lake.append(PLANS, frame(lake.spark, PLANS, [{"plan_id": "p", "group_id": "a"}]), None)
    young = maintain(lake, target_file_mb=64, orphan_days=3, steps=("orphans", "compact"))
    # The markers are compacted; the four tables with an unfinished reading wait.
    assert young.done == {"compacted": 1}
    assert len(young.left) == 4
    assert len({row["snapshot_id"] for row in rows_of(lake, COMMITS)}) == 4
    old = Lake(lake.spark, str(copy_aged(lake.paths.local_root, tmp_path / "old", 4)))
    assert [check.table_name for check in bad_checks(old, "ORPHANS")] == [
        "offsets",
        "commits",
        "members",
        "lag",
    ]
    done = maintain(old, target_file_mb=64, orphan_days=3, steps=("orphans", "compact"))
    assert done.done == {"orphans": 5, "compacted": 4}
    for table in (OFFSETS, COMMITS, MEMBERS, LAG):
        assert sorted({row["snapshot_id"] for row in rows_of(old, table)}) == finished
        assert files_of(old, table).num_files == 1
    assert [row["plan_id"] for row in rows_of(old, PLAN_ASSIGNMENTS)] == ["p"]
    assert bad_checks(old, "ORPHANS") == []


def bad_checks(lake: Lake, name: str) -> list[Any]:
    """Return what a kind of check finds at fault."""
    checks = check_lake(LakeReader(lake.paths.root), policy(orphan_days=3).maintenance, "c", None, NOW)
    return [check for check in checks if check.check_name == name and not check.is_ok]


def test_old_days_keep_one_lag_an_hour_and_the_audit_keeps_its_answers(lake: Lake, tmp_path: Path) -> None:
    names = [write_reading(lake, minute) for minute in (0, 5, 65)]
    old = Lake(lake.spark, str(copy_aged(lake.paths.local_root, tmp_path / "old", 4)))
    kept = [names[0], names[2]]
    done = maintain(old, raw_days=30, steps=("thin",))
    assert done.done == {"audited": 1, "begun": 1, "thinned": 1}
    for table in (SNAPSHOTS, LAG):
        assert sorted({row["snapshot_id"] for row in rows_of(old, table)}) == kept
    assert [rows_of(old, table) for table in (OFFSETS, COMMITS, MEMBERS)] == [[], [], []]
    (thinned,) = rows_of(old, THINNED_DAYS)
    assert (thinned["day"], thinned["num_snapshots"], thinned["kept_snapshot_ids"]) == (DAY, 3, kept)
    audited = {table.name: rows_of(old, table) for table in (MEMBERSHIPS, OWNERSHIP, AUDITED_SNAPSHOTS)}
    assert len(audited["audited_snapshots"]) == 3
    assert {row["num_snapshots"] for row in audited["ownership"]} == {3}
    # A second run, and an audit made anew, find nothing to do and lose nothing.
    assert maintain(old, raw_days=30, steps=("thin",)).done == {}
    from spark_jobs.audit_assignments import audit_assignments

    again = audit_assignments(Lake(lake.spark, old.paths.root), "c", rebuild=True)
    assert (again.days, again.kept_days) == ((), (DAY,))
    for table in (MEMBERSHIPS, OWNERSHIP, AUDITED_SNAPSHOTS):
        assert rows_of(old, table) == audited[table.name]


def test_a_reading_made_long_after_its_slot_keeps_its_day(lake: Lake) -> None:
    write_reading(lake, 0)
    name, row = read_at(5)
    late = {**row, "started_at": NOW, "finished_at": NOW}
    lake.append(SNAPSHOTS, frame(lake.spark, SNAPSHOTS, [late]), None)
    assert maintain(lake, raw_days=30, steps=("thin",)).done == {}
    assert name in {row["snapshot_id"] for row in rows_of(lake, SNAPSHOTS)}


def test_the_first_reading_of_each_hour_is_chosen_again_from_what_was_chosen() -> None:
    slots = [(NOON + timedelta(minutes=7 * number), f"{number:03d}") for number in range(40)]
    kept = hourly(reversed(slots))
    assert len(kept) == 5
    assert hourly([slot for slot in slots if slot[1] in kept]) == kept
