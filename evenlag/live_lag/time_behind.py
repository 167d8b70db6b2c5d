"""For how long groups are behind, without earlier snapshots: asked of the brokers by record timestamp.

Kafka's ListOffsets returns the first offset of a partition whose record is not older than a moment. So a few
such requests bracket the time of the record that a group processes next. A request contains many partitions,
each with its own moment. The number of moments is bounded: brokers look each of them up in an index on disk.

All records before the returned one are older than the moment, whatever their timestamps are. That the records
after it are younger holds only if timestamps ascend. A record that is ahead of the clock disproves it.
"""

from typing import Final

import numpy as np

from evenlag.kafka.broker_requests import BrokerCalls
from evenlag.kafka.offsets import NO_RECORD, offsets_at
from evenlag.kafka.topic_metadata import Partitions
from evenlag.lag.arrays import Bools, Int64s, Points

MAX_LOOKUPS: Final = 10_000
"""How many moments one snapshot looks up; the groups with the largest lag come first."""
_MAX_ROUNDS: Final = 11
# Ages to try until one is older than the record, each twenty times the last one: half a minute to 56 days.
_FIRST_AGE_MS: Final = 30_000
_AGE_FACTOR: Final = 20
_MAX_AGE_MS: Final = 4_838_400_000
# A bracket is narrow enough when its ends differ by a twentieth, or by the interval of a watch.
_NARROW: Final = 1.05
_SHORT_MS: Final = 2_500
# Own snapshots are points too. Beyond this number, every second of the older half goes.
_MAX_POINTS: Final = 64
_UNKNOWN: Final = -1
_NEVER: Final = np.iinfo(np.int64).max
# Kinds of points: ends that were read, records that were looked up, and such that are ahead of the clock.
_END: Final = 0
_RECORD: Final = 1
_AHEAD: Final = 2


