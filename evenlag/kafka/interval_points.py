"""When records came since the previous snapshot: offsets at four moments, where the rate has changed.

A snapshot shows how many records came, not whether they still come. Brokers look up the first record of a
moment in an index on disk, so they are asked only where the records differ from what was forecast, and only
about :data:`MOST_PARTITIONS` partitions.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from evenlag.kafka.broker_requests import BrokerCalls
from evenlag.kafka.offsets import NO_RECORD, offsets_at
from evenlag.kafka.topic_metadata import Partitions
from evenlag.lag.arrays import Floats, Int64s, find_places, floats, seconds
from evenlag.lag.hourly_rates import partition_keys

MOST_PARTITIONS: Final = 1_000
_MOMENTS: Final = 4
# A rate has changed that is less than half or more than double the forecast, by at least so many records.
_LEAST_RECORDS: Final = 100
# Of longer intervals the newest part says little.
_LONGEST_S: Final = 3_600.0


def with_interval_points(
    offsets: pa.Table, expected: pa.Table, calls: BrokerCalls, partitions: Partitions
) -> pa.Table:
    """Fill ``interval_points`` of rows of ``offsets``, which are those of the partitions.

    expected: ``topic_id, topic, partition, read_at, end_offset, last_records_per_s`` of an earlier snapshot.
    """
    of_offsets, of_expected = partition_keys(offsets, expected)
    place = find_places(of_offsets, of_expected)
    before = expected.take(pa.array(place, mask=place < 0))
    now_s, end = seconds(offsets["end_read_at"]), floats(offsets["high_watermark"])
    begin_s, begin = seconds(before["read_at"]), floats(before["end_offset"])
    rows = _changed(now_s - begin_s, end - begin, floats(before["last_records_per_s"]))
    at_ms = np.empty((len(rows), _MOMENTS), dtype=np.int64)
    found = np.empty_like(at_ms)
    for number in range(_MOMENTS):
        share = (number + 1) / (_MOMENTS + 1)
        at_ms[:, number] = 1_000 * (begin_s + share * (now_s - begin_s))[rows]
        found[:, number] = offsets_at(calls, partitions, rows, at_ms[:, number])[0]
    found = np.where(found == NO_RECORD, end[rows][:, None].astype(np.int64), found)
    # Producers set timestamps: where they contradict the ends, or each other, they tell nothing.
    bounded = np.column_stack([begin[rows], found, end[rows]])
    is_sound = (np.diff(bounded, axis=1) >= 0).all(axis=1)
    column = offsets.schema.get_field_index("interval_points")
    field = offsets.schema.field(column)
    points: list[list[dict[str, int]] | None] = [None] * len(offsets)
    for number in np.flatnonzero(is_sound).tolist():
        pairs = zip(at_ms[number].tolist(), found[number].tolist(), strict=True)
        points[rows[number]] = [{"at": 1_000 * at, "offset": offset} for at, offset in pairs]
    return offsets.set_column(column, field, pa.array(points, field.type))


def _changed(passed_s: Floats, came: Floats, rate: Floats) -> Int64s:
    """The rows whose records differ most from those forecast, ascending."""
    forecast = rate * passed_s
    off = np.abs(came - forecast)
    is_changed = (off >= _LEAST_RECORDS) & (off >= np.maximum(came, forecast) / 2)
    rows = np.flatnonzero(is_changed & (came >= 0) & (passed_s > 0) & (passed_s <= _LONGEST_S))
    most = np.argsort(-off[rows], kind="stable")[:MOST_PARTITIONS]
    return np.sort(rows[most])
