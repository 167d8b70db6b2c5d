"""What a replay is worth: lag and time lag over time, time to drain, and how far the model is off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_jobs.replay.capacity import BUSY_BACKLOG_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spark_jobs.replay.history import History
    from spark_jobs.replay.run import Replayed

# Parts of a record below this are rounding: what is processed is compared with what had arrived.
_ROUNDING_RECORDS: Final = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class LaneMeasures:
    """The figures of L lanes; times in ms.

    Attributes
    ----------
    lag, max_member_lag, time_lag_ms
        [L, S]: of the group, of the member furthest behind, of the oldest record.
    p95_time_lag_ms
        [L], over all rows and readings.
    drain_place
        The reading at which most lag was seen: from there on drain times count.
    drain_time_ms
        [L]; NaN where the period ends before.
    """

    lag: NDArray[np.float64]
    max_member_lag: NDArray[np.float64]
    time_lag_ms: NDArray[np.float64]
    p95_time_lag_ms: NDArray[np.float64]
    drain_place: int
    drain_time_ms: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ModelError:
    """How far the replay of what really ran is from what was really seen, over the readings after the first.

    Attributes
    ----------
    median, p95
        Of |replayed - seen| lag of the group, as a share of what was seen, or of what arrives in ten seconds
        where that is more. NaN when nothing can be told.
    median_records, p95_records
        The same in records.
    """

    median: float
    p95: float
    median_records: float
    p95_records: float


def measure_lanes(history: History, replayed: Replayed) -> LaneMeasures:
    """Work out the figures of all lanes; no loop over rows or readings."""
    backlog = replayed.backlog
    num_readings, num_lanes, _ = backlog.shape
    age_ms = 1000.0 * time_lags_s(history, backlog)
    live = np.broadcast_to(history.live[:, None, :], backlog.shape)
    p95 = [
        np.percentile(age_ms[:, lane][live[:, lane]], 95) if live.any() else 0.0 for lane in range(num_lanes)
    ]
    num_members = len(history.member_keys) + 1
    cell = np.arange(num_readings * num_lanes)[:, None] * num_members
    cell = (cell + replayed.owner.reshape(num_readings * num_lanes, -1) % num_members).ravel()
    by_member = np.bincount(cell, backlog.ravel(), minlength=num_readings * num_lanes * num_members)
    by_member = by_member.reshape(num_readings, num_lanes, num_members)[:, :, :-1]
    place, drain_ms = drain_times_ms(history, backlog)
    return LaneMeasures(
        lag=backlog.sum(axis=2).T,
        max_member_lag=by_member.max(axis=2, initial=0.0).T,
        time_lag_ms=age_ms.max(axis=2, initial=0.0).T,
        p95_time_lag_ms=np.array(p95),
        drain_place=place,
        drain_time_ms=drain_ms,
    )


def time_lags_s(history: History, backlog: NDArray[np.float64]) -> NDArray[np.float64]:
    """Age of the oldest record not yet processed: [S, L, P] seconds, 0 where there is none.

    The k-th record of a row came when its arrivals, a line from reading to reading, passed k. What was there
    before the first reading came evenly over the time lag that was seen then; where that is not known, at the
    rate of the row's first interval with arrivals, and else all at the first reading.

    Parameters
    ----------
    backlog
        [S, L, P] records.
    """
    num_readings, _, num_rows = backlog.shape
    position, moment = _arrival_curves(history)
    # One ascending line for all rows, so that one search answers all.
    width = position[-1] - position[0] + 1.0
    shift = np.cumsum(width) - width - position[0]
    line = (position + shift).T.ravel()
    when = moment.T.ravel()
    wanted = position[1:, None, :] - backlog + shift
    found = np.searchsorted(line, wanted.ravel() + _ROUNDING_RECORDS, side="right") - 1
    first = np.arange(num_rows) * (num_readings + 1)
    found = np.clip(found.reshape(backlog.shape), first, first + num_readings - 1)
    rise = line[found + 1] - line[found]
    share = np.divide(wanted - line[found], rise, out=np.zeros_like(wanted), where=rise > 0).clip(0.0, 1.0)
    came = when[found] + share * (when[found + 1] - when[found])
    age = (history.at_s[:, None, None] - came).clip(min=0.0)
    return np.where(backlog > _ROUNDING_RECORDS, age, 0.0)


def _arrival_curves(history: History) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Records that had arrived, and when: [S + 1, P] each, from before the first reading on."""
    num_readings, num_rows = history.live.shape
    columns = np.arange(num_rows)
    known = history.live & np.isfinite(history.lag)
    first = np.where(known.any(axis=0), known.argmax(axis=0), 0)
    begins = np.where(known.any(axis=0), history.lag[first, columns], 0.0)
    rates = history.arrived / history.interval_s[:, None]
    rate = rates[(rates > 0).argmax(axis=0), columns] if len(rates) else np.zeros(num_rows)
    by_rate = np.divide(begins, rate, out=np.zeros(num_rows), where=rate > 0)
    age = np.where(np.isfinite(history.first_age_s), history.first_age_s, by_rate)
    at_s = history.at_s
    after_first = np.arange(num_readings)[:, None] > first
    arrived = np.zeros((num_readings, num_rows))
    np.cumsum(np.where(after_first[1:], history.arrived, 0.0), axis=0, out=arrived[1:])
    position = np.concatenate([-begins[None, :], np.where(after_first, arrived, 0.0)])
    moment = np.concatenate([(at_s[first] - age)[None, :], np.repeat(at_s[:, None], num_rows, axis=1)])
    # Until a row's first reading the curve has not begun.
    waits = np.arange(-1, num_readings)[:, None] < first
    return np.where(waits, -begins, position), np.where(waits, at_s[first] - age, moment)


