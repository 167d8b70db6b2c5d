"""Rows of ``lag`` and ``members`` of a snapshot with what was measured and forecast: what planning reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlag.lag.forecast_rows import with_forecasts
from evenlag.lag.speed_rows import with_costs, with_speeds
from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import FORECASTS, SPEEDS

if TYPE_CHECKING:
    import pyarrow as pa


def with_measures(rows: SnapshotReader, lag: pa.Table, members: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Add costs and forecasts to rows of ``lag``, and speeds to rows of ``members``, of some groups."""
    group_ids = members["group_id"].unique().to_pylist()
    speeds = rows.rows_of_groups(SPEEDS, ("group_id", "members", "partitions"), group_ids)
    forecasts = rows.rows_of_groups(FORECASTS, ("group_id", "partitions"), group_ids)
    return with_forecasts(with_costs(lag, speeds), forecasts), with_speeds(members, speeds)
