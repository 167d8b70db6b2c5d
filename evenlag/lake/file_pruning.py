"""File pruning: selects the files of a table that may have rows which match filters.

A file's partition values apply to all its rows. Its minimum and maximum bound its rows, but they may be
missing: Spark writes none for booleans, and none for strings whose first 32 characters have no successor. A
missing bound excludes nothing. The rows are filtered by their own values afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.lake.filters import Filter
from evenlag.lake.tables import Table
from evenlag.lake.tables.month_partitions import month_filter

# The log truncates timestamps to milliseconds: a value may be up to one larger than the maximum.
_LOG_PRECISION: Final = timedelta(milliseconds=1)
# Of a hash in hex: no two plans of a lake share it. Spark truncates statistics to 32 characters.
_PREFIX_LENGTH: Final = 31
_MISPLACED: Final = "is in a partition of another cluster or month"
_OUTSIDE: Final = "is outside of its file's statistics in the log"


def may_match(actions: pa.Table, schema: pa.Schema, filters: Sequence[Filter]) -> pa.Table:
    """Select the files that may have a row which matches all filters.

    actions: One row per file, as :func:`evenlag.lake.delta_log.read_actions` returns them.
    """
    # The log has some columns for each of the table's: only those that are compared are filtered each time.
    names = {f"{part}.{column}" for column, *_ in filters for part in ("partition", "min", "max")}
    compared = actions.select([name for name in actions.column_names if name in {*names, "partition.month"}])
    files = compared.add_column(0, "place", pa.array(np.arange(actions.num_rows)))
    for column, operator, value in filters:
        kind = schema.field(column).type
        if "partition.month" in files.column_names and (month := month_filter(column, operator, value)):
            within = compare(files["partition.month"], *month, schema.field("month").type)
            files = files.filter(pc.fill_null(within, False))
        if (name := f"partition.{column}") in files.column_names:
            # Null matches no comparison.
            kept = pc.fill_null(compare(files[name], operator, value, kind), False)
        else:
            kept = _by_bounds(files, column, operator, value, kind)
        if kept is not None:
            files = files.filter(kept)
    return actions if files.num_rows == actions.num_rows else actions.take(files["place"])


def compare(left: Any, operator: str, value: Any, kind: pa.DataType) -> Any:
    """Compare an expression or an array of values to a value; null gives null."""
    if operator == "in":
        # A null among the values equals nothing, not even null.
        given = [one for one in value if one is not None]
        if given and pa.types.is_floating(kind):
            # Arrow's lookup compares bits: it treats NaN as equal to NaN, and 0.0 as different from -0.0.
            return reduce(or_, (compare(left, "=", one, kind) for one in given))
        values = pa.array(given, kind)
        is_expression = isinstance(left, pc.Expression)
        return left.isin(values) if is_expression else pc.is_in(left, value_set=values)
    functions = {
        "=": pc.equal,
        "!=": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }
    if operator not in functions:
        raise ValueError(f"no such filter operator: {operator!r}")
    return functions[operator](left, pa.scalar(value, kind))


def written_later(actions: pa.Table, since: datetime) -> pa.Table:
    """Select the files that were written at a moment or later, by their writers' clocks, or at none."""
    # Whole milliseconds, rounded down.
    since_ms = int(since.timestamp() * 1000)
    return actions.filter(pc.fill_null(pc.greater_equal(actions["modification_time"], since_ms), True))


def bounds(actions: pa.Table, column: str, kind: pa.DataType) -> tuple[pa.Array, pa.Array] | None:
    """Return bounds of a column's values in each file, null without any; None if the log has none at all."""
    if (name := f"partition.{column}") in actions.column_names:
        values = actions[name].cast(kind)
        return values, values
    low, high = f"min.{column}", f"max.{column}"
    # Bounds of doubles do not cover NaN; those of booleans exclude too little.
    is_ordered = pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind)
    if not is_ordered or low not in actions.column_names or high not in actions.column_names:
        return None
    least, greatest = actions[low].cast(kind), actions[high].cast(kind)
    if pa.types.is_timestamp(kind):
        greatest = pc.add(greatest, pa.scalar(_LOG_PRECISION, pa.duration("us")))
    return least, greatest


