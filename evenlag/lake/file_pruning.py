"""Which files of a table may have rows that fulfil filters: by what the log says for certain, and no more.

A file's partition values hold for each of its rows. Its minimum and maximum bound its rows, but they may be
missing: Spark writes none for booleans, and none for strings whose first 32 characters have no successor.
What is missing rules out nothing. Rows are filtered after this, by their own values.
"""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

# Column, comparison (``=``, ``in``, ``>=`` and so on) and value.
Filter = tuple[str, str, Any]


def may_match(actions: pa.Table, schema: pa.Schema, filters: Sequence[Filter]) -> pa.Table:
    """Keep the files that may have a row which fulfils all filters.

    Parameters
    ----------
    actions
        A row per file, as :func:`evenlag.lake.delta_log.read_actions` gives them.
    schema
        The contract's, for the types of the values.
    filters
        As for :meth:`evenlag.lake.reader.LakeReader.read`.
    """
    import pyarrow.compute as pc

    for column, operator, value in filters:
        kind = schema.field(column).type
        if (name := f"partition.{column}") in actions.column_names:
            # Null fulfils no comparison.
            kept = pc.fill_null(compare(actions[name], operator, value, kind), False)
        else:
            kept = _by_bounds(actions, column, operator, value, kind)
        if kept is not None:
            actions = actions.filter(kept)
    return actions


def compare(left: Any, operator: str, value: Any, kind: pa.DataType) -> Any:
    """Compare an expression or an array of values with a value of the type `kind`; null gives null.

    Raises
    ------
    ValueError
        For an operator that there is not.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if operator == "in":
        # A null among the values equals nothing, not even null.
        given = [one for one in value if one is not None]
        if given and pa.types.is_floating(kind):
            # Arrow's look-up goes by the bits: to it NaN is NaN, and 0.0 is not -0.0.
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


def _by_bounds(actions: pa.Table, column: str, operator: str, value: Any, kind: pa.DataType) -> Any:
    """Whether each file may have such a row, by minimum and maximum; None when they decide nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    low, high = f"min.{column}", f"max.{column}"
    # Bounds of doubles say nothing of NaN; those of booleans are not worth having.
    is_ordered = pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind)
    if not is_ordered or low not in actions.column_names or high not in actions.column_names:
        return None
    values = list(value) if operator == "in" else [value]
    if operator == "!=" or not values or any(one is None for one in values):
        return None
    least, greatest = actions[low].cast(kind), actions[high].cast(kind)
    if pa.types.is_timestamp(kind):
        # The log keeps milliseconds and cuts off the rest, so the maximum may be up to one more.
        greatest = pc.add(greatest, pa.scalar(timedelta(milliseconds=1), pa.duration("us")))
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
