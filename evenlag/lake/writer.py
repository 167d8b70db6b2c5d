"""Writes without a JVM: the tables of writer ``direct``, which only ``deltalake`` writes, never Spark.

There is no lock. What must happen once is decided by the store: a commit is a file that only one writer can
create, and it carries Delta transaction ids (as Spark's ``txnAppId``), which name what must happen once. Of
two concurrent commits with an id in common, ``deltalake`` refuses the second one.

``deltalake`` compares ids with the commits since the version that the writer opened. For earlier ones the id
is looked up in the log, or the table is read after it was opened (:func:`append_guarded`). Ids expire after
:data:`~evenlag.lake.table_properties.TRANSACTION_DAYS`; for older days the table's key decides.

``deltalake`` does not compare the ids of two writers that create a table, so a table is created by a commit
of its own, which only one writer can make.
"""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import LakeError
from evenlag.lake.arrow_schema import arrow_schema, stored_schema
from evenlag.lake.conflicts import retry_on_conflict, write_errors
from evenlag.lake.delta_log import check_log_is_there, open_log
from evenlag.lake.reader import LakeReader
from evenlag.lake.schema_evolution import log_types, missing_columns, refuse_unknown
from evenlag.lake.table_properties import TRANSACTION_DAYS, wanted_properties
from evenlag.lake.tables import CLUSTER_AND_DAY
from evenlag.lake.tables.month_partitions import with_month

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import date

    import pyarrow as pa

    from evenlag.lake.tables import Table

    Rows = Sequence[Mapping[str, Any]]


# The same as Spark's writes use: an increasing version would drop late writes.
_TRANSACTION_VERSION: Final = 1


