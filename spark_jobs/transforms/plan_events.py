"""Events of plans: what happened, and what a plan's state is by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlag.enums import PlanEvent
from evenlag.lake.tables import PLAN_EVENTS
from spark_jobs.runtime.contract_columns import conform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def select_published(events: DataFrame) -> DataFrame:
    """Select the plans of a cluster that were published, each with the one that came after it.

    Parameters
    ----------
    events
        The cluster's events.

    Returns
    -------
    DataFrame
        ``plan_id, group_id, sequence, expires_at, published_at``, and of the group's next hint
        ``next_plan_id, next_at``; null where it is the last.
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
    """Build one event a plan, by the contract of ``plan_events``.

    Parameters
    ----------
    plans
        ``cluster, day, snapshot_id, slot, plan_id, group_id, run_id``.
    event
        A name, or a column that holds names.
    actor
        Who or what decided.
    at
        When it happened, from the data: a repeat must derive the same row. Never before the snapshot that it
        rests on was read.
    reason
        Why, in plain words.
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