class TimePoints:
    """What is known of when offsets were reached: points (moment, offset) of each partition.

    At a point's moment, the next record of the partition got the point's offset. Points of one cluster are
    kept from snapshot to snapshot.
    """

    def __init__(self) -> None:
        self._names: list[tuple[str, int]] = []
        self._set(np.zeros((3, 0, 0), dtype=np.int64))

    def _set(self, points: Int64s) -> None:
        """Set moment, offset and kind of the points: [3, N, points]."""
        self._points = points
        self._at, self._offset, self._kind = points

    def add_ends(self, partitions: Partitions, at_ms: int | Int64s, ends: Int64s) -> None:
        """Add the ends of logs that were just read, in ms since the epoch: int64 [N]; -1: not read."""
        names = [
            (partitions.ids[topic], number)
            for topic, number in zip(partitions.topic.tolist(), partitions.number.tolist(), strict=True)
        ]
        if names != self._names:
            self._keep(names)
        if self._at.shape[1] >= _MAX_POINTS:
            self._set(np.delete(self._points, np.arange(1, self._at.shape[1] // 2, 2), axis=2))
        # A log that ends there now has lost the records beyond.
        now = ends[:, None]
        np.minimum(self._offset, now, out=self._offset, where=now >= 0)
        new = np.stack([np.where(ends < 0, _UNKNOWN, at_ms), ends, np.full(len(ends), _END)])
        self._set(np.concatenate([self._points, new[:, :, None]], axis=2))

    def search(
        self, calls: BrokerCalls, partitions: Partitions, row: Int64s, position: Int64s, now_ms: int
    ) -> None:
        """Ask the brokers until each position is bracketed narrowly enough, or enough was asked.

        row, position: int64 [K], the partition of each position and an offset before its end, the important
            ones first. What brokers do not answer stays unknown.
        """
        places, first = np.unique(row, return_index=True)
        chosen = places[np.argsort(first, kind="stable")][: MAX_LOOKUPS // _MAX_ROUNDS]
        is_chosen = np.isin(row, chosen)
        row, position = row[is_chosen], position[is_chosen]
        for _ in range(_MAX_ROUNDS):
            asked, at = self._next_moments(row, position, now_ms)
            if not len(asked):
                return
            offset, written_at = offsets_at(calls, partitions, asked, at)
            # Without a record as young as the moment, the next record is the one after the end.
            offset = np.where(offset == NO_RECORD, self._offset[asked, -1], offset)
            if not (offset >= 0).any():
                return
            is_ahead = written_at > now_ms
            # The record itself is a point too, closer to the positions after it.
            for moments in (at, np.where(is_ahead, _UNKNOWN, written_at)):
                self._add_found(asked, np.where(offset < 0, _UNKNOWN, moments), offset, is_ahead)

    def points(self, row: Int64s, position: Int64s) -> Points:
        """Return the points of each position, as :class:`~evenlag.lag.arrays.Points` has them."""
        at = self._at[row]
        order = np.argsort(at, axis=1, kind="stable")
        parent, place = np.nonzero(np.take_along_axis(at, order, axis=1) >= 0)
        column = order[parent, place]
        upper = self._is_upper(row, position)[parent, column]
        chosen = row[parent], column
        return Points(len(row), parent, 1_000 * self._at[chosen], self._offset[chosen], upper)

    def _is_upper(self, row: Int64s, position: Int64s) -> Bools:
        """Which points say nothing about the records after them: bool [K, points]."""
        kind = self._kind[row]
        is_disproved = self._is_disproved(row, position)[:, None] & (kind != _END)
        is_upper: Bools = (kind == _AHEAD) | is_disproved
        return is_upper

    def _is_disproved(self, row: Int64s, position: Int64s) -> Bools:
        """Whether a record up to the position is ahead of the clock: bool [K]."""
        is_ahead = (self._kind[row] == _AHEAD) & (self._at[row] >= 0)
        disproved: Bools = (is_ahead & (self._offset[row] <= position[:, None])).any(axis=1)
        return disproved

    def _keep(self, names: list[tuple[str, int]]) -> None:
        before = {name: number for number, name in enumerate(self._names)}
        old = np.array([before.get(name, _UNKNOWN) for name in names], dtype=np.int64)
        kept = np.full((3, len(names), self._at.shape[1]), _UNKNOWN, dtype=np.int64)
        kept[:, old >= 0] = self._points[:, old[old >= 0]]
        self._set(kept)
        self._names = names

    def _add_found(self, rows: Int64s, at: Int64s, offset: Int64s, is_ahead: Bools) -> None:
        """Add a point for some partitions, before the ends of the newest snapshot in the last column."""
        column = np.full((3, len(self._names), 1), _UNKNOWN, dtype=np.int64)
        column[:, rows, 0] = at, offset, np.where(is_ahead, _AHEAD, _RECORD)
        self._set(np.concatenate([self._points[:, :, :-1], column, self._points[:, :, -1:]], axis=2))

    def _bracket(self, row: Int64s, position: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Moment and offset of the last point at or below each position, moment of the first one above it."""
        at, offset = self._at[row], self._offset[row]
        if not at.shape[1]:
            none = np.full(len(row), _UNKNOWN, dtype=np.int64)
            return none, none, np.full(len(row), _NEVER, dtype=np.int64)
        is_below = (at >= 0) & (offset <= position[:, None]) & ~self._is_upper(row, position)
        is_above = (at >= 0) & (offset > position[:, None])
        below = np.where(is_below, at, _UNKNOWN).argmax(axis=1)
        above = np.where(is_above, at, _NEVER).argmin(axis=1)
        each = np.arange(len(row))
        return (
            np.where(is_below[each, below], at[each, below], _UNKNOWN),
            offset[each, below],
            np.where(is_above[each, above], at[each, above], _NEVER),
        )

    def _next_moments(self, row: Int64s, position: Int64s, now_ms: int) -> tuple[Int64s, Int64s]:
        """Partitions to ask about, and the moment for each: that of its position with the widest bracket."""
        below_at, below, above_at = self._bracket(row, position)
        young = np.where(above_at == _NEVER, 0, now_ms - above_at).clip(min=0).astype(np.float64)
        old = np.where(below_at < 0, np.inf, now_ms - below_at).astype(np.float64)
        grown = np.maximum(_FIRST_AGE_MS, young * _AGE_FACTOR)
        between = np.sqrt(
            np.maximum(young, _SHORT_MS) * np.where(np.isinf(old), 1.0, np.maximum(old, _SHORT_MS))
        )
        age = np.where(np.isinf(old), np.minimum(grown, _MAX_AGE_MS), between)
        width = np.where(np.isinf(old), np.inf, old / np.maximum(young, _SHORT_MS))
        is_exact = (below == position) & (below_at >= 0)
        is_narrow = is_exact | (old - young <= _SHORT_MS) | (width <= _NARROW)
        is_too_old = np.isinf(old) & (young >= _MAX_AGE_MS)
        # Nothing more is learned where a record up to the position is ahead of the clock.
        is_disproved = self._is_disproved(row, position)
        open_rows = np.flatnonzero(~is_narrow & ~is_too_old & ~is_disproved)
        order = open_rows[np.lexsort((-width[open_rows], row[open_rows]))]
        asked, first = np.unique(row[order], return_index=True)
        return asked, np.maximum(now_ms - age[order[first]], 0).astype(np.int64)
