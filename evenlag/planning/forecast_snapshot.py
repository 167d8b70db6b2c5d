"""Forecast what arrives after a snapshot, for each group: rows of ``hourly_rates`` and ``forecasts``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from evenlag.errors import LakeError
from evenlag.lag.forecast_rows import LAG_COLUMNS, POINT_COLUMNS, build_forecasts, expected_ends
from evenlag.lag.hourly_rates import finish_hour, read_hours
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import FORECASTS, LAG, MEMBERS, OFFSETS, SPEEDS
from evenlag.logging_setup import named_logger
from evenlag.planning.group_steps import GroupStep, guarded_step, newest_head, rows_before, write_groups

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.lake.reader import LakeReader
    from evenlag.lake.snapshot_reader import SnapshotReader
    from evenlag.policy.settings import Policy

_LOG = named_logger(__name__)
# Older states say nothing any more.
_OLDEST: Final = timedelta(days=2)


def forecast_snapshot(rows: SnapshotReader, policy: Policy) -> dict[str, Any]:
    """Forecast the arrivals of a snapshot's groups, each once; return their number for the step's summary.

    An error costs neither the snapshot nor the step, and one of a group only the forecast of this group:
    planning then uses the rates of the snapshot.
    """

    def write() -> int:
        finish_hour(rows)
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
        hourly = read_hours(rows.reader, rows.cluster, at, timedelta(seconds=longest))
        return offsets.filter(pc.is_valid(offsets["interval_points"])), hourly

    def build(before: SnapshotReader | None, group_ids: list[str]) -> pa.Table:
        previous = rows_before(before, rows, FORECASTS, FORECASTS.column_names, group_ids)
        lag = rows.rows_of_groups(LAG, LAG_COLUMNS, group_ids)
        speeds = rows.rows_of_groups(SPEEDS, ("group_id", "members"), group_ids)
        offsets, hourly = shared()
        return build_forecasts(lag, offsets, previous, hourly, rows.marker, horizon_of, speeds)

    failure = "the arrivals of group %s were not forecast: %s"
    return write_groups(rows, GroupStep(FORECASTS, build, _OLDEST, failure))


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
