"""Points in time of logs and commits: rates, and for how long a group has been behind.

A point says where a log ended at a moment. Points come from earlier snapshots, or from the record timestamps
that brokers look up (:mod:`evenlag.live_lag.time_behind`). Both are read by the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.lag.arrays import Numbers, first_in_lists, last_in_lists, parents, rounded

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MICROS_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class Points:
    """Points of N lists, list by list and ascending by moment.

    num_lists, parent: Number of lists, and int64 [M]: the list of each point.
    at_us, offset: int64 [M]: moment in microseconds since the epoch, and where the log ended.
    is_upper: bool [M]: the point only says that later records are not younger; None: no such points.
    """

    num_lists: int
    parent: NDArray[np.int64]
    at_us: NDArray[np.int64]
    offset: NDArray[np.int64]
    is_upper: NDArray[np.bool_] | None = None

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

    def placed(self, place: NDArray[np.int64], num_lists: int) -> Points:
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
        oldest = self._at(
            first_in_lists(begin.known & (self.at_us >= begin.values), self.parent, self.num_lists)
        )
        seconds = now.values / 1e6 - oldest.at.values / 1e6
        grown = offset.values - oldest.offset.values
        known = now.known & offset.known & oldest.at.known & (seconds > 0) & (grown >= 0)
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
        below = self._at(last_in_lists(is_below, self.parent, self.num_lists))
        above = self._at(first_in_lists(is_above, self.parent, self.num_lists))
        is_end = position.known & end.known & (end.values > position.values) & ~above.at.known
        above_at, above_offset = now.where(is_end, above.at), end.where(is_end, above.offset)

        known = (
            position.known
            & now.known
            & below.at.known
            & above_at.known
            & (below.at.values <= above_at.values)
        )
        passed, apart = position.values - below.offset.values, above_offset.values - below.offset.values
        share = np.divide(passed, apart, out=np.zeros(len(passed)), where=known)
        passed_at = below.at.values + share * (above_at.values - below.at.values)
        time_ms = rounded((now.values - passed_at) / 1000)
        known &= time_ms >= 0
        at_least = np.floor_divide(now.values - above_at.values, 1000)
        return Numbers(time_ms, known), Numbers(
            at_least, ~known & now.known & above_at.known & (at_least > 0)
        )

    def _at(self, place: NDArray[np.int64]) -> _ListPoints:
        is_found = place >= 0
        if not len(self.parent):
            nothing = Numbers(np.zeros(len(place), np.int64), is_found)
            return _ListPoints(nothing, nothing)
        return _ListPoints(Numbers(self.at_us[place], is_found), Numbers(self.offset[place], is_found))


@dataclass(frozen=True, slots=True)
class _ListPoints:
    """One point of each list, where it has one."""

    at: Numbers
    offset: Numbers
