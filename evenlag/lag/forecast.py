"""Forecast of the records that arrive: four models for each partition, the best of a group by its errors.

The functions work on N partitions of G groups at once, ordered by group. The state of a snapshot follows from
that of the previous one: at each snapshot the models' forecasts of its interval are scored, and once in a
horizon those of a horizon. Nothing else of the past is needed but the rates of a few hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from evenlag.enums import ForecastModel
from evenlag.lag.arrays import Bools, Floats, Int64s, largest_in_groups

STEPS: Final = 6
"""Steps of a horizon: a forecast has a mean rate for each."""
SCENARIOS: Final = 8
MODELS: Final = tuple(ForecastModel)
_LAST, _SMOOTHED, _YESTERDAY, _LAST_WEEK = range(len(MODELS))
HOURS_BEFORE: Final = {_YESTERDAY: 24, _LAST_WEEK: 168}
# A rate of ten minutes ago counts a third of one of now.
_SMOOTHING_S: Final = 600.0
# Errors of so long ago count a third; of so many horizons ago.
_ERROR_MEMORY_S: Final = 6 * 3_600.0
_ERROR_MEMORY_HORIZONS: Final = 30
# The model of a group changes only for one whose errors are smaller by so much, after a trial: an hour of a
# season, or the time of the smoothing.
_BETTER: Final = 0.95
_LEAST_INTERVAL_S: Final = 1.0
# A horizon is not scored by a snapshot that comes so much later.
_MOST_HORIZONS: Final = 1.5
# Errors are relative to the forecast, or to this share of the mean partition's, if that is more.
_LEAST_SHARE: Final = 0.1
# Of eight equally likely errors of a group's sum, this one counts as likely.
_LIKELY_OF, _LIKELY = 8, 4
_UPPER_EDGES: Final = (0.02, 0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.75, 1, 1.5, 2.5, 5, 10)
_ERROR_EDGES: Final = np.array([*(-edge for edge in _UPPER_EDGES[8::-1]), 0, *_UPPER_EDGES])
ERROR_BINS: Final = len(_ERROR_EDGES) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What a snapshot shows of N partitions of G groups.

    group: int64 [N], ascending. at_s: [N] when the end was read, in seconds since the epoch.
    end: [N] offsets; NaN: unknown.
    rate: [N] a rate that is known otherwise, in records per second: of the newest part of the interval, or
        before there is a state. NaN: none.
    horizon_s: [G].
    """

    group: Int64s
    at_s: Floats
    end: Floats
    rate: Floats
    horizon_s: Floats

    @property
    def num_groups(self) -> int:
        """G."""
        return len(self.horizon_s)

    def newest(self, at_s: Floats) -> Floats:
        """Return the newest known moment [N] of each group: [G]; NaN without any."""
        return largest_in_groups(at_s, self.group, self.num_groups)


@dataclass(frozen=True, slots=True, eq=False)
class Hours:
    """Rates of some hours: number since the epoch int64 [H], records per second [N, H]; NaN: unknown."""

    number: Int64s
    rate: Floats
    hour_s: float = 3_600.0

    def mean_rate(self, begin_s: Floats, end_s: Floats, hours_before: int) -> Floats:
        """Return mean rates [N, ...] of times [N, ...], so many hours before; NaN where one is unknown."""
        seconds = np.maximum(end_s - begin_s, 1e-9)
        records = np.zeros(begin_s.shape)
        covered = np.zeros(begin_s.shape)
        wide = (slice(None), *(None,) * (begin_s.ndim - 1))
        for place, number in enumerate(self.number.tolist()):
            from_s = (number + hours_before) * self.hour_s
            within = np.minimum(end_s, from_s + self.hour_s) - np.maximum(begin_s, from_s)
            rate = self.rate[:, place][wide]
            within = np.where(np.isfinite(rate), within.clip(min=0.0), 0.0)
            records += np.where(within > 0, rate, 0.0) * within
            covered += within
        return np.where(covered > 0.999 * seconds, records / seconds, np.nan)


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """State of N partitions. NaN: unknown.

    at_s, end: The newest end that is known, and when it was read.
    last, smoothed: Records per second of the last interval, and smoothed exponentially.
    anchor_…: The same at the snapshot from which the next forecast of a horizon is scored.
    """

    at_s: Floats
    end: Floats
    last: Floats
    smoothed: Floats
    anchor_at_s: Floats
    anchor_end: Floats
    anchor_last: Floats
    anchor_smoothed: Floats

    @classmethod
    def unknown(cls, num_partitions: int) -> Rates:
        """Return the state of partitions that no snapshot has shown."""
        return cls(*(np.full(num_partitions, np.nan) for _ in cls.__dataclass_fields__))

    def take(self, place: Int64s) -> Rates:
        """Return the states at these indexes; of -1 nothing is known."""
        return Rates(*(_take(getattr(self, name), place) for name in self.__dataclass_fields__))


