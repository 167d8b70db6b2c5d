"""A cycle's steps, several jobs in one session each: a JVM's start costs more than their work.

``observe`` collects, computes lag and reads the outcomes of earlier hints; ``decide`` plans and validates.
Publishing needs no JVM and is apart (``publish_hints``). Both run as ``python -m spark_jobs.cycle`` or as an
application of ``spark-submit``.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import JobError, SnapshotNotFoundError
from evenlag.lake.tables import LAG, SNAPSHOTS
from evenlag.logging_setup import WorkerLog, log_fields, set_up_logging
from evenlag.policy.loader import LoadedPolicy, load_policy
from spark_jobs.planning.context import PlanContext
from spark_jobs.runtime.cached_frames import KeptFrames
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.parallel import run_side_by_side
from spark_jobs.runtime.session import build_session, is_large_snapshot, sized_session
from spark_jobs.steps.collect_snapshot import collect_offsets, floor_to_ms, slot_ms
from spark_jobs.steps.compute_lag import compute_lag
from spark_jobs.steps.load_plan_history import read_history
from spark_jobs.steps.plan_groups import plan_assignments
from spark_jobs.steps.run_records import keep_policy, keep_run
from spark_jobs.steps.score_plans import score_plans
from spark_jobs.steps.settle_outcomes import find_pending, read_lives, read_outcomes, tell_settled
from spark_jobs.steps.validate_plans import validate_plans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    Progress = Callable[[str, int, int], None]

_LOG = logging.getLogger(__name__)
# The gate on a snapshot's age allows a day at the most, and maintenance takes the rows of plans that were
# never finished after three: their transaction would still stand in the table's log, and a repeat would write
# heads without rows.
_MAX_DECIDE_AGE: Final = timedelta(days=2)


def run_observe(
    spark: SparkSession,
    loaded: LoadedPolicy,
    cluster: str,
    slot: datetime,
    run_id: str,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Collect a slot, compute its lag, and settle earlier hints by it.

    Parameters
    ----------
    spark, loaded
        The session and the policy.
    cluster
        Name of the cluster in the policy.
    slot
        The moment that the reading stands for; a slot that has its snapshot is not read again.
    run_id
        The run, for the records.
    progress
        Called with (step, done, total).

    Returns
    -------
    dict
        ``snapshot_id, is_new, num_groups, num_partitions, num_problems, outcomes, scored``.

    Raises
    ------
    JobError
        A subclass that says what is wrong and what to do.
    """
    report = progress or _no_progress
    started_at, slot = datetime.now(UTC), floor_to_ms(slot)
    settings = loaded.cluster_settings(cluster)
    lake = Lake(spark, loaded.policy.lake)
    collected = collect_offsets(lake, cluster, settings, slot, run_id=run_id, progress=progress)
    snapshot_id = collected.snapshot_id
    with log_fields(snapshot_id=snapshot_id):
        report("observe: computing lag", 0, 1)
        with KeptFrames() as kept:
            lives = kept.keep(read_lives(lake, cluster))
            with KeptFrames() as until_settled:
                pending, _ = run_side_by_side(
                    partial(find_pending, lake, cluster, lives, until_settled),
                    partial(compute_lag, lake, loaded.policy, cluster, snapshot_id),
                )
                report("observe: computing lag", 1, 1)
                report("observe: reading outcomes", 0, 1)
                outcomes = read_outcomes(lake, cluster, snapshot_id, run_id, pending)
            # One after the other: when a table is written, Spark plans anew what is kept of it, and what is
            # let go of just then by another thread stays for good. Scores keep what telling writes to.
            scored = score_plans(lake, cluster, snapshot_id, run_id, lives)
            tell_settled(lake, cluster, snapshot_id, lives)
        report("observe: reading outcomes", 1, 1)
        summary = collected.summary() | {"outcomes": outcomes, "scored": scored}
        keep_run(lake, cluster, run_id, "observe", slot, snapshot_id, started_at, summary)
    return summary


