"""Rows of ``offsets`` as arrays, in which partitions are looked up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

UNKNOWN: Final = -1
"""An offset that is unknown, and the index of what does not exist."""


@dataclass(frozen=True, slots=True)
class OffsetRows:
    """Rows of ``offsets`` as arrays: N partitions by topic and number.

    Attributes
    ----------
    topics
        Names of the topics, in the order of the rows.
    keys
        int64 [N], ascending: index of the topic and number of the partition.
    start, high_watermark, last_stable
        int64 [N]; -1: unknown.
    failed
        bool [N]: whether the offsets could not be read.
    """

    topics: list[str]
    keys: NDArray[np.int64]
    start: NDArray[np.int64]
    high_watermark: NDArray[np.int64]
    last_stable: NDArray[np.int64]
    failed: NDArray[np.bool_]

    def find(self, topic: NDArray[np.int64], partition: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find partitions.

        Parameters
        ----------
        topic, partition
            int64 [K]: index of the topic, -1 for an unknown one, and number of the partition.

        Returns
        -------
        numpy.ndarray
            int64 [K]: the rows; -1 for a partition that does not exist.
        """
        wanted = (topic << 32) + partition
        if not len(self.keys):
            return np.full(len(wanted), UNKNOWN, dtype=np.int64)
        found = np.searchsorted(self.keys, wanted).clip(max=len(self.keys) - 1)
        return np.where((self.keys[found] == wanted) & (topic >= 0), found, UNKNOWN).astype(np.int64)


def index_offsets(offsets: pa.Table) -> OffsetRows:
    """Convert rows of ``offsets``.

    Parameters
    ----------
    offsets
        The rows, the partitions of a topic together and ascending.

    Returns
    -------
    OffsetRows
        The same rows.
    """
    import pyarrow.compute as pc

    topics: list[str] = pc.unique(offsets["topic"]).to_pylist()
    keys = (codes(offsets["topic"], topics) << 32) + integers(offsets["partition"])
    failed = pc.is_valid(offsets["error"]).to_numpy()
    return OffsetRows(
        topics=topics,
        keys=keys,
        start=integers(offsets["log_start_offset"]),
        high_watermark=integers(offsets["high_watermark"]),
        last_stable=integers(offsets["last_stable_offset"]),
        failed=np.asarray(failed, dtype=np.bool_),
    )


def codes(values: pa.ChunkedArray, known: list[str]) -> NDArray[np.int64]:
    """Look texts up.

    Parameters
    ----------
    values
        The texts.
    known
        The texts to find, without duplicates.

    Returns
    -------
    numpy.ndarray
        int64: index of each value among the known ones; -1 for another value and for null.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(values, value_set=pa.array(known, pa.string()), skip_nulls=True)
    return np.asarray(pc.fill_null(found, UNKNOWN).to_numpy(), dtype=np.int64)


def integers(values: pa.ChunkedArray) -> NDArray[np.int64]:
    """Convert numbers.

    Parameters
    ----------
    values
        Integers of any width.

    Returns
    -------
    numpy.ndarray
        int64; -1 for null.
    """
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(values, UNKNOWN).to_numpy(), dtype=np.int64)
