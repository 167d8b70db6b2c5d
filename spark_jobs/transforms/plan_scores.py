"""Evaluation of published plans at their horizon: whether they were applied, and whether they paid off.

Lag follows the traffic, whatever the assignment. So a plan is evaluated by the share of the group's lag that
the most loaded member has, before and at the horizon, not by the lag alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlag.enums import LagStatus, Outcome
from evenlag.lake.tables import PLAN_EVALUATIONS
from spark_jobs.runtime.contract_columns import conform
from spark_jobs.transforms.outcomes import actual_lag

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def build_scores(
    *,
    due: DataFrame,
    lag_before: DataFrame,
    members: DataFrame,
    lag: DataFrame,
    snapshot: DataFrame,
    run_id: str,
) -> DataFrame:
    """Evaluate the plans whose horizon has passed by a snapshot.

    Parameters
    ----------
    due
        Those plans: ``plan_id, group_id, settings, gain, metrics_before, metrics_after, min_gain,
        published_at, outcome, outcome_reason, superseded_by`` and ``plan_snapshot_id``.
    lag_before
        Rows of ``lag`` of the snapshots that the plans were computed from.
    members, lag, snapshot
        Rows of these tables, of the current snapshot.
    run_id
        Id of the run.

    Returns
    -------
    DataFrame
        Rows of ``plan_evaluations``.
    """
    from pyspark.sql import functions as sf

    before = _group_lag(lag_before, "snapshot_id", "group_id").select(
        sf.col("snapshot_id").alias("plan_snapshot_id"),
        "group_id",
        sf.col("total_lag_records").alias("total_lag_before_records"),
        sf.col("drain_time_ms").alias("drain_time_before_ms"),
        sf.col("num_unknown").alias("num_unknown_before"),
    )
    now = _group_lag(lag, "group_id").select(
        "group_id", sf.col("drain_time_ms").alias("drain_time_actual_ms")
    )
    marker = snapshot.select("cluster", "day", "snapshot_id", "slot", "started_at")
    rows = (
        due.join(before, ["plan_snapshot_id", "group_id"], "left")
        .join(now, "group_id", "left")
        .join(actual_lag(lag, members), "group_id", "left")
        .crossJoin(sf.broadcast(marker))
        .withColumns(
            {
                "max_member_lag_before_records": sf.col("metrics_before.max_member_lag_records"),
                "max_member_lag_predicted_records": sf.col("metrics_after.max_member_lag_records"),
                "scored_after_ms": sf.unix_millis("started_at") - sf.unix_millis("published_at"),
                "gain_predicted": sf.col("gain"),
            }
        )
    )
    judged = rows.withColumn("gain_actual", _gain_actual()).withColumn("paid_off", _paid_off())
    return conform(
        judged.withColumns({"reason": _reason(), "run_id": sf.lit(run_id)}),
        PLAN_EVALUATIONS,
    )


def _group_lag(lag: DataFrame, *key: str) -> DataFrame:
    """Total lag and longest drain time of each group.

    The drain time is null when a partition with lag never drains, or when a lag is not known.
    """
    from pyspark.sql import functions as sf

    never = sf.count_if(
        sf.col("lag_records").isNull() | ((sf.col("lag_records") > 0) & sf.col("drain_time_ms").isNull())
    )
    longest = sf.coalesce(sf.max("drain_time_ms"), sf.lit(0))
    return (
        lag.where(sf.col("status") != LagStatus.NOT_SUBSCRIBED)
        .groupBy(*key)
        .agg(
            sf.sum("lag_records").alias("total_lag_records"),
            sf.when(never == 0, longest).alias("drain_time_ms"),
            sf.count_if(sf.col("lag_records").isNull()).alias("num_unknown"),
        )
    )


def _gain_actual() -> Column:
    """Relative fall of the most loaded member's share of the group's lag; 1.0 when no lag is left.

    Null where the lag of any partition is not known: the share of the known part may be misleading.
    """
    from pyspark.sql import functions as sf

    share_before = sf.col("max_member_lag_before_records") / sf.col("total_lag_before_records")
    share_now = sf.col("max_member_lag_actual_records") / sf.col("total_lag_actual_records")
    fall = sf.when(sf.col("total_lag_actual_records") == 0, sf.lit(1.0)).when(
        (share_before > 0) & (sf.col("num_unknown_before") == 0), 1 - share_now / share_before
    )
    return sf.when(sf.col("num_unknown_partitions") == 0, fall)


def _paid_off() -> Column:
    """Null where the plan was withdrawn or superseded, or where any lag is not known."""
    from pyspark.sql import functions as sf

    is_as_predicted = sf.col("max_member_lag_actual_records") <= sf.col("max_member_lag_predicted_records")
    return (
        sf.when(sf.col("superseded_by").isNotNull() | (sf.col("outcome") == Outcome.WITHDRAWN), sf.lit(None))
        .when(sf.col("outcome") != Outcome.APPLIED, sf.lit(False))
        .when(sf.col("gain_actual").isNull(), sf.lit(None))
        .otherwise(is_as_predicted | (sf.col("gain_actual") >= sf.col("min_gain")))
        .cast("boolean")
    )


def _reason() -> Column:
    from pyspark.sql import functions as sf

    numbers = sf.format_string(
        "the most loaded member is %d records behind (%d when planned, %d by the plan)",
        "max_member_lag_actual_records",
        "max_member_lag_before_records",
        "max_member_lag_predicted_records",
    )
    unknown = sf.format_string(
        "the lag of %d of %d partitions is not known at the horizon",
        "num_unknown_partitions",
        "num_partitions",
    )
    share = sf.format_string(
        ", its share of the group's lag fell by %.1f %%, %.1f %% is asked for",
        sf.col("gain_actual") * 100,
        sf.col("min_gain") * 100,
    )
    return (
        sf.when(sf.col("outcome") == Outcome.WITHDRAWN, sf.lit("it was withdrawn before its horizon"))
        .when(sf.col("superseded_by").isNotNull(), sf.lit("a newer plan took its place before its horizon"))
        .when(
            sf.col("outcome") != Outcome.APPLIED,
            sf.concat(sf.lit("it was not followed: "), sf.coalesce("outcome_reason", sf.lower("outcome"))),
        )
        .when(sf.col("num_unknown_partitions") > 0, unknown)
        .when(sf.col("num_unknown_partitions").isNull(), sf.lit("the snapshot has no lag of the group"))
        .when(sf.col("gain_actual").isNull(), sf.lit("the group's lag when planned is zero or not known"))
        .otherwise(sf.concat(numbers, share))
    )
