"""Light reads of the lake without a JVM, for the command, the publisher and the DAG files' tasks.

``deltalake`` only reads what Spark wrote; the tables it writes itself go through
:mod:`spark_jobs.direct_writer`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from spark_jobs.arrow_schema import arrow_schema
from spark_jobs.errors import JobError, LakeError, SchemaError
from spark_jobs.lake_paths import LakePaths
from spark_jobs.table_schema import check_types, type_of_log
from spark_jobs.tables import CONTROL_EVENTS, PLAN_EVENTS, SNAPSHOTS, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

Filter = tuple[str, str, Any]


class LakeReader:
    """The tables of one lake, for readers without Spark.

    Parameters
    ----------
    root
        Root folder of the lake, as in the policy.
    """

    def __init__(self, root: str) -> None:
        self.paths = LakePaths(root)

    def exists(self, table: Table) -> bool:
        """Whether a table has been written yet."""
        return bool(_deltalake().DeltaTable.is_deltatable(self.paths.table(table)))

    def read(
        self, table: Table, *, columns: Sequence[str] | None = None, filters: Sequence[Filter] | None = None
    ) -> pa.Table:
        """Read a table by its contract.

        Parameters
        ----------
        columns
            The columns wanted, in order; all of the contract when not given.
        filters
            (column, operator, value) with the operators ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in``;
            a row fulfils them all. Give ``cluster`` and ``day`` where they are known: they prune files.

        Returns
        -------
        pyarrow.Table
            Empty when the table has not been written yet; a column that an older file lacks is null.

        Raises
        ------
        SchemaError
            When a column has another type in the lake than in the contract.
        LakeError
            When the table is there but cannot be read.
        """
        import pyarrow.dataset as ds

        schema = arrow_schema(table)
        names = list(columns or schema.names)
        if not self.exists(table):
            return schema.empty_table().select(names)
        try:
            delta = _deltalake().DeltaTable(self.paths.table(table))
            fields = json.loads(delta.schema().to_json())["fields"]
            check_types(table, {field["name"]: type_of_log(field["type"]) for field in fields})
            # Data files lack the partition columns, which are constants of their paths: the fragments' own.
            dataset = delta.to_pyarrow_dataset(schema=schema, filesystem=self._filesystem(table))
            condition = None
            for column, operator, value in filters or ():
                part = _compare(ds.field(column), operator, value)
                condition = part if condition is None else condition & part
            return dataset.to_table(columns=names, filter=condition)
        except SchemaError:
            raise
        except Exception as error:
            raise LakeError(f"table {table.name} of {self.paths.root} cannot be read: {error}") from error

    def _filesystem(self, table: Table) -> Any:
        """Arrow's own file system for a local lake; None leaves the choice to deltalake.

        deltalake's is Python code that Arrow's threads call and let go of when they please: a process that
        ends just then aborts (SIGABRT).
        """
        if not self.paths.is_local:
            return None
        import pyarrow.fs as pa_fs

        return pa_fs.SubTreeFileSystem(self.paths.table(table), pa_fs.LocalFileSystem())

    def latest_snapshot(self, cluster: str) -> dict[str, Any] | None:
        """The finished snapshot with the newest slot, as a row; None when there is none."""
        rows = self.read(SNAPSHOTS, filters=[("cluster", "=", cluster)])
        if rows.num_rows == 0:
            return None
        newest: dict[str, Any] = rows.sort_by([("slot", "descending")]).slice(0, 1).to_pylist()[0]
        return newest

    def read_events(self, *, filters: Sequence[Filter] | None = None) -> pa.Table:
        """Everything that happened to plans, whoever told it, oldest first."""
        import pyarrow as pa

        events = pa.concat_tables(
            [self.read(table, filters=filters) for table in (PLAN_EVENTS, CONTROL_EVENTS)]
        )
        return events.sort_by([("at", "ascending")])


def _compare(field: Any, operator: str, value: Any) -> Any:
    comparisons = {
        "=": lambda: field == value,
        "!=": lambda: field != value,
        "<": lambda: field < value,
        "<=": lambda: field <= value,
        ">": lambda: field > value,
        ">=": lambda: field >= value,
        "in": lambda: field.isin(list(value)),
    }
    if operator not in comparisons:
        raise ValueError(f"no such filter operator: {operator!r}")
    return comparisons[operator]()


def _deltalake() -> Any:
    try:
        import deltalake
    except ModuleNotFoundError as error:
        raise JobError("reading the lake without Spark needs: pip install 'evenlag[cli]'") from error
    return deltalake
