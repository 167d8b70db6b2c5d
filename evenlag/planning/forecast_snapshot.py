"""Forecast what arrives after a snapshot, for each group: rows of ``hourly_rates`` and ``forecasts``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from evenlag.errors import LakeError
from evenlag.lag.forecast import HOURS_BEFORE
from evenlag.lag.forecast_rows import LAG_COLUMNS, POINT_COLUMNS, build_forecasts, expected_ends
from evenlag.lag.hourly_rates import rates_between
from evenlag.lake.arrow_schema import with_head
from evenlag.lake.filters import matching
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import FORECASTS, HOURLY_RATES, LAG, MEMBERS, OFFSETS, SPEEDS
from evenlag.lake.writer import append_once
from evenlag.logging_setup import named_logger
from evenlag.planning.group_steps import GroupStep, guarded_step, newest_head, rows_before, write_groups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from evenlag.lake.reader import LakeReader
    from evenlag.lake.snapshot_reader import SnapshotReader
    from evenlag.policy.settings import Policy

_LOG = named_logger(__name__)
# Older states say nothing any more.
_OLDEST: Final = timedelta(days=2)
_HOUR: Final = timedelta(hours=1)
# The two snapshots are at least so far apart, and none is so far from its end of the hour.
_LEAST: Final = timedelta(minutes=30)
# Forecasts and their errors reach no further than this from an hour of the past.
_MOST_REACH: Final = timedelta(hours=6)
_OFFSET_COLUMNS: Final = ("topic_id", "topic", "partition", "high_watermark", "end_read_at")
_RATE_COLUMNS: Final = ("hour", "topic_id", "topic", "partition", "arrival_rate_records_per_s")


def forecast_snapshot(rows: SnapshotReader, policy: Policy) -> dict[str, Any]:
    """Forecast the arrivals of a snapshot's groups, each once; return their number for the step's summary.

    An error costs neither the snapshot nor the step, and one of a group only the forecast of this group:
    planning then uses the rates of the snapshot.
    """

    def write() -> int:
        _finish_hour(rows)
        return _forecast_groups(rows, policy)

    return guarded_step(rows, "forecasts", write, "the arrivals after %s were not forecast: %s")


def _forecast_groups(rows: SnapshotReader, policy: Policy) -> int:
    def horizon_of(group_id: str) -> int:
        return policy.group_settings(rows.cluster, group_id).plan_horizon_s

    @cache
    def shared() -> tuple[pa.Table, pa.Table]:
        """What all groups have in common: points of the interval, and hourly rates."""
        offsets = rows.rows(OFFSETS, POINT_COLUMNS)
        longest = max(map(horizon_of, rows.rows(MEMBERS, ["group_id"])["group_id"].unique().to_pylist()))
        at = rows.marker["end_read_at"]
        hourly = _read_hours(rows.reader, rows.cluster, at, timedelta(seconds=longest))
        return offsets.filter(pc.is_valid(offsets["interval_points"])), hourly

    def build(before: SnapshotReader | None, group_ids: list[str]) -> pa.Table:
        previous = rows_before(before, rows, FORECASTS, FORECASTS.column_names, group_ids)
        lag = rows.rows_of_groups(LAG, LAG_COLUMNS, group_ids)
        speeds = rows.rows_of_groups(SPEEDS, ("group_id", "members"), group_ids)
        offsets, hourly = shared()
        return build_forecasts(lag, offsets, previous, hourly, rows.marker, horizon_of, speeds)

    failure = "the arrivals of group %s were not forecast: %s"
    return write_groups(rows, GroupStep(FORECASTS, build, _OLDEST, failure))


def _finish_hour(rows: SnapshotReader) -> int:
    """Write the rates of the hour before the snapshot's, unless they are written; return their number.

    Of two snapshots that find none, one writes.
    """
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


def _read_hours(reader: LakeReader, cluster: str, at: datetime, horizon: timedelta) -> pa.Table:
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


def read_expected(reader: LakeReader, cluster: str) -> pa.Table | None:
    """Read what the newest forecasts expect of each partition, which groups may share; None without any.

    Returns ``topic_id, topic, partition, read_at, end_offset, last_records_per_s``.
    """
    try:
        head = newest_head(reader, cluster, FORECASTS, datetime.now(UTC), _OLDEST)
        if head is None:
            return None
        found = reader.read(FORECASTS, columns=["group_id", "partitions"], filters=snapshot_filters(head))
    except LakeError as error:
        _LOG.warning("the newest forecasts of %s cannot be read: %s", cluster, error)
        return None
    return expected_ends(found)