@dataclass(frozen=True, slots=True, eq=False)
class Errors:
    """State of G groups: which model is chosen, and how far forecasts were off.

    model: int64 [G], index in :data:`MODELS`; -1: a new group.
    loss, base: [G, 2, models] decayed absolute errors, in records, of a model and of the last rate in the
        same times: of the next interval and of the horizon.
    tried_s: [G, models] decayed seconds for which a model was scored.
    common, own: [G, ERROR_BINS] decayed counts of relative errors: of the group's sum, and of partitions
        beside it.
    is_of_horizon: bool [G], whether these are errors of horizons; else of intervals.
    """

    model: Int64s
    loss: Floats
    base: Floats
    tried_s: Floats
    common: Floats
    own: Floats
    is_of_horizon: Bools

    @classmethod
    def none(cls, num_groups: int) -> Errors:
        """Return the state of new groups."""
        loss, bins = (num_groups, 2, len(MODELS)), (num_groups, ERROR_BINS)
        return cls(
            np.full(num_groups, -1, dtype=np.int64),
            np.zeros(loss),
            np.zeros(loss),
            np.zeros((num_groups, len(MODELS))),
            np.zeros(bins),
            np.zeros(bins),
            np.zeros(num_groups, dtype=np.bool_),
        )

    def take(self, place: Int64s) -> Errors:
        """Return the states at these indexes; -1 is a new group."""
        new = Errors.none(len(place))
        is_old = place >= 0
        for name in self.__dataclass_fields__:
            getattr(new, name)[is_old] = getattr(self, name)[place[is_old]]
        return new


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """What arrived at N partitions within some seconds, and what each model forecast: [N, models] records.

    has_season: bool [N, models], whether the forecast is of a season, whose rate is known.
    """

    is_known: Bools
    seconds: Floats
    arrived: Floats
    forecast: Floats
    has_season: Bools


def advance(rates: Rates, errors: Errors, seen: Seen, hours: Hours) -> tuple[Rates, Errors]:
    """Return the states after a snapshot, from those after the previous one.

    rates, errors: In the order of the snapshot's partitions and groups.
    hours: Rates of the hours in which the interval and the horizon were a day and a week before.
    """
    interval = _compare(rates.at_s, rates.end, np.stack([rates.last, rates.smoothed]), seen, hours)
    errors = _score(errors, interval, seen, horizon=False)
    now_s, anchored_s = (seen.newest(at_s) for at_s in (seen.at_s, rates.anchor_at_s))
    is_due = ~(now_s - anchored_s < seen.horizon_s)
    anchors = np.stack([rates.anchor_last, rates.anchor_smoothed])
    is_late = now_s - anchored_s > _MOST_HORIZONS * seen.horizon_s
    due = (is_due & ~is_late)[seen.group]
    if due.any():
        since_anchor = _compare(rates.anchor_at_s, rates.anchor_end, anchors, seen, hours, due)
        errors = _score(errors, since_anchor, seen, horizon=True)
    return _anchored(_observed(rates, seen), is_due[seen.group], seen), _choose(errors, hours.hour_s)


