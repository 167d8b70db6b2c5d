"""Partitions by who has them, from what the rows of ``members`` list."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def held_partitions(members: DataFrame, column: str, holder: Column) -> DataFrame:
    """A row each partition that a member lists: ``group_id``, the holder by its alias, ``topic, partition``.

    Parameters
    ----------
    members
        Rows of the table.
    column
        ``assignment`` or ``target_assignment``; where it is null there are no rows.
    holder
        Who a member is, with the alias it is to have.
    """
    from pyspark.sql import functions as sf

    listed = members.select("group_id", holder, sf.explode(column).alias("held"))
    return listed.select("*", "held.topic", sf.explode("held.partitions").alias("partition")).drop("held")
