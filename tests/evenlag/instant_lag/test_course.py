"""Rates, drain times and courses from repeated snapshots. Expected values are computed manually."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from evenlag.instant_lag.course import MAX_SNAPSHOTS, LagCourse, sparkline
from evenlag.instant_lag.lag_rows import as_lag_table
from evenlag.instant_lag.snapshot import InstantSnapshot
from evenlag.lake.tables import MEMBERS
from tests.support.lakes.snapshots import arrow

if TYPE_CHECKING:
    from collections.abc import Mapping

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
# (committed, end) by partition.
Offsets = dict[int, tuple[int | None, int]]


def snapshot(
    at_s: float, offsets: Mapping[int, tuple[int | None, int]], owner: str | None = "m"
) -> InstantSnapshot:
    """A snapshot of one group; commits are read half a second before the ends."""
    import pyarrow as pa

    at = BEGIN + timedelta(seconds=at_s)
    committed = [commit for commit, _ in offsets.values()]
    ends = [end for _, end in offsets.values()]
    lags = [None if commit is None else end - commit for commit, end in offsets.values()]
    columns = {
        "group_id": pa.array(["g"] * len(offsets)),
        "topic_id": pa.array(["AAAAAAAAAAAAAAAAAAAAAQ"] * len(offsets)),
        "topic": pa.array(["t"] * len(offsets)),
        "partition": pa.array(list(offsets)),
        "owner_member_id": pa.array([owner] * len(offsets), pa.string()),
        "committed_offset": pa.array(committed, pa.int64()),
        "end_offset": pa.array(ends),
        "lag_records": pa.array(lags, pa.int64()),
    }
    return InstantSnapshot(
        kafka_cluster_id="k",
        commits_read_at=at - timedelta(seconds=0.5),
        ends_read_at=at,
        lag=as_lag_table(columns, len(offsets)),
        members=arrow(MEMBERS, []),
        problems=(),
        num_requests=0,
    )


def test_rates_are_those_since_the_first_kept_snapshot() -> None:
    course = LagCourse(2)
    first = course.add(snapshot(0, {0: (100, 200), 1: (50, 60)}))
    assert first.lag["arrival_rate_records_per_s"].null_count == 2
    course.add(snapshot(10, {0: (150, 220), 1: (50, 60)}))
    lag = course.add(snapshot(20, {0: (300, 240), 1: (50, 80)}, owner="m")).lag
    # In 20 s: 240 - 200 and 80 - 60 arrive, 300 - 100 and 50 - 50 are consumed.
    assert lag["arrival_rate_records_per_s"].to_pylist() == [2.0, 1.0]
    assert lag["consume_rate_records_per_s"].to_pylist() == [10.0, 0.0]
    assert lag["stalled"].to_pylist() == [False, True]


def test_the_drain_time_is_the_lag_by_its_fall() -> None:
    course = LagCourse(2)
    course.add(snapshot(0, {0: (0, 1000), 1: (0, 10), 2: (5, 5)}))
    lag = course.add(snapshot(10, {0: (200, 1100), 1: (10, 40), 2: (5, 5)})).lag
    # 900 records fall by 20 - 10 a second; 30 records grow; no lag is drained at once.
    assert lag["drain_time_ms"].to_pylist() == [90_000, None, 0]


def test_an_offset_that_goes_back_has_no_rate() -> None:
    course = LagCourse(2)
    course.add(snapshot(0, {0: (100, 200)}))
    lag = course.add(snapshot(10, {0: (20, 300)})).lag
    assert lag["consume_rate_records_per_s"].to_pylist() == [None]
    assert lag["arrival_rate_records_per_s"].to_pylist() == [10.0]


def test_partitions_may_come_and_go() -> None:
    course = LagCourse(2)
    course.add(snapshot(0, {0: (0, 10), 2: (0, 10)}))
    lag = course.add(snapshot(10, {1: (0, 10), 2: (5, 30)})).lag
    assert lag["arrival_rate_records_per_s"].to_pylist() == [None, 2.0]


def test_snapshots_before_the_window_do_not_count() -> None:
    course = LagCourse(2)
    course.add(snapshot(0, {0: (0, 0)}))
    course.add(snapshot(60, {0: (0, 6000)}))
    lag = course.add(snapshot(70, {0: (0, 6010)})).lag
    assert lag["arrival_rate_records_per_s"].to_pylist() == [1.0]


def test_the_course_of_a_lag_is_kept_for_a_number_of_snapshots() -> None:
    course = LagCourse(2)
    for number in range(MAX_SNAPSHOTS + 5):
        course.add(snapshot(2 * number, {0: (0, number)}))
    course.add(snapshot(200, {0: (None, 7)}))
    lags = course.lags("g")
    assert len(lags) == MAX_SNAPSHOTS
    assert lags[0] == 6
    assert lags[-2:] == [MAX_SNAPSHOTS + 4, None]
    assert course.lags("unknown") == [None] * MAX_SNAPSHOTS


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([], ""), ([0, 0], "▁▁"), ([None], " "), ([1, 2, 3, 4, 5, 6, 7], "▂▃▄▅▆▇█"), ([0, 10**15], "▁█")],
)
def test_a_sparkline_goes_from_zero_to_the_largest_number(values: list[int | None], drawn: str) -> None:
    assert sparkline(values, 10) == drawn


def test_a_sparkline_shows_the_last_numbers() -> None:
    assert sparkline([99, 1, 2], 2) == "▅█"
