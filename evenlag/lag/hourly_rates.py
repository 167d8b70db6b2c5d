"""Rates of arrivals in each hour that is over, by partition: ``hourly_rates``.

An hour's rate is that between the snapshots nearest to its begin and its end. It is written once, by the
first snapshot after the hour that finds none; of two that do, by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.lag.arrays import Int64s, codes, find_places, floats, integers, seconds
from evenlag.lag.forecast import HOURS_BEFORE, Hours
from evenlag.lake.arrow_schema import with_head
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import SnapshotReader, snapshot_filters
from evenlag.lake.tables import HOURLY_RATES, OFFSETS
from evenlag.lake.writer import append_once

_HOUR: Final = timedelta(hours=1)
# The two snapshots are at least so far apart, and none is so far from its end of the hour.
_LEAST: Final = timedelta(minutes=30)
# Forecasts and their errors reach no further than this from an hour of the past.
_MOST_REACH: Final = timedelta(hours=6)
_OFFSET_COLUMNS: Final = ("topic_id", "topic", "partition", "high_watermark", "end_read_at")
_RATE_COLUMNS: Final = ("hour", "topic_id", "topic", "partition", "arrival_rate_records_per_s")


def finish_hour(rows: SnapshotReader) -> int:
    """Write the rates of the hour before the snapshot's, unless they are written; return their number."""
    reader, cluster = rows.reader, rows.cluster
    end = _hour_of(rows.marker["end_read_at"])
    begin = end - _HOUR
    same_hour = matching(cluster=cluster, day=begin.date(), hour=begin)
    if reader.count(HOURLY_RATES, filters=same_hour):
        return 0
    ends = _nearest(rows.markers_since(begin - _LEAST), begin, end)
    if ends is None:
        return 0
    first, last = (_offsets(rows, marker) for marker in ends)
    found = rates_between(first, last)
    head = {
        "cluster": cluster,
        "day": begin.date(),
        "hour": begin,
        "from_snapshot_id": ends[0]["snapshot_id"],
        "to_snapshot_id": ends[1]["snapshot_id"],
    }
    complete = with_head(found, HOURLY_RATES, head)
    written = append_once(reader.paths.root, HOURLY_RATES, complete, same_hour)
    return len(found) if written else 0


def _offsets(rows: SnapshotReader, marker: Mapping[str, Any]) -> pa.Table:
    if marker["snapshot_id"] == rows.snapshot_id:
        return rows.rows(OFFSETS, _OFFSET_COLUMNS)
    return rows.reader.read(OFFSETS, columns=_OFFSET_COLUMNS, filters=snapshot_filters(marker))


def _hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _nearest(
    snapshots: Sequence[Mapping[str, Any]], begin: datetime, end: datetime
) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The snapshots nearest to the begin and the end of an hour; None if they do not tell its rates."""
    chosen = [
        min(snapshots, key=lambda one: (abs(one["end_read_at"] - at), one["snapshot_id"]), default=None)
        for at in (begin, end)
    ]
    first, last = chosen
    if first is None or last is None or last["end_read_at"] - first["end_read_at"] < _LEAST:
        return None
    is_near = abs(first["end_read_at"] - begin) <= _LEAST and abs(last["end_read_at"] - end) <= _LEAST
    return (first, last) if is_near else None


def rates_between(first: pa.Table, last: pa.Table) -> pa.Table:
    """Return ``topic_id, topic, partition, arrival_rate_records_per_s`` of two snapshots' ``offsets``.

    Partitions whose log grew by less than nothing, or whose end is unknown in one of them, are left out.
    """
    of_first, of_last = partition_keys(first, last)
    place = find_places(of_last, of_first)
    before = first.take(pa.array(place, mask=place < 0))
    grown = floats(last["high_watermark"]) - floats(before["high_watermark"])
    apart_s = seconds(last["end_read_at"]) - seconds(before["end_read_at"])
    is_known = (grown >= 0) & (apart_s > 0)
    rate = np.divide(grown, apart_s, out=np.zeros(len(place)), where=is_known)
    found = last.select(["topic_id", "topic", "partition"]).append_column(
        "arrival_rate_records_per_s", pa.array(rate)
    )
    return found.filter(pa.array(is_known))


def partition_keys(*tables: pa.Table) -> list[Int64s]:
    """Return a number for each row that only the same partition of the same topic has, in all tables."""
    names = [pc.binary_join_element_wise(one["topic_id"], one["topic"], "/") for one in tables]
    known = pc.unique(pa.chunked_array([chunk for each in names for chunk in each.chunks], pa.string()))
    topics: list[str] = known.to_pylist()
    return [
        (codes(name, topics) << 32) + integers(one["partition"])
        for name, one in zip(names, tables, strict=True)
    ]


def read_hours(reader: LakeReader, cluster: str, at: datetime, horizon: timedelta) -> pa.Table:
    """Read the rates of the hours that a day and a week before the horizons before and after a moment."""
    reach = min(horizon, _MOST_REACH)
    hours = set()
    for before in HOURS_BEFORE.values():
        hour = _hour_of(at - timedelta(hours=before) - 1.5 * reach)
        last = at - timedelta(hours=before) + reach
        while hour <= last:
            hours.add(hour)
            hour += _HOUR
    filters = matching(cluster=cluster, day={hour.date() for hour in hours}, hour=hours)
    return reader.read(HOURLY_RATES, columns=_RATE_COLUMNS, filters=filters)


def hours_of(partitions: pa.Table, rates: pa.Table) -> Hours:
    """Return the rates of partitions, in their order."""
    key, of_rates = partition_keys(partitions, rates)
    hour = (seconds(rates["hour"]) // 3_600).astype(np.int64)
    numbers = np.unique(hour)
    found = np.full((len(key), len(numbers)), np.nan)
    rate = rates["arrival_rate_records_per_s"].to_numpy()
    for column, number in enumerate(numbers.tolist()):
        rows = np.flatnonzero(hour == number)
        place = find_places(key, of_rates[rows])
        found[:, column] = np.where(place >= 0, rate[rows][place] if len(rows) else np.nan, np.nan)
    return Hours(numbers, found)
