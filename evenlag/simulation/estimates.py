"""What snapshots tell of a group's speeds and of when records came: likely values, and two bounds of the lag.

Between two snapshots it is certain how many records of a partition arrived, and how many were processed. A
member that was behind throughout processed as fast as it could. One that was not was idle for a time that its
speed tells, and whatever it is behind at the end came after its last idle moment: late.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from assignor_core.hint import member_key
from evenlag.lag.arrays import Bools, Floats
from evenlag.lag.speeds import COMMIT_INTERVAL_S, NOISE_S, uncommitted
from evenlag.simulation.history import History, first_lags, interpolated, sum_by_member

# One interval may contain a pause or a burst; the median of three ignores it.
_FEWEST_INTERVALS: Final = 3
# Twice the standard error of a median of normal values, in distances of their 10th and 90th percentiles.
_MEDIAN_SPREAD: Final = 2 * 1.25 / 2.56
# Of a member whose busy intervals are alike, and of one that was never busy.
_LEAST_SPREAD: Final = 0.01
_UNKNOWN_FACTOR: Final = 2.0
# No member is so much faster than it was while it was busy: records were skipped.
_SKIP_FACTOR: Final = 2.0
# A row that got nothing gets what the others do not need.
_LEAST_WEIGHT: Final = 1e-6
# How far a speed of the table ``speeds`` may be off.
_TABLE_SPREAD: Final = 0.1
# Who processed nearly as much as it could was not idle.
_BUSY_SHARE: Final = 0.9
# What comes at one moment within an interval comes within this share of it.
_MOMENT: Final = 1e-3


class Case(IntEnum):
    """Which of the values that snapshots allow."""

    LIKELY = 0
    LEAST = 1
    MOST = 2


class KnownSpeeds(NamedTuple):
    """Speeds of members by the table ``speeds``, in records per second: [M].

    speed: NaN: unknown. is_bound: It is at least that.
    """

    speed: Floats
    is_bound: Bools


def known_speeds(members: pa.Table, history: History) -> KnownSpeeds:
    """Return the newest speeds in rows of ``members`` of a period that were joined with ``speeds``."""
    columns = ("member_id", "group_instance_id", "speed_records_per_s", "speed_is_bound")
    rows = members.filter(members["speed_records_per_s"].is_valid()).sort_by("snapshot_id").select(columns)
    newest = {member_key(row[columns[0]], row[columns[1]]): row for row in rows.to_pylist()}
    found = [newest.get(key) for key in history.member_keys]
    return KnownSpeeds(
        np.array([np.nan if row is None else row["speed_records_per_s"] for row in found], dtype=np.float64),
        np.array([row is not None and bool(row["speed_is_bound"]) for row in found], dtype=np.bool_),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Speeds:
    """Speeds of members over a period, in records per second: [M].

    likely, low, high: Finite; the bounds are those of a member that is not saturated.
    is_observed: bool: measured while the member was busy; otherwise assumed.
    is_configured: bool: from a rule of the policy.
    """

    likely: Floats
    low: Floats
    high: Floats
    is_observed: Bools
    is_configured: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """What a replay assumes, in three cases: S - 1 intervals, P rows, M members.

    speed: [3, S - 1, M] records per second.
    at_start, at_end: [3, S - 1, P] records that come at the first and at the last moment of an interval.
    from_s: [3, 2, S - 1, P] seconds from the start of the interval, ascending.
    rate: [3, 3, S - 1, P] records per second that come until the first of these, until the second, and after.
    weight: [S - 1, P] shares of the rows of a member that all wait; 1 on average.
    has_stops: bool [S - 1, P], the speed of the row's owner is what it was while it stopped for rebalances.
    is_set: bool [S, P]: the group's offset was set again before the snapshot, backwards or forwards.
    is_observed: bool [M]: see :class:`Speeds`.
    """

    speed: Floats
    at_start: Floats
    at_end: Floats
    from_s: Floats
    rate: Floats
    weight: Floats
    has_stops: Bools
    is_set: Bools
    is_observed: Bools

    def arrived_by(self, case: Case, place: int, since_s: float | Floats) -> Floats:
        """Return the records that came within so many seconds of an interval: [P], or [..., P] of seconds."""
        first_s, second_s = self.from_s[case, :, place]
        rates = self.rate[case, :, place]
        return np.asarray(
            self.at_start[case, place]
            + np.minimum(since_s, first_s) * rates[0]
            + (np.minimum(since_s, second_s) - first_s).clip(min=0.0) * rates[1]
            + (since_s - second_s).clip(min=0.0) * rates[2]
        )


class _Work(NamedTuple):
    """The work of members that owned rows at the begin of intervals, by rows with known lag: [S - 1, M].

    kept_processed: Of rows that the member owned at the end, too, and whose lag was measured at both ends.
    is_complete: Of all rows that the member owned.
    is_stable: It owned the same at the end, with known lag.
    lag, row_processed: Of the rows: [S, P], [S - 1, P]; evenly where the lag is not known between.
    """

    before: Floats
    after: Floats
    processed: Floats
    kept_processed: Floats
    is_complete: Bools
    is_stable: Bools
    lag: Floats
    row_processed: Floats


def _filled_lag(history: History) -> Floats:
    """Lag, as if processed evenly between the snapshots that know it; NaN before and after: [S, P]."""
    arrived = np.zeros(history.lag.shape)
    np.cumsum(history.arrived, axis=0, out=arrived[1:])
    known = history.known
    is_between = np.logical_or.accumulate(known, axis=0)
    is_between &= np.logical_or.accumulate(known[::-1], axis=0)[::-1] & history.live
    lag = arrived - interpolated(np.where(known, arrived - history.lag, np.nan), history.at_s)
    return np.where(is_between, lag.clip(min=0.0), np.nan)


def _member_work(history: History, is_left_out: Bools) -> _Work:
    lag = _filled_lag(history)
    owner = np.where(history.known.any(axis=0), history.owner, np.int32(-1))
    held, kept = owner[:-1] >= 0, (owner[:-1] >= 0) & (owner[:-1] == owner[1:])
    kept &= history.known[:-1] & history.known[1:]
    measured = held & np.isfinite(lag[:-1]) & np.isfinite(lag[1:]) & ~is_left_out
    by_member = partial(sum_by_member, num_members=len(history.member_keys))
    num_measured, num_kept = (by_member(owner[:-1], each, None) for each in (measured, kept & measured))
    num_held = by_member(owner[:-1], held, None)
    held_after = by_member(owner[1:], owner[1:] >= 0, None)
    processed = (history.arrived + lag[:-1] - lag[1:]).clip(min=0.0)
    before, after, done = (by_member(owner[:-1], measured, each) for each in (lag[:-1], lag[1:], processed))
    is_known = num_measured > 0
    return _Work(
        before=before,
        after=after,
        processed=done,
        kept_processed=by_member(owner[:-1], kept & measured, processed),
        is_complete=is_known & (num_measured == num_held),
        is_stable=is_known & (num_kept == num_held) & (num_kept == held_after),
        lag=lag,
        row_processed=processed,
    )


def _is_certain(work: _Work) -> Bools:
    """Whether members were behind throughout: all that was processed waited at the begin: [S - 1, M]."""
    return np.asarray(work.is_complete & (work.before >= work.processed) & (work.before > 0))


def _is_behind(work: _Work, interval_s: Floats) -> Bools:
    """Whether members were behind at both ends, by more than may be uncommitted: [S - 1, M]."""
    least = np.minimum(work.before, work.after)
    noise = uncommitted(work.processed / interval_s)
    return np.asarray(work.is_complete & (least > 0) & (least >= noise))


def _is_busy(work: _Work, interval_s: Floats, speeds: Speeds) -> Bools:
    """Whether members were behind throughout, certainly or by their rates: [S - 1, M]."""
    is_fast = work.processed >= _BUSY_SHARE * speeds.likely * interval_s
    return np.asarray(_is_certain(work) | (_is_behind(work, interval_s) & is_fast))


def estimate_speeds(
    history: History,
    relative: Floats | None = None,
    is_left_out: Bools | None = None,
    known: KnownSpeeds | None = None,
) -> Speeds:
    """Estimate the speed of each member over a period.

    It is the median of a member's rates in at least three intervals in which it was certainly behind
    throughout. If there are not so many, those count in which it was behind at both ends: it may have been
    idle between, so their 90th percentile is taken. Intervals without progress do not count: that member was
    stuck, not loaded.

    A member without enough of these gets the known speed. Without one it gets the median of the observed
    speeds, or its own largest rate or bound if that is higher. If no member was busy, all get the largest
    rate of any member, a lower bound.

    A partition whose lag is never known is not simulated, so its part of a member's rate is left out. Where
    other lag is unknown, the rate of the known partitions is a lower bound of the member's: it counts among
    the largest rates, not in the median.

    relative: [M] relative capacities from the policy; NaN for members without a rule. A member with a rule
        gets its share of the group's observed scale, whatever its own rates.
    is_left_out: bool [S - 1, P], intervals of rows that tell nothing.
    known: Speeds that were measured before the period, too.
    """
    if is_left_out is None:
        is_left_out = np.zeros(history.arrived.shape, dtype=np.bool_)
    work = _member_work(history, is_left_out)
    interval_s = history.interval_s[:, None]
    rates = np.where(work.kept_processed > 0, work.kept_processed / interval_s, np.nan)
    certain, behind = (
        np.where(each & work.is_stable, rates, np.nan)
        for each in (_is_certain(work), _is_behind(work, interval_s))
    )
    is_certain = np.isfinite(certain).sum(axis=0) >= _FEWEST_INTERVALS
    busy = np.where(is_certain, certain, np.fmax(certain, behind))
    seen_often = np.isfinite(busy).sum(axis=0) >= _FEWEST_INTERVALS
    observed, spread = (np.full(len(seen_often), np.nan) for _ in range(2))
    if seen_often.any():
        low, middle, high = np.nanpercentile(busy[:, seen_often], (10, 50, 90), axis=0)
        observed[seen_often] = np.where(is_certain[seen_often], middle, high)
        count = np.isfinite(busy[:, seen_often]).sum(axis=0)
        spread[seen_often] = _MEDIAN_SPREAD * (high - low) / np.sqrt(count)
    # Of what was committed in an interval, one commit's records may have been processed before.
    sure = rates * (1 - COMMIT_INTERVAL_S / interval_s)
    largest, at_least = (np.nan_to_num(each, nan=0.0).max(axis=0, initial=0.0) for each in (rates, sure))
    if known is not None:
        is_known = ~seen_often & ~known.is_bound & (known.speed > 0)
        observed = np.where(is_known, known.speed, observed)
        spread = np.where(is_known, _TABLE_SPREAD * observed, spread)
        seen_often = seen_often | is_known
        largest, at_least = (
            np.fmax(each, np.where(known.is_bound, known.speed, np.nan)) for each in (largest, at_least)
        )
    given = np.full(len(observed), np.nan) if relative is None else relative
    is_given = np.isfinite(given)
    weight = np.where(is_given, given, 1.0)
    if seen_often.any():
        scale = float(np.median((observed / weight)[seen_often]))
    else:
        scale = float((largest / weight).max(initial=0.0))
    likely = np.where(is_given, scale * weight, np.where(seen_often, observed, np.maximum(scale, largest)))
    is_observed = seen_often & ~is_given
    spread = np.fmax(spread, _LEAST_SPREAD * likely)
    low, high = (likely - spread).clip(min=0.0), likely + spread
    if is_observed.any():
        # Who was never busy is taken to be like the others.
        slowest, fastest = low[is_observed].min(), high[is_observed].max()
    else:
        slowest, fastest = 0.0, _UNKNOWN_FACTOR * scale
    low = np.where(is_observed, low, np.where(is_given, likely, np.maximum(slowest, at_least)))
    high = np.where(is_observed, high, np.where(is_given, likely, np.maximum(fastest, likely)))
    likely, low, high = (np.nan_to_num(each, nan=0.0) for each in (likely, low, high))
    return Speeds(likely, low, high, is_observed, is_given)


def estimate(history: History, relative: Floats | None = None, known: KnownSpeeds | None = None) -> Estimates:
    """Estimate speeds and arrivals of a period, and their bounds; no loop over rows or members.

    relative, known: See :func:`estimate_speeds`.
    """
    is_set = history.went_back.copy()
    is_left_out = (is_set | history.may_lose)[1:]
    speeds = estimate_speeds(history, relative, is_left_out, known)
    if speeds.is_observed.any():
        is_set[1:] |= _is_skipped(history, speeds)
        is_left_out |= is_set[1:]
        speeds = estimate_speeds(history, relative, is_left_out, known)
    work = _member_work(history, is_left_out)
    is_busy = _is_busy(work, history.interval_s[:, None], speeds)
    speed = _speeds_by_interval(history, work, speeds, is_busy)
    start, end, from_s, rate = _arrivals(history, work, speed, is_busy, is_left_out)
    weight = _weights(history, work, is_busy, is_left_out)
    has_stops = _of_rows(history, is_busy & ~speeds.is_configured)
    return Estimates(speed, start, end, from_s, rate, weight, has_stops, is_set, speeds.is_observed)


def _is_skipped(history: History, speeds: Speeds) -> Bools:
    """Whether offsets went forward by more than the rows' owner can have processed: [S - 1, P]."""
    work = _member_work(history, np.zeros(history.arrived.shape, dtype=np.bool_))
    fastest = np.maximum(speeds.likely, speeds.likely.max())
    too_much = work.processed > _SKIP_FACTOR * fastest * (history.interval_s[:, None] + NOISE_S)
    return _of_rows(history, too_much) & (work.row_processed > 0)


