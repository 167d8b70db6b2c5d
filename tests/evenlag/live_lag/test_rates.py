"""Lags over repeated snapshots. Expected values are computed manually."""

from __future__ import annotations

import pytest

from evenlag.lake.tables import LAG, MEMBERS
from evenlag.live_lag.answer import MAX_SNAPSHOTS, RecentLags, sparkline
from evenlag.live_lag.snapshot import LiveSnapshot
from tests.support.lakes.snapshots import NOW, arrow


def snapshot(lag: int | None) -> LiveSnapshot:
    """A snapshot of one group; it has left a topic with a lag of its own."""
    rows = [{"group_id": "g", "status": "OK", "lag_records": lag}]
    rows.append({"group_id": "g", "status": "NOT_SUBSCRIBED", "lag_records": 99})
    return LiveSnapshot("k", NOW, arrow(LAG, rows), arrow(MEMBERS, []), ())


def test_the_course_of_a_lag_is_kept_for_a_number_of_snapshots() -> None:
    recent = RecentLags()
    for number in range(MAX_SNAPSHOTS + 5):
        recent.add(snapshot(number))
    recent.add(snapshot(None))
    lags = recent.lags("g")
    assert len(lags) == MAX_SNAPSHOTS
    assert lags[0] == 6
    assert lags[-2:] == [MAX_SNAPSHOTS + 4, None]
    assert recent.lags("unknown") == [None] * MAX_SNAPSHOTS


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([], ""), ([0, 0], "▁▁"), ([None], " "), ([1, 2, 3, 4, 5, 6, 7], "▂▃▄▅▆▇█"), ([0, 10**15], "▁█")],
)
def test_a_sparkline_goes_from_zero_to_the_largest_number(values: list[int | None], drawn: str) -> None:
    assert sparkline(values, 10) == drawn


def test_a_sparkline_shows_the_last_numbers() -> None:
    assert sparkline([99, 1, 2], 2) == "▅█"
