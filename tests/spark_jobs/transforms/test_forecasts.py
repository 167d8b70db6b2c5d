"""Forecasts beside the lag of a large snapshot: Spark joins them as the driver does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lag.forecast_rows import with_forecasts
from evenlag.lake.tables import FORECASTS, LAG
from spark_jobs.transforms.measured_values import join_partition_values
from tests.support.lakes.snapshots import TOPIC_IDS, arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm


def _row(group: str, partition: int, *, topic: str = "t") -> dict[str, Any]:
    return {"group_id": group, "topic_id": TOPIC_IDS[topic], "topic": topic, "partition": partition}


def test_spark_joins_as_the_driver_does(spark: SparkSession) -> None:
    rates = [0.5, 1.5]
    parts = [_row("g", 0) | {"forecast_records_per_s": rates}, _row("g", 1, topic="u")]
    forecasts = arrow(
        FORECASTS, [{"group_id": "g", "partitions": parts}, {"group_id": "h", "partitions": []}]
    )
    lag = arrow(LAG, [_row("g", 0), _row("g", 1), _row("g", 1, topic="u"), _row("h", 0), _row("i", 0)])
    lag_frame, forecasts_frame = (
        spark.createDataFrame(rows, table.ddl) for rows, table in ((lag, LAG), (forecasts, FORECASTS))
    )
    columns = ["group_id", "topic", "partition", "forecast_records_per_s"]
    joined = join_partition_values(lag_frame, forecasts_frame, columns[3]).select(columns).toArrow()
    expected = with_forecasts(lag, forecasts).select(columns)
    order = [(name, "ascending") for name in columns[:3]]
    assert joined.sort_by(order).to_pylist() == expected.sort_by(order).to_pylist()
    assert expected["forecast_records_per_s"].to_pylist() == [rates, None, None, None, None]
