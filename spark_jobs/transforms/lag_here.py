"""Consumer lag of a small snapshot, counted in this process.

A session's first queries cost a cold JVM seconds of processor time, whatever the number of rows. The rows are
those of :func:`spark_jobs.transforms.lag.count_lag`, which explains the columns; a test counts random rows in
both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenlag.enums import IsolationLevel
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import LAG
from evenlag.planning.lag_formula import count_lag_by_policy, find_status, first_in_lists
from evenlag.planning.offset_rows import UNKNOWN

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_MICROS_PER_S = 1_000_000
# From this double on, a number is none of BIGINT's.
_TOO_LARGE = float(2**63)


def count_lag_here(partitions: pa.Table, rate_window_s: int) -> pa.Table:
    """Count the lag of the partitions of groups.

    Parameters
    ----------
    partitions
        By :data:`~spark_jobs.transforms.group_partitions.GROUP_PARTITIONS`; no Boolean is null.
    rate_window_s
        Length of the window that rates are computed over, in seconds.

    Returns
    -------
    pyarrow.Table
        By the contract of ``lag``, in the same order.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    # One chunk for each column: lists are taken apart by their positions.
    columns: dict[str, Any] = {name: partitions[name].combine_chunks() for name in partitions.column_names}
    committed = _numbers(columns["committed_offset"])
    start = _numbers(columns["log_start_offset"])
    high_watermark, end = _numbers(columns["high_watermark"]), _end(columns)
    is_unread = (
        ~start.known | ~end.known | pc.is_valid(columns["offset_error"]).to_numpy(zero_copy_only=False)
    )
    is_unknown = _flags(columns["is_unreadable"]) | is_unread
    offsets = (committed.or_unknown, start.or_unknown, end.or_unknown)
    counted = count_lag_by_policy(*offsets, columns["reset_policy"], columns["reset_offsets"])
    records = np.where(is_unknown, UNKNOWN, counted)
    lag = _Numbers(records, records >= 0)
    read_at, commits_read_at = _micros(columns["read_at"]), _micros(columns["commits_read_at"])
    end_points, commit_points = _Points.of(columns["end_points"]), _Points.of(columns["commit_points"])
    arrival = _rate(end_points, read_at, high_watermark, rate_window_s)
    consume = _rate(commit_points, commits_read_at, committed, rate_window_s)
    columns |= {
        "status": find_status(
            *offsets,
            is_unknown=is_unknown,
            is_empty=_flags(columns["is_empty"]),
            is_not_subscribed=~_flags(columns["is_subscribed"]) & ~_flags(columns["is_not_described"]),
        ),
        "lag_records": lag.integers,
        "raw_lag_records": _Numbers(
            end.values - committed.values, ~is_unknown & committed.known & end.known
        ).integers,
        "end_offset": end.integers,
        "arrival_rate_records_per_s": arrival.floats,
        "consume_rate_records_per_s": consume.floats,
        "time_lag_ms": _zero_without(
            lag, _time_lag_ms(end_points, read_at, high_watermark, committed)
        ).integers,
        "drain_time_ms": _zero_without(lag, _drain_time_ms(lag, arrival, consume)).integers,
        "stalled": _stalled(
            lag, consume, pc.is_valid(columns["owner_member_id"]).to_numpy(zero_copy_only=False)
        ),
    }
    schema = arrow_schema(LAG)
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


def _end(columns: dict[str, Any]) -> _Numbers:
    import pyarrow.compute as pc

    level = pc.fill_null(columns["isolation_level"], IsolationLevel.READ_UNCOMMITTED.value)
    is_stable = _flags(pc.equal(level, IsolationLevel.READ_COMMITTED.value))
    stable, high = _numbers(columns["last_stable_offset"]), _numbers(columns["high_watermark"])
    return high.replaced(is_stable, stable)


def _zero_without(lag: _Numbers, numbers: _Numbers) -> _Numbers:
    """The numbers, but 0 where there is no lag."""
    is_none = lag.known & (lag.values == 0)
    return _Numbers(np.where(is_none, 0, numbers.values), is_none | numbers.known)


def _stalled(lag: _Numbers, consume: _Numbers, is_owned: NDArray[np.bool_]) -> pa.Array:
    """Whether there is lag and no commit; null where only the lag is not known."""
    import pyarrow as pa

    is_still = is_owned & consume.known & (consume.values == 0)
    return pa.array(is_still & (lag.values > 0), pa.bool_(), mask=~lag.known & is_still)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """float64 or int64 [N], and which of them are known."""

    values: NDArray[Any]
    known: NDArray[np.bool_]

    @property
    def or_unknown(self) -> NDArray[np.int64]:
        """Offsets with -1 for those that are not known."""
        return np.where(self.known, self.values, UNKNOWN)

    @property
    def floats(self) -> pa.Array:
        import pyarrow as pa

        return pa.array(self.values, pa.float64(), mask=~self.known)

    @property
    def integers(self) -> pa.Array:
        """As whole numbers; what is too large for them is unknown."""
        import pyarrow as pa

        known = self.known & (self.values < _TOO_LARGE)
        return pa.array(np.where(known, self.values, 0).astype(np.int64), pa.int64(), mask=~known)

    def replaced(self, where: NDArray[np.bool_], other: _Numbers) -> _Numbers:
        """Return these numbers, and those of another array where wanted."""
        return _Numbers(np.where(where, other.values, self.values), np.where(where, other.known, self.known))

    def take(self, index: NDArray[np.int64]) -> _Numbers:
        """Return those at these indices; of -1 nothing is known."""
        if not len(self.values):
            return _Numbers(np.zeros(len(index), self.values.dtype), np.zeros(len(index), np.bool_))
        return _Numbers(self.values[index], self.known[index] & (index >= 0))


