"""Evaluate published plans whose horizon has passed, by this snapshot, into ``plan_evaluations``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlag.enums import PlanEvent
from evenlag.lake.tables import LAG, MEMBERS, OUTCOMES, PLAN_EVALUATIONS, PLAN_EVENTS, PLANS, SNAPSHOTS
from spark_jobs.runtime.cached_frames import CachedFrames
from spark_jobs.transforms.plan_events import select_published
from spark_jobs.transforms.plan_scores import build_scores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_jobs.runtime.delta_lake import Lake


def score_plans(lake: Lake, cluster: str, snapshot_id: str, run_id: str, lives: DataFrame) -> int:
    """Evaluate the plans that are due; each is evaluated once, by the first snapshot after its horizon.

    Parameters
    ----------
    lake, cluster, snapshot_id
        The tables, and the snapshot to evaluate by; its lag and outcomes are written already.
    run_id
        Id of the run, recorded with the rows.
    lives
        Lifecycle events of published plans (:func:`~spark_jobs.steps.settle_outcomes.read_lifecycle_events`).

    Returns
    -------
    int
        Number of plans that were evaluated.

    Raises
    ------
    LakeError
        When a table cannot be written.
    """
    from pyspark.sql import functions as sf

    # Without this table, nothing was ever published.
    if not lake.exists(PLAN_EVENTS):
        return 0
    with CachedFrames() as cached:
        due = cached.cache(_due(lake, cluster, snapshot_id, lives))
        planned_from = [row.plan_snapshot_id for row in due.select("plan_snapshot_id").distinct().collect()]
        if not planned_from:
            return 0
        lag_before = lake.read(LAG).where(
            (sf.col("cluster") == cluster) & sf.col("snapshot_id").isin(planned_from)
        )
        scores = build_scores(
            due=due,
            lag_before=lag_before,
            members=lake.read_snapshot(MEMBERS, cluster, snapshot_id),
            lag=lake.read_snapshot(LAG, cluster, snapshot_id),
            snapshot=lake.read_snapshot(SNAPSHOTS, cluster, snapshot_id),
            run_id=run_id,
        )
        lake.append(PLAN_EVALUATIONS, scores, f"score/{cluster}/{snapshot_id}", sort_by=("group_id",))
        return due.count()


def _due(lake: Lake, cluster: str, snapshot_id: str, lives: DataFrame) -> DataFrame:
    """Published plans that have ended, are not evaluated yet, and whose horizon precedes the snapshot."""
    from pyspark.sql import functions as sf

    published = select_published(lives).drop("expires_at")
    settled = lake.read(OUTCOMES).where(sf.col("cluster") == cluster)
    withdrawn = lives.where(sf.col("event") == PlanEvent.WITHDRAWN)
    endings = (
        settled.select(
            "plan_id", "outcome", sf.col("reason").alias("outcome_reason"), sf.lit(1).alias("rank")
        )
        .unionByName(
            withdrawn.select(
                "plan_id",
                sf.lit(PlanEvent.WITHDRAWN).alias("outcome"),
                sf.col("reason").alias("outcome_reason"),
                sf.lit(0).alias("rank"),
            )
        )
        .groupBy("plan_id")
        .agg(sf.min_by(sf.struct("outcome", "outcome_reason"), "rank").alias("ending"))
        .select("plan_id", "ending.outcome", "ending.outcome_reason")
    )
    scored = lake.read(PLAN_EVALUATIONS).where(sf.col("cluster") == cluster).select("plan_id")
    heads = lake.read(PLANS).where(sf.col("cluster") == cluster)
    started = lake.read_snapshot(SNAPSHOTS, cluster, snapshot_id).select("started_at")
    horizon_s = sf.get_json_object("settings", "$.back_off.horizon_s").cast("bigint")
    horizon_at = sf.timestamp_millis(sf.unix_millis("published_at") + 1000 * horizon_s)
    return (
        published.join(endings, "plan_id")
        .join(scored, "plan_id", "left_anti")
        .join(
            heads.select(
                "plan_id",
                "settings",
                "gain",
                "metrics_before",
                "metrics_after",
                sf.col("snapshot_id").alias("plan_snapshot_id"),
            ),
            "plan_id",
        )
        .crossJoin(sf.broadcast(started))
        .withColumn("horizon_at", horizon_at)
        .where(sf.col("horizon_at") <= sf.col("started_at"))
        .withColumns(
            {
                "min_gain": sf.get_json_object("settings", "$.min_gain").cast("double"),
                "superseded_by": sf.when(sf.col("next_at") < sf.col("horizon_at"), sf.col("next_plan_id")),
            }
        )
        .drop("started_at")
    )
