"""Plan every selected group of a snapshot: ``decisions``, ``plan_assignments``, ``plans`` and their events.

The last three are written in this order, so a plan exists only when all its rows are written; decisions are
written in parallel. Idempotent: a repeat writes no row twice.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evenlag.enums import DecisionKind, Mode, PlanEvent
from evenlag.lake.tables import DECISIONS, LAG, MEMBERS, PLAN_ASSIGNMENTS, PLAN_EVENTS, PLANS
from spark_jobs.runtime.parallel import run_in_parallel
from spark_jobs.runtime.session import is_large_snapshot, num_task_slots
from spark_jobs.steps.expectations import import_ahead
from spark_jobs.transforms.batch_packing import count_group_rows, pack_groups
from spark_jobs.transforms.plan_events import build_events
from spark_jobs.transforms.plans import build_plans, select_assignments, select_decisions, select_heads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_jobs.planning.context import PlanContext
    from spark_jobs.runtime.delta_lake import Lake

_LOG = logging.getLogger(__name__)
_ROWS_PER_FILE = 1_000_000
_MOST_FAILURES = 100


@dataclass(frozen=True, slots=True)
class Planned:
    """The result of planning a snapshot.

    Attributes
    ----------
    heads, assignments
        The plans' heads, and all their rows: cached until :meth:`release`, for the gates.
    num_plans
        Number of plans.
    num_failed
        Number of groups that could not be planned.
    failures
        The reason by group id, for at most 100 of them.
    """

    heads: DataFrame
    assignments: DataFrame
    num_plans: int
    num_failed: int
    failures: dict[str, str]
    _cached: DataFrame

    def release(self) -> None:
        """Unpersist the cached rows."""
        self._cached.unpersist()


def plan_assignments(lake: Lake, context: PlanContext, num_rows: int = 0) -> Planned:
    """Plan every selected group of a snapshot and write the result.

    Parameters
    ----------
    lake
        The tables, with the snapshot's lag.
    context
        Policy, cluster, snapshot and run.
    num_rows
        Number of rows of lag, or an estimate. For a large number, groups are packed by their sizes, and plans
        are cached on disk instead of in memory.

    Returns
    -------
    Planned
        The plans; release them after the gates.

    Raises
    ------
    LakeError
        When a table cannot be written.
    """
    from pyspark.sql import functions as sf

    cluster, snapshot_id = context.cluster, context.snapshot_id
    planned = _cache_plans(lake, context, num_rows)
    heads, rows = select_heads(planned, context), select_assignments(planned, context)
    is_failed = sf.col("decided.decision") == DecisionKind.FAILED.value
    (counts,) = planned.agg(
        sf.count("head").alias("plans"),
        sf.sum("head.num_partitions").alias("rows"),
        sf.count_if(is_failed).alias("failed"),
    ).collect()
    if counts.plans:
        import_ahead()
    failures = _log_failures(planned.where(is_failed)) if counts.failed else {}
    # A repeat under another policy makes other plans: the hash keeps the two apart.
    app_id = f"plan/{cluster}/{snapshot_id}/{context.policy_hash}"

    def write_decisions() -> None:
        lake.append(DECISIONS, select_decisions(planned, context), app_id, sort_by=("group_id",))

    def write_plans() -> None:
        # A shadow plan is never followed, so its unmoved rows carry no information.
        changes = ~sf.col("owner_before").eqNullSafe(sf.col("owner_after"))
        rows_to_write = select_assignments(planned, context, (sf.col("mode") != Mode.SHADOW.value) | changes)
        files = -(-counts.rows // _ROWS_PER_FILE)
        lake.append(PLAN_ASSIGNMENTS, rows_to_write, app_id, files=files, sort_by=("group_id", "plan_id"))
        lake.append(PLANS, heads, app_id, sort_by=("group_id",))
        at = sf.lit(context.finished_at)
        proposed = build_events(
            heads, PlanEvent.PROPOSED, actor="planner", at=at, reason=sf.col("mode_reason")
        )
        lake.append(PLAN_EVENTS, proposed, app_id)

    # Most cycles have no plans: without this check, they would write an empty commit to each table.
    run_in_parallel(write_decisions, *([write_plans] if counts.plans else []))
    return Planned(heads, rows, counts.plans, counts.failed, failures, planned)


def _cache_plans(lake: Lake, context: PlanContext, num_rows: int) -> DataFrame:
    """Plan once and cache the result: a small one in memory, a large one on the executors' disks."""
    from pyspark import StorageLevel

    lag = lake.read_snapshot(LAG, context.cluster, context.snapshot_id)
    members = lake.read_snapshot(MEMBERS, context.cluster, context.snapshot_id)
    if not is_large_snapshot(num_rows):
        return build_plans(lag, members, context).cache()
    group_ids, sizes = count_group_rows(lag, members)
    batches = pack_groups(sizes, num_task_slots(lake.spark))
    # On a local master an executor's memory is the driver's: it must not grow with the partitions.
    return build_plans(lag, members, context, (group_ids, batches)).persist(StorageLevel.DISK_ONLY)


def _log_failures(failed: DataFrame) -> dict[str, str]:
    """Log why groups could not be planned, with the traceback of an unexpected error."""
    failures = {}
    columns = ("group_id", "decided.reason", "decided.traceback")
    for row in failed.select(*columns).orderBy("group_id").limit(_MOST_FAILURES).collect():
        failures[row.group_id] = row.reason
        message = "group %s could not be planned: %s", row.group_id, row.reason
        if row.traceback is None:
            _LOG.warning(*message, extra={"group_id": row.group_id})
        else:
            _LOG.error("%s\n%s", message[0] % message[1:], row.traceback, extra={"group_id": row.group_id})
    return failures
