"""The step ``observe``: take a slot's snapshot, compute its lag, check both, and settle earlier hints."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from evenlag.enums import CycleStep
from evenlag.lake.run_records import OPEN_SINCE, record_run
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.logging_setup import log_fields
from evenlag.publishing.plan_outcomes import find_open_since, read_published, score_plans, settle_outcomes
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.progress import ReportProgress, no_progress
from spark_jobs.steps.check_snapshot import try_check_snapshot
from spark_jobs.steps.collect_snapshot import collect_snapshot

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
    """Take a slot's snapshot, compute its lag, check their quality, and settle earlier hints.

    slot: The slot to observe; a slot that already has a snapshot is not collected again.
    """
    started_at, slot = datetime.now(UTC), floor_to_ms(slot)
    settings = loaded.cluster_settings(cluster)
    lake = Lake(spark, loaded.policy.lake)
    collected = collect_snapshot(lake, loaded.policy, cluster, slot, run_id=run_id, progress=progress)
    rows = collected.rows
    with log_fields(snapshot_id=rows.snapshot_id):
        progress("observe: settling outcomes", 0, 1)
        published = read_published(rows.reader, cluster)
        outcomes = settle_outcomes(rows, published, run_id)
        scored = score_plans(rows, published, run_id)
        progress("observe: settling outcomes", 1, 1)
        progress("observe: checking the snapshot", 0, 1)
        checked = try_check_snapshot(rows, settings.quality, run_id, datetime.now(UTC))
        progress("observe: checking the snapshot", 1, 1)
        summary = collected.summary() | checked | {"outcomes": outcomes, "scored": scored}
        recorded = summary | {OPEN_SINCE: find_open_since(rows, published)}
        record_run(lake.paths.root, rows.marker, run_id, CycleStep.OBSERVE, started_at, recorded)
    return summary
