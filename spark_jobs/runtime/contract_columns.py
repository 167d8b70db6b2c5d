"""The columns of a table's contract, selected from a DataFrame: no table is read or written here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from evenlag.lake.tables import Table


def conform(frame: DataFrame, table: Table) -> DataFrame:
    """Select the columns of a contract, in its order and types; the last step of every transform.

    Parameters
    ----------
    frame
        Rows with at least the contract's columns.
    table
        The contract.

    Returns
    -------
    DataFrame
        Exactly the contract's columns.
    """
    from pyspark.sql import functions as sf

    return frame.select(
        *(sf.col(column.name).cast(column.type).alias(column.name) for column in table.columns)
    )
