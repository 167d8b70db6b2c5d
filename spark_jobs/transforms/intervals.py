"""Stretches: readings one after another that show the same, told by their first and their last one."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

# What a stretch carries of its first and of its last reading, and of the readings just outside of it.
_OF_THE_FIRST: Final = ("first_snapshot_id", "first_seen_at", "previous_snapshot_id", "previous_seen_at")
_OF_THE_LAST: Final = ("last_snapshot_id", "last_seen_at", "next_snapshot_id", "next_seen_at")
STRETCH_COLUMNS: Final = (
    "first_number",
    "last_number",
    *_OF_THE_FIRST,
    *_OF_THE_LAST,
    "num_snapshots",
    "longest_gap_ms",
)


def number_readings(readings: DataFrame) -> DataFrame:
    """Number the readings of each day in the order in which they began, and name their neighbours.

    Parameters
    ----------
    readings
        ``day, snapshot_id, started_at, finished_at`` of one cluster.

    Returns
    -------
    DataFrame
        The same with ``number``, ``before_id, before_at`` (when the reading before began) and ``after_id,
        after_at`` (when the reading after ended); null at the day's edges.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    in_order = Window.partitionBy("day").orderBy("started_at", "snapshot_id")
    return readings.withColumns(
        {
            "number": sf.row_number().over(in_order),
            "before_id": sf.lag("snapshot_id").over(in_order),
            "before_at": sf.lag("started_at").over(in_order),
            "after_id": sf.lead("snapshot_id").over(in_order),
            "after_at": sf.lead("finished_at").over(in_order),
        }
    )


def join_stretches(rows: DataFrame, *, key: Sequence[str], content: Sequence[str]) -> DataFrame:
    """Join stretches of a key that follow on each other and show the same.

    Parameters
    ----------
    rows
        ``key``, ``content`` and ``STRETCH_COLUMNS``; of one key no two overlap. A single reading is a stretch
        of length one.
    key
        Columns that tell what is looked at; the day is among them.
    content
        Columns that must be the same, null as null.

    Returns
    -------
    DataFrame
        The columns of ``rows``: the fewest stretches that say the same. A reading that shows nothing of a key
        ends its stretch.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    in_order = Window.partitionBy(*key).orderBy("first_number")
    is_same = reduce(and_, (sf.col(name).eqNullSafe(sf.lag(name).over(in_order)) for name in content))
    follows = sf.col("first_number") == sf.lag("last_number").over(in_order) + 1
    since_last_ms = sf.unix_millis("first_seen_at") - sf.unix_millis(sf.lag("last_seen_at").over(in_order))
    marked = rows.withColumns(
        {"_goes_on": sf.coalesce(is_same & follows, sf.lit(False)), "_since_last_ms": since_last_ms}
    ).withColumn("_stretch", sf.sum((~sf.col("_goes_on")).cast("int")).over(in_order))
    gap_ms = sf.when(sf.col("_goes_on"), sf.col("_since_last_ms"))
    return (
        marked.groupBy(*key, "_stretch")
        .agg(
            *(sf.first(name).alias(name) for name in content),
            *(sf.min_by(name, "first_number").alias(name) for name in _OF_THE_FIRST),
            *(sf.max_by(name, "last_number").alias(name) for name in _OF_THE_LAST),
            sf.min("first_number").alias("first_number"),
            sf.max("last_number").alias("last_number"),
            sf.sum("num_snapshots").cast("int").alias("num_snapshots"),
            sf.max(sf.greatest("longest_gap_ms", sf.coalesce(gap_ms, sf.lit(0)))).alias("longest_gap_ms"),
        )
        .drop("_stretch")
    )
