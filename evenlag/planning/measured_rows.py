"""Rows of ``lag`` and ``members`` of a snapshot with what was measured and forecast: what planning reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.lag.forecast_rows import with_forecasts
from evenlag.lag.speed_rows import with_costs, with_speeds

if TYPE_CHECKING:
    import pyarrow as pa

SPEED_COLUMNS: Final = ("group_id", "members", "partitions")
FORECAST_COLUMNS: Final = ("group_id", "partitions")


def with_measures(
    lag: pa.Table, members: pa.Table, speeds: pa.Table, forecasts: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """Add costs and forecasts to rows of ``lag``, and speeds to rows of ``members``; null: unknown."""
    return with_forecasts(with_costs(lag, speeds), forecasts), with_speeds(members, speeds)
