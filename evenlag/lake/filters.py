"""Conditions on rows of a table, as readers take them."""

from collections.abc import Set as AbstractSet
from datetime import date
from typing import Any

# Column, comparison (``=``, ``in``, ``>=`` and so on) and value.
Filter = tuple[str, str, Any]


def matching(*, since: date | None = None, until: date | None = None, **values: Any) -> list[Filter]:
    """Return the filters of rows that have these values by column; of a list or a set, one of its values.

    since, until: First and last ``day``; None: any.

    Examples
    --------
    >>> matching(cluster="orders", plan_id=["a", "b"])
    [('cluster', '=', 'orders'), ('plan_id', 'in', ['a', 'b'])]
    """
    days: tuple[Filter, ...] = (("day", ">=", since), ("day", "<=", until))
    return [
        *(
            (name, "in" if isinstance(value, list | AbstractSet) else "=", value)
            for name, value in values.items()
        ),
        *(bound for bound in days if bound[2] is not None),
    ]


def of_group(group_id: str | None) -> list[Filter]:
    """Return the filter of a group's rows; None: of all groups."""
    return [] if group_id is None else matching(group_id=group_id)


def sql_literal(text: str) -> str:
    """Return a string literal of DataFusion, DuckDB or Trino: no escape but the doubled quote.

    Examples
    --------
    >>> sql_literal("it's")
    "'it''s'"
    """
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def date_literal(day: date) -> str:
    """Return a date literal of DataFusion's SQL, and of Spark's."""
    return f"DATE '{day.isoformat()}'"
