"""The step ``observe``: take a slot's snapshot, compute its lag, and settle earlier hints."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.logging_setup import log_fields
from spark_jobs.runtime.cached_frames import CachedFrames
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.parallel import run_in_parallel
from spark_jobs.runtime.progress import ReportProgress, no_progress
from spark_jobs.steps.collect_snapshot import collect_snapshot
from spark_jobs.steps.compute_lag import compute_lag
from spark_jobs.steps.run_records import record_run
from spark_jobs.steps.score_plans import score_plans
from spark_jobs.steps.settle_outcomes import (
    append_outcome_events,
    find_pending,
    read_lifecycle_events,
    read_outcomes,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evenlag.policy.loader import LoadedPolicy


def run_observe(
    spark: SparkSession,
    loaded: LoadedPolicy,
    cluster: str,
    slot: datetime,
    run_id: str,
    progress: ReportProgress = no_progress,
) -> dict[str, Any]:
    """Take a slot's snapshot, compute its lag, and settle earlier hints.

    Parameters
    ----------
    spark, loaded
        The session and the policy.
    cluster
        Name of the cluster in the policy.
    slot
        The slot to observe; a slot that already has a snapshot is not collected again.
    run_id
        Id of the run, for ``runs`` and the log.
    progress
        Called with (step, done, total).

    Returns
    -------
    dict
        ``snapshot_id, is_new, num_groups, num_partitions, num_problems, outcomes, scored``.

    Raises
    ------
    JobError
        A subclass; its message names the cause and the remedy.
    """
    started_at, slot = datetime.now(UTC), floor_to_ms(slot)
    settings = loaded.cluster_settings(cluster)
    lake = Lake(spark, loaded.policy.lake)
    collected = collect_snapshot(lake, cluster, settings, slot, run_id=run_id, progress=progress)
    snapshot_id = collected.snapshot_id
    with log_fields(snapshot_id=snapshot_id):
        progress("observe: computing lag", 0, 1)
        with CachedFrames() as cached:
            lives = cached.cache(read_lifecycle_events(lake, cluster))
            with CachedFrames() as until_settled:
                pending, _ = run_in_parallel(
                    partial(find_pending, lake, cluster, lives, until_settled),
                    partial(compute_lag, lake, loaded.policy, cluster, snapshot_id),
                )
                progress("observe: computing lag", 1, 1)
                progress("observe: settling outcomes", 0, 1)
                outcomes = read_outcomes(lake, cluster, snapshot_id, run_id, pending)
            # Not in parallel: a write to a table makes Spark plan its cached DataFrames again, and one that
            # another thread unpersists at that moment stays cached forever (docs/adr/0045).
            scored = score_plans(lake, cluster, snapshot_id, run_id, lives)
            append_outcome_events(lake, cluster, snapshot_id, lives)
        progress("observe: settling outcomes", 1, 1)
        summary = collected.summary() | {"outcomes": outcomes, "scored": scored}
        record_run(lake, cluster, run_id, "observe", slot, snapshot_id, started_at, summary)
    return summary
