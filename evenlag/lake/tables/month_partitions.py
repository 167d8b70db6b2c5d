"""The partitions of the tables: by day, or by month for tables that have few rows a day.

A year of a table that is partitioned by day has at least 365 files a cluster, however few its rows are. Only
tables that grow by millions of rows a day need that.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from evenlag.lake.arrow_schema import stored_schema
from evenlag.lake.tables import Table


def month_of(day: date) -> date:
    """Return the first day of a day's month."""
    return day.replace(day=1)


def partition_of(table: Table, day: date) -> date:
    """Return the first day of the partition that holds a day's rows: the day, or the first of its month."""
    return month_of(day) if table.is_by_month else day


def end_of_part(table: Table, start: date) -> date:
    """Return the last day of a partition."""
    if not table.is_by_month:
        return start
    return start.replace(day=monthrange(start.year, start.month)[1])


def with_month(data: pa.Table, table: Table) -> pa.Table:
    """Add ``month`` to rows of a table, if it partitions the table."""
    if table.is_by_month:
        data = data.append_column("month", pc.floor_temporal(data["day"], unit="month"))
    schema = stored_schema(table)
    return data.select(schema.names).cast(schema)


def month_filter(column: str, operator: str, value: Any) -> tuple[str, Any] | None:
    """Return the condition on ``month`` that every row fulfils which matches a filter on ``day``, or None.

    Examples
    --------
    >>> from datetime import date
    >>> month_filter("day", "<", date(2026, 3, 1))
    ('<=', datetime.date(2026, 3, 1))
    >>> month_filter("day", "in", [date(2026, 3, 7), date(2026, 3, 9)])
    ('in', [datetime.date(2026, 3, 1)])
    >>> month_filter("day", "!=", date(2026, 3, 7)) is None
    True
    """
    if column != "day":
        return None
    if operator == "in":
        return "in", sorted({month_of(day) for day in value if day is not None})
    wider = {"=": "=", "<": "<=", "<=": "<=", ">": ">=", ">=": ">="}
    return (wider[operator], month_of(value)) if operator in wider and value is not None else None