def run_decide(
    spark: SparkSession,
    loaded: LoadedPolicy,
    cluster: str,
    slot: datetime,
    run_id: str,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Plan the groups of a slot's snapshot and judge the plans; parameters as in :func:`run_observe`.

    Returns
    -------
    dict
        ``snapshot_id, plans, approved, rejected, waiting, failed, failures``: how many groups could not be
        planned, and of at most 100 of them why.

    Raises
    ------
    SnapshotNotFoundError
        When the slot has not been observed, or was read more than two days ago.
    JobError
        A subclass that says what is wrong and what to do.
    """
    report = progress or _no_progress
    started_at, slot = datetime.now(UTC), floor_to_ms(slot)
    loaded.cluster_settings(cluster)
    lake = Lake(spark, loaded.policy.lake)
    (context, num_rows), _ = run_side_by_side(
        partial(_plan_context, lake, loaded, cluster, slot, run_id),
        partial(keep_policy, lake, cluster, slot, loaded),
    )
    report("decide: planning groups", 0, 1)
    with log_fields(snapshot_id=context.snapshot_id), sized_session(spark, num_rows):
        planned = plan_assignments(lake, context, num_rows)
        report("decide: planning groups", 1, 1)
        try:
            report("decide: judging plans", 0, 1)
            counts = validate_plans(lake, planned, context, started_at)
            report("decide: judging plans", 1, 1)
        finally:
            planned.release()
    summary: dict[str, Any] = {"snapshot_id": context.snapshot_id, "plans": planned.num_plans}
    summary |= counts | {"failed": planned.num_failed, "failures": planned.failures}
    keep_run(lake, cluster, run_id, "decide", slot, context.snapshot_id, started_at, summary)
    return summary


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step from the command line; returns the exit status."""
    arguments = _parse(argv)
    slot = arguments.slot.isoformat()
    with log_fields(run_id=arguments.run_id, cluster=arguments.cluster, step=arguments.step, slot=slot):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    step = {"observe": run_observe, "decide": run_decide}[arguments.step]
    try:
        set_up_logging()
        loaded = load_policy(arguments.config)
        loaded.cluster_settings(arguments.cluster)
        spark = build_session(f"evenlag {arguments.step} {arguments.cluster}")
        try:
            summary = step(spark, loaded, arguments.cluster, arguments.slot, arguments.run_id)
        finally:
            spark.stop()
    except JobError as error:
        _LOG.error("%s failed: %s", arguments.step, error)
        return error.exit_code
    _LOG.info("%s: %s", arguments.step, json.dumps(summary, default=str))
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="spark_jobs.cycle", description=__doc__)
    parser.add_argument("step", choices=("observe", "decide"))
    parser.add_argument("--config", help="the policy file (default: EVENLAG_CONFIG, else evenlag.yaml)")
    parser.add_argument("--cluster", required=True, help="name of the cluster in the policy")
    parser.add_argument("--slot", required=True, type=_slot, help="ISO 8601 moment with its offset")
    parser.add_argument("--run-id", required=True, help="name of the run, for the records")
    return parser.parse_args(argv)


def _slot(text: str) -> datetime:
    slot = datetime.fromisoformat(text)
    if slot.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text} has no offset: write e.g. {text}+00:00")
    return slot


def _plan_context(
    lake: Lake, loaded: LoadedPolicy, cluster: str, slot: datetime, run_id: str
) -> tuple[PlanContext, int]:
    """What all plans share, and how many rows of lag there may be."""
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
            f"slot {slot.isoformat()} of {cluster} was read {age.days} days ago: nobody decides upon "
            "so old a reading, and maintenance may have removed what an earlier try left behind"
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
    # Every group on every partition at the most; only where that may be much is it worth a look.
    num_rows = marker.num_groups * marker.num_partitions
    if is_large_snapshot(num_rows):
        num_rows = lake.read_snapshot(LAG, cluster, snapshot_id).count()
    return context, num_rows


def _no_progress(_step: str, _done: int, _total: int) -> None:
    return None


if __name__ == "__main__":
    sys.exit(main())
