"""Reads of the lake without a JVM, for the CLI, the publisher and the DAGs' tasks.

Tables that are written without a JVM are written by :mod:`evenlag.lake.writer`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from evenlag.errors import LakeError, SchemaError
from evenlag.lake.arrow_schema import stored_schema
from evenlag.lake.delta_log import check_protocol, lake_errors, open_table, read_actions
from evenlag.lake.file_pruning import (
    bounds,
    compare,
    contradictions,
    in_range,
    may_match,
    named_by_statistics,
    written_later,
)
from evenlag.lake.filters import Filter
from evenlag.lake.location import LakePaths
from evenlag.lake.repaired_log import repaired_log
from evenlag.lake.schema_evolution import check_types, log_schema, log_types
from evenlag.lake.small_files import storage_handler
from evenlag.lake.tables import CLUSTER_AND_DAY, PLAN_EVENTS, SNAPSHOTS, Table
from evenlag.lake.unreadable_files import ERROR, is_own_fault, scan_readable
from evenlag.logging_setup import named_logger

# Arrow's own column: the number of the file that a row is from.
_FILE: Final = "__fragment_index"
_FAULT: Final = "__fault"
_CHUNK_BYTES: Final = 1 << 20
_LOG = named_logger(__name__)


class CheckedRows(NamedTuple):
    """Rows that nobody has to trust, and what is known of the files that they are not from.

    faults: For each row why the log of its file contradicts it, or null.
    unreadable: The files that cannot be read, as in the log, with the column ``error``.
    elsewhere: Values of the condition on rows that statistics of other files of the cluster name.
    """

    rows: pa.Table
    faults: pa.Array
    unreadable: pa.Table
    elsewhere: frozenset[str]


class LakeReader:
    """Reads the tables of one lake without Spark.

    Parameters
    ----------
    root
        Root folder of the lake, as in the policy.
    skip_unreadable
        Whether :meth:`read` and :meth:`read_newest` leave out files that cannot be read, with a warning.

    Attributes
    ----------
    paths : LakePaths
        Paths of the lake.
    """

    def __init__(self, root: str, *, skip_unreadable: bool = False) -> None:
        self.paths = LakePaths(root)
        self._skip_unreadable = skip_unreadable

    def exists(self, table: Table) -> bool:
        """Return whether a table exists.

        Raises
        ------
        LakeError
            If there is data without a log, or the log cannot be read.
        """
        with open_table(self.paths, table) as delta:
            return delta is not None

    def read(
        self,
        table: Table,
        *,
        columns: Sequence[str] | None = None,
        filters: Sequence[Filter] | None = None,
        written_since: datetime | None = None,
    ) -> pa.Table:
        """Read a table by its contract.

        Parameters
        ----------
        table
            The contract.
        columns
            Columns to read, in order; all columns of a row if None: not ``month``, which partitions only.
        filters
            (column, operator, value) with the operators ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``,
            ``in``. A row must match all of them; null matches none. Filter by ``cluster`` and ``day`` if
            they are known: they prune files, by the partition or by the files' statistics. ``!=`` on a
            DOUBLE may leave out NaN, which Parquet's statistics do not cover.
        written_since
            Read only files that were written then or later; compaction writes rows again.

        Returns
        -------
        pyarrow.Table
            Empty if the table does not exist; a column that a file lacks is null.

        Raises
        ------
        SchemaError
            If a column has another type in the lake than in the contract.
        LakeError
            If the table exists but cannot be read completely.
        """
        schema = stored_schema(table)
        names = list(columns or table.column_names)
        with self._selected(table, filters or ()) as found:
            if found is None:
                return schema.empty_table().select(names)
            files, condition = found
            if written_since is not None:
                files = written_later(files, written_since)
            return self._rows(table, files, names, condition)

    def read_checked(
        self, table: Table, wanted: Filter, *, filters: Sequence[Filter], columns: Sequence[str] | None = None
    ) -> CheckedRows:
        """Read rows that nobody has to trust: with what the log says of their files and they do not confirm.

        Whoever writes the lake writes the log and the footers of Parquet files, too. So the footers select
        nothing here, and a caller chooses by `filters` how much the log may select. A file that cannot be
        read does not keep the others from being read.

        Parameters
        ----------
        table, columns
            As for :meth:`read`.
        wanted
            The condition on rows.
        filters
            Conditions on files, by partition values and statistics of the log; no row is compared to them.

        Returns
        -------
        CheckedRows
            The rows, and what may be missing.

        Raises
        ------
        SchemaError, LakeError
            If the log or the storage cannot be read, or the log has other columns.
        """
        schema = stored_schema(table)
        column, operator, value = wanted
        names = list(columns or table.column_names)
        read = list(dict.fromkeys([*names, column, *CLUSTER_AND_DAY]))

        def scan(files: pa.Table) -> pa.Table:
            scanner = self._dataset(table, files, schema).scanner(columns=[*read, _FILE])
            kept = [
                batch.filter(compare(batch.column(column), operator, value, schema.field(column).type))
                for batch in scanner.to_batches()
                if batch.num_rows
            ]
            parts = pa.Table.from_batches(kept, scanner.projected_schema)
            rows = in_range(parts.select(read))
            return rows.append_column(_FAULT, contradictions(rows, files.take(parts[_FILE]), table))

        with self._selected(table, ()) as found:
            if found is None:
                empty = schema.empty_table()
                return CheckedRows(empty.select(names), pa.nulls(0, pa.string()), empty, frozenset())
            files = may_match(found[0], schema, filters)
            parts, unreadable = scan_readable(files, scan, self._storage_check(table))
            faults = [fault for part in parts for fault in part[_FAULT].chunks]
            elsewhere: frozenset[str] = frozenset()
            if operator == "in":
                of_cluster = [each for each in filters if each[0] == "cluster"]
                others = may_match(found[0], schema, of_cluster)
                others = others.filter(pa.compute.invert(pa.compute.is_in(others["path"], files["path"])))
                elsewhere = named_by_statistics(others, column, value)
            rows = pa.concat_tables(
                [schema.empty_table().select(names), *(part.select(names) for part in parts)]
            )
            return CheckedRows(
                rows, pa.chunked_array(faults, pa.string()).combine_chunks(), unreadable, elsewhere
            )

    def read_newest(
        self,
        table: Table,
        by: str,
        *,
        filters: Sequence[Filter],
        columns: Sequence[str] | None = None,
        limit: int = 1,
        is_oldest: bool = False,
    ) -> pa.Table:
        """Read the rows with the largest values of a column, from as few files as the statistics allow.

        Files are read in the order of their largest possible value, until no other file can have a larger
        one. So the newest row is found without the table's history; files without statistics are always read.

        Parameters
        ----------
        table, columns
            As for :meth:`read`.
        by
            Column of dates, timestamps or integers that decides; a row without a value is left out.
        filters
            As for :meth:`read`. If no row matches, every file that may match is read.
        limit
            Number of rows, at least 1.
        is_oldest
            Read the rows with the smallest values.

        Returns
        -------
        pyarrow.Table
            At least `limit` rows, if there are as many: all rows with the value of the last one. The newest
            (or the oldest) first.

        Raises
        ------
        SchemaError, LakeError
            As :meth:`read`.
        """
        schema = stored_schema(table)
        names = list(columns or table.column_names)
        with self._selected(table, filters) as found:
            if found is None:
                return schema.empty_table().select(names)
            files, condition = found
            search = NewestSearch(files, by, schema.field(by).type, filters, limit, is_oldest=is_oldest)
            wanted = list(dict.fromkeys([*names, by]))
            while (part := search.next_files()) is not None:
                search.add(self._rows(table, part, wanted, condition))
            rows = search.rows
            return schema.empty_table().select(names) if rows is None else rows.select(names)

    def clusters(self, table: Table) -> list[str]:
        """Return the names of the clusters that a table has files of, sorted, from its log.

        Raises
        ------
        SchemaError, LakeError
            As :meth:`read`.
        """
        return sorted(self.files_by_cluster(table))

    def files_by_cluster(self, table: Table) -> dict[str, frozenset[str]]:
        """Return the paths of a table's data files by cluster, from its log.

        As long as a cluster's are the same, a read of its rows returns the same.

        Raises
        ------
        SchemaError, LakeError
            As :meth:`read`.
        """
        with self._selected(table, ()) as found:
            if found is None:
                return {}
            files = found[0].group_by("partition.cluster").aggregate([("path", "list")])
            names, paths = files["partition.cluster"].to_pylist(), files["path_list"].to_pylist()
            return dict(zip(names, map(frozenset, paths), strict=True))

    def count(self, table: Table, *, filters: Sequence[Filter]) -> int:
        """Return the number of matching rows of a table; 0 if it does not exist.

        Parameters
        ----------
        table, filters
            As for :meth:`read`.

        Raises
        ------
        LakeError
            As :meth:`read`.
        """
        with self._selected(table, filters) as found:
            if found is None:
                return 0
            files, condition = found
            return int(self._dataset(table, files, stored_schema(table)).count_rows(filter=condition))

    def count_values(
        self, table: Table, column: str, *, filters: Sequence[Filter], written_since: datetime
    ) -> Counter[str]:
        """Return how often a column of texts has each value, with one batch of rows in memory.

        Parameters
        ----------
        table, filters, written_since
            As for :meth:`read`.
        column
            The column.

        Raises
        ------
        SchemaError, LakeError
            As :meth:`read`.
        """
        counts: Counter[str] = Counter()
        with self._selected(table, filters) as found:
            if found is None:
                return counts
            files, condition = found
            dataset = self._dataset(table, written_later(files, written_since), stored_schema(table))
            for batch in dataset.scanner(columns=[column], filter=condition).to_batches():
                for entry in batch.column(0).value_counts().to_pylist():
                    counts[entry["values"]] += entry["counts"]
        return counts

    def stream(self, table: Table, filters: Sequence[Filter]) -> pa.RecordBatchReader:
        """Return rows in batches, with all columns that the table has in the lake, also of a later version.

        A data file that cannot be read is an ``OSError`` of the reader.

        Parameters
        ----------
        table, filters
            As for :meth:`read`; the table must exist.

        Raises
        ------
        LakeError
            As :meth:`read`, or if the table does not exist.
        """
        with open_table(self.paths, table) as delta, self._selected(table, filters) as found:
            if delta is None or found is None:
                raise LakeError(f"table {table.name} of {self.paths.root} does not exist")
            files, condition = found
            return self._dataset(table, files, log_schema(delta, table)).scanner(filter=condition).to_reader()

    @contextmanager
    def _selected(self, table: Table, filters: Sequence[Filter]) -> Iterator[tuple[Any, Any] | None]:
        """Provide the files that may match, and the condition on their rows; None without a table."""
        schema = stored_schema(table)
        with self._opened(table) as delta:
            if delta is None:
                yield None
                return
            check_protocol(delta, table)
            actions = read_actions(delta, self.paths, table)
        with lake_errors(self.paths, table, "its data files"):
            check_types(table, log_types(delta))
            condition = None
            for column, operator, value in filters:
                part = compare(pc.field(column), operator, value, schema.field(column).type)
                condition = part if condition is None else condition & part
            yield may_match(actions, schema, filters), condition

    def _rows(self, table: Table, files: pa.Table, columns: Sequence[str], condition: Any) -> pa.Table:
        schema = stored_schema(table)

        def scan(part: pa.Table) -> pa.Table:
            found = self._dataset(table, part, schema).to_table(columns=list(columns), filter=condition)
            return in_range(found)

        if not self._skip_unreadable:
            return scan(files)
        parts, unreadable = scan_readable(files, scan, self._storage_check(table))
        for path, error in zip(unreadable["path"].to_pylist(), unreadable[ERROR].to_pylist(), strict=True):
            _LOG.warning("a file of %s is left out, it cannot be read: %s: %s", table.name, path, error)
        return pa.concat_tables([schema.empty_table().select(columns), *parts])

    def _storage_check(self, table: Table) -> Callable[[pa.Table], None]:
        """Return a function that raises if the storage, not the content, keeps a file from being read."""

        def check(file: pa.Table) -> None:
            path = file["path"][0].as_py()
            try:
                with self.filesystem(table).open_input_stream(unquote(path), compression=None) as stream:
                    while stream.read(_CHUNK_BYTES):
                        pass
            except FileNotFoundError:
                # Maintenance may have replaced it since the log was read: then the whole read is repeated.
                with open_table(self.paths, table) as delta:
                    if (
                        delta is None
                        or path not in read_actions(delta, self.paths, table)["path"].to_pylist()
                    ):
                        raise
            except pa.ArrowException:
                # Its path in the log is none.
                return
            except OSError as error:
                if not is_own_fault(error, is_local=self.paths.is_local):
                    raise

        return check

    @contextmanager
    def _opened(self, table: Table) -> Iterator[Any | None]:
        """Open a table for a read; if its log's content is the fault, without malformed statistics in it."""
        with ExitStack() as stack:
            try:
                delta = stack.enter_context(open_table(self.paths, table))
            except LakeError as error:
                # An OSError is of the storage.
                if isinstance(error, SchemaError) or isinstance(error.__cause__, OSError):
                    raise
                with lake_errors(self.paths, table, "its log"):
                    delta = stack.enter_context(repaired_log(self.filesystem(table), table))
                if delta is None:
                    raise
                _LOG.warning("statistics in a log are left out: %s", error)
            yield delta

    def _dataset(self, table: Table, files: pa.Table, schema: pa.Schema) -> Any:
        """Return a dataset of some files.

        Arrow receives only a file's partition values: Delta's statistics were applied before, and Arrow would
        interpret a missing one as a bound. Spark repeats the partition columns in its data files, deltalake
        does not.
        """
        import pyarrow.dataset as ds

        kind = ds.ParquetFileFormat(
            default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True)
        )
        paths, sizes = files["path"].to_pylist(), files["size_bytes"].to_pylist()
        known = {unquote(path): size for path, size in zip(paths, sizes, strict=True)}
        filesystem = self.filesystem(table, known)
        names = [name for name in table.partition_by if f"partition.{name}" in files.column_names]
        columns = (files["path"], *(files[f"partition.{name}"] for name in names))
        fragments = [
            kind.make_fragment(
                # Paths in the log are URI-encoded.
                unquote(path),
                filesystem=filesystem,
                partition_expression=_constants(dict(zip(names, values, strict=True))),
            )
            for path, *values in zip(*(column.to_pylist() for column in columns), strict=True)
        ]
        return ds.FileSystemDataset(fragments, schema, kind, filesystem)

    def filesystem(self, table: Table, sizes: Mapping[str, int] | None = None) -> Any:
        """Return the file system of a table's folder: Arrow's own for a local lake, else deltalake's.

        Parameters
        ----------
        table
            The contract.
        sizes
            Sizes of files by path, as far as they are known.

        Notes
        -----
        deltalake's is Python code that Arrow's threads call and release at any time: a process that exits at
        that moment aborts (SIGABRT).
        """
        import pyarrow.fs as pa_fs

        if self.paths.is_local:
            return pa_fs.SubTreeFileSystem(self.paths.table(table), pa_fs.LocalFileSystem())
        return pa_fs.PyFileSystem(storage_handler()(self.paths.table(table), sizes or {}))

    def latest_snapshot(self, cluster: str) -> dict[str, Any] | None:
        """Return the finished snapshot with the newest slot, a row of ``snapshots``, or None."""
        rows = self.read_newest(SNAPSHOTS, "slot", filters=[("cluster", "=", cluster)])
        return next(iter(rows.slice(0, 1).to_pylist()), None)

    def read_events(
        self, *, filters: Sequence[Filter] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the events of plans, oldest first.

        Parameters
        ----------
        filters, columns
            As for :meth:`read`; the columns contain ``at``.
        """
        return self.read(PLAN_EVENTS, columns=columns, filters=filters).sort_by([("at", "ascending")])


def _constants(values: Mapping[str, Any]) -> Any:
    """Return an Arrow expression that is true for each row of a file."""
    import pyarrow.dataset as ds

    condition = ds.scalar(True)
    for name, value in values.items():
        condition &= ds.field(name).is_null() if value is None else ds.field(name) == value
    return condition


class NewestSearch:
    """Decides which files of a table to read next, until no other file can have newer rows.

    files: Files that may match, as :func:`~evenlag.lake.file_pruning.may_match` returns them.
    filters: The query's filters: those on `by` lower the bounds.
    rows: The newest rows of the files that were read, the newest first; None before the first file.

    Raises
    ------
    ValueError
        For a type without exact bounds, or a limit below 1.
    """

    def __init__(
        self,
        files: pa.Table,
        by: str,
        kind: pa.DataType,
        filters: Sequence[Filter],
        limit: int,
        *,
        is_oldest: bool = False,
    ) -> None:
        if not (pa.types.is_temporal(kind) or pa.types.is_integer(kind)) or limit < 1:
            raise ValueError(f"no search for the {limit} newest rows by {by} ({kind})")
        self.rows: pa.Table | None = None
        self._by, self._limit, self._is_oldest = by, limit, is_oldest
        found = bounds(files, by, kind)
        ends: list[Any] = [None] * files.num_rows
        if found is not None:
            ends = found[0 if is_oldest else 1].to_pylist()
        for column, operator, value in filters:
            if column == by and operator in (("=", ">", ">=") if is_oldest else ("=", "<", "<=")):
                ends = [None if end is None else (max if is_oldest else min)(end, value) for end in ends]
        places = range(files.num_rows)
        unknown = [place for place in places if ends[place] is None]
        known = sorted(
            (place for place in places if ends[place] is not None),
            key=lambda place: ends[place],
            reverse=not is_oldest,
        )
        self._files = files.take(pa.array(unknown + known, pa.int64()))
        self._ends = [ends[place] for place in known]
        self._num_unknown = len(unknown)
        self._num_read, self._num_next = 0, 1

    def next_files(self) -> pa.Table | None:
        """Return the files to read next; None if the search is over."""
        start = self._num_read
        if start == 0:
            # A file without statistics may have any value.
            stop = max(1, self._num_unknown)
        elif self.rows is not None and self.rows.num_rows >= self._limit:
            last = self.rows[self._by][self._limit - 1].as_py()
            stop = start
            while stop < self._files.num_rows and not self._is_beyond(stop, last):
                stop += 1
        else:
            self._num_next *= 2
            stop = self._stop_within_reach(start)
        stop = min(stop, self._files.num_rows)
        if stop == start:
            return None
        self._num_read = stop
        return self._files.slice(start, stop - start)

    def add(self, rows: pa.Table) -> None:
        """Add the matching rows of the files that were read."""
        rows = rows.filter(pc.is_valid(rows[self._by]))
        rows = rows if self.rows is None else pa.concat_tables([self.rows, rows])
        rows = rows.sort_by([(self._by, "ascending" if self._is_oldest else "descending")])
        if rows.num_rows > self._limit:
            last = rows[self._by][self._limit - 1]
            compare = pc.less_equal if self._is_oldest else pc.greater_equal
            rows = rows.filter(compare(rows[self._by], last))
        self.rows = rows

    def _stop_within_reach(self, start: int) -> int:
        """End of the next files while too few rows are found: more each time, but not much further back.

        A file of an old month is large. So no step goes further back in time than twice as far as the search
        has come, or than a day.
        """
        ends = self._ends[start - self._num_unknown :][: self._num_next]
        if not ends or not isinstance(ends[0], date):
            return start + self._num_next
        reach = max(abs(self._ends[0] - ends[0]), timedelta(days=1))
        return start + len([end for end in ends if abs(ends[0] - end) <= reach])

    def _is_beyond(self, place: int, last: Any) -> bool:
        """Whether a file has no value as new as one that was found; all values of later files are older."""
        end = self._ends[place - self._num_unknown]
        return bool(end > last if self._is_oldest else end < last)
