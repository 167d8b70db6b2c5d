"""The output of planning: decisions, heads and partitions of groups as the columns of one table.

Arrays are built once a batch, from a few slices of each group. No Python loop goes over partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.enums import Mode
from evenlag.lake.tables import DECISIONS, PLAN_ASSIGNMENTS, PLANS, Column, Table
from evenlag.planning.assignments_hash import hash_assignments
from evenlag.planning.gate_inputs import COUNTED_INPUTS, count_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from assignor_core.group import Group
    from evenlag.planning.decisions import PlannedGroup
    from evenlag.planning.group_batch import GroupBatch
    from evenlag.planning.group_planner import GroupPlan

# The same in every row of a run: Spark adds them where a row needs them.
SHARED: Final = ("cluster", "day", "snapshot_id", "slot", "run_id", "policy_hash", "attempt_id")


def _planned_table() -> Table:
    """A group's decision, head and partitions in one row: a value in a list costs Spark less than a row.

    A plan of many partitions has several rows; the first has the decision and the head.
    """
    plain = ("group_id", "plan_id", "mode")

    def nested(table: Table, *more: str) -> str:
        own = (f"{c.name}: {c.type}" for c in table.columns if c.name not in {*SHARED, *plain})
        return f"STRUCT<{', '.join([*own, *more])}>"

    counts = ", ".join(f"{name}: BIGINT" for name in COUNTED_INPUTS)
    columns = (
        Column("group_id", "STRING", "group"),
        Column("plan_id", "STRING", "its plan, null when there is none"),
        Column("mode", "STRING", "mode in effect"),
        Column("decided", nested(DECISIONS, "traceback: STRING"), "columns of its row of decisions"),
        Column("head", nested(PLANS), "columns of its row of plans; null when there is none"),
        Column("rows", f"ARRAY<{nested(PLAN_ASSIGNMENTS)}>", "the plan's partitions, or some of them"),
        Column("counts", f"STRUCT<{counts}>", "what the gates count of the plan's rows"),
    )
    return Table("planned", "output of planning", ("group_id",), columns)


PLANNED: Final = _planned_table()
# Partitions in one row of the output: the JVM keeps a row in one piece of memory, several times.
_PARTITIONS_PER_ROW: Final = 10_000


def planned_table(batch: GroupBatch | None, groups: Sequence[PlannedGroup]) -> pa.Table:
    """Return the decisions, heads and partitions of a batch's groups as one table.

    batch: The groups' rows; None where no group has a plan.
    """
    import pyarrow as pa

    from evenlag.lake.arrow_schema import arrow_schema

    schema = arrow_schema(PLANNED)
    # pyarrow ignores keys that the struct has no field for.
    decisions = [group.decision.as_row() for group in groups]
    plans = [(group.number, group.plan) for group in groups if group.plan is not None]
    columns = {"decided": pa.array(decisions, schema.field("decided").type)} | {
        name: pa.array([row[name] for row in decisions], pa.string())
        for name in ("group_id", "plan_id", "mode")
    }
    columns["counts"] = pa.nulls(len(decisions), schema.field("counts").type)
    if batch is None or not plans:
        columns |= {name: pa.nulls(len(decisions), schema.field(name).type) for name in ("head", "rows")}
        return pa.table(columns).select(schema.names)
    has_plan = np.array([group.plan is not None for group in groups])
    rows = _rows(batch, plans, schema.field("rows").type.value_type)
    columns["head"] = pa.array(_hashed_heads(groups, rows), schema.field("head").type)
    return _cut(columns, has_plan, [plan.rows.group.num_partitions for _, plan in plans], rows)


def with_counts(planned: pa.Table, lag: pa.Table, members: pa.Table) -> pa.Table:
    """Add what the gates count of each plan, to its row that has the head."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = planned["rows"].combine_chunks()
    parent, partitions = pc.list_parent_indices(rows), pc.list_flatten(rows)
    names = ("topic_id", "topic", "partition", "owner_after")
    columns = {name: planned[name].take(parent) for name in ("plan_id", "group_id")}
    columns |= {name: pa.chunked_array([pc.struct_field(partitions, name)]) for name in names}
    counts = count_rows(pa.table(columns), lag, members)
    is_head = pc.is_valid(planned["head"]).to_pylist()
    values = [
        counts.get(plan_id) if is_first else None
        for plan_id, is_first in zip(planned["plan_id"].to_pylist(), is_head, strict=True)
    ]
    place = planned.schema.get_field_index("counts")
    field = planned.schema.field("counts")
    return planned.set_column(place, field, pa.array(values, field.type))


def table_rows(planned: pa.Table, column: str, table: Table, shared: Mapping[str, object]) -> pa.Table:
    """Return the rows of a table that are nested in a column of the output.

    shared: Values of the columns of :data:`SHARED`.
    """
    import pyarrow.compute as pc

    chosen = planned.filter(pc.is_valid(planned[column])).combine_chunks()
    return _by_contract(table, chosen[column].combine_chunks(), chosen, shared)


