"""Outcomes of published plans by a snapshot: APPLIED, IGNORED or EXPIRED, and the effect on lag.

A plan has no outcome while the group may still apply its hint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlag.enums import MEMBERLESS_STATES, GroupState, LagStatus, Outcome
from evenlag.lake.tables import OUTCOMES
from spark_jobs.runtime.contract_columns import conform
from spark_jobs.transforms.member_assignments import explode_assignments

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def build_outcomes(
    *,
    pending: DataFrame,
    assignments: DataFrame,
    members: DataFrame,
    lag: DataFrame,
    snapshot: DataFrame,
    run_id: str,
) -> DataFrame:
    """Determine the outcome of the pending plans that this snapshot decides.

    Parameters
    ----------
    pending
        Published plans without an outcome: ``plan_id, group_id, published_at, expires_at, superseded_by``
        and the head's ``metrics_before, metrics_after, total_lag_before_records``.
    assignments
        Their rows of ``plan_assignments``.
    members, lag, snapshot
        The snapshot's rows of these tables.
    run_id
        Id of the run.

    Returns
    -------
    DataFrame
        Rows of ``outcomes``; a plan whose hint may still be applied has no row.
    """
    from pyspark.sql import functions as sf

    groups = members.groupBy("group_id").agg(
        sf.max("group_state").alias("group_state"), sf.max("assignor").alias("assignor")
    )
    rows = (
        # A snapshot that began before the hint was published cannot show its effect.
        pending.crossJoin(
            sf.broadcast(
                snapshot.select("cluster", "day", "snapshot_id", "slot", "started_at", "finished_at")
            )
        )
        .where(sf.col("published_at") < sf.col("started_at"))
        .join(_adherence(assignments, members), "plan_id", "left")
        .join(groups, "group_id", "left")
        .join(actual_lag(lag, members), "group_id", "left")
    )
    outcome = _outcome()
    settled = rows.withColumns({"outcome": outcome, "reason": _reason(outcome)})
    return conform(
        settled.where(sf.col("outcome").isNotNull()).select(
            "*",
            sf.lit(run_id).alias("run_id"),
            sf.col("metrics_before.max_member_lag_records").alias("max_member_lag_before_records"),
            sf.col("metrics_after.max_member_lag_records").alias("max_member_lag_predicted_records"),
            sf.col("metrics_before.lag_skew").alias("lag_skew_before"),
            sf.col("metrics_after.lag_skew").alias("lag_skew_predicted"),
        ),
        OUTCOMES,
    )


def _adherence(assignments: DataFrame, members: DataFrame) -> DataFrame:
    """Share of a plan's partitions at their hinted members, by assignment and by target assignment."""
    from pyspark.sql import functions as sf

    key = sf.when(
        sf.col("group_instance_id").isNotNull(), sf.concat(sf.lit("i:"), sf.col("group_instance_id"))
    ).otherwise(sf.concat(sf.lit("m:"), sf.col("member_id")))

    def rows(column: str, sign: str) -> DataFrame:
        held = explode_assignments(members, column, key.alias("owner_after_key"))
        return held.withColumn(sign, sf.lit(True))

    def share(sign: str) -> Column:
        return sf.avg(sf.coalesce(sign, sf.lit(False)).cast("double"))

    place = ["group_id", "owner_after_key", "topic", "partition"]
    has_target = members.groupBy("group_id").agg(
        sf.bool_or(sf.col("target_assignment").isNotNull()).alias("has_target")
    )
    return (
        assignments.where(sf.col("owner_after_key").isNotNull())
        .join(rows("assignment", "is_held"), place, "left")
        .join(rows("target_assignment", "is_target"), place, "left")
        .join(has_target, "group_id", "left")
        .groupBy("plan_id")
        .agg(
            share("is_held").alias("adherence"),
            # Classic groups have no target assignment: null, not 0.
            sf.when(sf.bool_or("has_target"), share("is_target")).alias("target_adherence"),
        )
    )


