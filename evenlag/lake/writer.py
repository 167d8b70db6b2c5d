"""Writes without a JVM: the tables of writer ``direct``, which only ``deltalake`` writes, never Spark.

Each append carries a Delta transaction id, as Spark's ``txnAppId`` does: of two concurrent writers with one
id only one commits. ``deltalake`` compares ids with concurrent commits only, so an id is looked up before
each write. Ids expire after :data:`~evenlag.lake.table_properties.TRANSACTION_DAYS`, in the log and in its
checkpoints; for rows of older days the table's key decides.

``deltalake`` does not compare the ids of two writers that create a table, so a table is created by a commit
of its own.
"""

from __future__ import annotations

import random
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import LakeConflictError, LakeError
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.delta_log import check_log_is_there, one_line, open_log
from evenlag.lake.expired_repeats import without_expired_repeats
from evenlag.lake.reader import LakeReader, log_types
from evenlag.lake.schema_evolution import missing_columns, refuse_unknown
from evenlag.lake.table_properties import (
    DEFAULT_VACUUM_DAYS,
    wanted_properties,
)
from evenlag.lake.tables import CLUSTER_AND_DAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import date

    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.tables import Table

# The same as Spark's writes use: an increasing version would drop late writes.
_TRANSACTION_VERSION: Final = 1
# Conflicts occur only without evenlag's lock: on lakes that are not local folders.
_ATTEMPTS: Final = 6
_FIRST_WAIT_S: Final = 0.1


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
    table : Table
        The table.
    """

    def __init__(self, lake: LakeReader, table: Table) -> None:
        self.lake = lake
        self.table = table

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
        found: list[dict[str, Any]] = self.lake.read(self.table, columns=columns, filters=filters).to_pylist()
        return found

    def append(self, rows: pa.Table | Sequence[Mapping[str, Any]], app_id: str | None = None) -> bool:
        """Append rows by the table's contract. Idempotent: a repeat with the same ``app_id`` does nothing.

        Parameters
        ----------
        rows
            Values by column; missing values are null.
        app_id
            Identifies this write, e.g. ``validate/orders/<snapshot>``; None if the caller has checked, in the
            same block, that the rows are not there.

        Returns
        -------
        bool
            False if there are no rows to write, or an earlier write with this ``app_id`` has written them.

        Raises
        ------
        SchemaError
            If the rows have a column that is not in the contract, or the table in the lake has a column of
            another type, or lacks a required column.
        LakeConflictError
            If each attempt conflicts with another writer.
        LakeError
            If the table cannot be written.
        """
        data = self._conform(rows)
        # Without an id of its own, an attempt that committed but reported an error would be repeated.
        name = uuid.uuid4().hex if app_id is None else f"{app_id}/{self.table.name}"
        for attempt in range(1, _ATTEMPTS + 1):
            if app_id is not None:
                data = without_expired_repeats(self.lake, self.table, data)
            if data.num_rows == 0:
                return False
            try:
                return self._append(data, name) or app_id is None
            except LakeConflictError:
                if attempt == _ATTEMPTS:
                    raise
            # A random wait, or the same writers meet again.
            time.sleep(_FIRST_WAIT_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))  # noqa: S311  # not a secret
        raise AssertionError("unreachable")

    def _conform(self, rows: pa.Table | Sequence[Mapping[str, Any]]) -> pa.Table:
        """Convert rows to the contract's columns and types."""
        import pyarrow as pa

        schema = arrow_schema(self.table)
        if isinstance(rows, pa.Table):
            refuse_unknown(self.table, rows.column_names)
            return rows.select(schema.names).cast(schema)
        refuse_unknown(self.table, {name for row in rows for name in row})
        return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)

    def _append(self, data: pa.Table, name: str) -> bool:
        """Append rows in one commit; False if the transaction id is in the log."""
        from deltalake import CommitProperties, Transaction, write_deltalake

        with self._as_lake_error():
            delta = open_log(self.lake.paths, self.table) or self._create(data.schema)
            if delta.transaction_version(name) is not None:
                return False
            # New columns are added, columns of a later version stay null; other types are rejected before.
            missing_columns(self.table, log_types(delta))
            # Without the time, the id would never expire.
            now_ms = round(1000 * time.time())
            transaction = Transaction(name, _TRANSACTION_VERSION, last_updated=now_ms)
            write_deltalake(
                delta,
                data,
                mode="append",
                schema_mode="merge",
                commit_properties=CommitProperties(app_transactions=[transaction]),
            )
        return True

    def _create(self, schema: pa.Schema) -> Any:
        """Create the table without rows, unless another writer does it first."""
        from deltalake import CommitProperties, write_deltalake
        from deltalake.exceptions import DeltaError

        try:
            # Not by DeltaTable.create: it writes the lake's address into the log.
            write_deltalake(
                self.lake.paths.table(self.table),
                schema.empty_table(),
                mode="error",
                partition_by=list(CLUSTER_AND_DAY),
                configuration=wanted_properties(self.table, DEFAULT_VACUUM_DAYS),
                # A retry would commit the same properties again, as a change of an existing table.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except DeltaError:
            if open_log(self.lake.paths, self.table) is None:
                raise
        return self._table_now()

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

    def delete_snapshots(self, cluster: str, day: date, except_ids: Sequence[str]) -> None:
        """Delete the rows of all but some snapshots of a (cluster, day).

        Parameters
        ----------
        cluster, day
            The partition.
        except_ids
            Ids of the snapshots whose rows stay.

        Raises
        ------
        LakeConflictError
            If another writer changed the partition at the same time; nothing was deleted.
        LakeError
            If the table cannot be written.
        """
        condition = f"cluster = {_literal(cluster)} AND day = DATE '{day.isoformat()}'"
        if except_ids:
            condition += f" AND snapshot_id NOT IN ({', '.join(map(_literal, except_ids))})"
        with self._as_lake_error():
            self._table_now().delete(condition)

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

        return DeltaTable(self.lake.paths.table(self.table))

    @contextmanager
    def _as_lake_error(self) -> Iterator[None]:
        from deltalake.exceptions import CommitFailedError, DeltaError

        message = f"table {self.table.name} of {self.lake.paths.root} cannot be written"
        try:
            yield
        except CommitFailedError as error:
            raise LakeConflictError(f"{message}: {one_line(error)}") from error
        except (DeltaError, OSError) as error:
            raise LakeError(f"{message}: {one_line(error)}") from error


def _literal(text: str) -> str:
    """Return a string literal in DataFusion's SQL, which has no escape but the doubled quote."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


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
    # Before the lock is acquired: its holder counts as the writer of a missing log.
    check_log_is_there(lake.paths, table)
    with lake.paths.lock(table):
        yield DeltaRsWriter(lake, table)


def append_once(
    root: str, table: Table, rows: pa.Table | Sequence[Mapping[str, Any]], app_id: str | None
) -> bool:
    """Append rows to a table in one commit. Idempotent: a repeat with the same ``app_id`` does nothing.

    Parameters
    ----------
    root
        Root folder of the lake, as in the policy.
    table
        The table; its writer must be ``direct``.
    rows, app_id
        As for :meth:`DeltaRsWriter.append`.

    Returns
    -------
    bool
        False if there are no rows to write, or an earlier write with this ``app_id`` has written them.

    Raises
    ------
    LakeError
        As for :meth:`DeltaRsWriter.append`, or if the table belongs to Spark.
    """
    if not len(rows):
        return False
    with delta_rs_writer(root, table) as writer:
        return writer.append(rows, app_id)
