"""Intervals: consecutive snapshots with the same content, identified by the first and the last one."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

# Columns from the first and the last snapshot of an interval, and from the snapshots next to it.
_OF_THE_FIRST: Final = ("first_snapshot_id", "first_seen_at", "previous_snapshot_id", "previous_seen_at")
_OF_THE_LAST: Final = ("last_snapshot_id", "last_seen_at", "next_snapshot_id", "next_seen_at")
INTERVAL_COLUMNS: Final = (
    "first_number",
    "last_number",
    *_OF_THE_FIRST,
    *_OF_THE_LAST,
    "num_snapshots",
    "longest_gap_ms",
)


def number_snapshots(snapshots: DataFrame) -> DataFrame:
    """Number the snapshots of each day by start time, and add the ids of their neighbors.

    Returns these columns with ``number`` (from 1), ``before_id, before_at`` (start of the previous
    snapshot) and ``after_id, after_at`` (end of the next snapshot); null for the first and the last
    snapshot of a day.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    in_order = Window.partitionBy("day").orderBy("started_at", "snapshot_id")
    return snapshots.withColumns(
        {
            "number": sf.row_number().over(in_order),
            "before_id": sf.lag("snapshot_id").over(in_order),
            "before_at": sf.lag("started_at").over(in_order),
            "after_id": sf.lead("snapshot_id").over(in_order),
            "after_at": sf.lead("finished_at").over(in_order),
        }
    )


def merge_intervals(rows: DataFrame, *, key: Sequence[str], content: Sequence[str]) -> DataFrame:
    """Merge adjacent intervals of a key that have the same content.

    Returns the columns of ``rows``, with as few intervals as possible. A snapshot without a row of the key
    ends its interval.
    rows: ``key``, ``content`` and ``INTERVAL_COLUMNS``. Intervals of one key do not overlap. A single
        snapshot is an interval of length one.
    content: Columns that must be equal to merge; two nulls are equal.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    in_order = Window.partitionBy(*key).orderBy("first_number")
    is_same = reduce(and_, (sf.col(name).eqNullSafe(sf.lag(name).over(in_order)) for name in content))
    follows = sf.col("first_number") == sf.lag("last_number").over(in_order) + 1
    since_last_ms = sf.unix_millis("first_seen_at") - sf.unix_millis(sf.lag("last_seen_at").over(in_order))
    marked = rows.withColumns(
        {"_goes_on": sf.coalesce(is_same & follows, sf.lit(False)), "_since_last_ms": since_last_ms}
    ).withColumn("_interval", sf.sum((~sf.col("_goes_on")).cast("int")).over(in_order))
    gap_ms = sf.when(sf.col("_goes_on"), sf.col("_since_last_ms"))
    return (
        marked.groupBy(*key, "_interval")
        .agg(
            *(sf.first(name).alias(name) for name in content),
            *(sf.min_by(name, "first_number").alias(name) for name in _OF_THE_FIRST),
            *(sf.max_by(name, "last_number").alias(name) for name in _OF_THE_LAST),
            sf.min("first_number").alias("first_number"),
            sf.max("last_number").alias("last_number"),
            sf.sum("num_snapshots").cast("int").alias("num_snapshots"),
            sf.max(sf.greatest("longest_gap_ms", sf.coalesce(gap_ms, sf.lit(0)))).alias("longest_gap_ms"),
        )
        .drop("_interval")
    )