def _compare(
    at_s: Floats, end: Floats, known: Floats, seen: Seen, hours: Hours, is_wanted: Bools | None = None
) -> _Scored:
    """Compare what the models forecast at an earlier moment with what has arrived since."""
    seconds, arrived = seen.at_s - at_s, seen.end - end
    is_known = (seconds >= _LEAST_INTERVAL_S) & (arrived >= 0) & np.isfinite(known).all(axis=0)
    if is_wanted is not None:
        is_known &= is_wanted
    forecast = np.zeros((len(seconds), len(MODELS)))
    has_season = np.zeros(forecast.shape, dtype=np.bool_)
    forecast[:, [_LAST, _SMOOTHED]] = known.T
    for model, before in HOURS_BEFORE.items():
        season = hours.mean_rate(at_s, seen.at_s, before)
        has_season[:, model] = np.isfinite(season) & is_known
        forecast[:, model] = np.where(has_season[:, model], season, known[1])
    forecast *= seconds[:, None]
    return _Scored(is_known, seconds, arrived, forecast, has_season)


def _score(errors: Errors, scored: _Scored, seen: Seen, *, horizon: bool) -> Errors:
    """Add what forecasts were off by."""
    rows = np.flatnonzero(scored.is_known)
    group, num_groups = seen.group[rows], seen.num_groups
    off = np.abs(scored.forecast[rows] - scored.arrived[rows, None])
    off = np.stack([np.bincount(group, each, num_groups) for each in off.T], axis=1)
    is_tried = np.stack(
        [np.bincount(group, each, num_groups) > 0 for each in scored.has_season[rows].T], axis=1
    )
    seconds = _mean(scored.seconds[rows], group, num_groups)
    is_scored = seconds > 0
    is_tried[:, [_LAST, _SMOOTHED]] = is_scored[:, None]
    kept = np.exp(-seconds / _ERROR_MEMORY_S)
    place = int(horizon)
    loss, base = errors.loss.copy(), errors.base.copy()
    loss[:, place] = loss[:, place] * kept[:, None] + np.where(is_tried, off, 0.0)
    base[:, place] = base[:, place] * kept[:, None] + np.where(is_tried, off[:, [_LAST]], 0.0)
    tried_s = errors.tried_s
    if not horizon:
        tried_s = tried_s * kept[:, None] + np.where(is_tried, seconds[:, None], 0.0)
    counted = is_scored if horizon else is_scored & ~errors.is_of_horizon
    errors = replace(errors, loss=loss, base=base, tried_s=tried_s)
    return _count_errors(errors, scored, seen, counted, horizon=horizon)


def _count_errors(errors: Errors, scored: _Scored, seen: Seen, counted: Bools, *, horizon: bool) -> Errors:
    """Count the relative errors of the chosen models, of the groups that count them."""
    rows = np.flatnonzero(scored.is_known & counted[seen.group])
    if not len(rows):
        return errors
    group, num_groups = seen.group[rows], seen.num_groups
    seconds = scored.seconds[rows]
    forecast = scored.forecast[rows, errors.model[group].clip(min=0)] / seconds
    arrived = scored.arrived[rows] / seconds
    expected, came = (np.bincount(group, each, num_groups) for each in (forecast, arrived))
    ratio = np.divide(came, expected, out=np.ones(num_groups), where=expected > 0)
    ratio[(expected <= 0) & (came > 0)] = 1 + _ERROR_EDGES[-1]
    size = np.bincount(group, minlength=num_groups)
    least = _LEAST_SHARE * came / np.maximum(size, 1)
    shared = forecast * ratio[group]
    scale = np.maximum(shared, least[group])
    own = np.divide(arrived - shared, scale, out=np.zeros(len(rows)), where=scale > 0)
    # The first errors of a horizon replace those of intervals, which are of another size.
    is_first = counted & ~errors.is_of_horizon & horizon
    kept = np.where(is_first, 0.0, np.where(counted, np.exp(-1 / _ERROR_MEMORY_HORIZONS), 1.0))[:, None]
    common_bin, own_bin = _bin(ratio - 1), group * ERROR_BINS + _bin(own)
    common = errors.common * kept
    common[counted, common_bin[counted]] += 1.0
    counts = np.bincount(own_bin, 1.0 / size[group], num_groups * ERROR_BINS)
    return replace(
        errors,
        common=common,
        own=errors.own * kept + counts.reshape(num_groups, ERROR_BINS),
        is_of_horizon=errors.is_of_horizon | (counted & horizon),
    )


