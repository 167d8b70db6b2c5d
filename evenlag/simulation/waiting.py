"""How long records wait, from their send to the start of their work: percentiles and record-seconds.

**Waiting** of a record is the start of its work minus its send. A record that is not started by the end of
the period waits until then. **Record-time** is the waiting summed over records, in record-seconds: the area
under the lag. Its part above x seconds is the sum of ``max(0, waiting - x)``, and a *share* is such a part
divided by the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from evenlag.lag.arrays import Bools, Floats, Int64s

LIMITS_S: Final = (5, 30, 300)
_SHARES: Final = (0.50, 0.95, 0.99)
# Fewer records are a rounding error.
_DUST: Final = 1e-6
_PRECISION_S: Final = 1e-6
_ROUNDING: Final = 1e-12


class Waits(NamedTuple):
    """Parts of the records of a run, [N]: the waiting of a part is spread evenly between two values.

    low, high: Seconds; the same in a part of equal waiting, such as a single record.
    records: Number of records, not whole in a fluid.
    """

    low: Floats
    high: Floats
    records: Floats


class Waiting(NamedTuple):
    """Measures of waiting, weighted by records; all 0 without records.

    record_s, record_s_above_…: Record-seconds, in all and above so many seconds.
    """

    num_records: float
    p50_s: float
    p95_s: float
    p99_s: float
    worst_s: float
    record_s: float
    record_s_above_5s: float
    record_s_above_30s: float
    record_s_above_300s: float

    def shares_above(self) -> tuple[float, ...]:
        """Return the shares of record-time above 5, 30 and 300 seconds; 0 where nothing waits."""
        return tuple(above / self.record_s if self.record_s > 0 else 0.0 for above in self[6:])


def measure_waiting(waits: Waits) -> Waiting:
    """Return the measures of a run's waits."""
    low, high, records = (column[waits.records > _DUST] for column in waits)
    if not len(low):
        return Waiting._make([0.0] * len(Waiting._fields))
    total = float(records.sum())
    percentiles = [_percentile(low, high, records, share * total) for share in _SHARES]
    above = [_record_s_above(low, high, records, limit) for limit in (0, *LIMITS_S)]
    return Waiting._make([total, *percentiles, float(high.max()), *above])


def _record_s_above(low: Floats, high: Floats, records: Floats, limit: float) -> float:
    over, most = (low - limit).clip(min=0.0), (high - limit).clip(min=0.0)
    spread = high - low
    # Of a part around the limit only those above it count, half of the largest excess each.
    share = np.divide(most - over, spread, out=np.ones_like(spread), where=spread > 0)
    return float((records * share * (over + most) / 2).sum())


def _percentile(low: Floats, high: Floats, records: Floats, wanted: float) -> float:
    """Return the least waiting that so many records do not exceed."""
    floor, ceiling, below = float(low.min()), float(high.max()), 0.0
    middle = floor
    while True:
        count = below + float((records * _share_until(middle, low, high)).sum())
        if count >= wanted * (1 - _ROUNDING):
            ceiling, kept = middle, low < middle
        else:
            floor, kept = middle, high > middle
            below += float(records[~kept].sum())
        if ceiling - floor <= _PRECISION_S:
            return ceiling
        low, high, records = low[kept], high[kept], records[kept]
        middle = (floor + ceiling) / 2


def _share_until(limit: float, low: Floats, high: Floats) -> Floats:
    spread = high - low
    is_point = (low <= limit).astype(np.float64)
    return np.divide(limit - low, spread, out=is_point, where=spread > 0).clip(0.0, 1.0)


def waits_between(at_s: Floats, sent: Floats, started: Floats, records: Floats) -> Waits:
    """Return the waits of queues, first in, first out, from their cumulative curves.

    The curves are linear between their points, and all are in the queue's own unit (of work, or records).
    What is not started at the end starts then.

    at_s: [T + 1] seconds, ascending.
    sent: [T + 1, Q]; the first row is where the curve begins: what was sent before is left out.
    started: [T + 1, Q], not above `sent` but for rounding.
    records: [T, Q] records sent in each interval; in an interval they are spread evenly over what is sent.
    """
    num_queues = sent.shape[1]
    is_waiting = started < sent - _DUST
    is_late = is_waiting[:-1] | is_waiting[1:]
    at_once = float(records[~is_late].sum())
    parts = [_waits_of(at_s, sent[:, queue], started[:, queue], records[:, queue], is_late[:, queue])
             for queue in range(num_queues)]  # fmt: skip
    low, high, count = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Waits(np.append(low, 0.0), np.append(high, 0.0), np.append(count, at_once))


def _waits_of(at_s: Floats, sent: Floats, started: Floats, records: Floats, is_late: Bools) -> Waits:
    """Return the waits of what is sent in the late intervals of one queue."""
    # What is left starts at the end: a jump.
    served, served_s = np.append(started, sent[-1]), np.append(at_s, at_s[-1])
    begins = np.flatnonzero(is_late & (sent[1:] > sent[:-1]))
    points = np.unique(np.concatenate([sent[begins], sent[begins + 1], served]))
    points = points[(points >= sent[0]) & (points <= sent[-1])]
    interval = np.searchsorted(sent, points, side="right")[:-1] - 1
    kept = is_late[interval]
    first, last, interval = points[:-1][kept], points[1:][kept], interval[kept]
    service = np.searchsorted(served, first, side="right") - 1
    rise = sent[interval + 1] - sent[interval]
    low, high = (
        _moment(served, served_s, service, at) - _moment(sent, at_s, interval, at) for at in (first, last)
    )
    ends = np.sort(np.maximum([low, high], 0.0), axis=0)
    return Waits(ends[0], ends[1], records[interval] * (last - first) / rise)


def _moment(curve: Floats, at_s: Floats, interval: Int64s, value: Floats) -> Floats:
    """Return when a curve passed values in these intervals."""
    share = (value - curve[interval]) / (curve[interval + 1] - curve[interval])
    return at_s[interval] + share * (at_s[interval + 1] - at_s[interval])