def _of_rows(history: History, of_members: NDArray[Any]) -> NDArray[Any]:
    """The value of each row's owner at the begin of each interval, 0 or false without one: [S - 1, P]."""
    owner = history.owner[:-1]
    with_none = np.append(of_members, np.zeros((len(owner), 1), dtype=of_members.dtype), axis=1)
    found: NDArray[Any] = with_none[np.arange(len(owner))[:, None], owner]
    return found


def _weights(history: History, work: _Work, is_busy: Bools, is_left_out: Bools) -> Floats:
    """Shares of the rows of members that waited throughout, by what was processed of them: [S - 1, P]."""
    owner = history.owner[:-1]
    size = sum_by_member(owner, owner >= 0, None, len(history.member_keys))
    per_record = np.divide(
        size, work.processed, out=np.zeros_like(size), where=is_busy & (work.processed > 0)
    )
    of_row = _of_rows(history, per_record)
    weight = np.where(of_row > 0, of_row * np.nan_to_num(work.row_processed), 1.0)
    return np.maximum(np.where(is_left_out, 1.0, weight), _LEAST_WEIGHT)


def _speeds_by_interval(history: History, work: _Work, speeds: Speeds, is_busy: Bools) -> Floats:
    """Speeds in each case and interval: [3, S - 1, M].

    Of a member that was behind throughout its own rate, also if it was stuck; else that of the period, but
    what it did process it could.
    """
    interval_s = history.interval_s[:, None]
    rate = work.processed / interval_s
    by_case = np.stack(
        [np.broadcast_to(each, rate.shape) for each in (speeds.likely, speeds.high, speeds.low)]
    )
    # While a group rebalances, nothing but the records that were processed is sure.
    is_sure = (work.is_stable & work.is_complete) | speeds.is_configured
    by_case[Case.MOST] = np.where(is_sure, by_case[Case.MOST], 0.0)
    kept_rate = work.kept_processed / interval_s
    at_least = np.stack([np.where(work.is_complete, rate, kept_rate)] * 2 + [kept_rate])
    at_least = np.where(speeds.is_configured, 0.0, at_least)
    return np.asarray(np.where(is_busy & ~speeds.is_configured, rate, np.maximum(by_case, at_least)))


