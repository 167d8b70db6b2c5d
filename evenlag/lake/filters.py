"""Conditions on rows of a table, as readers take them."""

from collections.abc import Set as AbstractSet
from typing import Any

# Column, comparison (``=``, ``in``, ``>=`` and so on) and value.
Filter = tuple[str, str, Any]


def matching(**values: Any) -> list[Filter]:
    """Return the filters of rows that have these values by column; of a list or a set, one of its values.

    Examples
    --------
    >>> matching(cluster="orders", plan_id=["a", "b"])
    [('cluster', '=', 'orders'), ('plan_id', 'in', ['a', 'b'])]
    """
    return [
        (name, "in" if isinstance(value, list | AbstractSet) else "=", value)
        for name, value in values.items()
    ]
