"""The time behind from points of earlier snapshots. Expected values are computed manually."""

from __future__ import annotations

import numpy as np

from evenlag.instant_lag.time_behind import TimePoints
from evenlag.kafka.topic_metadata import Partitions

MINUTE_MS = 60_000


def partitions(*topic_ids: str) -> Partitions:
    """One partition of each topic."""
    rows = np.arange(len(topic_ids), dtype=np.int32)
    return Partitions(topic_ids, topic_ids, rows, np.zeros_like(rows), np.ones_like(rows))


def ages(points: TimePoints, now_ms: int, *positions: int) -> list[int]:
    row = np.arange(len(positions), dtype=np.int64)
    found: list[int] = points.ages_ms(row, np.array(positions, dtype=np.int64), now_ms).tolist()
    return found


def ends(*offsets: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(offsets, dtype=np.int64)


def test_a_position_is_as_old_as_the_moment_at_which_the_log_ended_there() -> None:
    points = TimePoints()
    points.add_ends(partitions("a", "b", "c"), 0, ends(100, 0, 70))
    points.add_ends(partitions("a", "b", "c"), MINUTE_MS, ends(200, 0, 90))
    points.add_ends(partitions("a", "b", "c"), 2 * MINUTE_MS, ends(200, 50, 90))
    # 150 was the end halfway through the first minute; 25 halfway through the second; 60 before all of this.
    assert ages(points, 2 * MINUTE_MS, 150, 25, 60) == [90_000, 30_000, -1]
    # 100 is where the log ended at the beginning, 70 too; nothing arrived at b in the first minute.
    assert ages(points, 2 * MINUTE_MS, 100, 0, 70) == [120_000, 60_000, 120_000]


def test_without_any_snapshot_nothing_is_known() -> None:
    points = TimePoints()
    points.add_ends(partitions("a"), MINUTE_MS, ends(100))
    assert ages(points, MINUTE_MS, 40) == [-1]


def test_an_end_that_was_not_read_is_no_point() -> None:
    points = TimePoints()
    points.add_ends(partitions("a"), 0, ends(100))
    points.add_ends(partitions("a"), MINUTE_MS, ends(-1))
    points.add_ends(partitions("a"), 2 * MINUTE_MS, ends(200))
    assert ages(points, 2 * MINUTE_MS, 150) == [60_000]


def test_a_topic_that_is_created_again_begins_a_new_history() -> None:
    points = TimePoints()
    points.add_ends(partitions("a", "b"), 0, ends(100, 10))
    points.add_ends(partitions("b", "new"), MINUTE_MS, ends(30, 200))
    assert ages(points, MINUTE_MS, 20, 150) == [30_000, -1]


def test_points_of_a_long_watch_are_downsampled_and_stay_correct() -> None:
    points = TimePoints()
    for minute in range(500):
        points.add_ends(partitions("a"), minute * MINUTE_MS, ends(10 * minute))
    now = 499 * MINUTE_MS
    for position in (0, 1234, 4000, 4985):
        # Ten records a minute.
        assert ages(points, now, position) == [now - position * MINUTE_MS // 10]