def _arrivals(
    history: History, work: _Work, speed: Floats, is_busy: Bools, is_left_out: Bools
) -> tuple[Floats, Floats, Floats, Floats]:
    """When records came: `at_start`, `at_end`, `from_s` and `rate` of :class:`Estimates`."""
    interval_s = history.interval_s[:, None]
    arrived = history.arrived
    is_told = _of_rows(history, work.is_complete & ~is_busy) & ~is_left_out
    new = work.processed - work.before

    def last_idle_s(case: Case) -> Floats:
        """Seconds until a member is busy for the rest of the interval, at most."""
        took = np.divide(new, speed[case], out=np.zeros_like(new), where=speed[case] > 0)
        seconds = _of_rows(history, np.clip(interval_s - took, 0.0, interval_s))
        return np.asarray(np.minimum(seconds, interval_s * (1 - _MOMENT)))

    processed_new = np.where(is_told | _of_rows(history, is_busy) & ~is_left_out, arrived - work.lag[1:], 0.0)
    processed_new = processed_new.clip(0.0, arrived)
    even = arrived / interval_s
    shape = (len(Case), *arrived.shape)
    at_start, at_end = np.zeros(shape), np.zeros(shape)
    from_s, rate = np.zeros((len(Case), 2, *arrived.shape)), np.zeros((len(Case), 3, *arrived.shape))
    # Likely: even, or a steady part and a burst from the last idle moment on.
    steady = _background(even)
    begins_s = _of_rows(
        history, _burst_begins_s(work, speed[Case.LIKELY], interval_s, _sums(history, steady))
    ).clip(max=interval_s * (1 - _MOMENT))
    is_late = is_told & (begins_s > 0)
    begins_s, first = np.where(is_late, begins_s, 0.0), np.where(is_late, steady, even)
    from_s[Case.LIKELY] = begins_s
    rate[Case.LIKELY, 0] = first
    rate[Case.LIKELY, 1:] = (arrived - first * begins_s) / (interval_s - begins_s)
    # Least: all that may have come at first does, the rest when the member can last have been idle.
    was_idle = work.processed < (1 - _MOMENT) * speed[Case.MOST] * interval_s
    at_start[Case.LEAST] = np.where(is_told & _of_rows(history, was_idle), processed_new, arrived)
    from_s[Case.LEAST] = last_idle_s(Case.MOST)
    from_s[Case.LEAST, 1] += _MOMENT * interval_s
    rate[Case.LEAST, 1] = (arrived - at_start[Case.LEAST]) / (_MOMENT * interval_s)
    # Most: no sooner than the member needed it to process as much as it did.
    begins_s = last_idle_s(Case.LEAST)
    at_end[Case.MOST] = arrived - processed_new
    from_s[Case.MOST] = begins_s
    rate[Case.MOST, 1:] = processed_new / (interval_s - begins_s)
    return at_start, at_end, from_s, rate


