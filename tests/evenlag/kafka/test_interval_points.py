"""When records came within an interval: which partitions are looked up, and what of the answers is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from evenlag.kafka import interval_points
from evenlag.kafka.interval_points import MOST_PARTITIONS, with_interval_points
from evenlag.kafka.offsets import NO_RECORD
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import OFFSETS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    import pytest
    from numpy.typing import NDArray

BEFORE = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
INTERVAL_S = 100
_NOTHING: Any = None


class Brokers:
    """Answers for partitions of one topic: the seconds after `BEFORE` at which the records of each came."""

    def __init__(self, records: Mapping[int, Sequence[float]], begin: int = 1_000) -> None:
        self.records = {number: sorted(came) for number, came in records.items()}
        self.begin, self.first, self.asked = begin, begin, 0

    def look_up(
        self, _calls: object, _partitions: object, rows: NDArray[np.int64], at_ms: NDArray[np.int64]
    ) -> Any:
        """Return the first record of each partition that is no older."""
        self.asked += len(rows)
        found = []
        for row, moment in zip(rows.tolist(), at_ms.tolist(), strict=True):
            came = [1_000 * (BEFORE.timestamp() + after) for after in self.records[row]]
            later = (self.first + place for place, at in enumerate(came) if at >= moment)
            found.append(next(later, NO_RECORD))
        return np.array(found, dtype=np.int64), np.full(len(rows), -1)

    def tables(self, rate: float) -> tuple[pa.Table, pa.Table]:
        """Return rows of ``offsets`` after the interval, and what the forecast expected."""
        import pyarrow as pa

        names = {"topic_id": "T", "topic": "t"}
        now = BEFORE + timedelta(seconds=INTERVAL_S)
        schema = arrow_schema(OFFSETS)
        rows = [
            {**dict.fromkeys(schema.names), **names, "partition": number, "end_read_at": now}
            | {"high_watermark": self.begin + len(came)}
            for number, came in self.records.items()
        ]
        state = {"read_at": BEFORE, "end_offset": self.begin, "last_records_per_s": rate}
        expected = pa.Table.from_pylist([{**names, "partition": number, **state} for number in self.records])
        return pa.Table.from_pylist(rows, schema=schema), expected


def points_of(brokers: Brokers, monkeypatch: pytest.MonkeyPatch, rate: float = 1.0) -> list[Any]:
    monkeypatch.setattr(interval_points, "offsets_at", brokers.look_up)
    found = with_interval_points(*brokers.tables(rate), _NOTHING, _NOTHING)
    assert found.schema.equals(arrow_schema(OFFSETS))
    return list(found["interval_points"].to_pylist())


def test_a_burst_is_found_in_the_part_of_the_interval_in_which_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 100 records came in one second each; of partition 1 400 more between the seconds 60 and 80.
    even = np.arange(0.5, INTERVAL_S)
    burst = np.linspace(60, 80, 400, endpoint=False)
    brokers = Brokers({0: even.tolist(), 1: [*even, *burst]})
    first, second = points_of(brokers, monkeypatch)
    assert first is None
    assert [(point["at"] - BEFORE).total_seconds() for point in second] == [20, 40, 60, 80]
    assert [point["offset"] for point in second] == [1_020, 1_040, 1_060, 1_480]
    assert brokers.asked == 4


def test_records_that_stopped_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({0: [*np.linspace(0, 30, 300, endpoint=False)]})
    (found,) = points_of(brokers, monkeypatch, rate=10.0)
    # No record is as young as the last three moments: the log ended there already.
    assert [point["offset"] for point in found] == [1_200, 1_300, 1_300, 1_300]


def test_brokers_are_not_asked_where_records_are_as_forecast_or_few(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers({0: [*np.linspace(0, 99, 150)], 1: [*np.linspace(0, 99, 60)], 2: []})
    assert points_of(brokers, monkeypatch, rate=0.99) == [None] * 3
    assert brokers.asked == 0


def test_timestamps_that_contradict_the_ends_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first record of the second half is one that was there before the interval.
    brokers = Brokers({0: [50.0] * 500})
    brokers.first = 900
    assert points_of(brokers, monkeypatch) == [None]


def test_the_most_changed_partitions_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    number = MOST_PARTITIONS + 20
    brokers = Brokers({row: [50.0] * (300 if row < 20 else 301) for row in range(number)})
    found = points_of(brokers, monkeypatch)
    assert [row for row, points in enumerate(found) if points is None] == list(range(20))
    assert brokers.asked == 4 * MOST_PARTITIONS
