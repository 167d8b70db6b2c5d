"""The time behind from points of earlier snapshots. Expected values are computed manually."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from evenlag.kafka.topic_metadata import Partitions
from evenlag.lag.arrays import Numbers
from evenlag.live_lag import time_behind
from evenlag.live_lag.time_behind import TimePoints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

MINUTE_MS = 60_000


def partitions(*topic_ids: str) -> Partitions:
    """One partition of each topic."""
    rows = np.arange(len(topic_ids), dtype=np.int32)
    return Partitions(
        topic_ids, topic_ids, rows, np.zeros_like(rows), np.ones_like(rows), (), -np.ones_like(rows)
    )


def behind(points: TimePoints, now_ms: int, *positions: int) -> list[tuple[int | None, int | None]]:
    """Time behind of a position in each partition, and its lower bound."""
    row, position = np.arange(len(positions), dtype=np.int64), np.array(positions, dtype=np.int64)
    known = np.ones(len(row), dtype=np.bool_)
    now = Numbers(np.full(len(row), 1_000 * now_ms), known)
    found = points.points(row, position).time_behind_ms(Numbers(position, known), now, Numbers(row, ~known))
    times, bounds = (numbers.integers.to_pylist() for numbers in found)
    return list(zip(times, bounds, strict=True))


def ages(points: TimePoints, now_ms: int, *positions: int) -> list[int | None]:
    return [time for time, _ in behind(points, now_ms, *positions)]


def ends(*offsets: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(offsets, dtype=np.int64)


def test_a_position_is_as_old_as_the_moment_at_which_the_log_ended_there() -> None:
    points = TimePoints()
    points.add_ends(partitions("a", "b", "c"), 0, ends(100, 0, 70))
    points.add_ends(partitions("a", "b", "c"), MINUTE_MS, ends(200, 0, 90))
    points.add_ends(partitions("a", "b", "c"), 2 * MINUTE_MS, ends(200, 50, 90))
    # 150 was the end halfway through the first minute; 25 halfway through the second; 60 before all of this.
    assert ages(points, 2 * MINUTE_MS, 150, 25, 60) == [90_000, 30_000, None]
    # 100 is where the log ended at the beginning, 70 too; nothing arrived at b in the first minute.
    assert ages(points, 2 * MINUTE_MS, 100, 0, 70) == [120_000, 60_000, 120_000]


def test_without_any_snapshot_nothing_is_known() -> None:
    points = TimePoints()
    points.add_ends(partitions("a"), MINUTE_MS, ends(100))
    assert ages(points, MINUTE_MS, 40) == [None]


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
    assert ages(points, MINUTE_MS, 20, 150) == [30_000, None]


def test_points_of_a_long_watch_are_downsampled_and_stay_correct() -> None:
    points = TimePoints()
    for minute in range(500):
        points.add_ends(partitions("a"), minute * MINUTE_MS, ends(10 * minute))
    now = 499 * MINUTE_MS
    for position in (0, 1234, 4000, 4985):
        # Ten records a minute.
        assert ages(points, now, position) == [now - position * MINUTE_MS // 10]


def test_a_log_that_was_truncated_has_lost_its_later_points() -> None:
    points = TimePoints()
    points.add_ends(partitions("a"), 0, ends(100))
    points.add_ends(partitions("a"), MINUTE_MS, ends(50))
    points.add_ends(partitions("a"), 2 * MINUTE_MS, ends(80))
    # The 100 of the beginning are gone: from 50 to 80 in a minute, 60 came after 20 s.
    assert ages(points, 2 * MINUTE_MS, 60) == [40_000]


NOW_MS = 10_000 * MINUTE_MS


def answer_from(ages_min: Sequence[float]) -> Callable[..., Any]:
    """Return ListOffsets of a partition whose records have these ages: the first one that is no older."""
    written = [NOW_MS - round(age * MINUTE_MS) for age in ages_min]

    def look_up(_calls: object, _partitions: object, _rows: object, at_ms: NDArray[np.int64]) -> Any:
        found = [
            next(((n, at) for n, at in enumerate(written) if at >= moment), (time_behind._NEVER, -1))
            for moment in at_ms.tolist()
        ]
        return tuple(np.array(column, dtype=np.int64) for column in zip(*found, strict=True))

    return look_up


@pytest.mark.parametrize(
    ("ages_min", "position", "time_min", "at_least_min"),
    [
        # One record a minute, the last one a minute ago.
        pytest.param([*range(200, 0, -1)], 103, (97, 97), None, id="ascending"),
        pytest.param([*range(200, 0, -1)], 199, (0, 1), None, id="the last record"),
        # The record before the next one is 50 minutes ahead of the clock: it is found whatever is asked.
        pytest.param([200, 199, -50, 97, 96, 1], 3, None, None, id="ahead, before the position"),
        pytest.param([200, 199, -50, 97, 96, 1], 2, None, None, id="ahead itself"),
        pytest.param([-50, 97, 96], 1, None, None, id="ahead, first"),
        # Behind it, the record that is ahead only says that those before it are older.
        pytest.param([200, 150, 97, -50, 96, 1], 2, (93, 102), None, id="ahead, after the position"),
        pytest.param([97, -50, 1], 0, (93, 102), None, id="ahead, right after the position"),
    ],
)
def test_a_record_ahead_of_the_clock_never_makes_a_group_look_less_behind(
    monkeypatch: pytest.MonkeyPatch,
    ages_min: Sequence[float],
    position: int,
    time_min: tuple[float, float] | None,
    at_least_min: float | None,
) -> None:
    monkeypatch.setattr(time_behind, "offsets_at", answer_from(ages_min))
    points, one = TimePoints(), partitions("a")
    calls: Any = None
    points.add_ends(one, NOW_MS, ends(len(ages_min)))
    points.search(calls, one, np.array([0]), np.array([position]), NOW_MS)
    [(time, at_least)] = behind(points, NOW_MS, position)
    assert at_least == at_least_min
    if time_min is None:
        assert time is None
    else:
        assert time is not None
        assert time_min[0] - 1 <= time / MINUTE_MS <= 1.05 * time_min[1]


def test_ends_that_were_read_hold_whatever_timestamps_records_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 records, 10 came in the last minute; the first one is ahead of the clock."""
    monkeypatch.setattr(time_behind, "offsets_at", answer_from([-50, *[0.5] * 19]))
    points, one = TimePoints(), partitions("a")
    calls: Any = None
    points.add_ends(one, NOW_MS - MINUTE_MS, ends(10))
    points.add_ends(one, NOW_MS, ends(20))
    points.search(calls, one, np.array([0]), np.array([15]), NOW_MS)
    assert behind(points, NOW_MS, 15) == [(30_000, None)]
    # Record 5 was there a minute ago.
    assert behind(points, NOW_MS, 5) == [(None, 60_000)]
