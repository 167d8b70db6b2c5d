"""Compaction: few large files instead of many small ones.

A partition is compacted if its closed days have more files than their size requires. Queries are not
affected; an append that meets the commit is tried again.

A closed day or month is rewritten once, sorted by group (``ZORDER`` rewrites all of its files). The month
that is open is compacted each day without sorting: Delta then packs small files only. There a file of a
quarter of the target size is large enough, so that no row is rewritten more often than its month has days,
and few are. Delta compacts whole partitions: the files of the open day in it are packed too, and today's
cycles append new ones.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from evenlag.lake.tables import TABLES, Table
from evenlag.lake.tables.month_partitions import end_of_part
from evenlag.lake.upkeep.direct_tables import rewrite_days
from spark_jobs.runtime.session import temporary_conf
from spark_jobs.runtime.sql_text import part_condition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from evenlag.lake.table_metadata import DataFile
    from spark_jobs.maintenance.maintenance_run import MaintenanceRun

_MB: Final = 1024 * 1024
# A file of the open month is large enough at this part of the target size.
_OPEN_SHARE: Final = 4
# Tolerated additional files: one late snapshot is no reason to rewrite a day.
_SPARE_FILES: Final = 1
_SPARE_SHARE: Final = 4
# The first of these columns that a table has: one column sorts better than several interleaved columns.
_SORT_COLUMNS: Final = ("group_id", "topic")
_SORTED_CONF: Final = {
    # Sorted within files too, so that readers skip row groups. Without noise, equal rows give equal files.
    "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
    "spark.databricks.io.skipping.mdc.addNoise": "false",
}


def is_compact(files: Sequence[DataFile], target_bytes: int) -> bool:
    """Return whether a partition has about as few files as its size requires.

    Examples
    --------
    >>> from datetime import UTC, date, datetime
    >>> from evenlag.lake.table_metadata import DataFile
    >>> day = date(2026, 1, 1)
    >>> small = DataFile(1_000, 10, datetime(2026, 1, 1, tzinfo=UTC), day, day, None, None)
    >>> [is_compact([small] * count, 1_000_000) for count in (1, 2, 3)]
    [True, True, False]
    """
    wanted = max(1, -(-sum(file.size_bytes for file in files) // target_bytes))
    return len(files) <= wanted + max(_SPARE_FILES, wanted // _SPARE_SHARE)


def compact_parts(work: MaintenanceRun) -> None:
    """Compact the partitions that need it."""
    if work.settings.target_file_mb is None:
        return
    target = work.settings.target_file_mb * _MB
    for table, files, cluster, start in work.closed_parts(list(TABLES.values())):
        is_open = start <= work.today <= end_of_part(table, start)
        size = target // _OPEN_SHARE if is_open else target
        closed = work.closed_files(files, cluster, start)
        small = [file for file in closed if not is_open or file.size_bytes < size]
        if is_compact(small, size):
            continue
        what = f"compact {len(small)} files of {table.name} of {cluster} {_when(table, start)}"
        if table.writer == "direct":
            days = (min(file.first_day for file in small), max(file.last_day for file in small))
            compact = partial(rewrite_days, work.lake.paths, table, cluster, days, size)
        else:
            compact = partial(_compact, work, table, (cluster, start), size, is_open=is_open)
        work.run(what, "compacted", compact)


def _when(table: Table, start: date) -> str:
    return f"in {start:%Y-%m}" if table.is_by_month else f"on {start}"


def _compact(
    work: MaintenanceRun, table: Table, part: tuple[str, date], size_bytes: int, *, is_open: bool
) -> None:
    """Compact one partition of one table of Spark's."""
    spark = work.lake.spark
    column = next((name for name in _SORT_COLUMNS if name in table.column_names), None)
    sizes = {
        "spark.databricks.delta.optimize.maxFileSize": str(size_bytes),
        "spark.databricks.delta.optimize.minFileSize": str(size_bytes),
    }
    order = "" if column is None or is_open else f" ZORDER BY ({column})"
    statement = f"OPTIMIZE {work.lake.sql_name(table)} WHERE {part_condition(table, *part)}{order}"
    with temporary_conf(spark, _SORTED_CONF | sizes):
        work.lake.change(table, statement)