def _bin(error: Floats) -> Int64s:
    place = np.searchsorted(_ERROR_EDGES, error, side="right") - 1
    return np.asarray(place.clip(0, ERROR_BINS - 1), dtype=np.int64)


def _observed(rates: Rates, seen: Seen) -> Rates:
    """Add the rates of the last interval."""
    seconds, arrived = seen.at_s - rates.at_s, seen.end - rates.end
    is_known = (seconds >= _LEAST_INTERVAL_S) & (arrived >= 0)
    whole = np.divide(arrived, seconds, out=np.full(len(seconds), np.nan), where=is_known)
    last = np.where(np.isfinite(seen.rate) & (is_known | np.isnan(rates.last)), seen.rate, whole)
    weight = -np.expm1(-np.where(is_known, seconds, 0.0) / _SMOOTHING_S)
    # A rate from before there is a state may be that of a topic's first seconds: no forecast by it is scored.
    smoothed = np.where(np.isnan(rates.smoothed), whole, rates.smoothed + weight * (whole - rates.smoothed))
    # A log that ends earlier than it did has lost records: its rates stay as they were.
    is_newer = np.isfinite(seen.end) & ~(seconds < _LEAST_INTERVAL_S)
    return replace(
        rates,
        at_s=np.where(is_newer, seen.at_s, rates.at_s),
        end=np.where(is_newer, seen.end, rates.end),
        last=np.where(np.isfinite(last), last, rates.last),
        smoothed=np.where(np.isfinite(smoothed), smoothed, rates.smoothed),
    )


def _anchored(rates: Rates, is_due: Bools, seen: Seen) -> Rates:
    """Begin a horizon with the partitions whose rates are known now; one that lost records has no anchor."""
    is_begun = is_due & np.isfinite(rates.smoothed) & np.isfinite(seen.end)
    is_lost = ~is_due & (seen.end < rates.anchor_end)
    anchors = {}
    for name in ("at_s", "end", "last", "smoothed"):
        before = np.where(is_due | is_lost, np.nan, getattr(rates, f"anchor_{name}"))
        anchors[f"anchor_{name}"] = np.where(is_begun, getattr(rates, name), before)
    return replace(rates, **anchors)


def _choose(errors: Errors, hour_s: float) -> Errors:
    """Choose the model with the least errors beside those of the last rate; keep it unless beaten."""
    ratio = np.divide(errors.loss, errors.base, out=np.ones(errors.loss.shape), where=errors.base > 0)
    # A horizon that was not scored yet says nothing.
    is_known = errors.base > 0
    score = np.where(is_known, ratio, 0.0).sum(axis=1) / np.maximum(is_known.sum(axis=1), 1)
    score = np.where(is_known.any(axis=1), score, 1.0)
    trial_s = np.array([0.0, _SMOOTHING_S, hour_s, hour_s])
    score[errors.tried_s < trial_s] = np.inf
    score[:, _LAST] = 1.0
    now = errors.model.clip(min=0)
    best = score.argmin(axis=1)
    each = np.arange(len(now))
    is_better = score[each, best] < _BETTER * score[each, now]
    return replace(errors, model=np.where(is_better, best, now).astype(np.int64))