class DirectWriter:
    """Writes one table of writer ``direct``."""

    def __init__(self, root: str, table: Table) -> None:
        if table.writer != "direct":
            raise LakeError(f"table {table.name} is written by Spark only")
        self.lake = LakeReader(root)
        self.table = table
        check_log_is_there(self.lake.paths, table)

    def append(self, rows: pa.Table | Sequence[Mapping[str, Any]], app_id: str | None = None) -> bool:
        """Append rows by the table's contract; False if there are none, or an earlier write has written them.

        rows: Values by column; missing values are null.
        app_id: Names what must happen once, e.g. ``validate/orders/<snapshot>``; None if the rows are of
            this call alone.
        """
        data = self.conform(rows)
        # Without an id of its own, an attempt that committed but reported an error would be repeated.
        name = uuid.uuid4().hex if app_id is None else f"{app_id}/{self.table.name}"

        def attempt() -> bool:
            # Before the table is opened for the commit: what another writer commits in between has its id in
            # the log, as that has just been written.
            new = data if app_id is None else without_expired_repeats(self.lake, self.table, data)
            if new.num_rows == 0:
                return False
            return self._append(new, name) or app_id is None

        return retry_on_conflict(attempt)

    def append_parts(self, day: date, read: Callable[[], Iterable[pa.Table]], app_id: str) -> bool:
        """Append rows of a day in one commit, with one part of them in memory. Idempotent, as :meth:`append`.

        read: Returns the rows, in parts; called again after a conflict. deltalake consumes them in a thread
            of its own, in which deltalake cannot be used.
        """
        import pyarrow as pa

        def attempt() -> bool:
            parts: Iterable[pa.Table] = map(self.conform, read())
            if _may_have_expired(day):
                parts = [without_expired_repeats(self.lake, self.table, part) for part in parts]
            batches = chain.from_iterable(part.to_batches() for part in parts)
            schema = stored_schema(self.table)
            return self._append(
                pa.RecordBatchReader.from_batches(schema, batches), f"{app_id}/{self.table.name}"
            )

        return retry_on_conflict(attempt)

    def conform(self, rows: pa.Table | Sequence[Mapping[str, Any]]) -> pa.Table:
        """Convert rows to the contract's columns and types, and add their partition."""
        import pyarrow as pa

        schema = arrow_schema(self.table)
        if isinstance(rows, pa.Table):
            refuse_unknown(self.table, rows.column_names)
            return with_month(rows.select(schema.names).cast(schema), self.table)
        refuse_unknown(self.table, {name for row in rows for name in row})
        return with_month(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), self.table)

    def _append(self, data: pa.Table | pa.RecordBatchReader, name: str) -> bool:
        """Append rows in one commit; False if the transaction id is in the log."""
        delta = self.open()
        with write_errors(self.lake.paths, self.table):
            if delta.transaction_version(name) is not None:
                return False
        self.commit(delta, data, [name])
        return True

    def open(self) -> Any:
        """Open the table for a commit; create it if it does not exist."""
        with write_errors(self.lake.paths, self.table):
            return open_log(self.lake.paths, self.table) or self._create(stored_schema(self.table))

    def commit(self, delta: Any, data: pa.Table | pa.RecordBatchReader, names: Iterable[str]) -> None:
        """Append rows in one commit, unless another writer has committed one of its ids in the meantime.

        names: The ids, which are compared with all commits after the version of `delta`.
        """
        from deltalake import CommitProperties, Transaction, write_deltalake

        # Without the time, an id would never expire.
        now_ms = round(1000 * time.time())
        transactions = [Transaction(name, _TRANSACTION_VERSION, last_updated=now_ms) for name in names]
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

    def _create(self, schema: pa.Schema) -> Any:
        """Create the table without rows, unless another writer does it first."""
        from deltalake import CommitProperties, DeltaTable, write_deltalake
        from deltalake.exceptions import DeltaError

        try:
            # Not by DeltaTable.create: it writes the lake's address into the log.
            write_deltalake(
                self.lake.paths.table(self.table),
                schema.empty_table(),
                mode="error",
                partition_by=list(self.table.partition_by),
                configuration=wanted_properties(),
                # A retry would commit the same properties again, as a change of an existing table.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except DeltaError:
            if open_log(self.lake.paths, self.table) is None:
                raise
        return DeltaTable(self.lake.paths.table(self.table))


def append_once(
    root: str, table: Table, rows: pa.Table | Sequence[Mapping[str, Any]], app_id: str | None
) -> bool:
    """Append rows to a table in one commit. Idempotent: a repeat with the same ``app_id`` does nothing."""
    if not len(rows):
        return False
    return DirectWriter(root, table).append(rows, app_id)


def without_expired_repeats(lake: LakeReader, table: Table, data: pa.Table) -> pa.Table:
    """Remove the rows that an earlier write has written, where its transaction id may have expired.

    No row is written before its day begins, so until ``TRANSACTION_DAYS`` later the log has the write's id.
    """
    import pyarrow.compute as pc

    days = pc.unique(data["day"]).to_pylist()
    if not days or not _may_have_expired(min(days)):
        return data
    key = list(dict.fromkeys([*CLUSTER_AND_DAY, *table.key]))
    # The first column of the key keeps the answer small; in some tables a day has millions of rows.
    bounds = {*CLUSTER_AND_DAY, table.key[0]}
    filters = [(name, "in", pc.unique(data[name]).to_pylist()) for name in key if name in bounds]
    found = lake.read(table, columns=key, filters=filters)
    known = set(zip(*(found[name].to_pylist() for name in key), strict=True))
    keys = zip(*(data[name].to_pylist() for name in key), strict=True)
    return data.filter([one not in known for one in keys])


def _may_have_expired(day: date) -> bool:
    """Whether the log may have lost the transaction ids of rows of a day."""
    # A day earlier, as clocks of two machines differ.
    return day <= datetime.now(UTC).date() - timedelta(days=TRANSACTION_DAYS - 1)


def append_guarded(
    root: str, table: Table, choose: Callable[[], Rows], guard_of: Callable[[Mapping[str, Any]], str]
) -> Rows:
    """Append the rows that are chosen by the lake's content, in one commit; choose again after a conflict.

    Each row has a guard, a transaction id that names what its writers must not decide at the same time, such
    as a plan or a group. The table is opened, then the rows are chosen, then they are committed on the opened
    version: refused if another writer has committed one of the guards since. So no row is chosen by content
    that is older than the last commit of its guard. A guard is compared and not looked up, so its expiry
    changes nothing, and it is in the log once, however often it is used.

    Returns the rows that were appended. Empty if there were none to append; also if the store answered an
    append that it had made with an error, and the repeat found its rows.
    choose: Reads the lake and returns the rows to append; called again after a conflict. What it raises
        ends the append.
    guard_of: The guard of a row: all writers that must not decide beside each other use the same one.
    """
    writer = DirectWriter(root, table)

    def attempt() -> Rows:
        # Opened before the rows are chosen, and never created after: an id is compared only with the
        # commits after this version.
        delta = writer.open()
        rows = choose()
        if rows:
            guards = sorted({f"{guard_of(row)}/{table.name}" for row in rows})
            writer.commit(delta, writer.conform(rows), guards)
        return rows

    return retry_on_conflict(attempt)
