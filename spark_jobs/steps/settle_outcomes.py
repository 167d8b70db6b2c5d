"""Settle earlier hints by this snapshot: ``outcomes``, then APPLIED, IGNORED and EXPIRED events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evenlag.enums import PlanEvent
from evenlag.lake.tables import LAG, MEMBERS, OUTCOMES, PLAN_ASSIGNMENTS, PLAN_EVENTS, PLANS, SNAPSHOTS
from spark_jobs.runtime.cached_frames import CachedFrames
from spark_jobs.transforms.outcomes import build_outcomes
from spark_jobs.transforms.plan_events import build_events, select_published

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_jobs.runtime.delta_lake import Lake

_ENDINGS = (PlanEvent.APPLIED, PlanEvent.IGNORED, PlanEvent.EXPIRED, PlanEvent.WITHDRAWN)


@dataclass(frozen=True, slots=True)
class Pending:
    """Published plans without an outcome.

    Attributes
    ----------
    plans
        Rows for :func:`~spark_jobs.transforms.outcomes.build_outcomes`, without the total lag.
    plan_ids
        Their ids: a few per group.
    """

    plans: DataFrame
    plan_ids: list[str]


def read_lifecycle_events(lake: Lake, cluster: str) -> DataFrame:
    """Read the lifecycle events of published plans.

    All steps that need them use one cached DataFrame, because each query of a Delta table has a fixed cost.

    Parameters
    ----------
    lake, cluster
        The tables, and the cluster's name in the policy.

    Returns
    -------
    DataFrame
        PUBLISHED events and the events that end a plan; to be cached.
    """
    from pyspark.sql import functions as sf

    told = sf.col("event").isin(PlanEvent.PUBLISHED, *_ENDINGS)
    return lake.read_events().where((sf.col("cluster") == cluster) & told)


def find_pending(lake: Lake, cluster: str, lives: DataFrame, cached: CachedFrames) -> Pending:
    """Find the plans that wait for an outcome; independent of the snapshot that will settle them.

    Parameters
    ----------
    lake, cluster
        The tables, and the cluster's name in the policy.
    lives
        From :func:`read_lifecycle_events`.
    cached
        Caches the plans for :func:`read_outcomes`.

    Returns
    -------
    Pending
        The plans.
    """
    plans = cached.cache(_pending(lake, cluster, lives))
    return Pending(plans, [row.plan_id for row in plans.select("plan_id").collect()])


def read_outcomes(
    lake: Lake, cluster: str, snapshot_id: str, run_id: str, pending: Pending
) -> dict[str, int]:
    """Settle the published plans that this snapshot can settle; :func:`append_outcome_events` runs after it.

    Parameters
    ----------
    lake, cluster, snapshot_id
        The tables, and the snapshot to settle by; its lag is written already.
    run_id
        Id of the run, recorded with the rows.
    pending
        From :func:`find_pending`.

    Returns
    -------
    dict
        Number of plans by outcome: APPLIED, IGNORED and EXPIRED.

    Raises
    ------
    LakeError
        When a table cannot be written.
    """
    from pyspark.sql import functions as sf

    if not pending.plan_ids:
        return {}
    with CachedFrames() as cached:
        assignments = lake.read(PLAN_ASSIGNMENTS).where(
            (sf.col("cluster") == cluster) & sf.col("plan_id").isin(pending.plan_ids)
        )
        totals = assignments.groupBy("plan_id").agg(sf.sum("lag_records").alias("total_lag_before_records"))
        outcomes = build_outcomes(
            pending=pending.plans.join(totals, "plan_id", "left"),
            assignments=assignments,
            members=cached.cache(lake.read_snapshot(MEMBERS, cluster, snapshot_id)),
            lag=lake.read_snapshot(LAG, cluster, snapshot_id),
            snapshot=lake.read_snapshot(SNAPSHOTS, cluster, snapshot_id),
            run_id=run_id,
        )
        cached.cache(outcomes)
        counts = {row.outcome: row["count"] for row in outcomes.groupBy("outcome").count().collect()}
        # Most snapshots settle nothing, and an empty commit costs as much as a full one.
        if counts:
            lake.append(OUTCOMES, outcomes, f"outcomes/{cluster}/{snapshot_id}")
    return counts


def append_outcome_events(lake: Lake, cluster: str, snapshot_id: str, lives: DataFrame) -> None:
    """Append the events of all outcomes that have none yet, also of those that a killed run has written.

    An event's time is when its snapshot finished, not the slot, which is earlier.

    Parameters
    ----------
    lake, cluster, snapshot_id
        The tables, and the newest snapshot that settled plans.
    lives
        From :func:`read_lifecycle_events`.

    Raises
    ------
    LakeError
        When a table cannot be written.
    """
    from pyspark.sql import functions as sf

    if not lake.exists(OUTCOMES):
        return
    told = lives.where(sf.col("event").isin(*_ENDINGS)).select("plan_id").distinct()
    settled = lake.read(OUTCOMES).where(sf.col("cluster") == cluster)
    with CachedFrames() as cached:
        untold = cached.cache(settled.join(told, "plan_id", "left_anti"))
        if untold.isEmpty():
            return
        read = lake.read(SNAPSHOTS).where(sf.col("cluster") == cluster).select("snapshot_id", "finished_at")
        events = build_events(
            untold.join(read, "snapshot_id", "left"),
            sf.col("outcome"),
            actor="observer",
            reason=sf.col("reason"),
            at=sf.coalesce("finished_at", "slot"),
        )
        lake.append(PLAN_EVENTS, events, f"outcomes/{cluster}/{snapshot_id}")


def _pending(lake: Lake, cluster: str, lives: DataFrame) -> DataFrame:
    """Published plans without an ending, with their heads, and the newer plan that superseded them."""
    from pyspark.sql import functions as sf

    published = select_published(lives).withColumnRenamed("next_plan_id", "superseded_by").drop("next_at")
    ended = lives.where(sf.col("event").isin(*_ENDINGS)).select("plan_id").distinct()
    settled = lake.read(OUTCOMES).where(sf.col("cluster") == cluster).select("plan_id")
    heads = lake.read(PLANS).where(sf.col("cluster") == cluster)
    return (
        published.join(ended, "plan_id", "left_anti")
        .join(settled, "plan_id", "left_anti")
        .join(heads.select("plan_id", "metrics_before", "metrics_after"), "plan_id")
    )
