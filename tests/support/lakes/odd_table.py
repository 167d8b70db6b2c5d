"""A small table of all types that a filter may name, with values that statistics get wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.location import LakePaths
from evenlag.lake.tables import CLUSTER_AND_DAY, CLUSTER_AND_MONTH, Column, Table
from evenlag.lake.tables.contract import PARTITION_COLUMNS
from evenlag.lake.tables.month_partitions import partition_of
from evenlag.lake.upkeep.direct_tables import rewrite_days, trim_log
from evenlag.lake.writer import append_once
from spark_jobs.runtime.sql_text import part_condition
from tests.support.lakes.snapshots import frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_jobs.runtime.delta_lake import Lake

ODD: Final = Table(
    "odd",
    "a row of a test",
    ("number",),
    (
        *PARTITION_COLUMNS,
        Column("number", "BIGINT", "tells rows apart"),
        Column("name", "STRING", "a name as Kafka allows it, and worse"),
        Column("passed", "BOOLEAN", "Spark writes no statistics of it"),
        Column("at", "TIMESTAMP", "its statistics have milliseconds only"),
        Column("share", "DOUBLE", "may be NaN"),
        Column("small", "INT", "few values"),
    ),
    writer="spark",
    partition_by=CLUSTER_AND_DAY,
)
ODD_BY_MONTH: Final = replace(ODD, partition_by=CLUSTER_AND_MONTH)
DAYS: Final = (date(2026, 3, 1), date(2026, 3, 2))
CLUSTERS: Final = ("c", "o/d d=%25\n'\U0001f600")
NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOP: Final = "\U0010ffff"
NAMES: Final[tuple[tuple[str | None, ...], ...]] = (
    ("x" * 31 + TOP + "tail", "a", "b", None),
    ("a" * 40, "b" * 40, "\U0001f600" * 40, '"><script>'),
    ("line\nbreak", "", "é", TOP * 33),
    ("only",),
    (None, None),
    ("x" * 32, "x" * 32 + "y", "x" * 33, "y" * 31 + "\x7f" + TOP),
)
# .999999 is cut to .999: the next millisecond is the next second.
MICROSECONDS: Final = (0, 123_000, 123_001, 123_456, 999_999)
SHARES: Final = (float("nan"), 1.0, None, -0.0, 0.0, float("inf"))


def rows_of_file(start: int, cluster: str, day: date, names: tuple[str | None, ...]) -> list[tuple[Any, ...]]:
    """Make the rows of one file; each value has another period, so that they meet in all ways."""
    made = []
    for number, name in enumerate(names, start):
        at = NOON + timedelta(days=(day - DAYS[0]).days, microseconds=MICROSECONDS[number % 5])
        passed = (None, True, False, True)[number % 4]
        made.append((cluster, day, number, name, passed, at, SHARES[number % 6], number % 3))
    return made


def rows_by_commit() -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each commit: a file for each cluster."""
    number = 0
    for day in DAYS:
        for names in NAMES:
            rows = []
            for cluster in CLUSTERS:
                rows += rows_of_file(number, cluster, day, names)
                number += len(names)
            yield [dict(zip(ODD.column_names, row, strict=True)) for row in rows]


def write_odd_table_directly(root: str) -> None:
    """Write the table by month by deltalake as below."""
    table = replace(ODD_BY_MONTH, writer="direct")
    for rows in rows_by_commit():
        append_once(root, table, rows, None)
    rewrite_days(LakePaths(root), table, "c", DAYS, 1024**2)
    trim_log(LakePaths(root), table)


def write_odd_table(lake: Lake, table: Table = ODD) -> None:
    """Write it in many commits, so that Spark writes a checkpoint, and compact a partition of one cluster."""
    for number, rows in enumerate(rows_by_commit()):
        lake.append(table, frame(lake.spark, table, rows))
        if number == 0:
            often = "SET TBLPROPERTIES ('delta.checkpointInterval' = '10')"
            lake.spark.sql(f"ALTER TABLE {lake.sql_name(table)} {often}")
    part = part_condition(table, "c", partition_of(table, DAYS[0]))
    lake.spark.sql(f"OPTIMIZE {lake.sql_name(table)} WHERE {part}")
