"""Plan events: rows of ``plan_events``, and the published plans that they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlag.enums import PlanEvent
from evenlag.lake.tables import PLAN_EVENTS
from spark_jobs.runtime.contract_columns import conform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def select_published(events: DataFrame) -> DataFrame:
    """Select the published plans of a cluster, each with the next one of its group.

    Parameters
    ----------
    events
        All plan events of the cluster.

    Returns
    -------
    DataFrame
        ``plan_id, group_id, sequence, expires_at, published_at`` and, for the next hint of the group,
        ``next_plan_id, next_at``; null for the last one.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    later = Window.partitionBy("group_id").orderBy("sequence")
    return (
        events.where(sf.col("event") == PlanEvent.PUBLISHED)
        .select("plan_id", "group_id", "sequence", "expires_at", sf.col("at").alias("published_at"))
        .withColumns(
            {
                "next_plan_id": sf.lead("plan_id").over(later),
                "next_at": sf.lead("published_at").over(later),
            }
        )
    )


def build_events(
    plans: DataFrame,
    event: str | Column,
    *,
    actor: str,
    at: Column,
    reason: Column | None = None,
) -> DataFrame:
    """Build one event per plan.

    Parameters
    ----------
    plans
        ``cluster, day, snapshot_id, slot, plan_id, group_id, run_id``.
    event
        Name of the event (:class:`~evenlag.enums.PlanEvent`), or a column of names.
    actor
        User or component that decided.
    at
        Time of the event. It is derived from the data, so that a retry builds the same row, and is not
        earlier than the end of the snapshot that the event is based on.
    reason
        Explanation for users.

    Returns
    -------
    DataFrame
        Rows of ``plan_events``.
    """
    from pyspark.sql import functions as sf

    name = sf.lit(event) if isinstance(event, str) else event
    return conform(
        plans.select(
            "cluster",
            "day",
            "snapshot_id",
            "plan_id",
            "group_id",
            name.alias("event"),
            (sf.lit(None).cast("string") if reason is None else reason).alias("reason"),
            sf.lit(actor).alias("actor"),
            at.alias("at"),
            sf.lit(None).cast("bigint").alias("sequence"),
            sf.lit(None).cast("timestamp").alias("expires_at"),
            "run_id",
        ),
        PLAN_EVENTS,
    )
