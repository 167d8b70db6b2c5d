"""The step ``decide``: plan the groups of a slot's snapshot, and evaluate the gates for the plans."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import SnapshotNotFoundError
from evenlag.lake.snapshot_ids import floor_to_ms, slot_ms
from evenlag.lake.tables import LAG, SNAPSHOTS
from evenlag.logging_setup import WorkerLog, log_fields
from spark_jobs.planning.context import PlanContext
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.parallel import run_in_parallel
from spark_jobs.runtime.progress import ReportProgress, no_progress
from spark_jobs.runtime.session import is_large_snapshot, sized_session
from spark_jobs.steps.load_plan_history import read_history
from spark_jobs.steps.plan_groups import plan_assignments
from spark_jobs.steps.run_records import keep_policy, record_run
from spark_jobs.steps.validate_plans import validate_plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evenlag.policy.loader import LoadedPolicy

# The gate on a snapshot's age allows at most one day, and maintenance removes the rows of unfinished plans
# after three days: their transaction would still be in the table's log, and a repeat would write heads
# without rows.
_MAX_DECIDE_AGE: Final = timedelta(days=2)


def run_decide(
    spark: SparkSession,
    loaded: LoadedPolicy,
    cluster: str,
    slot: datetime,
    run_id: str,
    progress: ReportProgress = no_progress,
) -> dict[str, Any]:
    """Plan the groups of a slot's snapshot and validate the plans.

    Parameters
    ----------
    spark, loaded
        The session and the policy.
    cluster
        Name of the cluster in the policy.
    slot
        The slot; it must have a finished snapshot.
    run_id
        Id of the run, for ``runs`` and the log.
    progress
        Called with (step, done, total).

    Returns
    -------
    dict
        ``snapshot_id, plans, approved, rejected, waiting, failed, failures``: the number of groups that could
        not be planned, and the reasons of at most 100 of them.

    Raises
    ------
    SnapshotNotFoundError
        When the slot has no snapshot, or its snapshot is older than two days.
    JobError
        A subclass; its message names the cause and the remedy.
    """
    started_at, slot = datetime.now(UTC), floor_to_ms(slot)
    loaded.cluster_settings(cluster)
    lake = Lake(spark, loaded.policy.lake)
    (context, num_rows), _ = run_in_parallel(
        partial(_plan_context, lake, loaded, cluster, slot, run_id),
        partial(keep_policy, lake, cluster, slot, loaded),
    )
    progress("decide: planning groups", 0, 1)
    with log_fields(snapshot_id=context.snapshot_id), sized_session(spark, num_rows):
        planned = plan_assignments(lake, context, num_rows)
        progress("decide: planning groups", 1, 1)
        try:
            progress("decide: validating plans", 0, 1)
            counts = validate_plans(lake, planned, context, started_at)
            progress("decide: validating plans", 1, 1)
        finally:
            planned.release()
    summary: dict[str, Any] = {"snapshot_id": context.snapshot_id, "plans": planned.num_plans}
    summary |= counts | {"failed": planned.num_failed, "failures": planned.failures}
    record_run(lake, cluster, run_id, "decide", slot, context.snapshot_id, started_at, summary)
    return summary


def _plan_context(
    lake: Lake, loaded: LoadedPolicy, cluster: str, slot: datetime, run_id: str
) -> tuple[PlanContext, int]:
    """The context that all plans share, and an upper bound of the rows of lag."""
    from pyspark.sql import functions as sf

    snapshot_id = lake.find_snapshot(cluster, slot_ms(slot))
    if snapshot_id is None:
        raise SnapshotNotFoundError(
            f"slot {slot.isoformat()} of {cluster} has no finished snapshot: run observe for it first"
        )
    columns = (
        "kafka_cluster_id",
        "num_groups",
        "num_partitions",
        sf.unix_micros("finished_at").alias("finished_us"),
    )
    marker = lake.read_snapshot(SNAPSHOTS, cluster, snapshot_id).select(*columns).take(1)[0]
    finished_at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=marker.finished_us)
    age = datetime.now(UTC) - finished_at
    if age > _MAX_DECIDE_AGE:
        raise SnapshotNotFoundError(
            f"slot {slot.isoformat()} of {cluster} has a snapshot of {age.days} days ago: that is too old "
            "to decide on, and maintenance may have removed what an earlier attempt left behind"
        )
    context = PlanContext(
        policy=loaded.policy,
        policy_hash=loaded.policy_hash,
        cluster=cluster,
        kafka_cluster_id=marker.kafka_cluster_id,
        snapshot_id=snapshot_id,
        slot=slot,
        day=slot.date(),
        finished_at=finished_at,
        run_id=run_id,
        log=WorkerLog.of_driver(),
        history=read_history(lake, loaded.policy, cluster, slot),
    )
    # At most every group on every partition; the rows are counted only where that may be many.
    num_rows = marker.num_groups * marker.num_partitions
    if is_large_snapshot(num_rows):
        num_rows = lake.read_snapshot(LAG, cluster, snapshot_id).count()
    return context, num_rows
