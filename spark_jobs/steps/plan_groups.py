"""Plan every selected group of a snapshot: ``decisions``, ``plan_assignments``, ``plans`` and their events.

The last three are written in this order, so a plan exists only when all its rows are written; decisions are
written in parallel. Idempotent: a repeat writes no row twice.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import DecisionKind, Mode, PlanEvent
from evenlag.lake.tables import DECISIONS, LAG, MEMBERS, PLAN_ASSIGNMENTS, PLANS
from evenlag.lake.writer import append_once
from evenlag.publishing.event_log import PlanEventRow, append_plan_events
from spark_jobs.planning.plan_output import PLANNED, table_rows
from spark_jobs.runtime.cached_frames import CachedFrames
from spark_jobs.runtime.session import num_task_slots
from spark_jobs.steps.expectations import import_ahead
from spark_jobs.steps.snapshot_rows import to_contract
from spark_jobs.transforms.batch_packing import count_group_rows, pack_groups
from spark_jobs.transforms.plans import build_plans, select_assignments, shared_values

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from evenlag.lake.tables import Table
    from spark_jobs.planning.context import PlanContext
    from spark_jobs.steps.snapshot_rows import SnapshotRows

_LOG = logging.getLogger(__name__)
_ROWS_PER_FILE: Final = 1_000_000
_MOST_FAILURES: Final = 100
_ACTOR: Final = "planner"


@dataclass(frozen=True, slots=True)
class Planned:
    """The result of planning a snapshot.

    Attributes
    ----------
    heads
        The plans' rows of ``plans``.
    counts
        What the gates count of each plan's rows, by plan id.
    num_failed
        Number of groups that could not be planned.
    failures
        The reason by group id, for at most 100 of them.
    """

    heads: list[dict[str, Any]]
    counts: dict[str, dict[str, int]]
    num_failed: int
    failures: dict[str, str]


def plan_groups(rows: SnapshotRows, context: PlanContext) -> Planned:
    """Plan every selected group of a snapshot and write the result.

    The driver gets a row for each group and plan. For a large snapshot, groups are packed by their sizes, and
    the plans' partitions stay on the executors' disks.

    Parameters
    ----------
    rows
        The snapshot; its lag is written already.
    context
        Policy, cluster, snapshot and run.

    Returns
    -------
    Planned
        The plans.

    Raises
    ------
    LakeError
        When a table cannot be written.
    """
    # A repeat under another policy makes other decisions: the hash keeps the two apart.
    app_id = f"plan/{context.cluster}/{context.snapshot_id}/{context.policy_hash}"
    root, shared = rows.lake.paths.root, shared_values(context)
    with CachedFrames() as cached:
        planned, partitions = _plan(rows, context, cached)
        append_once(root, DECISIONS, table_rows(planned, "decided", DECISIONS, shared), app_id)
        heads = table_rows(planned, "head", PLANS, shared)
        if heads.num_rows:
            import_ahead()
            _write_plans(rows, context, heads, partitions, app_id)
    listed = heads.to_pylist()
    append_plan_events(root, _proposed(listed, context))
    return Planned(listed, _counts(planned), *_log_failures(planned))


def _plan(
    rows: SnapshotRows, context: PlanContext, cached: CachedFrames
) -> tuple[pa.Table, Callable[[], DataFrame]]:
    """Return rows of ``PLANNED`` without the partitions, and what makes a DataFrame of those with them."""
    spark = rows.lake.spark
    if rows.is_small:
        rows.rows(LAG), rows.rows(MEMBERS)
        planned = to_contract(build_plans(rows.frame(LAG), rows.frame(MEMBERS), context).toArrow(), PLANNED)
        return planned, partial(spark.createDataFrame, planned, PLANNED.ddl)
    from pyspark import StorageLevel

    lag, members = rows.frame(LAG), rows.frame(MEMBERS)
    group_ids, sizes = count_group_rows(lag, members)
    batches = pack_groups(sizes, num_task_slots(spark))
    # On a local master an executor's memory is the driver's: it must not grow with the partitions.
    frame = cached.cache(build_plans(lag, members, context, (group_ids, batches)), StorageLevel.DISK_ONLY)
    names = [column.name for column in PLANNED.columns if column.name != "rows"]
    return frame.select(*names).toArrow(), lambda: frame


def _write_plans(
    rows: SnapshotRows,
    context: PlanContext,
    heads: pa.Table,
    partitions: Callable[[], DataFrame],
    app_id: str,
) -> None:
    """Write the plans that are not on record: under another policy the same plan may be made again."""
    import pyarrow.compute as pc
    from pyspark.sql import functions as sf

    root = rows.lake.paths.root
    recorded = _plan_ids(rows, PLANS)
    new = _without(heads, recorded)
    if new.num_rows:
        # An attempt under another policy may have ended before it wrote the heads.
        recorded |= _plan_ids(rows, PLAN_ASSIGNMENTS)
        missing = _without(new, recorded)
        # A shadow plan is never followed, so its unmoved rows carry no information.
        changes = ~sf.col("owner_before").eqNullSafe(sf.col("owner_after"))
        condition = (sf.col("mode") != Mode.SHADOW.value) | changes
        if recorded:
            condition &= ~sf.col("plan_id").isin(recorded)
        if missing.num_rows:
            files = -(-pc.sum(missing["num_partitions"]).as_py() // _ROWS_PER_FILE) or 1
            rows_to_write = select_assignments(partitions(), context, condition)
            rows.lake.append(
                PLAN_ASSIGNMENTS, rows_to_write, app_id, files=files, sort_by=("group_id", "plan_id")
            )
        append_once(root, PLANS, new, app_id)


def _proposed(heads: list[dict[str, Any]], context: PlanContext) -> list[PlanEventRow]:
    return [
        PlanEventRow.of_plan(
            head, PlanEvent.PROPOSED, reason=head["mode_reason"], actor=_ACTOR, at=context.finished_at
        )
        for head in heads
    ]


def _plan_ids(rows: SnapshotRows, table: Table) -> set[str]:
    """Ids of the snapshot's plans that a table has rows of."""
    found = rows.reader.read(table, columns=["plan_id"], filters=rows.filters)
    return set(found["plan_id"].unique().to_pylist())


def _without(heads: pa.Table, plan_ids: set[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    is_known = pc.is_in(heads["plan_id"], value_set=pa.array(sorted(plan_ids), pa.string()))
    return heads.filter(pc.invert(is_known))


def _counts(planned: pa.Table) -> dict[str, dict[str, int]]:
    columns = (planned[name].to_pylist() for name in ("plan_id", "counts"))
    return {plan_id: counts for plan_id, counts in zip(*columns, strict=True) if counts is not None}


def _log_failures(planned: pa.Table) -> tuple[int, dict[str, str]]:
    """Log why groups could not be planned, with the traceback of an unexpected error; count them."""
    columns = (planned[name].to_pylist() for name in ("group_id", "decided"))
    failed = [
        (group_id, decided)
        for group_id, decided in zip(*columns, strict=True)
        if decided is not None and decided["decision"] == DecisionKind.FAILED
    ]
    failures = {}
    for group_id, decided in sorted(failed, key=itemgetter(0))[:_MOST_FAILURES]:
        failures[group_id] = decided["reason"]
        message = "group %s could not be planned: %s", group_id, decided["reason"]
        if decided["traceback"] is None:
            _LOG.warning(*message, extra={"group_id": group_id})
        else:
            _LOG.error("%s\n%s", message[0] % message[1:], decided["traceback"], extra={"group_id": group_id})
    return len(failed), failures
