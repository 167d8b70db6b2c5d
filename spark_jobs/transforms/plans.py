"""Plans of all groups from a snapshot's lag, in one job: groups in bundles, a bundle in one Arrow call."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from evenlag.lake.tables import DECISIONS, PLAN_ASSIGNMENTS, PLANS, Table
from spark_jobs.planning.plan_batch import PlanContext, plan_groups
from spark_jobs.planning.plan_output import PLANNED, SHARED
from spark_jobs.runtime.contract_columns import conform
from spark_jobs.transforms.batch_packing import with_bundles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

LAG_COLUMNS: Final = (
    "topic_id",
    "topic",
    "partition",
    # Whom a move is counted against: see build_plans.
    "owner_member_id",
    "status",
    "lag_records",
    "arrival_rate_records_per_s",
    "stalled",
)
MEMBER_COLUMNS: Final = (
    "group_state",
    "group_type",
    "assignor",
    "member_id",
    "group_instance_id",
    "subscription",
    "error",
)
_COMMA: Final = ","
# As many partitions as go back to the JVM at once, in whole rows.
_PARTITIONS_PER_BATCH: Final = 20_000


def build_plans(
    lag: DataFrame,
    members: DataFrame,
    context: PlanContext,
    bundles: tuple[list[str], NDArray[np.int32]] | None = None,
) -> DataFrame:
    """Decide upon every group whose mode is not ``observe``.

    Parameters
    ----------
    lag, members
        The snapshot's rows.
    context
        What all plans share; it travels to the executors and holds no secret.
    bundles
        All groups' ids, and the bundle of each (``pack_groups``). Without it groups are spread by the hash of
        their ids: right where there is little to spread. The rows are the same either way.

    Returns
    -------
    DataFrame
        By ``PLANNED``: a row a group, more for a plan of many partitions. A group whose best assignment is
        the one it has gets no plan. ``select_decisions``, ``select_heads`` and ``select_assignments`` make
        rows of tables of it.
    """
    from pyspark.sql import functions as sf

    # As one text: for each row Spark asks how large its batch is, and to tell that of a list it goes over all
    # rows of the batch again. What it holds, Kafka's names of topics, has no comma.
    taken = sf.when(sf.col("subscription").isNotNull(), sf.concat_ws(_COMMA, "subscription"))
    people = members.withColumn("subscription", taken)
    # A coordinator on its way to a target goes on to it: what a plan changes is the target, not what is held.
    owned = lag.withColumn("owner_member_id", sf.coalesce("target_member_id", "owner_member_id"))
    rows = owned.select(sf.lit(False).alias("is_member"), "group_id", *LAG_COLUMNS).unionByName(
        people.select(sf.lit(True).alias("is_member"), "group_id", *MEMBER_COLUMNS), allowMissingColumns=True
    )
    together = rows.repartition("group_id") if bundles is None else with_bundles(rows, *bundles)

    def plan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return plan_partition(batches, context)

    return together.mapInArrow(plan, schema=PLANNED.ddl)


def plan_partition(batches: Iterable[pa.RecordBatch], context: PlanContext) -> Iterator[pa.RecordBatch]:
    """Plan the groups whose rows a partition holds: it is read as a whole, and is one bundle."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    read = list(batches)
    if not read:
        return
    rows = pa.Table.from_batches(read)
    del read
    is_member = rows["is_member"]
    lag = rows.select(["group_id", *LAG_COLUMNS]).filter(pc.invert(is_member))
    members = rows.select(["group_id", *MEMBER_COLUMNS]).filter(is_member).combine_chunks()
    del rows
    place = members.schema.get_field_index("subscription")
    taken = pc.split_pattern(members["subscription"], _COMMA)
    members = members.set_column(place, "subscription", taken)
    answer = plan_groups(lag, members, context).combine_chunks()
    del lag, members
    num_partitions = pc.fill_null(pc.list_value_length(answer["rows"]), 0).to_numpy()
    batch = np.cumsum(num_partitions + 1) // _PARTITIONS_PER_BATCH
    cuts = np.flatnonzero(np.diff(batch, prepend=-1, append=-1)).tolist()
    for start, end in pairwise(cuts):
        yield from answer.slice(start, end - start).to_batches()


def select_heads(planned: DataFrame, context: PlanContext) -> DataFrame:
    """The rows of ``plans``."""
    return _select(planned, context, "head", PLANS, "head.*")


def select_assignments(planned: DataFrame, context: PlanContext, where: Column | None = None) -> DataFrame:
    """Rows of the plans by the contract of ``plan_assignments``, the unmoved ones of shadow plans too.

    Parameters
    ----------
    where
        Which of them, by these columns and ``mode``; else all.
    """
    from pyspark.sql import functions as sf

    rows = planned.where(sf.col("rows").isNotNull()).select("group_id", "plan_id", "mode", sf.inline("rows"))
    chosen = rows if where is None else rows.where(where)
    return conform(chosen.drop("mode").withColumns(_shared(context)), PLAN_ASSIGNMENTS)


def select_decisions(planned: DataFrame, context: PlanContext) -> DataFrame:
    """The rows of ``decisions``."""
    return _select(planned, context, "decided", DECISIONS, "decided.*")


def _select(planned: DataFrame, context: PlanContext, name: str, table: Table, nested: str) -> DataFrame:
    from pyspark.sql import functions as sf

    plain = [column for column in ("group_id", "plan_id", "mode") if column in table.column_names]
    rows = planned.where(sf.col(name).isNotNull()).select(*plain, nested)
    return conform(rows.withColumns(_shared(context)), table)


def _shared(context: PlanContext) -> dict[str, Column]:
    from pyspark.sql import functions as sf

    return {name: sf.lit(getattr(context, name)) for name in SHARED}
