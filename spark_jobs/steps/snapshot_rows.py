"""Rows of one snapshot as DataFrames: of the rows in memory where they are few, else of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_ids import slot_day
from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import Table
from spark_jobs.runtime.delta_lake import Lake

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class SnapshotRows(SnapshotReader):
    """Rows of one snapshot, for Spark and without it."""

    def __init__(self, lake: Lake, reader: LakeReader, marker: Mapping[str, Any]) -> None:
        super().__init__(reader, marker)
        self.lake = lake

    def frame(self, table: Table) -> DataFrame:
        """Return the rows as a DataFrame."""
        if self.is_kept(table):
            return self.lake.spark.createDataFrame(self.rows(table), table.ddl)
        return self.lake.read_days(table, self.cluster, [slot_day(self.snapshot_id)], [self.snapshot_id])


def to_contract(rows: pa.Table, table: Table) -> pa.Table:
    """Return rows with the types of a contract: Spark returns other string and time types."""
    schema = arrow_schema(table)
    return rows.select(schema.names).cast(schema)
