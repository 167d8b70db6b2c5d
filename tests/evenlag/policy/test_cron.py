"""Schedules: when they were last due by the calendar, and which expressions Airflow would not load."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from evenlag.errors import PolicyError
from evenlag.policy.cron import check_expression, last_due
from evenlag.policy.loader import load_policy
from evenlag.policy.setting_types import cron_expression

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 21, 13, 7, 30, tzinfo=UTC)  # a Saturday


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/5 * * * *", ["2026-11-21 13:05", "2026-11-21 13:00", "2026-11-21 12:55"]),
        ("7 13 * * *", ["2026-11-21 13:07", "2026-11-20 13:07"]),
        ("8 13 * * *", ["2026-11-20 13:08", "2026-11-19 13:08"]),
        ("15,45 8-18/2 * * mon-fri", ["2026-11-20 18:45", "2026-11-20 18:15", "2026-11-20 16:45"]),
        ("0 0 29 2 *", ["2024-02-29 00:00", "2020-02-29 00:00"]),
        # With both days restricted, either is enough: Friday the 20th, and Sunday the 15th.
        ("30 4 1,15 * 5", ["2026-11-20 04:30", "2026-11-15 04:30", "2026-11-13 04:30"]),
        ("0 12 * dec,JAN sun", ["2026-01-25 12:00", "2026-01-18 12:00"]),
        ("0 0 L * *", ["2026-10-31 00:00", "2026-09-30 00:00"]),
        # The second Monday.
        ("0 0 * * mon#2", ["2026-11-09 00:00", "2026-10-12 00:00"]),
        ("@hourly", ["2026-11-21 13:00", "2026-11-21 12:00"]),
        ("@weekly", ["2026-11-15 00:00", "2026-11-08 00:00"]),
        ("@quarterly", ["2026-10-01 00:00", "2026-07-01 00:00"]),
        ("@yearly", ["2026-01-01 00:00", "2025-01-01 00:00"]),
    ],
)
def test_it_was_last_due_then(expression: str, expected: list[str]) -> None:
    found = last_due(expression, NOW, len(expected))
    assert [f"{due:%Y-%m-%d %H:%M}" for due in found] == expected
    assert all(due.tzinfo is UTC and due.second == 0 for due in found)


def test_the_very_moment_counts_and_offsets_do_not_matter() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    due = datetime(2026, 11, 21, 13, 5, tzinfo=UTC)
    assert last_due("*/5 * * * *", due.astimezone(east), 1) == [due]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("*/5 * * *", "it has 4 of 5 fields"),
        ("0 */5 * * * *", "it has 6 of 5 fields"),
        ("60 * * * *", "out of range"),
        ("*/0 * * * *", "not acceptable|invalid|step"),
        ("0 0 30 2 *", "failed to find"),
        ("R * * * *", "other values in each process"),
        ("R(0-9)/10 * * * *", "other values in each process"),
        ("H H * * *", "other values in each process"),
        ("@midnight", "the presets are @hourly"),
        ("@reboot", "the presets are @hourly"),
        ("* * * * x", "not acceptable"),
    ],
)
def test_what_airflow_would_not_load_is_an_error(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_expression(expression)
    with pytest.raises(ValueError, match=message):
        last_due(expression, NOW, 1)


def test_airflow_loads_what_is_taken() -> None:
    timetables = pytest.importorskip("airflow.timetables.interval")
    for expression in (
        "*/5 * * * *", "15,45 8-18/2 * * mon-fri", "0 0 L * *", "@quarterly", "0 0 * * mon#2", "@daily ",
        " 0 0 * * *",
    ):  # fmt: skip
        taken = cron_expression(expression)
        timetables.CronDataIntervalTimetable(taken, timezone="UTC").validate()


def test_policy_check_names_the_line_of_a_schedule_that_airflow_refuses(tmp_path: Path) -> None:
    policy = tmp_path / "evenlag.yaml"
    policy.write_text(
        "lake: lake\nclusters:\n  c:\n    bootstrap_servers: h:9092\n    schedule: '*/5 * * *'\n",
        encoding="utf-8",
    )
    with pytest.raises(PolicyError, match=r"line 5: .*'\*/5 \* \* \*' is no cron expression: it has 4 of 5"):
        load_policy(policy)