def forecast_rates(rates: Rates, errors: Errors, seen: Seen, hours: Hours) -> Floats:
    """Return the mean rate of each partition in each step of its group's horizon: [N, STEPS]."""
    model = errors.model[seen.group]
    level = np.where((model == _LAST) | np.isnan(rates.smoothed), rates.last, rates.smoothed)
    found = np.repeat(np.nan_to_num(level, nan=0.0)[:, None], STEPS, axis=1)
    step_s = seen.horizon_s / STEPS
    for season, before in HOURS_BEFORE.items():
        rows = np.flatnonzero(model == season)
        if not len(rows):
            continue
        group = seen.group[rows]
        begin = seen.newest(seen.at_s)[group][:, None] + step_s[group][:, None] * np.arange(STEPS)
        chosen = replace(hours, rate=hours.rate[rows])
        mean = chosen.mean_rate(begin, begin + step_s[group][:, None], before)
        found[rows] = np.where(np.isfinite(mean), mean, found[rows])
    return found


def draw_arrivals(
    mean: Floats, step_s: float, common: Floats, own: Floats, num_scenarios: int = SCENARIOS
) -> Floats:
    """Return records that arrive at one group's partitions, [S, P, K], in equally likely scenarios.

    A scenario has one of S quantiles of the group's common error, and each partition one of S quantiles of
    partitions' own errors, for the whole horizon; over the scenarios each partition has all of them.

    mean: [P, K] forecast rates. common, own: [ERROR_BINS], as :class:`Errors` has them.
    num_scenarios: A power of two.
    """
    scenario, partition = np.arange(num_scenarios), np.arange(len(mean), dtype=np.uint64)
    mixed = partition * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    # An odd factor and a shift permute the numbers below a power of two.
    factor, shift = (mixed >> np.uint64(8)) * np.uint64(2) + np.uint64(1), mixed >> np.uint64(40)
    place = (factor * scenario[:, None].astype(np.uint64) + shift) % np.uint64(num_scenarios)
    ratio = 1.0 + _quantiles(common, num_scenarios)
    error = _quantiles(own, num_scenarios)[place.astype(np.int64)]
    rate = mean * ratio[:, None, None]
    scale = np.maximum(rate, _LEAST_SHARE * rate.mean(axis=1, keepdims=True))
    return np.asarray(np.maximum(rate + error[:, :, None] * scale, 0.0) * step_s)


def likely_growth(common: Sequence[float] | Floats) -> float:
    """Return by what factor more than a group's forecast is likely to arrive, by its errors; at least 1.

    common: :data:`ERROR_BINS` counts, as :class:`Errors` has them; none: 1.
    """
    counts = np.asarray(common, dtype=np.float64)
    if len(counts) != ERROR_BINS:
        return 1.0
    return max(1.0 + float(_quantiles(counts, _LIKELY_OF)[_LIKELY]), 1.0)


def _quantiles(counts: Floats, number: int) -> Floats:
    """Return equally likely errors; all 0 without any."""
    total = counts.sum()
    if not total > 0:
        return np.zeros(number)
    above = np.append(np.cumsum(counts[::-1])[::-1], 0.0) / total
    wanted = (np.arange(number) + 0.5) / number
    # Of bins without errors, which are flat, the lower edge ends the one before.
    return np.asarray(np.interp(-wanted, above[::-1] - 1.0, _ERROR_EDGES[::-1]))


def _mean(values: Floats, group: Int64s, num_groups: int) -> Floats:
    counts = np.bincount(group, minlength=num_groups)
    return np.asarray(np.bincount(group, values, num_groups) / np.maximum(counts, 1))


def _take(values: Floats, place: Int64s) -> Floats:
    if not len(values):
        return np.full(len(place), np.nan)
    return np.where(place >= 0, values[place], np.nan)
