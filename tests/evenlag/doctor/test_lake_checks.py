"""The doctor's checks of the lake: its disk, its tables, its files, and whether it can be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.doctor.lake_checks import (
    check_tables,
    check_unfinished,
    check_writable,
    filesystem_findings,
    lake_checks,
    space_findings,
    table_findings,
    unfinished_findings,
)
from evenlag.doctor.model import Verdict
from evenlag.lake.reader import LakeReader
from evenlag.lake.schema_evolution import simple_type
from evenlag.lake.tables import LAG, OFFSETS, SNAPSHOTS
from tests.evenlag.doctor.verdicts import NOW, worst
from tests.support.lakes.command_lake import write_rows

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("free", "total", "verdict"), [(5e11, 1e12, "ok"), (5e10, 1e12, "warning"), (1e7, 1e12, "failed")]
)
def test_a_full_disk_is_told_in_time(free: float, total: float, verdict: str) -> None:
    assert worst(space_findings(int(free), int(total))) == verdict


def test_the_innermost_mount_decides() -> None:
    mounts = "/dev/vda / ext4 rw 0 0\nsrv:/x /srv nfs4 rw 0 0\ntmpfs /srv/fast tmpfs rw 0 0\n"
    assert worst(filesystem_findings("/srv/lake", mounts)) == "warning"
    assert worst(filesystem_findings("/srv/fast/lake", mounts)) == "ok"
    assert worst(filesystem_findings("/srvice", mounts)) == "ok"
    assert worst(filesystem_findings("/a b/lake", f"{mounts}srv:/y /a\\040b nfs4 rw 0 0\n")) == "warning"


def test_the_mount_is_of_the_folder_that_a_link_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake").symlink_to(tmp_path / "shared" / "lake")
    mounts = tmp_path / "mounts"
    mounts.write_bytes(b"x / ext4 rw 0 0\ny /\xff ext4 rw 0 0\n" + f"z {tmp_path}/shared nfs4 rw".encode())
    monkeypatch.setattr("evenlag.doctor.lake_checks._MOUNTS", mounts)
    checks = lake_checks(LakeReader(str(tmp_path / "lake")), None, probe_writes=False)
    (found,) = [check.look() for check in checks if check.name == "filesystem"]
    assert worst(list(found)) == "warning"


def test_a_table_is_held_against_its_contract() -> None:
    wanted = {column.name: simple_type(column.type) for column in LAG.columns}
    assert not table_findings(LAG, (1, 2), wanted)
    assert worst(table_findings(LAG, (3, 7), wanted)) == "failed"
    assert worst(table_findings(LAG, (1, 2), {**wanted, "lag_records": "string"})) == "failed"
    assert worst(table_findings(LAG, (1, 2), {**wanted, "new": "bigint"})) == "warning"
    older = {name: kind for name, kind in wanted.items() if name != "stalled"}
    assert worst(table_findings(LAG, (1, 2), older)) == "warning"
    without_a_key = {name: kind for name, kind in wanted.items() if name != "group_id"}
    assert worst(table_findings(LAG, (1, 2), without_a_key)) == "failed"


def test_a_real_lake_s_tables_are_those_of_the_contracts(command_lake: Path) -> None:
    assert worst(check_tables(LakeReader(str(command_lake)))) == "ok"


@pytest.mark.usefixtures("spark")
def test_attempts_that_nobody_finished_are_counted_from_the_files_statistics(tmp_path: Path) -> None:
    from datetime import date

    lake = tmp_path / "lake"
    for snapshot_id in ("20261122T000000000Z-aaaaaaaa", "20261122T000500000Z-bbbbbbbb"):
        row = {"day": date(2026, 11, 22), "snapshot_id": snapshot_id, "topic": "t", "partition": 0}
        write_rows(lake, OFFSETS, [row])
    marker = {"snapshot_id": "20261122T000000000Z-aaaaaaaa", "day": date(2026, 11, 22)}
    write_rows(lake, SNAPSHOTS, [marker])
    [found] = check_unfinished(LakeReader(str(lake)), NOW)
    assert found.verdict is Verdict.WARNING
    assert found.message.startswith("1 attempts")
    assert "bbbbbbbb" in found.message
    assert worst(unfinished_findings(["20261122T015500000Z-cccccccc"], NOW)) == "ok"


def test_trying_to_write_leaves_nothing_behind(tmp_path: Path) -> None:
    reader = LakeReader(str(tmp_path))
    assert worst(check_writable(reader, probe_writes=True)) == "ok"
    assert list(tmp_path.iterdir()) == []


# Spark and Airflow ----------------------------------------------------------------------------------------


# Running --------------------------------------------------------------------------------------------------
