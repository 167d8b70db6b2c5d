"""Old days keep one lag an hour, and a kill at any write is harmless."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import SnapshotNotFoundError
from evenlag.lake.tables import (
    AUDITED_SNAPSHOTS,
    COMMITS,
    DOWNSAMPLED_DAYS,
    LAG,
    MEMBERS,
    MEMBERSHIPS,
    OFFSETS,
    OWNERSHIP,
    SNAPSHOTS,
    Table,
)
from evenlag.lake.upkeep.direct_tables import delete_part, delete_snapshots
from evenlag.policy.loader import LoadedPolicy
from spark_jobs.compare import Request, run_compare
from spark_jobs.maintenance import retention
from spark_jobs.maintenance.retention import hourly
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.audit_ownership import audit_assignments
from tests.spark_jobs.test_maintain import (
    DAY,
    NOON,
    aged,
    ids_of,
    maintain,
    marker_at,
    policy,
    rows_of,
    write,
    write_readings,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from evenlag.lake.location import LakePaths

pytestmark = [pytest.mark.extended, pytest.mark.jvm]


RAW = (OFFSETS, COMMITS, MEMBERS)


class KilledError(BaseException):
    """What ends a process in the middle."""


def test_old_days_keep_one_lag_an_hour_and_a_kill_at_any_write_is_harmless(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = write_readings(lake, (0, 5, 65))
    audit_assignments(lake, "c")
    audited = {table.name: rows_of(lake, table) for table in (MEMBERSHIPS, OWNERSHIP, AUDITED_SNAPSHOTS)}
    assert {row["num_snapshots"] for row in audited["ownership"]} == {3}
    old, kept = aged(lake, tmp_path / "old", 4), [names[0], names[2]]
    write_once = Lake.write

    def die_after_one_that_changed(self: Lake, table: Table, work: Callable[[], object]) -> None:
        before = (table.name, str(rows_of(self, table))) if table is not DOWNSAMPLED_DAYS else None
        write_once(self, table, work)
        if before is None or before[1] != str(rows_of(self, table)):
            raise KilledError

    delete_once, delete_part_once = delete_snapshots, delete_part

    def die_after_markers(*which: Any) -> None:
        before = ids_of(old, SNAPSHOTS)
        delete_once(*which)
        if ids_of(old, SNAPSHOTS) != before:
            raise KilledError

    def die_after_rows(paths: LakePaths, table: Table, *which: Any) -> None:
        before = ids_of(old, table)
        delete_part_once(paths, table, *which)
        if ids_of(old, table) != before:
            raise KilledError

    monkeypatch.setattr(Lake, "write", die_after_one_that_changed)
    monkeypatch.setattr(retention, "delete_snapshots", die_after_markers)
    monkeypatch.setattr(retention, "delete_part", die_after_rows)
    # The record, markers, lag, offsets, commits, members: each run completes one more of them.
    for runs, table in enumerate((DOWNSAMPLED_DAYS, SNAPSHOTS, LAG, OFFSETS, COMMITS, MEMBERS), start=1):
        with pytest.raises(KilledError):
            maintain(old, "downsample", raw_days=30)
        seen = ids_of(old, SNAPSHOTS)
        assert seen == (names if runs == 1 else kept), table.name
        # What a marker shows is whole: its lag is there.
        assert set(seen) <= set(ids_of(old, LAG))
        # And nothing comes later than what the kill came after.
        assert [bool(ids_of(old, raw)) for raw in RAW] == [runs < at for at in (4, 5, 6)]
        if table is DOWNSAMPLED_DAYS:
            monkeypatch.setattr(Lake, "write", _skipping_markers(die_after_one_that_changed, write_once))
    monkeypatch.setattr(Lake, "write", write_once)
    monkeypatch.setattr(retention, "delete_snapshots", delete_once)
    monkeypatch.setattr(retention, "delete_part", delete_part_once)
    assert maintain(old, "downsample", raw_days=30).done == {
        "begun": 1,
        "nameless": 1,
        "downsampled": 1,
    }
    assert (ids_of(old, SNAPSHOTS), ids_of(old, LAG)) == (kept, kept)
    assert [rows_of(old, table) for table in (OFFSETS, COMMITS, MEMBERS)] == [[], [], []]
    (day,) = rows_of(old, DOWNSAMPLED_DAYS)
    assert (day["day"], day["num_snapshots"], day["kept_snapshot_ids"]) == (
        DAY,
        3,
        kept,
    )
    assert day["downsampled_at"] is not None
    # A second run, an audit that is built again and a comparison find nothing to do and lose nothing.
    assert maintain(old, "downsample", raw_days=30).done == {}
    again = audit_assignments(old, "c", rebuild=True)
    assert (again.days, again.kept_days) == ((), ())
    for found in (MEMBERSHIPS, OWNERSHIP, AUDITED_SNAPSHOTS):
        assert rows_of(old, found) == audited[found.name]
    loaded = LoadedPolicy(policy(), "")
    with pytest.raises(SnapshotNotFoundError, match="maintenance has downsampled them"):
        run_compare(old, loaded, Request("c", DAY, DAY))


def _skipping_markers(
    dying: Callable[[Lake, Table, Callable[[], object]], None],
    write_once: Callable[[Lake, Table, Callable[[], object]], None],
) -> Callable[[Lake, Table, Callable[[], object]], None]:
    def chosen(self: Lake, table: Table, work: Callable[[], object]) -> None:
        (write_once if table is DOWNSAMPLED_DAYS else dying)(self, table, work)

    return chosen


def test_rows_in_files_that_were_written_again_lately_go_when_these_are_old(
    lake: Lake, tmp_path: Path
) -> None:
    names = write_readings(lake, (0, 5, 65))
    audit_assignments(lake, "c")
    # As after a pause of maintenance, or an erasure: the day is old, and its files are of today.
    old = aged(lake, tmp_path / "old", 4)
    assert maintain(old, "compact", target_file_mb=64).done["compacted"] >= len(RAW)
    first = maintain(old, "downsample", raw_days=30)
    assert [len(ids_of(old, table)) for table in RAW] == [3, 3, 3]
    assert ids_of(old, SNAPSHOTS) == ids_of(old, LAG) == [names[0], names[2]]
    assert first.left == [f"finish downsampling {DAY} of c: files of offsets, commits, members are recent"]
    assert [row["downsampled_at"] for row in rows_of(old, DOWNSAMPLED_DAYS)] == [None]
    older = aged(old, tmp_path / "older", 4)
    assert maintain(older, "downsample", raw_days=30).left == []
    assert [rows_of(older, table) for table in RAW] == [[], [], []]
    (day,) = rows_of(older, DOWNSAMPLED_DAYS)
    assert (day["num_snapshots"], day["kept_snapshot_ids"]) == (3, [names[0], names[2]])
    assert day["downsampled_at"] is not None
    assert maintain(older, "downsample", raw_days=30).done == {}


def test_a_reading_made_long_after_its_slot_keeps_its_day(lake: Lake) -> None:
    now = datetime.now(UTC)
    write(lake, SNAPSHOTS, [marker_at(0), marker_at(5, started_at=now, finished_at=now)])
    assert maintain(lake, "downsample", raw_days=30).done == {}
    assert len(ids_of(lake, SNAPSHOTS)) == 2


def test_the_first_reading_of_each_hour_is_chosen_again_from_what_was_chosen() -> None:
    slots = [(NOON + timedelta(minutes=7 * number), f"{number:03d}") for number in range(40)]
    kept = hourly(reversed(slots))
    assert len(kept) == 5
    assert hourly([slot for slot in slots if slot[1] in kept]) == kept
