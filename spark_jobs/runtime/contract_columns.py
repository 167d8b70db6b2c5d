"""The columns of a table's contract, selected from a DataFrame: no table is read or written here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlag.lake.tables.contract import MONTH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from evenlag.lake.tables import Table


def conform(frame: DataFrame, table: Table) -> DataFrame:
    """Select the columns of a contract, in its order and types; the last step of every transform."""
    from pyspark.sql import functions as sf

    return frame.select(
        *(sf.col(column.name).cast(column.type).alias(column.name) for column in table.columns)
    )


def with_month(frame: DataFrame, table: Table) -> DataFrame:
    """Add ``month`` to rows of a table, if it partitions the table; the last step before a write."""
    from pyspark.sql import functions as sf

    if not table.is_by_month:
        return frame
    rows = frame.withColumn(MONTH.name, sf.trunc("day", "month"))
    return rows.select(*(column.name for column in table.stored_columns))