def actual_lag(lag: DataFrame, members: DataFrame) -> DataFrame:
    """Compute the lag of each group: of its most loaded member, in total, and its skew.

    Parameters
    ----------
    lag, members
        Rows of these tables, of one snapshot.

    Returns
    -------
    DataFrame
        ``group_id, num_partitions, num_unknown_partitions, max_member_lag_actual_records,
        lag_skew_actual, total_lag_actual_records``; one row per group with rows of ``lag``. Where the lag
        of some partitions is not known, the two lags are lower bounds and the skew is null; where no lag
        is known, all three are null.
    """
    from pyspark.sql import functions as sf

    counted = lag.where(sf.col("status") != LagStatus.NOT_SUBSCRIBED)
    totals = counted.groupBy("group_id").agg(
        sf.count(sf.lit(1)).cast("int").alias("num_partitions"),
        sf.count_if(sf.col("lag_records").isNull()).cast("int").alias("num_unknown_partitions"),
        sf.sum("lag_records").alias("total_lag_actual_records"),
    )
    by_member = (
        counted.where(sf.col("owner_member_id").isNotNull())
        .groupBy("group_id", sf.col("owner_member_id").alias("member_id"))
        .agg(sf.sum("lag_records").alias("member_lag"), sf.lit(True).alias("is_owner"))
    )
    # A member without partitions has a lag of 0 and counts in the mean; the lag of a member whose partitions
    # are all unknown is unknown.
    alive = members.where(sf.col("member_id").isNotNull()).select("group_id", "member_id").distinct()
    by_group = (
        alive.join(by_member, ["group_id", "member_id"], "left")
        .withColumn("member_lag", sf.when(sf.col("is_owner"), sf.col("member_lag")).otherwise(sf.lit(0)))
        .groupBy("group_id")
        .agg(sf.max("member_lag").alias("max_member_lag"), sf.avg("member_lag").alias("mean_member_lag"))
    )
    is_any_known = sf.col("num_unknown_partitions") < sf.col("num_partitions")
    skew = sf.when(sf.col("mean_member_lag") > 0, sf.col("max_member_lag") / sf.col("mean_member_lag")).when(
        sf.col("max_member_lag") == 0, sf.lit(1.0)
    )
    return (
        totals.join(by_group, "group_id", "left")
        .withColumns(
            {
                "max_member_lag_actual_records": sf.when(is_any_known, sf.col("max_member_lag")),
                # A skew has no lower bound: an unknown partition may make it larger or smaller.
                "lag_skew_actual": sf.when(sf.col("num_unknown_partitions") == 0, skew),
            }
        )
        .drop("max_member_lag", "mean_member_lag")
    )


def _outcome() -> Column:
    from pyspark.sql import functions as sf

    state = sf.col("group_state")
    return (
        sf.when(sf.col("adherence") == 1.0, Outcome.APPLIED)
        .when(sf.col("superseded_by").isNotNull(), Outcome.IGNORED)
        .when(state.isNull() | state.isin(*MEMBERLESS_STATES), Outcome.IGNORED)
        .when((state == GroupState.STABLE) & (sf.col("assignor") != "evenlag"), Outcome.IGNORED)
        # A hint expires only if the coordinator has not started on it: its target is not yet as hinted.
        .when(
            (sf.col("expires_at") <= sf.col("started_at"))
            & (sf.coalesce("target_adherence", sf.lit(0.0)) < 1.0),
            Outcome.EXPIRED,
        )
    )


def _reason(outcome: Column) -> Column:
    from pyspark.sql import functions as sf

    def percent(share: str) -> Column:
        return sf.format_string("%.0f %%", sf.col(share) * 100)

    in_target = sf.when(
        sf.col("target_adherence").isNotNull(),
        sf.concat(sf.lit(", and "), percent("target_adherence"), sf.lit(" in the coordinator's target")),
    ).otherwise(sf.lit(""))
    return (
        sf.when(outcome == Outcome.APPLIED, "every hinted partition is with its hinted member")
        .when(
            outcome == Outcome.EXPIRED,
            sf.concat(
                sf.lit("the hint's time is over with "),
                percent("adherence"),
                sf.lit(" of its partitions as hinted"),
                in_target,
            ),
        )
        .when(
            sf.col("superseded_by").isNotNull(),
            sf.concat(sf.lit("a newer plan took its place: "), "superseded_by"),
        )
        .when(
            sf.col("group_state") == GroupState.STABLE,
            sf.concat(sf.lit("the group has selected "), "assignor"),
        )
        .when(outcome == Outcome.IGNORED, "the group has no members any more")
    )
