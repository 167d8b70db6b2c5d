"""Maintenance: what is compacted, downsampled, removed and deleted, what remains, and kills in between."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.enums import MaintenanceStep
from evenlag.errors import LakeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import TableFiles, read_table_files
from evenlag.lake.tables import (
    AUDITED_SNAPSHOTS,
    COMMITS,
    LAG,
    MEMBERS,
    OFFSETS,
    SNAPSHOTS,
    TABLE_HEALTH,
    Table,
)
from evenlag.lake.upkeep.direct_tables import rewrite_days
from evenlag.lake.writer import append_once
from evenlag.monitoring.lake_health import Check, check_lake, keep_checks, newest_faults
from evenlag.policy.settings import Policy
from spark_jobs.maintain import maintain_lake
from spark_jobs.maintenance.maintenance_run import MaintenanceRun
from spark_jobs.runtime.delta_lake import Lake
from tests.support.lakes.aged import copy_aged
from tests.support.lakes.snapshots import HEAD, append_rows, commit, frame, marker, member, offset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

pytestmark = pytest.mark.jvm

DAY = date(2026, 3, 1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
READINGS = (OFFSETS, COMMITS, MEMBERS, LAG)


def policy(**maintenance: Any) -> Policy:
    """Return the settings: nothing is done that is not asked for."""
    off = {"target_file_mb": None, "raw_days": None, "orphan_days": None, "vacuum_days": None}
    clusters = {"c": {"bootstrap_servers": "nowhere:9092", "schedule": None}}
    return Policy.model_validate(
        {"lake": "unused", "maintenance": {**off, **maintenance}, "clusters": clusters}
    )


def named(minute: int) -> str:
    """Return the id of the snapshot of a minute after noon."""
    return f"{NOON + timedelta(minutes=minute):%Y%m%dT%H%M%S}000Z-00000001"


def marker_at(minute: int, **more: Any) -> dict[str, Any]:
    """Return the marker of a snapshot."""
    at = NOON + timedelta(minutes=minute)
    times = dict.fromkeys(("started_at", "commits_read_at", "end_read_at", "finished_at"), at)
    return marker(snapshot_id=named(minute), slot=at, **{**times, **more})


def write(lake: Lake, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as cycles do, one file per snapshot: in one commit by Spark, in one each by deltalake."""
    if table.writer == "direct":
        for row in rows:
            append_rows(lake.paths.root, table, [row])
        return
    kept = [{name: row[name] for name in table.column_names if name in row} for row in rows]
    files = len({row.get("snapshot_id") for row in kept})
    parts = frame(lake.spark, table, kept).repartitionByRange(files, "snapshot_id")
    lake.append(table, parts, files=files)


def write_readings(
    lake: Lake, minutes: Sequence[int], tables: Sequence[Table] = READINGS, *, unfinished: Sequence[int] = ()
) -> list[str]:
    """Write snapshots of three groups; the unfinished ones have no marker."""
    makers: dict[str, Callable[..., dict[str, Any]]] = {
        "offsets": lambda minute, **more: offset(0, 10 + minute, **more),
        "commits": lambda minute, **more: commit(0, minute, **more),
        "members": lambda _, group, **more: member(group=group, held={"t": [0]}, **more),
        "lag": lambda minute, **more: commit(0, minute, status="OK", lag_records=10, **more),
    }
    for table in tables:
        groups: list[dict[str, str]] = [{}] if table is OFFSETS else [{"group": name} for name in "cab"]
        rows = [
            makers[table.name](
                minute,
                **group,
                snapshot_id=named(minute),
                slot=NOON + timedelta(minutes=minute),
                read_at=NOON + timedelta(minutes=minute),
            )
            for minute in (*minutes, *unfinished)
            for group in groups
        ]
        write(lake, table, rows)
    write(lake, SNAPSHOTS, [marker_at(minute) for minute in minutes])
    return [named(minute) for minute in minutes]


def files_of(lake: Lake, table: Table) -> TableFiles:
    """Return what the log says of a table that is there."""
    found = read_table_files(LakeReader(lake.paths.root), table)
    assert found is not None
    return found


def num_files(lake: Lake, table: Table) -> int:
    """Return how many files the log has of a table that is there."""
    return sum(map(len, files_of(lake, table).by_part.values()))


def rows_of(lake: Lake, table: Table) -> list[dict[str, Any]]:
    """Return all rows of a table, in a fixed order."""
    rows: list[dict[str, Any]] = LakeReader(lake.paths.root).read(table).to_pylist()
    return sorted(rows, key=str)


