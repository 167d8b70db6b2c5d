"""Rows of ``lag`` and ``members`` of a snapshot with what was measured and forecast: what planning reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.lag.forecast_rows import with_forecasts
from evenlag.lag.speed_rows import with_costs, with_speeds
from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import FORECASTS, SPEEDS

if TYPE_CHECKING:
    import pyarrow as pa

SPEED_COLUMNS: Final = ("group_id", "members", "partitions")
FORECAST_COLUMNS: Final = ("group_id", "partitions")


def read_measured(rows: SnapshotReader, lag: pa.Table, members: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Read what was measured of some groups, and add it to their rows of ``lag`` and ``members``."""
    group_ids = members["group_id"].unique().to_pylist()
    speeds = rows.rows_of_groups(SPEEDS, SPEED_COLUMNS, group_ids)
    return with_measures(lag, members, speeds, rows.rows_of_groups(FORECASTS, FORECAST_COLUMNS, group_ids))


def with_measures(
    lag: pa.Table, members: pa.Table, speeds: pa.Table, forecasts: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """Add costs and forecasts to rows of ``lag``, and speeds to rows of ``members``; null: unknown."""
    return with_forecasts(with_costs(lag, speeds), forecasts), with_speeds(members, speeds)
