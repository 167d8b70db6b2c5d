"""The inputs of the gates: one aggregated row per plan, which Great Expectations evaluates.

All values are computed again from the rows that would be published, not taken from the planner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build_gate_frame(
    heads: DataFrame,
    assignments: DataFrame,
    lag: DataFrame,
    members: DataFrame,
    published: DataFrame,
    snapshot: DataFrame,
    *,
    decided_at_ms: int,
) -> DataFrame:
    """Aggregate to one row per plan.

    Parameters
    ----------
    heads, assignments
        The plans' heads and all their rows.
    lag, members, snapshot
        The snapshot's rows of these tables.
    published
        PUBLISHED events of the cluster.
    decided_at_ms
        The moment of the decision, milliseconds since the epoch: given, so that a transform has no clock.

    Returns
    -------
    DataFrame
        The head's columns and ``num_rows, num_duplicates, num_missing, num_invalid_owners,
        snapshot_age_s, since_last_hint_s`` (null: never hinted), ``hint_topic_max_bytes``.
    """
    from pyspark.sql import functions as sf

    taken = members.where(sf.col("member_id").isNotNull()).select(
        "group_id", sf.col("member_id").alias("owner_after"), sf.explode("subscription").alias("topic")
    )
    takers = taken.select("group_id", "topic").distinct().withColumn("is_takeable", sf.lit(True))
    wanted = (
        lag.join(takers, ["group_id", "topic"]).groupBy("group_id").agg(sf.count("*").alias("num_wanted"))
    )
    rows = (
        assignments.join(
            taken.withColumn("is_valid", sf.lit(True)), ["group_id", "topic", "owner_after"], "left"
        )
        .groupBy("plan_id", "group_id")
        .agg(
            sf.count("*").alias("num_rows"),
            sf.countDistinct("topic_id", "topic", "partition").alias("num_distinct"),
            sf.count_if(sf.col("owner_after").isNull()).alias("num_unplaced"),
            sf.count_if(sf.col("owner_after").isNotNull() & sf.col("is_valid").isNull()).alias(
                "num_invalid_owners"
            ),
        )
    )
    last_hint = published.groupBy("group_id").agg(sf.max("at").alias("last_hint_at"))
    now_s = decided_at_ms / 1000
    return (
        heads.join(rows, ["plan_id", "group_id"], "left")
        .join(wanted, "group_id", "left")
        .join(last_hint, "group_id", "left")
        .crossJoin(sf.broadcast(snapshot.select("finished_at", "hint_topic_max_bytes")))
        .withColumns(
            {
                "num_duplicates": sf.col("num_rows") - sf.col("num_distinct"),
                # A partition that stands twice must not hide one that is missing.
                "num_missing": sf.col("num_wanted") - sf.col("num_distinct") + sf.col("num_unplaced"),
                "snapshot_age_s": sf.lit(now_s) - sf.unix_micros("finished_at") / 1e6,
                "since_last_hint_s": sf.lit(now_s) - sf.unix_micros("last_hint_at") / 1e6,
            }
        )
        .drop("num_distinct", "num_unplaced", "num_wanted", "last_hint_at", "finished_at")
    )
