"""Arrow columns as numpy arrays: numbers that may be unknown, codes of texts, lists, points in time.

A point says where a log ended at a moment, by an earlier snapshot or by the record timestamps that brokers
look up (:mod:`evenlag.live_lag.time_behind`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

UNKNOWN: Final = -1
"""An offset that is unknown, and the index of what does not exist."""
# From this double on, a number is none of BIGINT's.
_TOO_LARGE: Final = float(2**63)


@dataclass(frozen=True, slots=True)
class Numbers:
    """float64 or int64 [N], and which of them are known."""

    values: NDArray[Any]
    known: Bools

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

    def where(self, chosen: Bools, other: Numbers) -> Numbers:
        """Return these numbers, and those of another array elsewhere."""
        return Numbers(np.where(chosen, self.values, other.values), np.where(chosen, self.known, other.known))

    def only(self, chosen: Bools) -> Numbers:
        """Return these numbers; unknown where `chosen` does not hold."""
        return Numbers(self.values, self.known & chosen)

    def take(self, index: Int64s) -> Numbers:
        """Return the numbers at these indexes; of -1 nothing is known."""
        if not len(self.values):
            return Numbers(np.zeros(len(index), self.values.dtype), np.zeros(len(index), np.bool_))
        return Numbers(self.values[index], self.known[index] & (index >= 0))


def zeros(num_rows: int) -> Numbers:
    """Return 0, which is known, in all rows."""
    return Numbers(np.zeros(num_rows, dtype=np.int64), np.ones(num_rows, dtype=np.bool_))


def is_valid(values: Any) -> Bools:
    """Return which values are not null: bool [N]."""
    return flags(pc.is_valid(values))


def flags(values: Any) -> Bools:
    """Return Booleans; null is False: bool [N]."""
    filled = pc.fill_null(values, False)
    options = {} if isinstance(filled, pa.ChunkedArray) else {"zero_copy_only": False}
    return np.asarray(filled.to_numpy(**options), dtype=np.bool_)


def codes(values: Any, known: Sequence[str]) -> Int64s:
    """Return the index of each text among known ones: int64; -1 for another text and for null."""
    found = pc.index_in(values, value_set=pa.array(known, pa.string()), skip_nulls=True)
    return np.asarray(pc.fill_null(found, UNKNOWN).to_numpy(), dtype=np.int64)


def parts_of(rows: pa.Table, column: str) -> dict[Any, pa.Table]:
    """Return the rows of each value of a column, in their order: parts of one sorted table."""
    ordered = rows.sort_by(column).combine_chunks()
    counts = ordered[column].combine_chunks().value_counts()
    sizes = counts.field("counts").to_numpy()
    starts = np.cumsum(sizes) - sizes
    return {
        value: ordered.slice(start, size)
        for value, start, size in zip(
            counts.field("values").to_pylist(), starts.tolist(), sizes.tolist(), strict=True
        )
    }


def find_places(wanted: Int64s, keys: Int64s) -> Int64s:
    """Return the place of each wanted key among keys in any order; -1 for one that is missing."""
    if not len(keys):
        return np.full(len(wanted), UNKNOWN, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    found = np.searchsorted(keys[order], wanted).clip(max=len(keys) - 1)
    place = order[found]
    return np.where(keys[place] == wanted, place, UNKNOWN).astype(np.int64)


def integers(values: Any) -> Int64s:
    """Return integers of any width as int64; -1 for null."""
    return np.asarray(pc.fill_null(values, UNKNOWN).to_numpy(), dtype=np.int64)


def floats(column: Any) -> Floats:
    """Return numbers as float64; null is NaN."""
    numbers = column.cast(pa.float64(), safe=False).fill_null(np.nan)
    return np.array(numbers.to_numpy(), dtype=np.float64)


def seconds(column: Any) -> Floats:
    """Return moments in seconds since the epoch; null is NaN."""
    return floats(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())) / 1e6


def as_column(values: Floats, kind: pa.DataType) -> pa.Array:
    """Return numbers, for timestamps seconds since the epoch, as a column; what is not finite is null."""
    unknown = ~np.isfinite(values)
    if pa.types.is_floating(kind):
        return pa.array(values, mask=unknown)
    scaled = np.rint(1e6 * values) if pa.types.is_timestamp(kind) else values
    return pa.array(np.where(unknown, 0, scaled).astype(np.int64), mask=unknown).cast(kind)


def as_lists(values: pa.Array, sizes: Int64s) -> pa.ListArray:
    """Return values in their order as lists of these sizes."""
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(sizes)), pa.int32()), values)


def as_structs(columns: Mapping[str, pa.Array], kind: pa.StructType) -> pa.StructArray:
    """Return columns as structures, each in the type of its field."""
    return pa.StructArray.from_arrays(
        [columns[field.name].cast(field.type) for field in kind], fields=list(kind)
    )


def parents(lists: pa.ListArray) -> Int64s:
    """Return the list of each element, of all lists in turn."""
    return np.asarray(pc.list_parent_indices(lists).to_numpy(), dtype=np.int64)


class AssignedPartitions(NamedTuple):
    """The partitions that members have, [N] in order: row of the member, index of the topic."""

    member: Int64s
    topic_at: Int64s
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


def first_in_lists(is_wanted: Bools, parent: Int64s, num_lists: int) -> Int64s:
    """Return the first wanted element of each list: int64; -1 where a list has none."""
    found = np.full(num_lists, UNKNOWN, dtype=np.int64)
    wanted = np.flatnonzero(is_wanted)[::-1]
    # Of several assignments to one place, numpy keeps the last one.
    found[parent[wanted]] = wanted
    return found


def last_in_lists(is_wanted: Bools, parent: Int64s, num_lists: int) -> Int64s:
    """Return the last wanted element of each list, as :func:`first_in_lists` returns the first."""
    found = np.full(num_lists, UNKNOWN, dtype=np.int64)
    wanted = np.flatnonzero(is_wanted)
    found[parent[wanted]] = wanted
    return found


def largest_in_groups(values: Floats, group: Int64s, num_groups: int) -> Floats:
    """Return the largest known value of each group; NaN where there is none."""
    found = np.full(num_groups, -np.inf)
    np.maximum.at(found, group, np.where(np.isnan(values), -np.inf, values))
    return np.where(np.isfinite(found), found, np.nan)


def rounded(values: Floats) -> Floats:
    """Round halves away from zero, as SQL does."""
    size = np.abs(values)
    whole = np.floor(size)
    is_up = 2 * (size - whole) >= 1
    result: Floats = np.copysign(whole + is_up, values)
    return result


_MICROS_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class Points:
    """Points of N lists, list by list and ascending by moment.

    num_lists, parent: Number of lists, and int64 [M]: the list of each point.
    at_us, offset: int64 [M]: moment in microseconds since the epoch, and where the log ended.
    is_upper: bool [M]: the point only says that later records are not younger; None: no such points.
    """

    num_lists: int
    parent: Int64s
    at_us: Int64s
    offset: Int64s
    is_upper: Bools | None = None

    @classmethod
    def of(cls, lists: pa.ListArray) -> Points:
        """Points of lists of structs ``at, offset``; those with a null are left out."""
        each = pc.list_flatten(lists)
        at, offset = (
            Numbers.of_moments(pc.struct_field(each, "at")),
            Numbers.of(pc.struct_field(each, "offset")),
        )
        kept = np.flatnonzero(at.known & offset.known)
        return cls(len(lists), parents(lists)[kept], at.values[kept], offset.values[kept])

    def placed(self, place: Int64s, num_lists: int) -> Points:
        """Return the points with the lists at other places."""
        parent = place[self.parent]
        order = np.argsort(parent, kind="stable")
        upper = None if self.is_upper is None else self.is_upper[order]
        return Points(num_lists, parent[order], self.at_us[order], self.offset[order], upper)

    def without_lost_records(self, end: Numbers) -> Points:
        """Lower each point to the ends after it: a log that ended there later has lost the records beyond."""
        offset = np.where(
            end.known[self.parent], np.minimum(self.offset, end.values[self.parent]), self.offset
        )
        is_same = np.diff(self.parent) == 0
        while (is_lost := is_same & (offset[:-1] > offset[1:])).any():
            offset[:-1][is_lost] = offset[1:][is_lost]
        return Points(self.num_lists, self.parent, self.at_us, offset, self.is_upper)

    def rate(self, now: Numbers, offset: Numbers, window_s: float) -> Numbers:
        """Return the increase per second since the oldest point of the window; unknown after a decrease."""
        begin = Numbers(now.values - round(window_s * _MICROS_PER_S), now.known).take(self.parent)
        oldest_at, oldest_offset = self._at(
            first_in_lists(begin.known & (self.at_us >= begin.values), self.parent, self.num_lists)
        )
        seconds = now.values / 1e6 - oldest_at.values / 1e6
        grown = offset.values - oldest_offset.values
        known = now.known & offset.known & oldest_at.known & (seconds > 0) & (grown >= 0)
        return Numbers(np.divide(grown, seconds, out=np.zeros(len(grown)), where=known), known)

    def time_behind_ms(self, position: Numbers, now: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
        """Return for how long the log has been past positions, and a lower bound where that is unknown.

        The moment is interpolated between the last point at or below the position and the first one above it,
        at the latest the present end. Without a point below, the position is at least as old as the point
        above. So it is where the points contradict each other: an offset is reached before a lower one.
        """
        of_point = position.take(self.parent)
        is_below = of_point.known & (self.offset <= of_point.values)
        if self.is_upper is not None:
            is_below &= ~self.is_upper
        is_above = of_point.known & (self.offset > of_point.values)
        below_at, below_offset = self._at(last_in_lists(is_below, self.parent, self.num_lists))
        above_at, above_offset = self._at(first_in_lists(is_above, self.parent, self.num_lists))
        is_end = position.known & end.known & (end.values > position.values) & ~above_at.known
        above_at, above_offset = now.where(is_end, above_at), end.where(is_end, above_offset)

        known = position.known & now.known & below_at.known & above_at.known
        known &= below_at.values <= above_at.values
        passed, apart = position.values - below_offset.values, above_offset.values - below_offset.values
        share = np.divide(passed, apart, out=np.zeros(len(passed)), where=known)
        passed_at = below_at.values + share * (above_at.values - below_at.values)
        time_ms = rounded((now.values - passed_at) / 1000)
        known &= time_ms >= 0
        at_least = np.floor_divide(now.values - above_at.values, 1000)
        return Numbers(time_ms, known), Numbers(
            at_least, ~known & now.known & above_at.known & (at_least > 0)
        )

    def _at(self, place: Int64s) -> tuple[Numbers, Numbers]:
        """Moment and offset of one point of each list, where it has one."""
        known = np.ones(len(self.parent), dtype=np.bool_)
        return Numbers(self.at_us, known).take(place), Numbers(self.offset, known).take(place)
