"""Plans of all groups of a snapshot: of few rows in this process, else in one Spark job.

The Spark job plans groups in batches, one Arrow call per batch. Both ways plan by the same function of Arrow
tables, :func:`evenlag.planning.plan_batch.plan_batch`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evenlag.enums import Mode
from evenlag.lake.tables.planning import PLANNED_LAG, PLANNED_MEMBERS
from evenlag.planning.plan_batch import PLANNED, SHARED, PlanContext, assignment_rows, plan_batch, with_counts
from spark_jobs.transforms.batch_packing import with_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# With what was measured and forecast.
LAG_COLUMNS: Final = (*PLANNED_LAG, "cost", "forecast_records_per_s")
MEMBER_COLUMNS: Final = (*PLANNED_MEMBERS, "speed_records_per_s", "speed_is_bound")
_OF_PLAN: Final = ("group_id", "plan_id", "mode")
_COMMA: Final = ","
# Kafka partitions per Arrow batch that returns to the JVM; a row is never split.
_PARTITIONS_PER_BATCH: Final = 20_000


def build_plans(
    lag: DataFrame,
    members: DataFrame,
    context: PlanContext,
    batches: tuple[list[str], NDArray[np.int32]] | None = None,
) -> DataFrame:
    """Plan every group whose mode is not ``observe``, one row of ``PLANNED`` each.

    batches: Ids of all groups, and the batch of each (``pack_groups``). Without it, groups are distributed
        by the hash of their ids, which is sufficient for small snapshots. The resulting rows are the same.
    """
    from pyspark.sql import functions as sf

    # As one string: for each row Spark estimates the size of its batch, and for an array it iterates over all
    # rows of the batch again. Kafka topic names contain no comma.
    subscription = sf.when(sf.col("subscription").isNotNull(), sf.concat_ws(_COMMA, "subscription"))
    people = members.withColumn("subscription", subscription)
    rows = lag.select(sf.lit(False).alias("is_member"), *_present(lag.columns, LAG_COLUMNS)).unionByName(
        people.select(sf.lit(True).alias("is_member"), *_present(people.columns, MEMBER_COLUMNS)),
        allowMissingColumns=True,
    )
    together = rows.repartition("group_id") if batches is None else with_batches(rows, *batches)

    def plan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return plan_partition(batches, context)

    return together.mapInArrow(plan, schema=PLANNED.ddl)


def _present(given: list[str], columns: tuple[str, ...]) -> list[str]:
    """The columns that rows have: what was measured and forecast may be missing."""
    return [name for name in columns if name in given]


def plan_in_driver(lag: pa.Table, members: pa.Table, context: PlanContext) -> pa.Table:
    """Plan as :func:`build_plans`, in this process; the rows are ordered by group."""
    # The step itself logs which groups failed: only an executor has a log of its own.
    return _plan(
        lag.select(_present(lag.column_names, LAG_COLUMNS)),
        members.select(_present(members.column_names, MEMBER_COLUMNS)).combine_chunks(),
        replace(context, log=None),
    )


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
    is_member = rows["is_member"]
    lag = rows.select(_present(rows.column_names, LAG_COLUMNS)).filter(pc.invert(is_member))
    members = rows.select(_present(rows.column_names, MEMBER_COLUMNS)).filter(is_member).combine_chunks()
    del rows
    place = members.schema.get_field_index("subscription")
    subscription = pc.split_pattern(members["subscription"], _COMMA)
    members = members.set_column(place, "subscription", subscription)
    planned = _plan(lag, members, context).combine_chunks()
    del lag, members
    num_partitions = pc.fill_null(pc.list_value_length(planned["rows"]), 0).to_numpy()
    batch = np.cumsum(num_partitions + 1) // _PARTITIONS_PER_BATCH
    cuts = np.flatnonzero(np.diff(batch, prepend=-1, append=-1)).tolist()
    for start, end in pairwise(cuts):
        yield from planned.slice(start, end - start).to_batches()


def _plan(lag: pa.Table, members: pa.Table, context: PlanContext) -> pa.Table:
    return with_counts(plan_batch(lag, members, context), lag, members)


def shared_values(context: PlanContext) -> dict[str, object]:
    """Return the values that all rows of a run share, by column."""
    return {name: getattr(context, name) for name in SHARED}
