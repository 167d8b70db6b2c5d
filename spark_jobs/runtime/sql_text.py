"""Names and values in Spark SQL: names of clusters come from outside and may contain any character."""

from collections.abc import Collection, Iterable
from datetime import date
from typing import Final

from evenlag.lake.filters import date_literal
from evenlag.lake.tables import Table
from evenlag.lake.tables.month_partitions import month_of

# Spark reads a backslash, u and four digits as the character of that code; for a larger code U and eight.
_MAX_SHORT_CODE: Final = 0xFFFF


def text_literal(text: str) -> str:
    r"""Return a string literal of Spark SQL.

    Examples
    --------
    >>> text_literal("orders-eu 1")
    "'orders-eu 1'"
    >>> print(text_literal("a' OR '1"))
    'a\u0027 OR \u00271'
    """
    return "'" + "".join(_character(sign) for sign in text) + "'"


def _character(sign: str) -> str:
    if sign.isprintable() and sign not in "'\\":
        return sign
    code = ord(sign)
    return f"\\u{code:04x}" if code <= _MAX_SHORT_CODE else f"\\U{code:08x}"


def text_list(texts: Iterable[str]) -> str:
    """Return a list of string literals, in parentheses."""
    return f"({', '.join(map(text_literal, texts))})"


def identifier(name: str) -> str:
    """Return a quoted identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def part_condition(table: Table, cluster: str, start: date) -> str:
    """Return the condition for one partition of a table, with the literal values that Delta looks for."""
    return f"cluster = {text_literal(cluster)} AND {table.partition_by[1]} = {date_literal(start)}"


def days_condition(table: Table, cluster: str, days: Collection[date]) -> str:
    """Return the condition for days of a cluster; writers of other clusters or months do not conflict."""
    condition = f"cluster = {text_literal(cluster)}"
    if table.is_by_month:
        condition += f" AND month IN {_date_list({month_of(day) for day in days})}"
    return f"{condition} AND day IN {_date_list(days)}"


def _date_list(days: Collection[date]) -> str:
    return f"({', '.join(map(date_literal, sorted(days)))})"
