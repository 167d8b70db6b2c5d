"""What planning answers with: groups' decisions, heads and partitions as the columns of one table.

Arrays are built once a bundle, of what each group adds: a few slices. No Python loop goes over partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.lake.tables import DECISIONS, PLAN_ASSIGNMENTS, PLANS, Column, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from assignor_core.group import Group
    from evenlag.planning.group_batch import GroupBundle
    from evenlag.planning.group_planner import GroupPlan

# The same in every row of a run: added by Spark, where a row needs it.
SHARED: Final = ("cluster", "day", "snapshot_id", "slot", "run_id", "policy_hash")


def _planned_table() -> Table:
    """A group's decision, head and partitions in one row: a value in a list costs Spark less than a row.

    A plan of many partitions takes several rows, of which the first has the decision and the head.
    """
    plain = ("group_id", "plan_id", "mode")

    def nested(table: Table, *more: str) -> str:
        own = (f"{c.name}: {c.type}" for c in table.columns if c.name not in {*SHARED, *plain})
        return f"STRUCT<{', '.join([*own, *more])}>"

    columns = (
        Column("group_id", "STRING", "group"),
        Column("plan_id", "STRING", "its plan, null when there is none"),
        Column("mode", "STRING", "mode that held"),
        Column("decided", nested(DECISIONS, "traceback: STRING"), "what only a row of decisions has"),
        Column("head", nested(PLANS), "what only a row of plans has; null when there is none"),
        Column("rows", f"ARRAY<{nested(PLAN_ASSIGNMENTS)}>", "the plan's partitions, or some of them"),
    )
    return Table("planned", "what planning answers", ("group_id",), columns)


PLANNED: Final = _planned_table()
# Partitions in one row of the answer: the JVM holds a row as one piece of memory, several times over.
_PARTITIONS_PER_ROW: Final = 10_000


def planned_table(
    bundle: GroupBundle | None,
    decisions: Sequence[Mapping[str, Any]],
    heads: Sequence[Mapping[str, Any] | None],
    plans: Sequence[tuple[int, GroupPlan]],
) -> pa.Table:
    """Make one table of what was decided of a bundle's groups.

    Parameters
    ----------
    bundle
        The groups' rows; None where none of them has a plan.
    decisions
        What was decided of each group, in the groups' order.
    heads
        By group too: its plan's head, None when it has no plan.
    plans
        The plans, in the order of their heads, with their groups' numbers in the bundle.

    Returns
    -------
    pyarrow.Table
        By ``PLANNED``.
    """
    import pyarrow as pa

    from evenlag.lake.arrow_schema import arrow_schema

    schema = arrow_schema(PLANNED)
    # What a struct has no field for is left out.
    of_groups = {"decided": decisions, "head": heads}
    columns = {name: pa.array(rows, schema.field(name).type) for name, rows in of_groups.items()} | {
        name: pa.array([row.get(name) for row in decisions], pa.string())
        for name in ("group_id", "plan_id", "mode")
    }
    if bundle is None or not plans:
        columns["rows"] = pa.nulls(len(decisions), schema.field("rows").type)
        return pa.table(columns).select(schema.names)
    has_plan = np.array([head is not None for head in heads])
    rows = _rows(bundle, plans, schema.field("rows").type.value_type)
    return _cut(columns, has_plan, [plan.rows.group.num_partitions for _, plan in plans], rows)


def _rows(bundle: GroupBundle, plans: Sequence[tuple[int, GroupPlan]], kind: pa.StructType) -> pa.StructArray:
    """A value a partition of each plan, plan after plan."""
    import pyarrow as pa

    from evenlag.planning.group_planner import member_keys

    groups = [plan.rows.group for _, plan in plans]
    rows = np.concatenate([np.arange(*bundle.row_start[number : number + 2]) for number, _ in plans])
    before = _numbered([group.live_owner for group in groups], groups)
    after = _numbered([plan.assignment for _, plan in plans], groups)
    claimed = np.concatenate([group.owner for group in groups])
    moved = (claimed >= 0) & (claimed != np.concatenate([plan.assignment for _, plan in plans]))
    member_ids = [member_id for group in groups for member_id in group.member_ids]
    lag = bundle.lag.take(pa.array(rows)) if len(rows) < bundle.lag.num_rows else bundle.lag
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


def _cut(
    columns: Mapping[str, pa.Array], has_plan: NDArray[np.bool_], sizes: list[int], rows: pa.StructArray
) -> pa.Table:
    """Give each group its partitions, in as many rows as they take.

    Parameters
    ----------
    columns
        All but ``rows``: a value a group.
    has_plan
        bool [G].
    sizes
        How many partitions each plan has, in the groups' order.
    """
    import pyarrow as pa

    from evenlag.lake.arrow_schema import arrow_schema

    size = np.zeros(len(has_plan), dtype=np.int64)
    size[has_plan] = sizes
    pieces = np.maximum(-(-size // _PARTITIONS_PER_ROW), 1)
    group = np.repeat(np.arange(len(size)), pieces)
    first = np.cumsum(pieces) - pieces
    piece = np.arange(len(group)) - first[group]
    held = np.minimum(size[group] - piece * _PARTITIONS_PER_ROW, _PARTITIONS_PER_ROW)
    starts = np.concatenate([[0], np.cumsum(held)]).astype(np.int32)
    schema = arrow_schema(PLANNED)
    cut = dict(columns)
    if len(group) > len(size):
        once = pa.array(group, mask=piece > 0)
        cut = {
            name: values.take(once if name in {"decided", "head"} else pa.array(group))
            for name, values in columns.items()
        }
    # A group without a plan has no list, which is not an empty list.
    cut["rows"] = pa.ListArray.from_arrays(
        pa.array(starts), rows, type=schema.field("rows").type, mask=pa.array(~has_plan[group])
    )
    return pa.table(cut).select(schema.names)


def _numbered(owners: list[NDArray[np.int32]], groups: list[Group]) -> NDArray[np.int32]:
    """Members' places within their groups as places among the members of all; -1 stays."""
    ends = np.cumsum([group.num_members for group in groups])
    shifts = np.repeat([0, *ends[:-1]], [len(owner) for owner in owners])
    placed = np.concatenate(owners)
    return np.where(placed >= 0, placed + shifts, -1).astype(np.int32)


def _take(values: list[str], index: NDArray[np.int32]) -> pa.Array:
    """Look strings up by index; -1 is null. No Python loop over rows."""
    import pyarrow as pa

    return pa.array(values, pa.string()).take(pa.array(index, pa.int32(), mask=index < 0))
