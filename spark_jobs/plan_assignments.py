"""Plan: every selected group of a snapshot, into ``decisions``, ``plan_assignments``, ``plans`` and events.

They are written in this order, so a plan without a head does not exist, and a repeat writes none twice.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.quality import import_ahead
from spark_jobs.tables import DECISIONS, LAG, MEMBERS, PLAN_ASSIGNMENTS, PLAN_EVENTS, PLANS
from spark_jobs.transforms.events import PROPOSED, build_events
from spark_jobs.transforms.plans import (
    DECISION,
    FAILED,
    HEAD,
    ROW,
    PlanContext,
    build_plans,
    select_assignments,
    select_decisions,
    select_heads,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_jobs.lake import Lake

_LOG = logging.getLogger(__name__)
_ROWS_PER_FILE = 1_000_000


@dataclass(frozen=True, slots=True)
class Planned:
    """What planning did.

    Attributes
    ----------
    heads, assignments
        The plans' heads, and all their rows: kept in memory until :meth:`release`, for the gates.
    num_plans
        How many plans there are.
    failures
        Why a group could not be planned, by group; at most 100 of them.
    """

    heads: DataFrame
    assignments: DataFrame
    num_plans: int
    failures: dict[str, str]
    _cached: DataFrame

    def release(self) -> None:
        """Let go of the rows."""
        self._cached.unpersist()


def plan_assignments(lake: Lake, context: PlanContext) -> Planned:
    """Plan and write.

    Parameters
    ----------
    lake
        The tables; the snapshot's lag is there.
    context
        Policy, cluster, snapshot and run.

    Raises
    ------
    LakeError
        When a table cannot be written.
    """
    from pyspark.sql import functions as sf

    cluster, snapshot_id = context.cluster, context.snapshot_id
    planned = build_plans(
        lake.read_snapshot(LAG, cluster, snapshot_id),
        lake.read_snapshot(MEMBERS, cluster, snapshot_id),
        context,
    ).cache()
    heads, rows = select_heads(planned), select_assignments(planned)
    counts = {row.kind: row["count"] for row in planned.groupBy("kind").count().collect()}
    failed = planned.where((sf.col("kind") == DECISION) & (sf.col("decision") == FAILED))
    failures = {row.group_id: row.reason for row in failed.limit(100).collect()}
    if counts.get(HEAD):
        import_ahead()
    for group_id, failure in failures.items():
        _LOG.warning("group %s could not be planned: %s", group_id, failure, extra={"group_id": group_id})
    # A repeat under another policy is another plan: by its hash the two cannot be mixed.
    app_id = f"plan/{cluster}/{snapshot_id}/{context.policy_hash}"
    # In shadow nobody will ever follow the rows that stay, so the others tell all there is to tell.
    changes = ~sf.col("owner_before").eqNullSafe(sf.col("owner_after"))
    kept = select_assignments(planned.where((sf.col("mode") != "shadow") | changes))
    files = -(-counts.get(ROW, 0) // _ROWS_PER_FILE) or 1
    lake.append(DECISIONS, select_decisions(planned), app_id, sort_by=("group_id",))
    # An empty commit a table is what most cycles would write: most groups are even.
    if counts.get(HEAD):
        lake.append(PLAN_ASSIGNMENTS, kept, app_id, files=files, sort_by=("group_id", "plan_id"))
        lake.append(PLANS, heads, app_id, sort_by=("group_id",))
        proposed = build_events(heads, PROPOSED, actor="planner", reason=sf.col("mode_reason"))
        lake.append(PLAN_EVENTS, proposed, app_id)
    return Planned(heads, rows, counts.get(HEAD, 0), failures, planned)
