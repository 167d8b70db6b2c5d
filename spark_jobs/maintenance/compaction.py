"""Compaction of closed days: few large files instead of many small ones, rows sorted by group.

The open day is skipped, because cycles write it. A day is compacted if it has more files than its size
requires, and only if every snapshot in it is finished, so that unfinished snapshots stay in files of their
own (``orphans``). Queries are not affected: Delta's commit has ``dataChange: false``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from evenlag.lake.tables import PLAN_ASSIGNMENTS, SNAPSHOT_TABLES, TABLES
from evenlag.lake.writer import delta_rs_writer
from spark_jobs.maintenance.orphans import headless_plans, markers, unfinished_snapshots
from spark_jobs.runtime.session import temporary_conf
from spark_jobs.runtime.sql_text import part_condition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from evenlag.lake.table_metadata import DataFile, TableFiles
    from evenlag.lake.tables import Table
    from spark_jobs.maintenance.maintenance_run import MaintenanceRun

_MB: Final = 1024 * 1024
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
    """Return whether a day has about as few files as its size requires.

    Parameters
    ----------
    files
        The day's files.
    target_bytes
        Target size of a file in bytes.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from evenlag.lake.table_metadata import DataFile
    >>> small = DataFile(1_000, 10, datetime(2026, 1, 1, tzinfo=UTC), None, None)
    >>> [is_compact([small] * count, 1_000_000) for count in (1, 2, 3)]
    [True, True, False]
    """
    wanted = max(1, -(-sum(file.size_bytes for file in files) // target_bytes))
    return len(files) <= wanted + max(_SPARE_FILES, wanted // _SPARE_SHARE)


def compact_days(work: MaintenanceRun) -> None:
    """Compact the closed days that need it.

    Parameters
    ----------
    work
        The maintenance run.

    Raises
    ------
    LakeError
        If a table's log or the markers cannot be read. A failed write is recorded as a failure of the run.
    """
    if work.settings.target_file_mb is None:
        return
    target = work.settings.target_file_mb * _MB
    for table, files, cluster, day in work.closed_days(list(TABLES.values())):
        parts = files.by_day[cluster, day]
        if is_compact(parts, target):
            continue
        what = f"compact {len(parts)} files of {table.name} of {cluster} on {day}"
        if num := _num_unfinished(work, table, files, (cluster, day)):
            work.defer(f"{what}: {num} in it are not finished")
        else:
            compact = _compact_direct if table.writer == "direct" else _compact
            work.run(what, "compacted", partial(compact, work, table, (cluster, day), target))


def _num_unfinished(work: MaintenanceRun, table: Table, files: TableFiles, part: tuple[str, date]) -> int:
    cluster, day = part
    if table == PLAN_ASSIGNMENTS:
        return len(headless_plans(work, cluster, day))
    if table not in SNAPSHOT_TABLES:
        return 0
    return len(set(unfinished_snapshots(files, cluster, day)) - markers(work, cluster, day))


def _compact(work: MaintenanceRun, table: Table, part: tuple[str, date], target_bytes: int) -> None:
    """Compact one day of one table; on a local lake it holds the table's lock for no longer than that."""
    spark = work.lake.spark
    column = next((name for name in _SORT_COLUMNS if name in table.column_names), None)
    sizes = {
        "spark.databricks.delta.optimize.maxFileSize": str(target_bytes),
        "spark.databricks.delta.optimize.minFileSize": str(target_bytes),
    }

    order = "" if column is None else f" ZORDER BY ({column})"
    statement = f"OPTIMIZE {work.lake.sql_name(table)} WHERE {part_condition(*part)}{order}"
    with temporary_conf(spark, _SORTED_CONF | sizes):
        work.lake.write(table, lambda: spark.sql(statement).collect())


def _compact_direct(work: MaintenanceRun, table: Table, part: tuple[str, date], target_bytes: int) -> None:
    cluster, day = part
    with delta_rs_writer(work.lake.paths.root, table) as writer:
        writer.compact(cluster, day, target_bytes)