def contradictions(rows: pa.Table, files: pa.Table, table: Table) -> pa.Array:
    """Return why the partition values and statistics of its file, in `files`, contradict each row, or null.

    A missing or truncated bound contradicts nothing.
    """
    own = {"cluster": rows["cluster"], "day": rows["day"]}
    if table.is_by_month:
        own["month"] = pc.floor_temporal(own.pop("day"), unit="month")
    is_misplaced = is_outside = pa.repeat(False, rows.num_rows)
    for name, values in own.items():
        at = f"partition.{name}"
        given = (
            files[at].cast(values.type) if at in files.column_names else pa.nulls(rows.num_rows, values.type)
        )
        is_misplaced = pc.or_(is_misplaced, pc.invert(pc.fill_null(pc.equal(values, given), False)))
    for name, values in zip((flat := rows.flatten()).column_names, flat.columns, strict=True):
        for found in _outside(values, files, name):
            is_outside = pc.or_(is_outside, pc.fill_null(found, False))
    problem = pc.if_else(is_outside, _OUTSIDE, pa.scalar(None, pa.string()))
    problem = pc.if_else(is_misplaced, _MISPLACED, problem)
    return problem.combine_chunks() if isinstance(problem, pa.ChunkedArray) else problem


def named_by_statistics(files: pa.Table, column: str, values: Collection[str]) -> frozenset[str]:
    """Return the values of a column that files have alone, by their statistics.

    Statistics may be truncated: a prefix that both bounds have in common is taken for the value.
    """
    low, high = f"min.{column}", f"max.{column}"
    if low not in files.column_names or high not in files.column_names:
        return frozenset()
    least, greatest = (
        pc.utf8_slice_codeunits(files[name].cast(pa.string()), 0, _PREFIX_LENGTH) for name in (low, high)
    )
    named = set(least.filter(pc.fill_null(pc.equal(least, greatest), False)).to_pylist())
    return frozenset(value for value in values if value[:_PREFIX_LENGTH] in named)


def _outside(values: pa.ChunkedArray, files: pa.Table, name: str) -> Iterator[pa.ChunkedArray]:
    """Whether each value of a column is outside of what the statistics of its file allow."""
    if {f"null_count.{name}", "num_records"} <= set(files.column_names):
        num_nulls, is_null = files[f"null_count.{name}"], pc.is_null(values)
        yield pc.and_(is_null, pc.equal(num_nulls, 0))
        yield pc.and_(pc.invert(is_null), pc.greater_equal(num_nulls, files["num_records"]))
    kind = values.type
    if pa.types.is_boolean(kind):
        kind = pa.int8()
        values = values.cast(kind)
    for bound, compare_to, sign in (("min", pc.less, -1), ("max", pc.greater, 1)):
        if f"{bound}.{name}" not in files.column_names:
            continue
        limit = files[f"{bound}.{name}"].cast(kind)
        if pa.types.is_timestamp(kind):
            limit = pc.add(limit, pa.scalar(sign * _LOG_PRECISION, pa.duration("us")))
        elif pa.types.is_floating(kind):
            # As text in the log.
            limit = pc.add(limit, pc.multiply(pc.abs(limit), sign * 1e-9))
        yield compare_to(values, limit)


def in_range(rows: pa.Table) -> pa.Table:
    """Return rows with null for dates and times that Python does not have: before year 1, after 9999."""
    for place, field in enumerate(rows.schema):
        if not pa.types.is_temporal(field.type) or not rows.num_rows:
            continue
        column, is_day = rows[place], pa.types.is_date(field.type)
        first = date.min if is_day else datetime.min.replace(tzinfo=UTC)
        last = date.max if is_day else datetime.max.replace(tzinfo=UTC)
        limits = pa.scalar(first, field.type), pa.scalar(last, field.type)
        is_known = pc.and_(pc.greater_equal(column, limits[0]), pc.less_equal(column, limits[1]))
        if not pc.all(pc.fill_null(is_known, True)).as_py():
            rows = rows.set_column(place, field, pc.if_else(is_known, column, pa.scalar(None, field.type)))
    return rows


def _by_bounds(actions: pa.Table, column: str, operator: str, value: Any, kind: pa.DataType) -> Any:
    """Whether each file may have a matching row, by minimum and maximum; None if they exclude nothing."""
    values = list(value) if operator == "in" else [value]
    if operator == "!=" or not values or any(one is None for one in values):
        return None
    found = bounds(actions, column, kind)
    if found is None:
        return None
    least, greatest = found
    if operator.startswith(("<", ">")):
        nearest = least if operator.startswith("<") else greatest
        return pc.fill_null(compare(nearest, operator, value, kind), True)
    under = pc.less_equal(least, pa.scalar(max(values), kind))
    over = pc.greater_equal(greatest, pa.scalar(min(values), kind))
    return pc.and_(pc.fill_null(under, True), pc.fill_null(over, True))
