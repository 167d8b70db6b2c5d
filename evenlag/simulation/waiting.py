"""How long records wait, from their send to the start of their work: percentiles and record-seconds.

**Waiting** of a record is the start of its work minus its send. A record that is not started by the end of
the period waits until then. **Record-time** is the waiting summed over records, in record-seconds: the area
under the lag. Its part above x seconds is the sum of ``max(0, waiting - x)``, and a *share* is such a part
divided by the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from evenlag.lag.arrays import Floats, Int64s

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

    def of_all(self, num_records: float) -> Waits:
        """Return the waits of so many records, of which the others do not wait."""
        at_once = max(num_records - float(self.records.sum()), 0.0)
        return Waits._make(
            np.append(column, last) for column, last in zip(self, (0.0, 0.0, at_once), strict=True)
        )


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


class SentCurves:
    """When records were sent: cumulative curves of Q queues, linear between their points.

    A queue is first in, first out; a *position* on its curve is the sum of what was sent, in the queue's own
    unit (of work, or records).

    sent, at_s: [T + 1, Q] positions and seconds, ascending.
    records: [T, Q] records sent between two points, spread evenly over them; None if the unit is records.
    """

    def __init__(self, sent: Floats, at_s: Floats, records: Floats | None = None) -> None:
        self._points = len(sent)
        # One ascending line for all queues, so that one search is sufficient.
        width = sent[-1] - sent[0] + 1.0
        self._shift = np.cumsum(width) - width - sent[0]
        self._line, self._at_s = (sent + self._shift).T.ravel(), at_s.T.ravel()
        rise = np.diff(sent, axis=0) if records is None else records
        self._records = np.append(rise, np.zeros((1, sent.shape[1])), axis=0).T.ravel()

    def sent_at(self, queue: Int64s, position: Floats, rounding: float = 0.0) -> Floats:
        """Return when positions were sent: seconds."""
        place = position + self._shift[queue]
        return self._moment(self._interval(queue, place + rounding, "right"), place)

    def waits(self, queue: Int64s, started: Floats, at_s: Floats) -> tuple[Int64s, Waits]:
        """Return the waits of what is started in N parts, and the part of each.

        queue: [N].
        started, at_s: [2, N] positions and seconds, at the begin and at the end of each part.
        """
        first, last = started + self._shift[queue]
        begin, end = self._interval(queue, first, "right"), self._interval(queue, last, "left")
        pieces = np.where(last > first, end - begin + 1, 0)
        part = np.repeat(np.arange(len(queue)), pieces)
        interval = begin[part] + np.arange(len(part)) - (np.cumsum(pieces) - pieces)[part]
        low, high = (
            np.maximum(self._line[interval], first[part]),
            np.minimum(self._line[interval + 1], last[part]),
        )
        rate = (at_s[1] - at_s[0])[part] / (last - first)[part]
        waited = [
            (at_s[0, part] + rate * (place - first[part]) - self._moment(interval, place)).clip(min=0.0)
            for place in (low, high)
        ]
        rise = self._line[interval + 1] - self._line[interval]
        share = np.divide((high - low).clip(min=0.0), rise, out=np.zeros_like(rise), where=rise > 0)
        return part, Waits(np.minimum(*waited), np.maximum(*waited), self._records[interval] * share)

    def _interval(self, queue: Int64s, place: Floats, side: Literal["left", "right"]) -> Int64s:
        found = np.searchsorted(self._line, place, side=side) - 1
        first = queue * self._points
        return np.clip(found, first, first + self._points - 2)

    def _moment(self, interval: Int64s, place: Floats) -> Floats:
        low, rise = self._line[interval], self._line[interval + 1] - self._line[interval]
        share = np.divide(place - low, rise, out=np.zeros_like(rise), where=rise > 0).clip(0.0, 1.0)
        moment: Floats = self._at_s[interval] + share * (self._at_s[interval + 1] - self._at_s[interval])
        return moment
