"""File pruning: selects the files of a table that may have rows which match filters.

A file's partition values apply to all its rows. Its minimum and maximum bound its rows, but they may be
missing: Spark writes none for booleans, and none for strings whose first 32 characters have no successor. A
missing bound excludes nothing. The rows are filtered by their own values afterwards.
"""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from evenlag.lake.tables.month_partitions import month_filter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import pyarrow as pa

# Column, comparison (``=``, ``in``, ``>=`` and so on) and value.
Filter = tuple[str, str, Any]


def may_match(actions: pa.Table, schema: pa.Schema, filters: Sequence[Filter]) -> pa.Table:
    """Select the files that may have a row which matches all filters.

    Parameters
    ----------
    actions
        One row per file, as :func:`evenlag.lake.delta_log.read_actions` returns them.
    schema
        The stored schema of the contract, for the types of the values.
    filters
        As for :meth:`evenlag.lake.reader.LakeReader.read`.

    Returns
    -------
    pyarrow.Table
        The selected rows of `actions`.
    """
    import pyarrow.compute as pc

    for column, operator, value in filters:
        kind = schema.field(column).type
        if "partition.month" in actions.column_names and (month := month_filter(column, operator, value)):
            within = compare(actions["partition.month"], *month, schema.field("month").type)
            actions = actions.filter(pc.fill_null(within, False))
        if (name := f"partition.{column}") in actions.column_names:
            # Null matches no comparison.
            kept = pc.fill_null(compare(actions[name], operator, value, kind), False)
        else:
            kept = _by_bounds(actions, column, operator, value, kind)
        if kept is not None:
            actions = actions.filter(kept)
    return actions


def compare(left: Any, operator: str, value: Any, kind: pa.DataType) -> Any:
    """Compare an expression or an array of values to a value; null gives null.

    Parameters
    ----------
    left
        An Arrow expression or array.
    operator
        ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=`` or ``in``.
    value
        The value; for ``in``, values.
    kind
        Type of the value.

    Returns
    -------
    pyarrow.compute.Expression or pyarrow.Array
        An expression for an expression, otherwise booleans.

    Raises
    ------
    ValueError
        For an unknown operator.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

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
    """Select the files that were written at a moment or later, by the clocks of their writers.

    Parameters
    ----------
    actions
        As for :func:`may_match`.
    since
        The moment.

    Returns
    -------
    pyarrow.Table
        The selected rows of `actions`; a file without a time is among them.
    """
    import pyarrow.compute as pc

    # Whole milliseconds, rounded down.
    since_ms = int(since.timestamp() * 1000)
    return actions.filter(pc.fill_null(pc.greater_equal(actions["modification_time"], since_ms), True))


def bounds(actions: pa.Table, column: str, kind: pa.DataType) -> tuple[pa.Array, pa.Array] | None:
    """Return a lower and an upper bound of a column's values in each file.

    Parameters
    ----------
    actions
        As for :func:`may_match`.
    column
        A column, also one that files are partitioned by.
    kind
        Its type.

    Returns
    -------
    tuple of (pyarrow.Array, pyarrow.Array) or None
        The bounds, null where the log has none; None if it has none for any file.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

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
        # The log truncates to milliseconds, so the maximum may be up to one millisecond larger.
        greatest = pc.add(greatest, pa.scalar(timedelta(milliseconds=1), pa.duration("us")))
    return least, greatest


def _by_bounds(actions: pa.Table, column: str, operator: str, value: Any, kind: pa.DataType) -> Any:
    """Whether each file may have a matching row, by minimum and maximum; None if they exclude nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = list(value) if operator == "in" else [value]
    if operator == "!=" or not values or any(one is None for one in values):
        return None
    found = bounds(actions, column, kind)
    if found is None:
        return None
    least, greatest = found
    reaches_down = {
        "<": lambda: pc.less(least, pa.scalar(value, kind)),
        "<=": lambda: pc.less_equal(least, pa.scalar(value, kind)),
        ">": lambda: pc.greater(greatest, pa.scalar(value, kind)),
        ">=": lambda: pc.greater_equal(greatest, pa.scalar(value, kind)),
    }
    if operator in reaches_down:
        return pc.fill_null(reaches_down[operator](), True)
    under = pc.less_equal(least, pa.scalar(max(values), kind))
    over = pc.greater_equal(greatest, pa.scalar(min(values), kind))
    return pc.and_(pc.fill_null(under, True), pc.fill_null(over, True))
