"""Freshness of snapshots by the schedule: what a run that is due twice has not left is a fault."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import SNAPSHOTS
from evenlag.lake.writer import append_once
from evenlag.monitoring.lake_health import check_lake, read_freshness
from evenlag.policy.settings import MaintenanceSettings
from tests.support.lakes.snapshots import HEAD, marker

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("schedule", "age", "is_fresh"),
    [
        # Runs are due at 12:00, 11:55: the run of 11:55 must have left its snapshot.
        ("*/5 * * * *", 5 * MINUTE, True),
        ("*/5 * * * *", 6 * MINUTE, False),
        # Each minute: a task that is tried again has three minutes.
        ("* * * * *", 2.9 * MINUTE, True),
        ("* * * * *", 3.1 * MINUTE, False),
        (None, 900 * MINUTE, True),
    ],
)
def test_the_schedule_says_how_old_the_newest_snapshot_may_be(
    tmp_path: Path, schedule: str | None, age: timedelta, *, is_fresh: bool
) -> None:
    row = HEAD | marker(slot=NOW - age, finished_at=NOW - age)
    append_once(str(tmp_path), SNAPSHOTS, [row], None)
    found = read_freshness(LakeReader(str(tmp_path)), "c", schedule, NOW)
    assert found.is_fresh is is_fresh, found.reason


def test_an_age_that_is_asked_for_overrides_the_schedule(tmp_path: Path) -> None:
    row = HEAD | marker(slot=NOW - 2 * MINUTE, finished_at=NOW - 2 * MINUTE)
    append_once(str(tmp_path), SNAPSHOTS, [row], None)
    reader = LakeReader(str(tmp_path))
    limits = {age: read_freshness(reader, "c", "* * * * *", NOW, max_age_s=age) for age in (119, 121)}
    assert {age: found.is_fresh for age, found in limits.items()} == {119: False, 121: True}


def test_a_day_without_a_due_run_needs_no_snapshot(tmp_path: Path) -> None:
    """`NOW` is a Sunday, and cycles run at midnight from Tuesday to Saturday."""
    found = []
    for days in ((20, 24, 25, 27, 28), (26,)):
        slots = [datetime(2026, 2, day, tzinfo=UTC) for day in days]
        rows = [HEAD | marker(slot=slot, finished_at=slot) | {"day": slot.date()} for slot in slots]
        append_once(str(tmp_path), SNAPSHOTS, rows, None)
        checks = check_lake(LakeReader(str(tmp_path)), MaintenanceSettings(), "c", "0 0 * * tue-sat", NOW)
        found += [check.observed for check in checks if check.check_name == "MISSING_DAYS"]
    assert found == ["no reading on 2026-02-26", "no reading on no day"]
