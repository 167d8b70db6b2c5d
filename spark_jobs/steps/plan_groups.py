"""Plan: every selected group of a snapshot, into ``decisions``, ``plan_assignments``, ``plans`` and events.

The last three are written in this order, so a plan without a head does not exist; decisions are written
beside them. A repeat writes none twice.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evenlag.enums import Mode, PlanEvent
from evenlag.lake.tables import DECISIONS, LAG, MEMBERS, PLAN_ASSIGNMENTS, PLAN_EVENTS, PLANS
from spark_jobs.planning.plan_batch import FAILED, PlanContext
from spark_jobs.runtime.parallel import run_in_parallel
from spark_jobs.runtime.session import is_large_snapshot
from spark_jobs.steps.expectations import import_ahead
from spark_jobs.transforms.batch_packing import pack_groups, read_sizes
from spark_jobs.transforms.plan_events import build_events
from spark_jobs.transforms.plans import build_plans, select_assignments, select_decisions, select_heads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_jobs.runtime.delta_lake import Lake

_LOG = logging.getLogger(__name__)
_ROWS_PER_FILE = 1_000_000
_MOST_FAILURES = 100


@dataclass(frozen=True, slots=True)
class Planned:
    """What planning did.

    Attributes
    ----------
    heads, assignments
        The plans' heads, and all their rows: kept by the executors until :meth:`release`, for the gates.
    num_plans
        How many plans there are.
    num_failed
        How many groups could not be planned.
    failures
        Why, by group; at most 100 of them.
    """

    heads: DataFrame
    assignments: DataFrame
    num_plans: int
    num_failed: int
    failures: dict[str, str]
    _kept: DataFrame

    def release(self) -> None:
        """Let go of the rows."""
        self._kept.unpersist()


def plan_assignments(lake: Lake, context: PlanContext, num_rows: int = 0) -> Planned:
    """Plan and write.

    Parameters
    ----------
    lake
        The tables; the snapshot's lag is there.
    context
        Policy, cluster, snapshot and run.
    num_rows
        How many rows of lag there are, or may be: a large number makes the groups be packed by their sizes,
        and the plans be kept on disk and not in memory.

    Raises
    ------
    LakeError
        When a table cannot be written.
    """
    from pyspark.sql import functions as sf

    cluster, snapshot_id = context.cluster, context.snapshot_id
    planned = _keep_plans(lake, context, num_rows)
    heads, rows = select_heads(planned, context), select_assignments(planned, context)
    is_failed = sf.col("decided.decision") == FAILED
    (counts,) = planned.agg(
        sf.count("head").alias("plans"),
        sf.sum("head.num_partitions").alias("rows"),
        sf.count_if(is_failed).alias("failed"),
    ).collect()
    if counts.plans:
        import_ahead()
    failures = _tell_failures(planned.where(is_failed)) if counts.failed else {}
    # A repeat under another policy is another plan: by its hash the two cannot be mixed.
    app_id = f"plan/{cluster}/{snapshot_id}/{context.policy_hash}"

    def write_decisions() -> None:
        lake.append(DECISIONS, select_decisions(planned, context), app_id, sort_by=("group_id",))

    def write_plans() -> None:
        # In shadow nobody will ever follow the rows that stay, so the others tell all there is to tell.
        changes = ~sf.col("owner_before").eqNullSafe(sf.col("owner_after"))
        kept = select_assignments(planned, context, (sf.col("mode") != Mode.SHADOW.value) | changes)
        files = -(-counts.rows // _ROWS_PER_FILE)
        lake.append(PLAN_ASSIGNMENTS, kept, app_id, files=files, sort_by=("group_id", "plan_id"))
        lake.append(PLANS, heads, app_id, sort_by=("group_id",))
        at = sf.lit(context.finished_at)
        proposed = build_events(
            heads, PlanEvent.PROPOSED, actor="planner", at=at, reason=sf.col("mode_reason")
        )
        lake.append(PLAN_EVENTS, proposed, app_id)

    # An empty commit a table is what most cycles would write: most groups are even.
    run_in_parallel(write_decisions, *([write_plans] if counts.plans else []))
    return Planned(heads, rows, counts.plans, counts.failed, failures, planned)


def _keep_plans(lake: Lake, context: PlanContext, num_rows: int) -> DataFrame:
    """Plan, once for all that is read of it: in memory where it is little, else on the executors' disks."""
    from pyspark import StorageLevel

    lag = lake.read_snapshot(LAG, context.cluster, context.snapshot_id)
    members = lake.read_snapshot(MEMBERS, context.cluster, context.snapshot_id)
    if not is_large_snapshot(num_rows):
        return build_plans(lag, members, context).cache()
    group_ids, sizes = read_sizes(lag, members)
    bundles = pack_groups(sizes, lake.spark.sparkContext.defaultParallelism)
    # On a local master an executor's memory is the driver's: it must not grow with the partitions.
    return build_plans(lag, members, context, (group_ids, bundles)).persist(StorageLevel.DISK_ONLY)


def _tell_failures(failed: DataFrame) -> dict[str, str]:
    """Log why groups could not be planned; a traceback where nobody foresaw it."""
    failures = {}
    columns = ("group_id", "decided.reason", "decided.traceback")
    for row in failed.select(*columns).orderBy("group_id").limit(_MOST_FAILURES).collect():
        failures[row.group_id] = row.reason
        told = "group %s could not be planned: %s", row.group_id, row.reason
        if row.traceback is None:
            _LOG.warning(*told, extra={"group_id": row.group_id})
        else:
            _LOG.error("%s\n%s", told[0] % told[1:], row.traceback, extra={"group_id": row.group_id})
    return failures
