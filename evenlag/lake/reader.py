"""Reads of the lake without a JVM, for the CLI, the publisher and the DAGs' tasks.

Tables that are written without a JVM are written by :mod:`evenlag.lake.writer`.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.delta_log import check_protocol, lake_errors, open_log, read_actions
from evenlag.lake.file_pruning import compare, may_match
from evenlag.lake.location import LakePaths
from evenlag.lake.schema_evolution import check_types, type_of_log
from evenlag.lake.tables import CLUSTER_AND_DAY, PLAN_EVENTS, SNAPSHOTS, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter


class LakeReader:
    """Reads the tables of one lake without Spark.

    Parameters
    ----------
    root
        Root folder of the lake, as in the policy.

    Attributes
    ----------
    paths : LakePaths
        Paths of the lake.
    """

    def __init__(self, root: str) -> None:
        self.paths = LakePaths(root)

    def exists(self, table: Table) -> bool:
        """Return whether a table exists.

        Parameters
        ----------
        table
            The table.

        Raises
        ------
        LakeError
            If there is data without a log, or the log cannot be read.
        """
        return open_log(self.paths, table) is not None

    def read(
        self, table: Table, *, columns: Sequence[str] | None = None, filters: Sequence[Filter] | None = None
    ) -> pa.Table:
        """Read a table by its contract.

        Parameters
        ----------
        table
            The contract.
        columns
            Columns to read, in order; all columns of the contract if None.
        filters
            (column, operator, value) with the operators ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``,
            ``in``. A row must match all of them; null matches none. Filter by ``cluster`` and ``day`` if
            they are known: they prune files.

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
        schema = arrow_schema(table)
        names = list(columns or schema.names)
        with self._selected(table, filters or ()) as found:
            if found is None:
                return schema.empty_table().select(names)
            dataset, condition = found
            return dataset.to_table(columns=names, filter=condition)

    def count(self, table: Table, *, filters: Sequence[Filter]) -> int:
        """Count rows of a table.

        Parameters
        ----------
        table, filters
            As for :meth:`read`.

        Returns
        -------
        int
            Number of rows; 0 if the table does not exist.

        Raises
        ------
        LakeError
            As :meth:`read`.
        """
        with self._selected(table, filters) as found:
            if found is None:
                return 0
            dataset, condition = found
            counted: int = dataset.count_rows(filter=condition)
            return counted

    @contextmanager
    def _selected(self, table: Table, filters: Sequence[Filter]) -> Iterator[tuple[Any, Any] | None]:
        """Provide a dataset of the files that may match, and the condition on their rows."""
        delta = open_log(self.paths, table)
        if delta is None:
            yield None
            return
        schema = arrow_schema(table)
        check_protocol(delta, table)
        actions = read_actions(delta, self.paths, table)
        with lake_errors(self.paths, table.name, "its data files"):
            check_types(table, log_types(delta))
            condition = None
            for column, operator, value in filters:
                part = compare(_field(column), operator, value, schema.field(column).type)
                condition = part if condition is None else condition & part
            yield self._dataset(table, may_match(actions, schema, filters), schema), condition

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
        filesystem = self._filesystem(table, files)
        names = [name for name in CLUSTER_AND_DAY if f"partition.{name}" in files.column_names]
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

    def _filesystem(self, table: Table, files: pa.Table) -> Any:
        """Return Arrow's own file system for a local lake, and deltalake's for all others.

        deltalake's is Python code that Arrow's threads call and release at any time: a process that exits at
        that moment aborts (SIGABRT).
        """
        import pyarrow.fs as pa_fs

        if self.paths.is_local:
            return pa_fs.SubTreeFileSystem(self.paths.table(table), pa_fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        paths, sizes = files["path"].to_pylist(), files["size_bytes"].to_pylist()
        known = {unquote(path): size for path, size in zip(paths, sizes, strict=True)}
        return pa_fs.PyFileSystem(DeltaStorageHandler(self.paths.table(table), known_sizes=known))

    def latest_snapshot(self, cluster: str) -> dict[str, Any] | None:
        """Return the finished snapshot with the newest slot, as a row; None if there is none.

        Parameters
        ----------
        cluster
            The cluster's name.

        Returns
        -------
        dict or None
            The row of ``snapshots``.
        """
        rows = self.read(SNAPSHOTS, filters=[("cluster", "=", cluster)])
        if rows.num_rows == 0:
            return None
        newest: dict[str, Any] = rows.sort_by([("slot", "descending")]).slice(0, 1).to_pylist()[0]
        return newest

    def read_events(self, *, filters: Sequence[Filter] | None = None) -> pa.Table:
        """Read the events of plans, oldest first.

        Parameters
        ----------
        filters
            As for :meth:`read`.

        Returns
        -------
        pyarrow.Table
            Rows of ``plan_events``.
        """
        return self.read(PLAN_EVENTS, filters=filters).sort_by([("at", "ascending")])


def _field(name: str) -> Any:
    import pyarrow.dataset as ds

    return ds.field(name)


def _constants(values: Mapping[str, Any]) -> Any:
    """Return an Arrow expression that is true for each row of a file."""
    import pyarrow.dataset as ds

    condition = ds.scalar(True)
    for name, value in values.items():
        condition &= ds.field(name).is_null() if value is None else ds.field(name) == value
    return condition


def log_types(delta: Any) -> dict[str, str]:
    """Return the types of an open table, in the form of :func:`~evenlag.lake.schema_evolution.simple_type`.

    Parameters
    ----------
    delta
        The table.

    Returns
    -------
    dict of str to str
        Types by column.
    """
    fields = json.loads(delta.schema().to_json())["fields"]
    return {field["name"]: type_of_log(field["type"]) for field in fields}
