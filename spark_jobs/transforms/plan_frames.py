"""Plans of all groups of a snapshot: of few rows in this process, else in one Spark job.

The Spark job plans groups in batches, one Arrow call per batch. Both ways plan by the same function of Arrow
tables, :func:`evenlag.planning.plan_batch.plan_batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evenlag.enums import Mode
from evenlag.lake.tables import FORECASTS, LAG, MEMBERS, SPEEDS, Table
from evenlag.lake.tables.planning import PLANNED_LAG, PLANNED_MEMBERS
from evenlag.planning.measured_rows import FORECAST_COLUMNS, SPEED_COLUMNS, with_measures
from evenlag.planning.plan_batch import PLANNED, SHARED, PlanContext, assignment_rows, plan_batch, with_counts
from spark_jobs.transforms.batch_packing import with_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# Tables whose rows a batch consists of, with the columns that are read.
KINDS: Final = (
    *((LAG, PLANNED_LAG), (MEMBERS, PLANNED_MEMBERS)),
    *((SPEEDS, SPEED_COLUMNS), (FORECASTS, FORECAST_COLUMNS)),
)
_OF_PLAN: Final = ("group_id", "plan_id", "mode")
# Kafka partitions per Arrow batch that returns to the JVM; a row is never split.
_PARTITIONS_PER_BATCH: Final = 20_000


def build_plans(
    frame_of: Callable[[Table], DataFrame],
    context: PlanContext,
    batches: tuple[list[str], NDArray[np.int32]] | None = None,
) -> DataFrame:
    """Plan every group whose mode is not ``observe``, one row of ``PLANNED`` each.

    frame_of: The rows of each table of :data:`KINDS`.
    batches: Ids of all groups, and the batch of each (``pack_groups``). Without it, groups are distributed
        by the hash of their ids, which is sufficient for small snapshots. The resulting rows are the same.
    """
    from pyspark.sql import functions as sf

    rows = reduce(
        lambda above, below: above.unionByName(below, allowMissingColumns=True),
        (frame_of(table).select("group_id", sf.struct(*names).alias(table.name)) for table, names in KINDS),
    )
    together = rows.repartition("group_id") if batches is None else with_batches(rows, *batches)

    def plan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return plan_partition(batches, context)

    return together.mapInArrow(plan, schema=PLANNED.ddl)


def plan_in_driver(lag: pa.Table, members: pa.Table, context: PlanContext) -> pa.Table:
    """Plan as :func:`build_plans`, in this process; the rows are ordered by group.

    lag, members: With what was measured (:func:`evenlag.planning.measured_rows.with_measures`).
    """
    # The step itself logs which groups failed: only an executor has a log of its own.
    return _plan(lag, members.combine_chunks(), replace(context, log=None))


def select_assignments(planned: pa.Table, context: PlanContext, plan_ids: Collection[str]) -> pa.Table:
    """Select ``plan_assignments`` of some plans; of shadow plans, which nobody follows, only the moves."""
    # A session's first query that takes lists of structures apart costs Spark a second or two.
    wanted = pa.array(sorted(plan_ids), pa.string())
    is_chosen = pc.and_(pc.is_valid(planned["rows"]), pc.is_in(planned["plan_id"], wanted))
    chosen = planned.select([*_OF_PLAN, "rows"]).filter(is_chosen)
    rows = assignment_rows(chosen, shared_values(context))
    shadow = chosen.filter(pc.equal(chosen["mode"], Mode.SHADOW.value))["plan_id"].combine_chunks()
    before, after = rows["owner_before"], rows["owner_after"]
    are_null = pc.and_(pc.is_null(before), pc.is_null(after))
    is_kept = pc.or_(are_null, pc.fill_null(pc.equal(before, after), False))
    is_kept = pc.and_(is_kept, pc.invert(rows["moved"]))
    return rows.filter(pc.invert(pc.and_(is_kept, pc.is_in(rows["plan_id"], shadow))))


def plan_partition(batches: Iterable[pa.RecordBatch], context: PlanContext) -> Iterator[pa.RecordBatch]:
    """Plan the groups of one Spark partition. It is one batch and is read completely into memory."""
    read = list(batches)
    if not read:
        return
    rows = pa.Table.from_batches(read)
    del read
    lag, members = with_measures(*(_of_kind(rows, table) for table, _ in KINDS))
    del rows
    planned = _plan(lag, members.combine_chunks(), context).combine_chunks()
    del lag, members
    num_partitions = pc.fill_null(pc.list_value_length(planned["rows"]), 0).to_numpy()
    batch = np.cumsum(num_partitions + 1) // _PARTITIONS_PER_BATCH
    cuts = np.flatnonzero(np.diff(batch, prepend=-1, append=-1)).tolist()
    for start, end in pairwise(cuts):
        yield from planned.slice(start, end - start).to_batches()


def _of_kind(rows: pa.Table, table: Table) -> pa.Table:
    return pa.Table.from_struct_array(rows[table.name].filter(pc.is_valid(rows[table.name])))


def _plan(lag: pa.Table, members: pa.Table, context: PlanContext) -> pa.Table:
    return with_counts(plan_batch(lag, members, context), lag, members)


def shared_values(context: PlanContext) -> dict[str, object]:
    """Return the values that all rows of a run share, by column."""
    return {name: getattr(context, name) for name in SHARED}
