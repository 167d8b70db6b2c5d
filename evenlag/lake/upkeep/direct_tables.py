"""Upkeep of the tables of writer ``direct``: compaction, deletion, VACUUM and properties, without a JVM.

None of it makes a writer wait. Of two changes of the same rows, and of a change and an append to any part of
the table, one is refused and made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.errors import LakeError
from evenlag.lake.conflicts import retry_on_conflict, write_errors
from evenlag.lake.delta_log import open_log
from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables.month_partitions import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import date

    import pyarrow as pa

    from evenlag.lake.tables import Table


class DirectUpkeep:
    """Upkeep of one table of writer ``direct``."""

    def __init__(self, root: str, table: Table) -> None:
        if table.writer != "direct":
            raise LakeError(f"table {table.name} is written by Spark only")
        self.paths = LakePaths(root)
        self.table = table

    def compact(self, cluster: str, days: tuple[date, date], target_bytes: int) -> None:
        """Write the rows of some days of a partition again, to as few files as their size requires.

        Not by deltalake's own ``optimize.compact``: of two of them at the same time it lets both commit, and
        each row is there twice. A replacement of the days is refused if anything changed them since they were
        read.

        days: First and last UTC day, in one partition. Files with these days only are replaced.
        """
        self.rewrite(cluster, days, target_bytes, iter)

    def rewrite(
        self,
        cluster: str,
        days: tuple[date, date],
        target_bytes: int,
        change: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]],
    ) -> None:
        """Replace the rows of some days of a partition by what a function makes of them.

        change: Called with the rows, with all columns of the table in the lake; again after a conflict.
            What it returns has the same columns, and rows of these days only.
        """
        import pyarrow as pa
        from deltalake import write_deltalake

        first, last = days
        within = f"day >= {_date(first)} AND day <= {_date(last)}"
        condition = f"{self._part(cluster, partition_of(self.table, first))} AND {within}"
        filters = [("cluster", "=", cluster), ("day", ">=", first), ("day", "<=", last)]

        def replace() -> None:
            # Opened before its rows are read: what is added after it is a conflict, also if it was read.
            delta = self._open()
            rows = LakeReader(self.paths.root).stream(self.table, filters)
            changed = pa.RecordBatchReader.from_batches(rows.schema, change(rows))
            write_deltalake(
                delta, changed, mode="overwrite", predicate=condition, target_file_size=target_bytes
            )

        self._retry(replace)

    def delete_snapshots(self, cluster: str, day: date, except_ids: Sequence[str]) -> None:
        """Delete the rows of all but some snapshots of a (cluster, day)."""
        condition = f"day = {_date(day)}"
        if except_ids:
            condition += f" AND snapshot_id NOT IN ({', '.join(map(sql_literal, except_ids))})"
        self.delete(cluster, partition_of(self.table, day), condition)

    def delete(self, cluster: str, start: date, condition: str | None = None) -> int:
        """Delete rows of a partition by a condition in DataFusion's SQL.

        Returns number of deleted rows; 0 if complete files were deleted.
        """
        where = self._part(cluster, start) + ("" if condition is None else f" AND ({condition})")
        done = self._retry(lambda: self._open().delete(where))
        return int(done.get("num_deleted_rows") or 0)

    def vacuum(self, days: int) -> None:
        """Delete files that no version has needed for some days, write a checkpoint, and trim the log."""
        with write_errors(self.paths, self.table):
            delta = self._open()
            # Not only what the log since its last checkpoint names, as is the default: a file that was
            # replaced so long ago is named before it.
            delta.vacuum(retention_hours=24 * days, dry_run=False, enforce_retention_duration=True, full=True)
            delta.create_checkpoint()
            delta.cleanup_metadata()

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table."""
        self._retry(lambda: self._open().alter.set_table_properties(dict(properties)))

    def _retry(self, change: Callable[[], Any]) -> Any:
        """Make a change of the newest version, and again if another commit came first."""

        def attempt() -> Any:
            with write_errors(self.paths, self.table):
                return change()

        return retry_on_conflict(attempt)

    def _open(self) -> Any:
        delta = open_log(self.paths, self.table)
        if delta is None:
            raise LakeError(f"table {self.table.name} of {self.paths.root} does not exist")
        return delta

    def _part(self, cluster: str, start: date) -> str:
        return f"cluster = {sql_literal(cluster)} AND {self.table.partition_by[1]} = {_date(start)}"


def sql_literal(text: str) -> str:
    """Return a string literal in DataFusion's SQL, which has no escape but the doubled quote.

    Examples
    --------
    >>> sql_literal("it's")
    "'it''s'"
    """
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _date(day: date) -> str:
    return f"DATE '{day.isoformat()}'"
