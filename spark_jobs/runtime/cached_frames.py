"""Cached DataFrames that are unpersisted at the end of a block, even when it fails."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame


class CachedFrames(ExitStack):
    """The DataFrames that a step uses more than once; a context manager.

    A session outlives a step. A cached frame that is not unpersisted occupies memory, and Spark plans it
    again for each write to a table that it reads.
    """

    def cache(self, frame: DataFrame, level: StorageLevel | None = None) -> DataFrame:
        """Cache a frame from its first use to the end of the block.

        Parameters
        ----------
        frame
            Used more than once.
        level
            Storage level; that of ``DataFrame.cache`` if None.

        Returns
        -------
        DataFrame
            The same frame.
        """
        self.callback(frame.unpersist)
        return frame.cache() if level is None else frame.persist(level)