@dataclass(frozen=True, slots=True)
class _Points:
    """All points of N lists, list by list: in which list each is, when it was read, and its offset."""

    num_lists: int
    parent: NDArray[np.int64]
    at: _Numbers
    offset: _Numbers

    @classmethod
    def of(cls, lists: pa.ListArray) -> _Points:
        import pyarrow.compute as pc

        each = pc.list_flatten(lists)
        return cls(
            num_lists=len(lists),
            parent=np.asarray(pc.list_parent_indices(lists).to_numpy(), dtype=np.int64),
            at=_micros(pc.struct_field(each, "at")),
            offset=_numbers(pc.struct_field(each, "offset")),
        )

    def of_lists(self, numbers: _Numbers) -> _Numbers:
        """Return the number of each point's list."""
        return numbers.take(self.parent)

    def first(self, is_wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """int64 [N]: the first wanted point of each list; -1: there is none."""
        return first_in_lists(is_wanted, self.parent, self.num_lists)

    def last(self, is_wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """int64 [N]: the last wanted point of each list; -1: there is none."""
        backwards = first_in_lists(is_wanted[::-1], self.parent[::-1], self.num_lists)
        return np.where(backwards >= 0, len(self.parent) - 1 - backwards, -1)


def _rate(points: _Points, now: _Numbers, offset: _Numbers, window_s: int) -> _Numbers:
    """Increase per second since the oldest point of the window; unknown when the offset decreased."""
    begin = points.of_lists(_Numbers(now.values - window_s * _MICROS_PER_S, now.known))
    is_within = points.at.known & begin.known & (points.at.values >= begin.values)
    oldest = points.first(is_within)
    at, before = points.at.take(oldest), points.offset.take(oldest)
    seconds = now.values / 1e6 - at.values / 1e6
    grown = offset.values - before.values
    known = now.known & at.known & offset.known & before.known & (seconds > 0) & (grown >= 0)
    return _Numbers(np.divide(grown, seconds, out=np.zeros(len(grown)), where=known), known)


def _drain_time_ms(lag: _Numbers, arrival: _Numbers, consume: _Numbers) -> _Numbers:
    falls_by = consume.values - arrival.values
    known = lag.known & arrival.known & consume.known & (falls_by > 0)
    exact = np.divide(1000.0 * lag.values, falls_by, out=np.zeros(len(falls_by)), where=known)
    return _Numbers(_rounded(exact), known)


def _time_lag_ms(points: _Points, now: _Numbers, end: _Numbers, committed: _Numbers) -> _Numbers:
    """For how long the log end has been past the committed offset, by points and the present end."""
    of_point = points.of_lists(committed)
    is_comparable = of_point.known & points.offset.known
    below = points.last(is_comparable & (points.offset.values <= of_point.values))
    above = points.first(is_comparable & (points.offset.values > of_point.values))
    # The present end is the last point of each list.
    is_known = committed.known & end.known
    is_end_below = is_known & (end.values <= committed.values)
    is_end_above = is_known & (end.values > committed.values) & (above < 0)

    start_at, start_offset = points.at.take(below), points.offset.take(below)
    end_at, end_offset = points.at.take(above), points.offset.take(above)
    start_at, start_offset = start_at.replaced(is_end_below, now), start_offset.replaced(is_end_below, end)
    end_at, end_offset = end_at.replaced(is_end_above, now), end_offset.replaced(is_end_above, end)
    known = committed.known & now.known
    for one in (start_at, start_offset, end_at, end_offset):
        known = known & one.known
    passed, apart = committed.values - start_offset.values, end_offset.values - start_offset.values
    share = np.divide(passed, apart, out=np.zeros(len(passed)), where=known)
    passed_at = start_at.values + share * (end_at.values - start_at.values)
    time_lag = _rounded((now.values - passed_at) / 1000)
    return _Numbers(time_lag, known & (time_lag >= 0))


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round halves away from zero, as SQL does."""
    size = np.abs(values)
    whole = np.floor(size)
    is_up = 2 * (size - whole) >= 1
    rounded: NDArray[np.float64] = np.copysign(whole + is_up, values)
    return rounded


def _numbers(values: pa.Array) -> _Numbers:
    import pyarrow as pa
    import pyarrow.compute as pc

    known = np.asarray(pc.is_valid(values).to_numpy(zero_copy_only=False), dtype=np.bool_)
    filled = pc.fill_null(values.cast(pa.int64()), 0)
    return _Numbers(np.asarray(filled.to_numpy(), dtype=np.int64), known)


def _micros(moments: pa.Array) -> _Numbers:
    import pyarrow as pa

    return _numbers(moments.cast(pa.timestamp("us", "UTC")).cast(pa.int64()))


def _flags(values: pa.Array) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=np.bool_)
