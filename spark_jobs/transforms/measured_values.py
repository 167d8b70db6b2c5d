"""What was measured and forecast beside the rows of a large snapshot.

:mod:`evenlag.lag.speed_rows` and :mod:`evenlag.lag.forecast_rows` join few rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PARTITION: Final = ("group_id", "topic_id", "topic", "partition")


def join_speeds(members: DataFrame, speeds: DataFrame) -> DataFrame:
    """Add ``speed_records_per_s, speed_is_bound, speed_confidence`` to rows of ``members``; null: unknown."""
    key = ["snapshot_id", "group_id", "member_id"]
    each = speeds.selectExpr(*key[:2], "inline(members)").selectExpr(
        *key,
        "speed_records_per_s",
        "is_bound AS speed_is_bound",
        "confidence AS speed_confidence",
    )
    return members.join(each.dropDuplicates(key), key, "left")


def join_partition_values(lag: DataFrame, measured: DataFrame, column: str) -> DataFrame:
    """Add a column of the ``partitions`` of ``speeds`` or ``forecasts`` to rows of ``lag``."""
    each = measured.selectExpr("group_id", "inline(partitions)").select(*_PARTITION, column)
    return lag.join(each, list(_PARTITION), "left")
