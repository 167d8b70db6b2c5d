"""When a schedule was last due, against Airflow's own idea of it where it is installed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from evenlag.policy.cron import last_due

NOW = datetime(2026, 11, 21, 13, 7, 30, tzinfo=UTC)  # a Saturday


@pytest.mark.parametrize(
    "expression",
    [
        "*/5 * * * *",
        "0 * * * *",
        "7 13 * * *",
        "8 13 * * *",
        "15,45 8-18/2 * * mon-fri",
        "0 0 29 2 *",
        "30 4 1,15 * 5",
        "0 12 * dec,JAN sun",
        "5/20 * * * 7",
        "@hourly",
        "@weekly",
        "@monthly",
        "@yearly",
    ],
)
def test_it_is_due_when_croniter_says_so(expression: str) -> None:
    croniter = pytest.importorskip("croniter").croniter
    expected, moment = [], NOW + timedelta(seconds=1)
    for _ in range(4):
        moment = croniter(expression, moment).get_prev(datetime)
        expected.append(moment)
    found = last_due(expression, NOW, 4)
    assert found == expected[: len(found)]
    assert len(found) == (2 if expression == "0 0 29 2 *" else 4)


def test_the_very_moment_counts_and_offsets_do_not_matter() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    due = datetime(2026, 11, 21, 13, 5, tzinfo=UTC)
    assert last_due("*/5 * * * *", due.astimezone(east), 1) == [due]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("*/5 * * *", "has 4 fields"),
        ("0 0 L * *", "'L' is no day of month"),
        ("60 * * * *", "no minute from 0 to 59"),
        ("5-1 * * * *", "no minute from 0 to 59"),
        ("*/0 * * * *", "no minute"),
        ("0 0 * * mon#2", "no day of week"),
    ],
)
def test_what_is_not_understood_is_an_error_and_no_guess(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        last_due(expression, NOW, 1)
