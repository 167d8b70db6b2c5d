"""Validate plans: evaluate the gates, write the verdicts, then REJECTED and APPROVED events.

A plan that fails a gate is rejected with its reasons; the other plans continue. The policy approves a plan of
mode ``auto`` that passes. A plan of mode ``approve`` waits for a user, a plan of mode ``shadow`` stays
proposed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.enums import PlanEvent
from evenlag.lake.tables import (
    GATE_RESULTS,
    LAG,
    MEMBERS,
    PLAN_EVENTS,
    SNAPSHOTS,
)
from spark_jobs.steps.expectations import judge_plans
from spark_jobs.transforms.gate_inputs import build_gate_frame
from spark_jobs.transforms.plan_events import build_events

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame

    from spark_jobs.planning.context import PlanContext
    from spark_jobs.runtime.delta_lake import Lake
    from spark_jobs.steps.plan_groups import Planned

_GATES_ACTOR = "gates"
_POLICY_ACTOR = "policy"


def validate_plans(
    lake: Lake, planned: Planned, context: PlanContext, decided_at: datetime
) -> dict[str, int]:
    """Evaluate the gates and write verdicts and events.

    Parameters
    ----------
    lake
        The tables.
    planned
        The plans of this snapshot.
    context
        Policy, cluster, snapshot and run.
    decided_at
        Time of the decision.

    Returns
    -------
    dict
        Counts: ``approved, rejected, waiting``. Waiting plans passed, but the policy does not approve them.

    Raises
    ------
    QualityCheckError
        When a gate could not be evaluated. Nothing is approved then.
    LakeError
        When a table cannot be written.
    """
    counts = {"approved": 0, "rejected": 0, "waiting": 0}
    if planned.num_plans == 0:
        return counts
    verdicts = judge_plans(_gate_frame(lake, planned, context, decided_at).toPandas())
    app_id = f"validate/{context.cluster}/{context.snapshot_id}/{context.policy_hash}"
    judged = _with_plan(_verdict_frame(lake, verdicts), planned.heads)
    lake.append(GATE_RESULTS, judged, app_id, sort_by=("group_id", "plan_id"))
    # The rows in the table decide. If an earlier attempt was killed after it had written them, its verdicts
    # are valid, although gates that depend on the time (age, cooldown) may give others now.
    kept = lake.read_snapshot(GATE_RESULTS, context.cluster, context.snapshot_id)
    decided = _decide(planned.heads, kept).cache()
    try:
        lake.append(PLAN_EVENTS, _events(decided, context), app_id)
        for row in decided.groupBy("decision").count().collect():
            counts[row.decision] = row["count"]
    finally:
        decided.unpersist()
    return counts


def _gate_frame(lake: Lake, planned: Planned, context: PlanContext, decided_at: datetime) -> DataFrame:
    from pyspark.sql import functions as sf

    cluster, snapshot_id = context.cluster, context.snapshot_id
    published = lake.read_events().where(
        (sf.col("cluster") == cluster) & (sf.col("event") == PlanEvent.PUBLISHED)
    )
    return build_gate_frame(
        planned.heads,
        planned.assignments,
        lake.read_snapshot(LAG, cluster, snapshot_id),
        lake.read_snapshot(MEMBERS, cluster, snapshot_id),
        published,
        lake.read_snapshot(SNAPSHOTS, cluster, snapshot_id),
        decided_at_ms=round(decided_at.timestamp() * 1000),
    )


def _verdict_frame(lake: Lake, verdicts: list[dict[str, Any]]) -> DataFrame:
    import pyarrow as pa

    ddl = "plan_id STRING, gate STRING, passed BOOLEAN, observed STRING, allowed STRING, message STRING"
    return lake.spark.createDataFrame(pa.Table.from_pylist(verdicts), ddl)


def _with_plan(results: DataFrame, heads: DataFrame) -> DataFrame:
    return results.join(
        heads.select("cluster", "day", "snapshot_id", "plan_id", "group_id", "run_id"), "plan_id"
    )


def _decide(heads: DataFrame, results: DataFrame) -> DataFrame:
    """Add ``decision`` (rejected, approved or waiting) and ``reason`` to each plan."""
    from pyspark.sql import functions as sf

    failures = (
        results.where(~sf.col("passed"))
        .groupBy("plan_id")
        .agg(sf.concat_ws("; ", sf.sort_array(sf.collect_list("message"))).alias("reason"))
    )
    decision = (
        sf.when(sf.col("reason").isNotNull(), "rejected")
        .when(sf.col("mode") == "auto", "approved")
        .otherwise("waiting")
    )
    return heads.join(failures, "plan_id", "left").withColumn("decision", decision)


def _events(decided: DataFrame, context: PlanContext) -> DataFrame:
    from pyspark.sql import functions as sf

    at = sf.lit(context.finished_at)
    rejected = decided.where(sf.col("decision") == "rejected")
    approved = decided.where(sf.col("decision") == "approved")
    return build_events(
        rejected, PlanEvent.REJECTED, actor=_GATES_ACTOR, at=at, reason=sf.col("reason")
    ).unionByName(
        build_events(
            approved,
            PlanEvent.APPROVED,
            actor=_POLICY_ACTOR,
            at=at,
            reason=sf.lit("mode auto, and every gate is passed"),
        )
    )