def drain_times_ms(history: History, backlog: NDArray[np.float64]) -> tuple[int, NDArray[np.float64]]:
    """From the reading with most lag seen until all that had arrived by then is processed: place and [L] ms.

    Between readings a row's processing is taken for a straight line. A row that goes away is done with. NaN
    where the period ends before.
    """
    seen = np.where(history.live, np.nan_to_num(history.lag, nan=0.0), 0.0).sum(axis=1)
    place = int(seen.argmax())
    arrived = np.zeros(history.live.shape)
    np.cumsum(history.arrived, axis=0, out=arrived[1:])
    since = arrived[place:] - arrived[place]
    # What is left of what had arrived by then.
    left = (backlog[place:] - since[:, None, :]).clip(min=0.0)
    left *= history.live[place:, None, :] & history.live[place]
    is_done = left <= _ROUNDING_RECORDS
    first = is_done.argmax(axis=0)
    ends = is_done.any(axis=0)
    before = np.maximum(first - 1, 0)
    lanes, rows = np.indices(first.shape)
    # At the reading that finds it done, what was processed beyond it lies below zero of the straight line.
    last = backlog[place:][first, lanes, rows] - since[first, rows]
    span = left[before, lanes, rows] - last
    share = np.divide(left[before, lanes, rows], span, out=np.ones(first.shape), where=span > 0).clip(
        0.0, 1.0
    )
    at_s = history.at_s[place:] - history.at_s[place]
    done_s = np.where(first == 0, 0.0, at_s[before] + share * (at_s[first] - at_s[before]))
    worst = np.where(ends, done_s, np.inf).max(axis=1, initial=0.0)
    return place, np.where(np.isfinite(worst), 1000.0 * worst, np.nan)


def model_error(history: History, backlog: NDArray[np.float64]) -> ModelError:
    """Compare the replay of what really ran with what was really seen.

    Parameters
    ----------
    backlog
        [S, P] of the lane of who really held what.
    """
    known = history.live & np.isfinite(history.lag)
    told = known[1:].any(axis=1)
    if not told.any():
        return ModelError(np.nan, np.nan, np.nan, np.nan)
    seen = np.where(known, history.lag, 0.0).sum(axis=1)[1:][told]
    off = np.abs(np.where(known, backlog, 0.0).sum(axis=1)[1:][told] - seen)
    rate = (np.where(known[1:], history.arrived, 0.0).sum(axis=1) / history.interval_s)[told]
    share = off / np.maximum(np.maximum(seen, BUSY_BACKLOG_S * rate), 1.0)
    return ModelError(
        float(np.median(share)),
        float(np.percentile(share, 95)),
        float(np.median(off)),
        float(np.percentile(off, 95)),
    )