def assignment_rows(planned: pa.Table, shared: Mapping[str, object]) -> pa.Table:
    """Return a row of ``plan_assignments`` for each partition of the plans in memory.

    Returns rows by the contract, with those of shadow plans that do not move, in the order of `planned`.
    shared: Values of the columns of :data:`SHARED`.
    """
    import pyarrow.compute as pc

    rows = planned["rows"].combine_chunks()
    of_group = planned.select(["group_id", "plan_id"]).take(pc.list_parent_indices(rows))
    return _by_contract(PLAN_ASSIGNMENTS, pc.list_flatten(rows), of_group, shared)


def _by_contract(
    table: Table, nested: pa.StructArray, plain: pa.Table, shared: Mapping[str, object]
) -> pa.Table:
    """Rows of a table: the fields of `nested`, the values that all rows share, and columns of `plain`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from evenlag.lake.arrow_schema import arrow_schema

    fields = {field.name for field in nested.type}

    def values(field: pa.Field) -> pa.Array | pa.ChunkedArray:
        if field.name in fields:
            return pc.struct_field(nested, field.name).cast(field.type)
        if field.name in shared:
            return pa.repeat(pa.scalar(shared[field.name], field.type), len(nested))
        return plain[field.name]

    schema = arrow_schema(table)
    return pa.table([values(field) for field in schema], schema=schema)


def _rows(batch: GroupBatch, plans: Sequence[tuple[int, GroupPlan]], kind: pa.StructType) -> pa.StructArray:
    """A value for each partition of each plan, plan after plan."""
    import pyarrow as pa

    from evenlag.planning.group_planner import member_keys

    groups = [plan.rows.group for _, plan in plans]
    rows = np.concatenate([np.arange(*batch.row_start[number : number + 2]) for number, _ in plans])
    before = _numbered([plan.rows.held for _, plan in plans], groups)
    after = _numbered([plan.assignment for _, plan in plans], groups)
    claimed = np.concatenate([group.owner for group in groups])
    moved = (claimed >= 0) & (claimed != np.concatenate([plan.assignment for _, plan in plans]))
    member_ids = [member_id for group in groups for member_id in group.member_ids]
    lag = batch.lag.take(pa.array(rows)) if len(rows) < batch.lag.num_rows else batch.lag
    columns = {
        "owner_before": _take(member_ids, before),
        "owner_after": _take(member_ids, after),
        "owner_after_key": _take([key for group in groups for key in member_keys(group)], after),
        "moved": pa.array(moved),
        "lag_status": lag["status"].combine_chunks(),
    }
    columns |= {
        name: lag[name].combine_chunks() for name in ("topic_id", "topic", "partition", "lag_records")
    }
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(len(rows), field.type) for field in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _hashed_heads(groups: Sequence[PlannedGroup], rows: pa.StructArray) -> list[Mapping[str, Any] | None]:
    """The heads; of plans that may be published with the hash of their partitions."""
    import pyarrow as pa

    table, start = pa.Table.from_struct_array(rows), 0
    heads: list[Mapping[str, Any] | None] = []
    for group in groups:
        if group.plan is None or group.head is None:
            heads.append(None)
            continue
        size = group.plan.rows.group.num_partitions
        is_followed = group.decision.mode != Mode.SHADOW.value
        found = hash_assignments(table.slice(start, size)) if is_followed else None
        heads.append({**group.head, "assignments_hash": found})
        start += size
    return heads


def _cut(
    columns: Mapping[str, pa.Array], has_plan: NDArray[np.bool_], sizes: list[int], rows: pa.StructArray
) -> pa.Table:
    """Add each group's partitions, in as many rows as they need."""
    import pyarrow as pa

    from evenlag.lake.arrow_schema import arrow_schema

    size = np.zeros(len(has_plan), dtype=np.int64)
    size[has_plan] = sizes
    pieces = np.maximum(-(-size // _PARTITIONS_PER_ROW), 1)
    group = np.repeat(np.arange(len(size)), pieces)
    first = np.cumsum(pieces) - pieces
    piece = np.arange(len(group)) - first[group]
    taken = np.minimum(size[group] - piece * _PARTITIONS_PER_ROW, _PARTITIONS_PER_ROW)
    starts = np.concatenate([[0], np.cumsum(taken)]).astype(np.int32)
    schema = arrow_schema(PLANNED)
    cut = dict(columns)
    if len(group) > len(size):
        once = pa.array(group, mask=piece > 0)
        cut = {
            name: values.take(once if name in {"decided", "head", "counts"} else pa.array(group))
            for name, values in columns.items()
        }
    # A group without a plan has no list, which is not an empty list.
    cut["rows"] = pa.ListArray.from_arrays(
        pa.array(starts), rows, type=schema.field("rows").type, mask=pa.array(~has_plan[group])
    )
    return pa.table(cut).select(schema.names)


def _numbered(owners: list[NDArray[np.int32]], groups: list[Group]) -> NDArray[np.int32]:
    """Members' indexes within their groups as indexes among the members of all; -1 stays."""
    ends = np.cumsum([group.num_members for group in groups])
    shifts = np.repeat([0, *ends[:-1]], [len(owner) for owner in owners])
    placed = np.concatenate(owners)
    return np.where(placed >= 0, placed + shifts, -1).astype(np.int32)


def _take(values: list[str], index: NDArray[np.int32]) -> pa.Array:
    """Look strings up by index; -1 is null. No Python loop over rows."""
    import pyarrow as pa

    return pa.array(values, pa.string()).take(pa.array(index, pa.int32(), mask=index < 0))