def _background(even: Floats) -> Floats:
    """The least rate of each row in an interval and the two around it: what comes steadily."""
    if not len(even):
        return even
    around = np.concatenate([even[:1], even, even[-1:]])
    return np.asarray(np.minimum(np.minimum(around[:-2], even), around[2:]))


def _sums(history: History, rates: Floats) -> Floats:
    owner = history.owner[:-1]
    return sum_by_member(owner, owner >= 0, rates, len(history.member_keys))


def _burst_begins_s(work: _Work, speed: Floats, interval_s: Floats, steady: Floats) -> Floats:
    """Seconds until the burst came that members are behind by at the end; 0: no sign of one: [S - 1, M].

    Until then the member processes the steady arrivals, and from then on as fast as it can, so that it has
    processed what it did.
    """
    left = speed * interval_s - (work.processed - work.before)
    spare = speed - steady
    begins = np.divide(left, spare, out=np.zeros_like(left), where=spare > 0)
    in_flight = COMMIT_INTERVAL_S * work.processed / interval_s
    is_burst = work.is_complete & (work.after > in_flight) & (work.processed < speed * interval_s)
    return np.asarray(np.where(is_burst, np.clip(begins, 0.0, interval_s), 0.0))


def arrival_curves(history: History, estimates: Estimates) -> tuple[Floats, Floats]:
    """Arrived records, and when they arrived: [K + 1, P] each, from before the first end offset on.

    Position 0 is the end offset at the row's first measured lag; earlier arrivals of the period are on the
    curve as estimated. Three points belong to each snapshot: the arrivals until then, all that waits if the
    offset was set again, which then waits from there, and where the rate changes after it. The last one has
    no third.
    """
    num_snapshots, num_rows = history.live.shape
    begins, first, age_s = first_lags(history)
    position = np.zeros((num_snapshots, 3, num_rows))
    moment = np.repeat(history.at_s[:, None, None], 3, axis=1) + np.zeros((1, 1, num_rows))
    again = np.where(estimates.is_set, np.nan_to_num(history.lag), 0.0)
    knot_s = estimates.from_s[Case.LIKELY, 0]
    until_knot = knot_s * estimates.rate[Case.LIKELY, 0]
    total = np.zeros((num_snapshots, num_rows))
    total[1:] = np.cumsum(history.arrived + again[:-1], axis=0)
    position[:, 0] = total
    position[:, 1] = total + again
    position[:, 2] = position[:, 1]
    position[:-1, 2] += until_knot
    moment[:-1, 2] += knot_s
    place = np.arange(num_snapshots)[:, None]
    position -= position[first, 1, np.arange(num_rows)]
    seen_from_s = history.at_s[history.first_end]
    base = np.minimum(-begins, position[0, 0])
    is_older = np.isfinite(age_s) & (base < position[0, 0])
    base_s = np.where(is_older, np.minimum(history.at_s[first] - age_s, seen_from_s), seen_from_s)
    # The curve begins at the row's first end offset.
    waits = (place < history.first_end)[:, None]
    moment = np.where(waits, base_s, moment)
    position = np.where(waits, base, position)
    flat = (3 * num_snapshots, num_rows)
    return (
        np.concatenate([base[None], position.reshape(flat)[:-1]]),
        np.concatenate([base_s[None], moment.reshape(flat)[:-1]]),
    )
