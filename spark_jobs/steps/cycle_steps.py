"""The steps of a cycle that need Spark.

``observe`` takes a slot's snapshot, computes its lag, checks both, and settles earlier hints. ``decide``
plans the groups of the snapshot, and evaluates the gates for the plans.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

from evenlag.enums import CycleStep
from evenlag.errors import SnapshotNotFoundError
from evenlag.lake.delta_log import one_look
from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.run_records import OPEN_SINCE, keep_policy, record_run
from evenlag.lake.snapshot_reader import find_marker
from evenlag.lake.upkeep.open_day import tend_tables
from evenlag.logging_setup import WorkerLog, log_fields, named_logger
from evenlag.planning.advice_snapshot import advise_snapshot
from evenlag.planning.forecast_snapshot import forecast_snapshot
from evenlag.planning.plan_batch import PlanContext
from evenlag.planning.plan_history import read_history
from evenlag.planning.speed_snapshot import measure_speeds
from evenlag.policy.loader import LoadedPolicy
from evenlag.publishing.plan_outcomes import find_open_since, read_published, score_plans, settle_outcomes
from evenlag.publishing.sealing.row_seal import Sealer
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.progress import ReportProgress, no_progress
from spark_jobs.runtime.session import sized_session
from spark_jobs.runtime.turns import CYCLE_TURNS
from spark_jobs.steps.check_snapshot import stop_reason, try_check_snapshot
from spark_jobs.steps.collect_snapshot import collect_snapshot
from spark_jobs.steps.plan_groups import plan_groups
from spark_jobs.steps.snapshot_rows import SnapshotRows
from spark_jobs.steps.validate_plans import validate_plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_More = ParamSpec("_More")
_Step = Callable[Concatenate["SparkSession", LoadedPolicy, str, _More], dict[str, Any]]


def _tended(step: _Step[_More]) -> _Step[_More]:
    """Let a step look for what others have written once, and tend the tables that it has written to."""

    @wraps(step)
    def run(
        spark: SparkSession, loaded: LoadedPolicy, cluster: str, /, *rest: _More.args, **more: _More.kwargs
    ) -> dict[str, Any]:
        with one_look() as look:
            summary = step(spark, loaded, cluster, *rest, **more)
            tend_tables(LakePaths(loaded.policy.lake), cluster, look.written)
        return summary

    return run


@_tended
def run_observe(
    spark: SparkSession,
    loaded: LoadedPolicy,
    cluster: str,
    slot: datetime,
    run_id: str,
    progress: ReportProgress = no_progress,
) -> dict[str, Any]:
    """Take a slot's snapshot unless it has one, compute its lag, check both, and settle earlier hints."""
    started_at = datetime.now(UTC)
    settings = loaded.cluster_settings(cluster)
    lake = Lake(spark, loaded.policy.lake)
    collected = collect_snapshot(lake, loaded.policy, cluster, slot, run_id=run_id, progress=progress)
    rows = collected.rows
    with log_fields(snapshot_id=rows.snapshot_id), CYCLE_TURNS.turn():
        speeds = measure_speeds(rows)
        forecasts = forecast_snapshot(rows, loaded.policy)
        advised = advise_snapshot(rows, loaded.policy)
        progress("observe: settling outcomes", 0, 1)
        published = read_published(rows.reader, cluster)
        outcomes = settle_outcomes(rows, published, run_id)
        scored = score_plans(rows, published, run_id)
        progress("observe: settling outcomes", 1, 1)
        progress("observe: checking the snapshot", 0, 1)
        checked = try_check_snapshot(rows, settings.quality, run_id, datetime.now(UTC))
        progress("observe: checking the snapshot", 1, 1)
        summary = (
            collected.summary()
            | checked
            | {"outcomes": outcomes, "scored": scored}
            | forecasts
            | speeds
            | advised
        )
        recorded = summary | {OPEN_SINCE: find_open_since(rows, published)}
        record_run(lake.paths.root, rows.marker, run_id, CycleStep.OBSERVE, started_at, recorded)
    return summary


_LOG = named_logger(__name__)
# The gate on a snapshot's age allows at most one day.
_MAX_DECIDE_AGE: Final = timedelta(days=2)


