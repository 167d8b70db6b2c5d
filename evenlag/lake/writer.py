"""Writes without a JVM: the tables of writer ``direct``, which only ``deltalake`` writes, never Spark.

There is no lock. A table is opened, then read for what it already has, then the rows are committed on the
opened version. A commit is a file that only one writer can create, and it has a Delta transaction id (as
Spark's ``txnAppId``) that names table and cluster, the guard: ``deltalake`` refuses it if another commit with
this id came since the table was opened. So no row is chosen by content that is older than the last commit of
its cluster. The id is compared and not looked up: it may expire, and is in the log once for each cluster.

``deltalake`` does not compare the ids of two writers that create a table, so a table is created by a commit
of its own, which only one writer can make.
"""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from evenlag.errors import LakeConflictError, LakeError
from evenlag.lake.arrow_schema import arrow_schema, stored_schema
from evenlag.lake.conflicts import retry_on_conflict, write_errors
from evenlag.lake.delta_log import check_log_is_there, note_write, open_table
from evenlag.lake.reader import LakeReader
from evenlag.lake.rows_on_disk import rows_on_disk
from evenlag.lake.schema_evolution import log_types, missing_columns, refuse_unknown
from evenlag.lake.table_properties import LONGEST_COMMIT_S, wanted_properties
from evenlag.lake.tables.month_partitions import with_month

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from evenlag.lake.filters import Filter
    from evenlag.lake.tables import Table

    Rows = Sequence[Mapping[str, Any]]


# The same as Spark's writes use: an increasing version would drop late writes.
_TRANSACTION_VERSION: Final = 1
# More than the interval of frequent cycles; the log keeps newer commits, for a commit that takes long too.
_MAX_VERSION_AGE_S: Final = 600.0


