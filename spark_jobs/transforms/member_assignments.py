"""Partitions by owner, from the assignments in ``members``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def explode_assignments(members: DataFrame, column: str, holder: Column) -> DataFrame:
    """Explode the assignments of members into one row per partition.

    Parameters
    ----------
    members
        Rows of ``members``.
    column
        ``assignment`` or ``target_assignment``; null gives no rows.
    holder
        Expression that identifies the member, with an alias.

    Returns
    -------
    DataFrame
        ``group_id``, the alias of `holder`, ``topic, partition``.
    """
    from pyspark.sql import functions as sf

    listed = members.select("group_id", holder, sf.explode(column).alias("held"))
    return listed.select("*", "held.topic", sf.explode("held.partitions").alias("partition")).drop("held")
