"""Writes without a JVM: the tables of writer ``direct``, which only ``deltalake`` writes, never Spark."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evenlag.errors import LakeConflictError, LakeError
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.delta_log import one_line, open_log
from evenlag.lake.reader import LakeReader, log_types
from evenlag.lake.schema_evolution import missing_columns
from evenlag.lake.table_properties import DEFAULT_VACUUM_DAYS, retention
from evenlag.lake.tables import CLUSTER_AND_DAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import date

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.tables import Table


class DeltaRsWriter:
    """One table that is locked for writing; created by :func:`delta_rs_writer`.

    Parameters
    ----------
    lake
        A reader of the lake.
    table
        The table.

    Attributes
    ----------
    lake : LakeReader
        A reader of the same lake.
    """

    def __init__(self, lake: LakeReader, table: Table) -> None:
        self.lake = lake
        self._table = table

    def rows(self, filters: Sequence[Filter], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Read rows; no other process writes the table at the same time.

        Parameters
        ----------
        filters
            As for :meth:`evenlag.lake.reader.LakeReader.read`.
        columns
            Columns to read; all columns of the contract if None.

        Returns
        -------
        list of dict
            The rows.
        """
        found: list[dict[str, Any]] = self.lake.read(
            self._table, columns=columns, filters=filters
        ).to_pylist()
        return found

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows by the table's contract.

        Parameters
        ----------
        rows
            Values by column; missing values are null.

        Raises
        ------
        SchemaError
            If the table in the lake has a column of another type, or lacks a required column.
        LakeError
            If the table cannot be written.
        """
        import pyarrow as pa
        from deltalake import write_deltalake

        if not rows:
            return
        data = pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema(self._table))
        path = self.lake.paths.table(self._table)
        with self._as_lake_error():
            # New columns are added, columns of a later version stay null; other types are rejected before.
            delta = open_log(self.lake.paths, self._table)
            if delta is not None:
                missing_columns(self._table, log_types(delta))
            write_deltalake(
                path,
                data,
                mode="append",
                partition_by=list(CLUSTER_AND_DAY),
                schema_mode=None if delta is None else "merge",
                configuration=retention(DEFAULT_VACUUM_DAYS) if delta is None else None,
            )

    def compact(self, cluster: str, day: date, target_bytes: int) -> None:
        """Compact the files of a (cluster, day); a cycle that writes the table waits.

        Parameters
        ----------
        cluster, day
            The partition.
        target_bytes
            Target size of a file in bytes.

        Raises
        ------
        LakeError
            If the table cannot be written.
        """
        with self._as_lake_error():
            filters = [("cluster", "=", cluster), ("day", "=", day.isoformat())]
            self._table_now().optimize.compact(partition_filters=filters, target_size=target_bytes)

    def vacuum(self, days: int) -> None:
        """Delete replaced files, write a checkpoint, and delete the log before it.

        Parameters
        ----------
        days
            Retention: only files that were replaced earlier are deleted.

        Raises
        ------
        LakeError
            If the table cannot be written.
        """
        with self._as_lake_error():
            delta = self._table_now()
            delta.vacuum(retention_hours=24 * days, dry_run=False, enforce_retention_duration=True)
            delta.create_checkpoint()
            delta.cleanup_metadata()

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table.

        Parameters
        ----------
        properties
            Values by property name.

        Raises
        ------
        LakeError
            If the table cannot be written.
        """
        with self._as_lake_error():
            self._table_now().alter.set_table_properties(dict(properties))

    def _table_now(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.lake.paths.table(self._table))

    @contextmanager
    def _as_lake_error(self) -> Iterator[None]:
        from deltalake.exceptions import CommitFailedError, DeltaError

        message = f"table {self._table.name} of {self.lake.paths.root} cannot be written"
        try:
            yield
        except CommitFailedError as error:
            raise LakeConflictError(f"{message}: {one_line(error)}") from error
        except (DeltaError, OSError) as error:
            raise LakeError(f"{message}: {one_line(error)}") from error


@contextmanager
def delta_rs_writer(root: str, table: Table) -> Iterator[DeltaRsWriter]:
    """Lock a table for writing; on a local lake a read and a write in the block are atomic.

    Parameters
    ----------
    root
        Root folder of the lake, as in the policy.
    table
        The table; its writer must be ``direct``.

    Yields
    ------
    DeltaRsWriter
        The writer, until the end of the block.

    Raises
    ------
    LakeError
        If the table belongs to Spark, or the lake cannot be written.
    """
    if table.writer != "direct":
        raise LakeError(f"table {table.name} is written by Spark only")
    lake = LakeReader(root)
    with lake.paths.lock(table):
        yield DeltaRsWriter(lake, table)
