"""The recorded verdicts: by table for alerts, by cluster for the doctor."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from evenlag.doctor.lake_checks import check_quality
from evenlag.doctor.model import Verdict
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import QUALITY_RESULTS, SNAPSHOTS
from evenlag.quality.checks import failures_by_table
from tests.support.lakes.command_lake import DAY, write_rows

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(DAY.year, DAY.month, DAY.day, 12, tzinfo=UTC)


def test_the_doctor_warns_of_a_newest_snapshot_that_fails_a_check(tmp_path: Path) -> None:
    lake, reader = tmp_path / "lake", LakeReader(str(tmp_path / "lake"))
    assert [found.verdict for found in check_quality(reader)] == [Verdict.SKIPPED]
    for number, passed in enumerate((False, True, False)):
        slot = NOW + timedelta(minutes=number)
        head = {"snapshot_id": f"{slot:%Y%m%dT%H%M%S}000Z-aaaaaaaa", "slot": slot}
        write_rows(lake, SNAPSHOTS, [head])
        verdict = {"passed": passed, "message": "2 partitions have two owners", "checked_at": slot}
        write_rows(lake, QUALITY_RESULTS, [head | {"check_name": "one_owner"} | verdict])
        [found] = check_quality(reader)
        assert found.verdict is (Verdict.OK if passed else Verdict.WARNING)
    assert found.message.endswith("fails 1 of 1 checks: one_owner: 2 partitions have two owners")


def test_failures_are_listed_by_table_without_completeness_which_has_an_alert_of_its_own() -> None:
    rows = [
        {"check_name": name, "table_name": table, "passed": passed, "message": f"{name} fails"}
        for name, table, passed in (
            ("snapshot_complete", "snapshots", False),
            ("lag_unique", "lag", False),
            ("lag_recorded", "lag", False),
            ("one_owner", "members", True),
        )
    ]
    assert failures_by_table(rows) == {
        "lag": "lag_recorded: lag_recorded fails; lag_unique: lag_unique fails"
    }
    assert failures_by_table([]) is None
