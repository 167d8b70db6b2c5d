"""Partitions by owner, from the assignments in ``members``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def explode_assignments(members: DataFrame, column: str, holder: Column) -> DataFrame:
    """Explode the assignments of members into one row per partition.

    column: ``assignment`` or ``target_assignment``; null gives no rows.
    """
    from pyspark.sql import functions as sf

    listed = members.select("group_id", holder, sf.explode(column).alias("held"))
    return listed.select("*", "held.topic", sf.explode("held.partitions").alias("partition")).drop("held")
