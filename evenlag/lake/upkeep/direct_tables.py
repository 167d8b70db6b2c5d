"""Upkeep of tables without a JVM: compaction and deletion in those of writer ``direct``, VACUUM of all.

None of it makes a writer wait. Of two changes of the same rows, and of a change and an append to any part of
the table, one is refused and made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, Final

import pyarrow as pa

from evenlag.errors import LakeConflictError, LakeError
from evenlag.lake.conflicts import retry_on_conflict, write_errors
from evenlag.lake.delta_log import open_table
from evenlag.lake.filters import Filter, date_literal, sql_literal
from evenlag.lake.location import LOG_FOLDER, LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.rows_on_disk import rows_on_disk
from evenlag.lake.table_properties import COMMITS_PER_CHECKPOINT
from evenlag.lake.tables import Table
from evenlag.lake.tables.month_partitions import partition_of

_VERSION_LENGTH: Final = 20


def rewrite_days(
    paths: LakePaths,
    table: Table,
    cluster: str,
    days: tuple[date, date],
    target_bytes: int,
    change: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]] = iter,
) -> None:
    """Write the rows of some days of a partition again, to as few files as their size requires.

    Not by deltalake's own ``optimize.compact``: of two of them at the same time it lets both commit, and each
    row is there twice. A replacement of the days is refused if anything changed them since they were read.

    days: First and last UTC day, in one partition. Files with these days only are replaced.
    change: Called with the rows, with all columns of the table in the lake; again after a conflict. What it
        returns has the same columns, and rows of these days only.
    """
    first, last = days
    condition = f"day >= {date_literal(first)} AND day <= {date_literal(last)}"
    filters: list[Filter] = [("day", ">=", first), ("day", "<=", last)]
    part = cluster, partition_of(table, first)
    replace_rows(paths, table, part, condition, filters, change, target_bytes)


def delete_snapshots(
    paths: LakePaths, table: Table, cluster: str, day: date, except_ids: Sequence[str]
) -> None:
    """Delete the rows of all but some snapshots of a (cluster, day)."""
    condition = f"day = {date_literal(day)}"
    if except_ids:
        condition += f" AND snapshot_id NOT IN ({', '.join(map(sql_literal, except_ids))})"
    delete_part(paths, table, (cluster, partition_of(table, day)), condition)


def delete_part(paths: LakePaths, table: Table, part: tuple[str, date], condition: str | None = None) -> None:
    """Delete the rows of a partition, or those that match a condition in DataFusion's SQL."""
    where = _part(table, *part) + ("" if condition is None else f" AND ({condition})")
    change_table(paths, table, lambda delta: delta.delete(where))


def set_properties(paths: LakePaths, table: Table, properties: Mapping[str, str]) -> None:
    """Set properties of a table."""
    change_table(paths, table, lambda delta: delta.alter.set_table_properties(dict(properties)))


def change_table(paths: LakePaths, table: Table, change: Callable[[Any], object]) -> None:
    """Make a change of a table's newest version, and again if another commit came first."""

    def attempt() -> None:
        with write_errors(paths, table), open_table(paths, table, for_write=True) as delta:
            if delta is None:
                raise LakeError(f"table {table.name} of {paths.root} does not exist")
            change(delta)

    retry_on_conflict(attempt)


def vacuum_table(paths: LakePaths, table: Table, days: int) -> None:
    """Delete files of any table that are older than some days and that no version in its log needs."""

    def vacuum(delta: Any) -> None:
        # Not only what the log since its last checkpoint names, as is the default: a file that was replaced
        # so long ago is named before it.
        delta.vacuum(retention_hours=24 * days, dry_run=False, enforce_retention_duration=True, full=True)

    change_table(paths, table, vacuum)


def write_checkpoint(paths: LakePaths, table: Table) -> None:
    """Write the checkpoint of a table that Spark writes, if its newest version is due for one."""
    with write_errors(paths, table), open_table(paths, table, for_write=True) as delta:
        if delta is not None and delta.version() % COMMITS_PER_CHECKPOINT == 0:
            delta.create_checkpoint()


def trim_log(paths: LakePaths, table: Table) -> None:
    """Delete what the log of a table, by whatever writer, need not keep: before a checkpoint, and old."""
    from deltalake.exceptions import DeltaError

    def trim(delta: Any) -> None:
        try:
            delta.create_checkpoint()
            delta.cleanup_metadata()
        except (DeltaError, FileNotFoundError) as error:
            if "not found" not in str(error):
                raise
            # Somebody else, who trims the log too, has deleted a file of it meanwhile.
            raise LakeConflictError(f"the log of {table.name} is trimmed by others") from error
        if table.writer == "spark":
            _remove_checksums(LakeReader(paths.root).filesystem(table))

    change_table(paths, table, trim)


def _remove_checksums(filesystem: Any) -> None:
    """Remove Spark's checksum files of commits that the log does not have any more: deltalake leaves them."""
    import pyarrow.fs as pa_fs

    names = [file.base_name for file in filesystem.get_file_info(pa_fs.FileSelector(LOG_FOLDER))]
    first = min((name for name in names if name[:1].isdecimal() and name.endswith(".json")), default="")
    for name in names:
        if name.endswith(".crc") and name.lstrip(".")[:_VERSION_LENGTH] < first[:_VERSION_LENGTH]:
            with suppress(FileNotFoundError):
                filesystem.delete_file(f"{LOG_FOLDER}/{name}")


def replace_rows(
    paths: LakePaths,
    table: Table,
    part: tuple[str, date],
    condition: str,
    filters: Sequence[Filter],
    change: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]] = iter,
    target_bytes: int | None = None,
) -> None:
    """Write some rows of a partition again, in one commit, as a function changes them.

    condition, filters: The same condition on rows, in DataFusion's SQL and for readers.
    """
    from deltalake import write_deltalake

    within = f"{_part(table, *part)} AND {condition}"
    own: list[Filter] = [("cluster", "=", part[0]), (table.partition_by[1], "=", part[1])]

    def replace(delta: Any) -> None:
        # Of the version that was opened: what is added after it is a conflict.
        rows = LakeReader(paths.root).stream(table, [*own, *filters])
        with rows_on_disk(rows.schema, change(rows)) as changed:
            write_deltalake(delta, changed, mode="overwrite", predicate=within, target_file_size=target_bytes)

    change_table(paths, table, replace)


def _part(table: Table, cluster: str, start: date) -> str:
    return f"cluster = {sql_literal(cluster)} AND {table.partition_by[1]} = {date_literal(start)}"
