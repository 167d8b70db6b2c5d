"""Rows of the past, one a group: breaches in a row, and plans in a row that did not pay off."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame


def count_breaches(decisions: DataFrame, *, before: datetime, max_gap_s: int) -> DataFrame:
    """Count, group by group, the readings in a row up to `before` that asked for a change.

    A reading that could not be planned, and one that is missing, count for nothing either way, unless two
    that count lie further apart than `max_gap_s`: nobody knows what was in between, so the row begins anew.

    Parameters
    ----------
    decisions
        Rows of ``decisions`` of one cluster, from before `before`.
    before
        The slot that is decided upon.

    Returns
    -------
    DataFrame
        ``group_id, breaches``, of the groups that have any.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    # A slot that was decided twice, under two policies, asks for a change only if both say so.
    judged = (
        decisions.where(sf.col("is_breach").isNotNull())
        .groupBy("group_id", "slot")
        .agg(sf.bool_and("is_breach").alias("is_breach"))
    )
    newest_first = Window.partitionBy("group_id").orderBy(sf.col("slot").desc())
    next_slot = sf.coalesce(sf.lag("slot").over(newest_first), sf.lit(before))
    gap_s = sf.unix_seconds(next_slot) - sf.unix_seconds("slot")
    ends = (~sf.col("is_breach")) | (sf.col("gap_s") > max_gap_s)
    return (
        judged.withColumn("gap_s", gap_s)
        .withColumn("num_ends", sf.sum(ends.cast("int")).over(newest_first))
        .where(sf.col("num_ends") == 0)
        .groupBy("group_id")
        .agg(sf.count("*").cast("int").alias("breaches"))
    )


def find_backing_off(scores: DataFrame) -> DataFrame:
    """Count, group by group, the newest plans in a row that did not pay off, made by the same settings.

    Scores that cannot tell (null) count for nothing either way.

    Returns
    -------
    DataFrame
        ``group_id, failures, settings`` (which they were made by), ``last_slot_ms, last_reason`` (of the
        newest score), of the groups that have any.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    newest_first = Window.partitionBy("group_id").orderBy(sf.col("published_at").desc(), "plan_id")
    newest_settings = sf.first("settings").over(newest_first)
    ends = sf.col("paid_off") | (sf.col("settings") != sf.col("newest_settings"))
    return (
        scores.where(sf.col("paid_off").isNotNull())
        .withColumn("newest_settings", newest_settings)
        .withColumn("num_ends", sf.sum(ends.cast("int")).over(newest_first))
        .where(sf.col("num_ends") == 0)
        .groupBy("group_id")
        .agg(
            sf.count("*").cast("int").alias("failures"),
            sf.first("newest_settings").alias("settings"),
            sf.max(sf.unix_millis("slot")).alias("last_slot_ms"),
            sf.max_by("reason", "published_at").alias("last_reason"),
        )
    )