def ids_of(lake: Lake, table: Table) -> list[str]:
    """Return the snapshots that a table contains rows of."""
    return sorted({row["snapshot_id"] for row in rows_of(lake, table)})


def aged(lake: Lake, folder: Path, days: int) -> Lake:
    """Return a copy of a lake that was written so many days earlier."""
    return Lake(lake.spark, str(copy_aged(lake.paths.local_root, folder, days)))


def maintain(lake: Lake, *steps: str, now: datetime | None = None, **settings: Any) -> MaintenanceRun:
    """Look after a lake; every failure fails the test."""
    done = maintain_lake(
        lake, policy(**settings), now or datetime.now(UTC), steps=steps or tuple(MaintenanceStep)
    )
    assert done.failures == []
    return done


def bad_checks(lake: Lake, name: str, **settings: Any) -> list[str]:
    """Return the tables that a kind of check finds at fault."""
    reader, now = LakeReader(lake.paths.root), datetime.now(UTC)
    checks = check_lake(reader, policy(**settings).maintenance, "c", None, now)
    return [check.table_name for check in checks if check.check_name == name and not check.is_ok]


def test_closed_days_are_compacted_sorted_by_group_and_nothing_else_changes(lake: Lake) -> None:
    write_readings(lake, range(4), (LAG,))
    before = {table.name: rows_of(lake, table) for table in (LAG, SNAPSHOTS)}
    open_day = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
    assert maintain(lake, "compact", now=open_day, target_file_mb=64).done == {}
    planned = maintain_lake(
        lake, policy(target_file_mb=64), datetime.now(UTC), steps=("compact",), is_dry_run=True
    )
    assert (planned.done, num_files(lake, LAG)) == ({"compacted": 2}, 4)
    assert maintain(lake, "compact", target_file_mb=64).done == {"compacted": 2}
    for table in (LAG, SNAPSHOTS):
        assert (num_files(lake, table), files_of(lake, table).protocol) == (1, (1, 2))
        assert rows_of(lake, table) == before[table.name]
    stored = lake.spark.read.format("delta").load(lake.paths.table(LAG)).select("group_id").collect()
    assert [row.group_id for row in stored] == ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    # A late snapshot of a compacted day is no reason to write the day again.
    write(lake, SNAPSHOTS, [marker_at(30)])
    assert maintain(lake, "compact", target_file_mb=64).done == {}


@pytest.mark.extended
@pytest.mark.parametrize("compacts", ["nobody", "maintenance", "somebody else"])
def test_what_was_never_finished_goes_when_it_is_old_whoever_has_compacted_it(
    compacts: str, lake: Lake, tmp_path: Path
) -> None:
    finished = write_readings(lake, range(3), (COMMITS,), unfinished=(3,))
    limits: dict[str, Any] = {"target_file_mb": 64, "orphan_days": 3}
    if compacts == "maintenance":
        assert maintain(lake, "orphans", "compact", **limits).done == {"compacted": 2}
    elif compacts == "somebody else":
        lake.spark.sql(f"OPTIMIZE {lake.sql_name(COMMITS)}").collect()
    assert len(ids_of(lake, COMMITS)) == 4
    # Of a file of its own the log says when it was written, of others the day of the slot.
    assert bad_checks(lake, "ORPHANS", **limits) == ([] if compacts == "nobody" else ["commits"])
    old = aged(lake, tmp_path / "old", 4)
    assert bad_checks(old, "ORPHANS", **limits) == ["commits"]
    assert maintain(old, "orphans", **limits).done == {"orphans": 1}
    assert ids_of(old, COMMITS) == finished
    assert bad_checks(old, "ORPHANS", **limits) == []


@pytest.mark.extended
def test_cycles_and_maintenance_at_the_same_time_do_not_fail_each_other(lake: Lake) -> None:
    write_readings(lake, range(3), (COMMITS,))
    errors: list[BaseException] = []
    is_over = threading.Event()
    late = range(100, 106)

    def cycles() -> None:
        mine = Lake(lake.spark, lake.paths.root)
        try:
            for minute in late:
                write(mine, COMMITS, [commit(0, 1, snapshot_id=named(minute))])
                append_once(mine.paths.root, SNAPSHOTS, [HEAD | marker_at(minute)], None)
        except BaseException as error:  # noqa: BLE001 - reported to the test
            errors.append(error)
        finally:
            is_over.set()

    thread = threading.Thread(target=cycles)
    thread.start()
    rounds = 0
    while not is_over.is_set() or rounds == 0:
        maintain(lake, "compact", target_file_mb=64)
        rounds += 1
    thread.join()
    assert errors == []
    expected = sorted([named(minute) for minute in (*range(3), *late)])
    assert (ids_of(lake, SNAPSHOTS), ids_of(lake, COMMITS)) == (expected, expected)
    assert len(rows_of(lake, SNAPSHOTS)) == len(expected)


