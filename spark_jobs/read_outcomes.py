"""Outcomes of earlier hints by this snapshot: ``outcomes``, then APPLIED, IGNORED and EXPIRED events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.tables import LAG, MEMBERS, OUTCOMES, PLAN_ASSIGNMENTS, PLAN_EVENTS, PLANS, SNAPSHOTS
from spark_jobs.transforms.events import APPLIED, EXPIRED, IGNORED, WITHDRAWN, build_events, select_published
from spark_jobs.transforms.outcomes import build_outcomes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_jobs.lake import Lake

_ENDINGS = (APPLIED, IGNORED, EXPIRED, WITHDRAWN)


@dataclass(frozen=True, slots=True)
class Pending:
    """Published plans without an ending, kept in memory until :meth:`release`.

    Attributes
    ----------
    plans
        See ``transforms.outcomes.build_outcomes``; without the total lag.
    plan_ids
        Their ids: a handful a group at the most.
    """

    plans: DataFrame
    plan_ids: list[str]

    def release(self) -> None:
        """Let go of the rows."""
        self.plans.unpersist()


def find_pending(lake: Lake, cluster: str) -> Pending:
    """Find what waits for an outcome; it needs nothing of the snapshot that will settle it."""
    plans = _pending(lake, cluster).cache()
    return Pending(plans, [row.plan_id for row in plans.select("plan_id").collect()])


def read_outcomes(
    lake: Lake, cluster: str, snapshot_id: str, run_id: str, pending: Pending
) -> dict[str, int]:
    """Settle the published plans that this snapshot can settle.

    Parameters
    ----------
    lake, cluster, snapshot_id
        The tables, and the snapshot to settle by; its lag is there.
    run_id
        The run, for the records.
    pending
        From :func:`find_pending`; released when this returns.

    Returns
    -------
    dict
        How many were APPLIED, IGNORED and EXPIRED.

    Raises
    ------
    LakeError
        When a table cannot be written.
    """
    from pyspark.sql import functions as sf

    app_id = f"outcomes/{cluster}/{snapshot_id}"
    try:
        if not pending.plan_ids:
            if lake.exists(OUTCOMES):
                _tell_settled(lake, cluster, app_id)
            return {}
        assignments = lake.read(PLAN_ASSIGNMENTS).where(
            (sf.col("cluster") == cluster) & sf.col("plan_id").isin(pending.plan_ids)
        )
        totals = assignments.groupBy("plan_id").agg(sf.sum("lag_records").alias("total_lag_before_records"))
        outcomes = build_outcomes(
            pending=pending.plans.join(totals, "plan_id", "left"),
            assignments=assignments,
            members=lake.read_snapshot(MEMBERS, cluster, snapshot_id),
            lag=lake.read_snapshot(LAG, cluster, snapshot_id),
            snapshot=lake.read_snapshot(SNAPSHOTS, cluster, snapshot_id),
            run_id=run_id,
        ).cache()
        counts = {row.outcome: row["count"] for row in outcomes.groupBy("outcome").count().collect()}
        lake.append(OUTCOMES, outcomes, app_id)
        outcomes.unpersist()
    finally:
        pending.release()
    _tell_settled(lake, cluster, app_id)
    return counts


def _tell_settled(lake: Lake, cluster: str, app_id: str) -> None:
    """Tell of every outcome that no event tells of yet: those of a run that was killed in between too."""
    from pyspark.sql import functions as sf

    told = (
        lake.read_events()
        .where((sf.col("cluster") == cluster) & sf.col("event").isin(*_ENDINGS))
        .select("plan_id")
        .distinct()
    )
    untold = lake.read(OUTCOMES).where(sf.col("cluster") == cluster).join(told, "plan_id", "left_anti")
    events = build_events(untold, sf.col("outcome"), actor="observer", reason=sf.col("reason"))
    lake.append(PLAN_EVENTS, events, app_id)


def _pending(lake: Lake, cluster: str) -> DataFrame:
    """Published plans without an ending, with their heads, and the newer plan that took their place."""
    from pyspark.sql import functions as sf

    events = lake.read_events().where(sf.col("cluster") == cluster)
    published = select_published(events).withColumnRenamed("next_plan_id", "superseded_by").drop("next_at")
    ended = events.where(sf.col("event").isin(*_ENDINGS)).select("plan_id").distinct()
    settled = lake.read(OUTCOMES).where(sf.col("cluster") == cluster).select("plan_id")
    heads = lake.read(PLANS).where(sf.col("cluster") == cluster)
    return (
        published.join(ended, "plan_id", "left_anti")
        .join(settled, "plan_id", "left_anti")
        .join(heads.select("plan_id", "metrics_before", "metrics_after"), "plan_id")
    )
