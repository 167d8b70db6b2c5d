"""Frames that Spark keeps while a block runs, and lets go of however it ends."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame


class CachedFrames(ExitStack):
    """What a step asks for more than once; used in a ``with`` statement.

    A session outlives a step, and a frame that nobody lets go of outlives it too: it takes memory, and each
    write to a table that it names plans it anew.
    """

    def cache(self, frame: DataFrame, level: StorageLevel | None = None) -> DataFrame:
        """Keep a frame's rows from their first use to the end of the block.

        Parameters
        ----------
        frame
            What is asked for more than once.
        level
            Where to keep it; as ``DataFrame.cache`` does when ``None``.

        Returns
        -------
        DataFrame
            The same frame.
        """
        self.callback(frame.unpersist)
        return frame.cache() if level is None else frame.persist(level)
