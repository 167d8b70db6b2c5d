"""Forecasts beside the rows of a large snapshot's lag; :mod:`evenlag.lag.forecast_rows` joins few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY = ("group_id", "topic_id", "topic", "partition")


def join_forecasts(lag: DataFrame, forecasts: DataFrame) -> DataFrame:
    """Add ``forecast_records_per_s`` to rows of ``lag``; null where there is none."""
    each = forecasts.selectExpr("group_id", "inline(partitions)").select(*_KEY, "forecast_records_per_s")
    return lag.join(each, list(_KEY), "left")