class DirectWriter:
    """Writes one table of writer ``direct``."""

    def __init__(self, root: str, table: Table) -> None:
        if table.writer != "direct":
            raise LakeError(f"table {table.name} is written by Spark only")
        self.lake = LakeReader(root)
        self.table = table
        check_log_is_there(self.lake.paths, table)

    def append(self, rows: pa.Table | Rows) -> None:
        """Append rows by the table's contract, whatever the table has; missing values are null."""
        data = self.conform(rows)
        # Without an id of its own, an attempt that committed but reported an error would be repeated.
        name = f"{uuid.uuid4().hex}/{self.table.name}"
        is_repeat = False

        def attempt() -> None:
            nonlocal is_repeat
            with self.opened(_MAX_VERSION_AGE_S) as delta:
                # To look an id up reads all commits since the checkpoint.
                if not is_repeat or delta.transaction_version(name) is None:
                    is_repeat = True
                    self.commit(delta, data, [name])

        retry_on_conflict(attempt)

    def append_guarded(
        self, choose: Callable[[], pa.Table | Rows], max_age_s: float = 0.0
    ) -> pa.Table | Rows:
        """Append rows that are chosen by the lake's content, in one commit; choose again after a conflict.

        Returns the rows that were appended. Empty if there were none to append; also if the store answered an
        append that it had made with an error, and the repeat found its rows.
        choose: Reads the lake and returns the rows to append. What it raises ends the append.
        max_age_s: How old what it reads of the table may be, if newer content cannot add to what it returns.
        """

        def attempt() -> pa.Table | Rows:
            # Never created after the choice: the guard is compared only with the commits after this version.
            with self.opened(max_age_s) as delta:
                rows = choose()
                if len(rows):
                    data = self.conform(rows)
                    self.commit(delta, data, map(self.guard, data["cluster"].unique().to_pylist()))
                return rows

        return retry_on_conflict(attempt)

    def append_parts(
        self, read: Callable[[], Iterable[pa.Table]], cluster: str, written: Sequence[Filter]
    ) -> bool:
        """Append a cluster's rows in one commit, with one part of them in memory, unless they are there.

        read: Returns the rows, in parts; called again after a conflict.
        """

        def attempt() -> bool:
            with self.opened(_MAX_VERSION_AGE_S) as delta:
                if self.lake.count(self.table, filters=written):
                    return False
                batches = chain.from_iterable(self.conform(part).to_batches() for part in read())
                on_disk = rows_on_disk(stored_schema(self.table), batches)
                with write_errors(self.lake.paths, self.table), on_disk as rows:
                    self.commit(delta, rows, [self.guard(cluster)])
                return True

        return retry_on_conflict(attempt)

    def guard(self, cluster: str) -> str:
        """Return the transaction id of all commits of a cluster whose rows depend on what the table has."""
        return f"{self.table.name}/{cluster}"

    def conform(self, rows: pa.Table | Sequence[Mapping[str, Any]]) -> pa.Table:
        """Convert rows to the contract's columns and types, and add their partition."""
        schema = arrow_schema(self.table)
        if isinstance(rows, pa.Table):
            refuse_unknown(self.table, rows.column_names)
            return with_month(_with_offsets(rows.select(schema.names).cast(schema)), self.table)
        refuse_unknown(self.table, {name for row in rows for name in row})
        return with_month(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), self.table)

    @contextmanager
    def opened(self, max_age_s: float = 0.0) -> Iterator[Any]:
        """Open the table for a commit, and create it if necessary. Reads in the block see this version.

        max_age_s: How old the version may be; the guard is compared with newer commits, and the next attempt
            opens the table again.
        """
        with open_table(self.lake.paths, self.table, for_write=True, max_age_s=max_age_s) as delta:
            if delta is not None:
                yield delta
                return
        with write_errors(self.lake.paths, self.table):
            self._create(stored_schema(self.table))
        note_write(self.lake.paths, self.table)
        with open_table(self.lake.paths, self.table, for_write=True) as delta:
            yield delta

    def commit(self, delta: Any, data: pa.Table | pa.RecordBatchReader, names: Iterable[str]) -> None:
        """Append rows in one commit, unless another writer has committed one of its ids in the meantime.

        names: The ids, which are compared with all commits after the version of `delta`.
        """
        from deltalake import CommitProperties, Transaction, write_deltalake

        # Without the time, an id would never expire.
        begin_s = time.time()
        transactions = [
            Transaction(name, _TRANSACTION_VERSION, last_updated=round(1000 * begin_s)) for name in names
        ]
        with write_errors(self.lake.paths, self.table):
            # New columns are added, columns of a later version stay null; other types are rejected before.
            missing_columns(self.table, log_types(delta))
            write_deltalake(
                delta,
                data,
                mode="append",
                schema_mode="merge",
                commit_properties=CommitProperties(app_transactions=transactions),
            )
        note_write(self.lake.paths, self.table, is_known=True)
        if time.time() - begin_s > LONGEST_COMMIT_S:
            raise LakeConflictError(f"a commit of {self.table.name} took so long that it may be lost")

    def _create(self, schema: pa.Schema) -> None:
        """Create the table without rows, unless another writer does it first."""
        from deltalake import CommitProperties, write_deltalake
        from deltalake.exceptions import DeltaError

        try:
            # Not by DeltaTable.create: it writes the lake's address into the log.
            write_deltalake(
                self.lake.paths.table(self.table),
                schema.empty_table(),
                mode="error",
                partition_by=list(self.table.partition_by),
                configuration=wanted_properties("direct"),
                # A retry would commit the same properties again, as a change of an existing table.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except DeltaError:
            with open_table(self.lake.paths, self.table) as delta:
                if delta is None:
                    raise


def _with_offsets(rows: pa.Table) -> pa.Table:
    """Copy nested columns: Spark leaves out the offsets of lists without values, and deltalake reads them."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            copied = rows.column(place).take(np.arange(rows.num_rows))
            rows = rows.set_column(place, field, copied)
    return rows


def append_once(root: str, table: Table, rows: pa.Table | Rows, written: Sequence[Filter] | None) -> bool:
    """Append rows in one commit, unless the table has a row that matches some filters. Idempotent.

    Returns whether they were appended; False also if there are none, or a repeat after a lost answer found
    them.
    written: What only these rows match, whichever attempt has written them; None if nobody else writes them.
    """
    if not len(rows):
        return False
    writer = DirectWriter(root, table)
    if written is None:
        writer.append(rows)
        return True

    def choose() -> pa.Table | Rows:
        return () if writer.lake.count(table, filters=written) else rows

    return len(writer.append_guarded(choose, _MAX_VERSION_AGE_S)) > 0


def append_guarded(root: str, table: Table, choose: Callable[[], Rows]) -> Rows:
    """Append the rows that are chosen by the lake's content: :meth:`DirectWriter.append_guarded`."""
    return DirectWriter(root, table).append_guarded(choose)
