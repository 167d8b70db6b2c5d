"""Arrow columns as numpy arrays: numbers that may be unknown, codes of texts, elements of lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNKNOWN: Final = -1
"""An offset that is unknown, and the index of what does not exist."""
# From this double on, a number is none of BIGINT's.
_TOO_LARGE: Final = float(2**63)


@dataclass(frozen=True, slots=True)
class Numbers:
    """float64 or int64 [N], and which of them are known."""

    values: NDArray[Any]
    known: NDArray[np.bool_]

    @classmethod
    def of(cls, column: pa.Array) -> Numbers:
        """Integers of any width."""
        filled = pc.fill_null(column.cast(pa.int64()), 0)
        return cls(np.asarray(filled.to_numpy(), dtype=np.int64), is_valid(column))

    @classmethod
    def of_moments(cls, column: pa.Array) -> Numbers:
        """Timestamps, in microseconds since the epoch."""
        return cls.of(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()))

    @property
    def floats(self) -> pa.Array:
        """As float64 with nulls."""
        return pa.array(self.values, pa.float64(), mask=~self.known)

    @property
    def integers(self) -> pa.Array:
        """As int64 with nulls; what is too large is unknown."""
        known = self.known & (self.values < _TOO_LARGE)
        return pa.array(np.where(known, self.values, 0).astype(np.int64), pa.int64(), mask=~known)

    def where(self, chosen: NDArray[np.bool_], other: Numbers) -> Numbers:
        """Return these numbers, and those of another array elsewhere."""
        return Numbers(np.where(chosen, self.values, other.values), np.where(chosen, self.known, other.known))

    def only(self, chosen: NDArray[np.bool_]) -> Numbers:
        """Return these numbers; unknown where `chosen` does not hold."""
        return Numbers(self.values, self.known & chosen)

    def take(self, index: NDArray[np.int64]) -> Numbers:
        """Return the numbers at these indexes; of -1 nothing is known."""
        if not len(self.values):
            return Numbers(np.zeros(len(index), self.values.dtype), np.zeros(len(index), np.bool_))
        return Numbers(self.values[index], self.known[index] & (index >= 0))


def constant(value: int, num_rows: int) -> Numbers:
    """Return a number that is the same, and known, in all rows."""
    return Numbers(np.full(num_rows, value, dtype=np.int64), np.ones(num_rows, dtype=np.bool_))


def is_valid(values: Any) -> NDArray[np.bool_]:
    """Return which values are not null: bool [N]."""
    return flags(pc.is_valid(values))


def flags(values: Any) -> NDArray[np.bool_]:
    """Return Booleans; null is False: bool [N]."""
    filled = pc.fill_null(values, False)
    options = {} if isinstance(filled, pa.ChunkedArray) else {"zero_copy_only": False}
    return np.asarray(filled.to_numpy(**options), dtype=np.bool_)


def codes(values: Any, known: list[str]) -> NDArray[np.int64]:
    """Return the index of each text among known ones: int64; -1 for another text and for null."""
    found = pc.index_in(values, value_set=pa.array(known, pa.string()), skip_nulls=True)
    return np.asarray(pc.fill_null(found, UNKNOWN).to_numpy(), dtype=np.int64)


def integers(values: Any) -> NDArray[np.int64]:
    """Return integers of any width as int64; -1 for null."""
    return np.asarray(pc.fill_null(values, UNKNOWN).to_numpy(), dtype=np.int64)


def parents(lists: pa.ListArray) -> NDArray[np.int64]:
    """Return the list of each element, of all lists in turn."""
    return np.asarray(pc.list_parent_indices(lists).to_numpy(), dtype=np.int64)


class AssignedPartitions(NamedTuple):
    """The partitions that members have: [N] in the order of the members.

    member: int64 [N], the row of its member.
    topic_at: int64 [N], index into ``topics``.
    topics: Topics of all members in turn.
    partition: [N] partition numbers.
    """

    member: NDArray[np.int64]
    topic_at: NDArray[np.int64]
    topics: pa.Array
    partition: pa.Array


def flatten_assignments(assignments: pa.ChunkedArray) -> AssignedPartitions:
    """Flatten a column of assignments of ``members``; null gives no partitions."""
    lists = assignments.combine_chunks()
    topics = pc.list_flatten(lists)
    partitions = pc.struct_field(topics, "partitions")
    topic_at = parents(partitions)
    return AssignedPartitions(
        parents(lists)[topic_at], topic_at, pc.struct_field(topics, "topic"), pc.list_flatten(partitions)
    )


def first_in_lists(
    is_wanted: NDArray[np.bool_], parent: NDArray[np.int64], num_lists: int
) -> NDArray[np.int64]:
    """Return the first wanted element of each list: int64; -1 where a list has none."""
    found = np.full(num_lists, UNKNOWN, dtype=np.int64)
    wanted = np.flatnonzero(is_wanted)[::-1]
    # Of several assignments to one place, numpy keeps the last one.
    found[parent[wanted]] = wanted
    return found


def last_in_lists(
    is_wanted: NDArray[np.bool_], parent: NDArray[np.int64], num_lists: int
) -> NDArray[np.int64]:
    """Return the last wanted element of each list, as :func:`first_in_lists` returns the first."""
    found = np.full(num_lists, UNKNOWN, dtype=np.int64)
    wanted = np.flatnonzero(is_wanted)
    found[parent[wanted]] = wanted
    return found


def rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round halves away from zero, as SQL does."""
    size = np.abs(values)
    whole = np.floor(size)
    is_up = 2 * (size - whole) >= 1
    result: NDArray[np.float64] = np.copysign(whole + is_up, values)
    return result
