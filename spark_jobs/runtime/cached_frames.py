"""Spark DataFrames that are cached while a block runs, and unpersisted even when it fails."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame


class CachedFrames(ExitStack):
    """The DataFrames that a step uses more than once; used in a ``with`` statement.

    A session outlives a step, and so does a cached DataFrame that is not unpersisted: it uses memory, and
    Spark plans it again after each write to a table that it reads.
    """

    def cache(self, frame: DataFrame, level: StorageLevel | None = None) -> DataFrame:
        """Cache the rows of a DataFrame from their first use to the end of the block."""
        self.callback(frame.unpersist)
        return frame.cache() if level is None else frame.persist(level)
