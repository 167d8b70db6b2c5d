"""Planning history by group: consecutive breaches, and consecutive plans that did not pay off."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame


def count_breaches(decisions: DataFrame, *, before: datetime, max_gap_s: int) -> DataFrame:
    """Count the consecutive breaches of each group up to a slot.

    Snapshots that are missing or could not be planned neither count nor interrupt the sequence. A gap of more
    than `max_gap_s` between two planned snapshots interrupts it.

    Parameters
    ----------
    decisions
        Rows of ``decisions`` of one cluster, from before `before`.
    before
        The slot that is being planned.
    max_gap_s
        Longest gap within a sequence, in seconds.

    Returns
    -------
    DataFrame
        ``group_id, breaches``; groups without breaches have no row.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    # A slot that was planned under two policies is a breach only if it is one under both.
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
    """Count the newest consecutive plans of each group that did not pay off under the same settings.

    Evaluations without a result (null) neither count nor interrupt the sequence.

    Parameters
    ----------
    scores
        Rows of ``plan_evaluations`` of one cluster.

    Returns
    -------
    DataFrame
        ``group_id, failures, settings`` (of these plans), ``last_slot_ms, last_reason`` (of the newest
        evaluation); groups without failures have no row.
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