@_tended
@CYCLE_TURNS.turn()
def run_decide(
    spark: SparkSession,
    loaded: LoadedPolicy,
    cluster: str,
    slot: datetime,
    run_id: str,
    progress: ReportProgress = no_progress,
) -> dict[str, Any]:
    """Plan the groups of a slot's snapshot and validate the plans; keep the decision that a snapshot has.

    Returns ``snapshot_id, plans, approved, rejected, waiting, failed, failures``: the number of groups that
    could not be planned, and the reasons of at most 100 of them. ``kept``, if the snapshot has a decision
    already: whose. ``stopped``, if no group was planned: which quality checks the snapshot failed.
    """
    started_at = datetime.now(UTC)
    settings = loaded.cluster_settings(cluster)
    lake, reader = Lake(spark, loaded.policy.lake), LakeReader(loaded.policy.lake)
    rows = SnapshotRows(lake, reader, _fresh_marker(reader, cluster, slot))
    with log_fields(snapshot_id=rows.snapshot_id):
        stopped = stop_reason(rows, settings.quality, run_id, started_at)
    if stopped is not None:
        return _stop(rows, run_id, started_at, stopped)
    context, sealer = _plan_context(rows, loaded, run_id), Sealer.of(settings)
    keep_policy(reader, cluster, slot, loaded)
    progress("decide: planning groups", 0, 1)
    with log_fields(snapshot_id=context.snapshot_id), sized_session(spark, rows.num_lag_rows):
        planned = plan_groups(rows, context, sealer)
        progress("decide: planning groups", 1, 1)
        progress("decide: validating plans", 0, 1)
        counts = validate_plans(rows, planned, context, started_at, sealer)
        progress("decide: validating plans", 1, 1)
    summary: dict[str, Any] = {"snapshot_id": context.snapshot_id, "plans": len(planned.heads)}
    summary |= counts | {"failed": planned.num_failed, "failures": planned.failures}
    if planned.kept is not None:
        summary["kept"] = f"the decision of {planned.kept}"
    record_run(reader.paths.root, rows.marker, run_id, CycleStep.DECIDE, started_at, summary)
    return summary


def _stop(rows: SnapshotRows, run_id: str, started_at: datetime, reason: str) -> dict[str, Any]:
    """Record that no group is planned. The step succeeds: publishing has earlier plans to finish."""
    _LOG.warning("no group is planned, because the snapshot failed quality checks: %s", reason)
    summary: dict[str, Any] = {"snapshot_id": rows.snapshot_id, "plans": 0}
    summary |= dict.fromkeys(("approved", "rejected", "waiting", "failed"), 0)
    summary |= {"failures": {}, "stopped": reason}
    record_run(rows.reader.paths.root, rows.marker, run_id, CycleStep.DECIDE, started_at, summary)
    return summary


def _fresh_marker(reader: LakeReader, cluster: str, slot: datetime) -> dict[str, Any]:
    """The marker of the slot's snapshot."""
    marker = find_marker(reader, cluster, slot)
    if marker is None:
        raise SnapshotNotFoundError(
            f"slot {slot.isoformat()} of {cluster} has no finished snapshot: run observe for it first"
        )
    age = datetime.now(UTC) - marker["finished_at"]
    if age > _MAX_DECIDE_AGE:
        raise SnapshotNotFoundError(
            f"the snapshot of slot {slot.isoformat()} of {cluster} is {age.days} days old: too old for a plan"
        )
    return marker


def _plan_context(rows: SnapshotRows, loaded: LoadedPolicy, run_id: str) -> PlanContext:
    """The context that all plans share."""
    marker = rows.marker
    return PlanContext(
        policy=loaded.policy,
        policy_hash=loaded.policy_hash,
        cluster=rows.cluster,
        kafka_cluster_id=marker["kafka_cluster_id"],
        snapshot_id=rows.snapshot_id,
        slot=marker["slot"],
        day=marker["day"],
        finished_at=marker["finished_at"],
        run_id=run_id,
        log=WorkerLog.of_driver(),
        history=read_history(rows.reader, loaded.policy, rows.cluster, marker["slot"]),
    )
