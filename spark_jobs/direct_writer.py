"""Writing without a JVM: the tables of writer ``direct``, which ``deltalake`` writes and Spark never does."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spark_jobs.arrow_schema import arrow_schema
from spark_jobs.errors import LakeError
from spark_jobs.lake_reader import LakeReader
from spark_jobs.tables import CLUSTER_AND_DAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spark_jobs.lake_reader import Filter
    from spark_jobs.tables import Table


class DirectWriter:
    """One table, held for writing; made by :func:`direct_writer`.

    Attributes
    ----------
    lake
        A reader of the same lake.
    """

    def __init__(self, lake: LakeReader, table: Table) -> None:
        self.lake = lake
        self._table = table

    def rows(self, filters: Sequence[Filter], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Rows of the table as they stand while nobody else writes it."""
        found: list[dict[str, Any]] = self.lake.read(
            self._table, columns=columns, filters=filters
        ).to_pylist()
        return found

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows by the table's contract; what a row lacks is null.

        Raises
        ------
        LakeError
            When the table cannot be written.
        """
        import pyarrow as pa
        from deltalake import write_deltalake
        from deltalake.exceptions import DeltaError

        if not rows:
            return
        data = pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema(self._table))
        path = self.lake.paths.table(self._table)
        try:
            write_deltalake(path, data, mode="append", partition_by=list(CLUSTER_AND_DAY))
        except (DeltaError, OSError) as error:
            raise LakeError(f"table {self._table.name} cannot be written: {error}") from error


@contextmanager
def direct_writer(root: str, table: Table) -> Iterator[DirectWriter]:
    """Hold a table for writing; on a local lake nobody else writes it meanwhile, so look and write are one.

    Raises
    ------
    LakeError
        When the table belongs to Spark, or the lake cannot be written.
    """
    if table.writer != "direct":
        raise LakeError(f"table {table.name} is written by Spark only")
    lake = LakeReader(root)
    with lake.paths.lock(table):
        yield DirectWriter(lake, table)
