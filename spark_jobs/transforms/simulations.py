"""Comparison of all candidates over all snapshots of a period: one Arrow call per group."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evenlag.enums import LagStatus
from evenlag.lake.arrow_schema import arrow_schema, with_head
from evenlag.lake.tables import COMPARISONS, REPLAYS, Column, Table
from evenlag.lake.tables.simulation import REPLAYED_LAG, REPLAYED_MEMBERS
from evenlag.simulation.estimates import known_speeds
from evenlag.simulation.history import build_history, read_snapshots
from evenlag.simulation.simulate_group import ScoredSnapshots, score_group, simulate_group
from spark_jobs.runtime.frames import conform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    # pydantic: executors do not have it.
    from evenlag.policy.candidates import Candidate
    from evenlag.policy.settings import Pauses, Policy


def _row_of(table: Table) -> str:
    return f"STRUCT<{', '.join(f'{column.name}: {column.type}' for column in table.columns)}>"


# A row of one Arrow call has one of the two: scored snapshots (none for a continuous period) and replays.
MOMENT: Final = Column("moment", _row_of(COMPARISONS), "a row of comparisons")
REPLAY: Final = Column("replay", _row_of(REPLAYS), "a row of replays")
COMPARED: Final = Table("compared", "what comparing answers", (), (MOMENT, REPLAY))


@dataclass(frozen=True, slots=True)
class ComparisonContext:
    """What all groups of a comparison share; it is pickled to the executors and contains no secret.

    cluster, day: Partition of the rows; for a continuous period its first day.
    snapshot_ids, slots, at_us: The period's snapshots in order: id, slot, and the time when the end offsets
        were read, in microseconds since the epoch.
    """

    policy: Policy
    cluster: str
    day: date
    compared: tuple[Candidate, ...]
    pauses: Pauses
    snapshot_ids: tuple[str, ...]
    slots: tuple[datetime, ...]
    at_us: tuple[int, ...]
    comparison_id: str
    scores_snapshots: bool = True


def build_comparison(
    lag: DataFrame, members: DataFrame, speeds: DataFrame, context: ComparisonContext
) -> DataFrame:
    """Compare the candidates for every group."""
    from pyspark.sql import functions as sf

    partitions = lag.where(sf.col("status") != LagStatus.NOT_SUBSCRIBED)
    partitions = partitions.select(*REPLAYED_LAG).drop("status")
    people = join_speeds(members, speeds).select(*REPLAYED_MEMBERS, "speed_records_per_s", "speed_is_bound")

    def compare(lag_rows: pa.Table, member_rows: pa.Table) -> pa.Table:
        return compare_one_group(lag_rows, member_rows, context)

    return (
        partitions.groupBy("group_id")
        .cogroup(people.groupBy("group_id"))
        .applyInArrow(compare, schema=COMPARED.ddl)
    )


def join_speeds(members: DataFrame, speeds: DataFrame) -> DataFrame:
    """Add the speeds measured at each snapshot to rows of ``members``; null: unknown."""
    key = ["snapshot_id", "group_id", "member_id"]
    each = speeds.selectExpr(*key[:2], "inline(members)").selectExpr(
        *key, "speed_records_per_s", "is_bound AS speed_is_bound"
    )
    return members.join(each.dropDuplicates(key), key, "left")


def select_rows(compared: DataFrame, kind: Column, table: Table) -> DataFrame:
    """Select the rows of a kind from the result of :func:`build_comparison`, for one of its tables."""
    from pyspark.sql import functions as sf

    return conform(compared.where(sf.col(kind.name).isNotNull()).select(f"{kind.name}.*"), table)


def compare_one_group(lag: pa.Table, members: pa.Table, context: ComparisonContext) -> pa.Table:
    """Compare the candidates for one group; where a result is not available, the row has a reason."""
    group_id = (lag if lag.num_rows else members)["group_id"][0].as_py()
    at_s = np.array(context.at_us, dtype=np.float64) / 1e6
    seen, shown = read_snapshots(lag, members, context.snapshot_ids, at_s)
    history = build_history(seen)
    rule = context.policy.group_settings(context.cluster, group_id)
    shared = {
        "cluster": context.cluster,
        "day": context.day,
        "group_id": group_id,
        "comparison_id": context.comparison_id,
    }
    known = known_speeds(members, history)
    replays = simulate_group(history, rule, context.compared, context.pauses, known)
    rows = pa.Table.from_pylist([shared | row for row in replays], schema=arrow_schema(REPLAYS))
    parts = [_as_compared(rows, REPLAY)]
    if context.scores_snapshots:
        parts += [
            _as_compared(_moment_table(moments, shown[moments.places], shared, context), MOMENT)
            for moments in score_group(history, rule, context.compared)
        ]
    return pa.concat_tables(parts)


def _as_compared(rows: pa.Table, kind: Column) -> pa.Table:
    schema = arrow_schema(COMPARED)
    columns = [
        rows.to_struct_array() if field.name == kind.name else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _moment_table(
    moments: ScoredSnapshots, places: NDArray[np.int64], shared: dict[str, Any], context: ComparisonContext
) -> pa.Table:
    """One row per scored snapshot."""
    of_each = {"snapshot_id": context.snapshot_ids, "slot": context.slots}
    columns = {name: pa.array(values).take(pa.array(places)) for name, values in of_each.items()}
    for name, value in moments.columns.items():
        if isinstance(value, np.ndarray):
            columns[name] = pa.array(value, from_pandas=True)  # NaN is null
    head = dict.fromkeys(COMPARISONS.column_names) | shared | moments.columns
    return with_head(pa.table(columns), COMPARISONS, head)