@pytest.mark.extended
def test_vacuum_deletes_what_was_replaced_longer_ago_and_nothing_younger(lake: Lake, tmp_path: Path) -> None:
    row = {"slot": NOON, "started_at": NOON, "finished_at": NOON, "input_hash": "b"}
    for _ in range(2):
        rows = frame(lake.spark, AUDITED_SNAPSHOTS, [row])
        lake.replace_days(AUDITED_SNAPSHOTS, rows, "c", [DAY])
    for minute in range(3):
        check = Check("lag", "LOG", is_ok=True, observed="", allowed="", message="")
        keep_checks(lake.paths.root, "c", [check], NOON + timedelta(minutes=minute))
    assert maintain(lake, "compact", target_file_mb=64).done == {"compacted": 1}
    old = aged(lake, tmp_path / "old", 8)
    assert maintain(old, "vacuum", vacuum_days=9).done == {"trimmed": 2, "vacuumed": 2}
    assert (parquet_files(old, AUDITED_SNAPSHOTS), parquet_files(old, TABLE_HEALTH)) == (2, 4)
    assert maintain(old, "vacuum", vacuum_days=7).done == {"trimmed": 2, "vacuumed": 2}
    for table in (AUDITED_SNAPSHOTS, TABLE_HEALTH):
        assert parquet_files(old, table) == num_files(old, table) == 1
        assert rows_of(old, table) == rows_of(lake, table)
    assert bad_checks(old, "PROPERTIES") == []
    # A query that began before reads files that are old, and were replaced since.
    lake = aged(lake, tmp_path / "replaced", 8)
    lake.replace_days(AUDITED_SNAPSHOTS, frame(lake.spark, AUDITED_SNAPSHOTS, [row]), "c", [DAY])
    rewrite_days(lake.paths, TABLE_HEALTH, "c", (DAY, DAY), 1)
    assert maintain(lake, "vacuum", vacuum_days=1).done == {"trimmed": 2, "vacuumed": 2}
    assert (parquet_files(lake, AUDITED_SNAPSHOTS), parquet_files(lake, TABLE_HEALTH)) == (2, 2)


def parquet_files(lake: Lake, table: Table) -> int:
    """Count the data files of a table, those that were replaced included."""
    return len(list((lake.paths.local_root / table.name).glob("cluster=*/**/*.parquet")))


def test_checks_are_kept_and_the_newest_of_them_are_told_of(lake: Lake) -> None:
    write_readings(lake, range(60), ())
    first = maintain(lake, "check", target_file_mb=64)
    assert [message.split(":")[0] for message in first.unhealthy] == ["snapshots of c"]
    reader, now = LakeReader(lake.paths.root), datetime.now(UTC)
    faults = newest_faults(reader, "c", now)
    assert faults is not None
    assert list(faults) == ["snapshots"]
    assert "60 in 2026-03" in faults["snapshots"]
    assert newest_faults(reader, "other", now) is None
    assert maintain(lake, "compact", "check", target_file_mb=64).unhealthy == []
    assert newest_faults(reader, "c", now) == {}
    assert {row["check_name"] for row in rows_of(lake, TABLE_HEALTH)} >= {
        "SCHEMA",
        "PROTOCOL",
        "LOG",
        "FILES",
    }


def test_a_table_that_fails_is_set_aside_and_the_others_are_looked_after(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_readings(lake, range(3), (LAG,))
    write_once = Lake.write

    def fail_on_lag(self: Lake, table: Table, work: Callable[[], object]) -> None:
        if table is LAG:
            raise LakeError("no")
        write_once(self, table, work)

    monkeypatch.setattr(Lake, "write", fail_on_lag)
    done = maintain_lake(lake, policy(target_file_mb=64), datetime.now(UTC), steps=("compact",))
    assert done.done == {"compacted": 1}
    assert done.failures == ["compact 3 files of lag of c on 2026-03-01: no"]
