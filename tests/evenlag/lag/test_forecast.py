"""The forecast of arrivals, beside manual calculations and the processes that the arrivals come from."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import pytest

from evenlag.enums import ForecastModel
from evenlag.lag.forecast import (
    ERROR_BINS,
    SCENARIOS,
    STEPS,
    Errors,
    Hours,
    Rates,
    Seen,
    advance,
    draw_arrivals,
    forecast_rates,
)
from tests.bench.field.traces import SIZES, make_trace
from tests.support.each import for_each
from tests.support.group_forecast import GroupForecast

if TYPE_CHECKING:
    from evenlag.lag.arrays import Floats, Int64s

_DAY_S = 86_400


def _no_hours(num_partitions: int) -> Hours:
    return Hours(np.zeros(0, dtype=np.int64), np.zeros((num_partitions, 0)))


def _hours(rates: dict[int, list[float]]) -> Hours:
    return Hours(np.array(list(rates)), np.array(list(rates.values())).T)


def _seen(at_s: float, end: list[float], *, group: list[int] | None = None, horizon_s: float = 600.0) -> Seen:
    groups = np.array([0] * len(end) if group is None else group)
    unknown = np.full(len(end), np.nan)
    return Seen(groups, np.full(len(end), at_s), np.array(end), unknown, np.full(groups.max() + 1, horizon_s))


def _advance(seens: list[Seen]) -> tuple[Rates, Errors]:
    rates, errors = Rates.unknown(len(seens[0].end)), Errors.none(seens[0].num_groups)
    for seen in seens:
        rates, errors = advance(rates, errors, seen, _no_hours(len(seen.end)))
    return rates, errors


def test_rates_and_errors_as_calculated() -> None:
    # 60 records a minute, then 180 in two minutes from one partition and none from the other.
    rates, errors = _advance([_seen(0, [0, 5]), _seen(60, [60, 5]), _seen(180, [240, 5])])
    assert rates.last.tolist() == [1.5, 0.0]
    assert rates.smoothed[0] == pytest.approx(1.0 + (1 - np.exp(-120 / 600)) * 0.5)
    # The last rate, and the smoothed one that is the same then, forecast 120 of the 180 records.
    assert errors.loss[0, 0, :2].tolist() == [60.0, 60.0]
    assert errors.loss[0, 1].tolist() == [0.0] * 4


def test_a_horizon_is_scored_once_it_is_over() -> None:
    seens = [_seen(at_s, [float(at_s)], horizon_s=120) for at_s in (0, 60, 120)]
    # From 60 on a horizon of 120 s: forecast 120 records, came 60 + 30.
    later = [*seens, _seen(180, [150.0], horizon_s=120)]
    assert _advance(seens)[1].loss[0, 1, 0] == 0.0
    rates, errors = _advance(later)
    assert errors.loss[0, 1, 0] == 120 - 90
    assert (rates.anchor_at_s[0], rates.anchor_end[0]) == (180.0, 150.0)
    assert errors.is_of_horizon.all()


def test_a_day_before_as_calculated() -> None:
    # Hour 0 had 1 record per second, hour 1 had 3: from half past to half past it was 2.
    hours = _hours({0: [1.0], 1: [3.0]})
    begin = np.array([[_DAY_S + 1_800.0, _DAY_S + 3_600.0, _DAY_S + 5_400.0]])
    found = hours.mean_rate(begin, begin + 3_600.0, 24)
    np.testing.assert_allclose(found, [[2.0, 3.0, np.nan]])


@for_each(
    [
        ("a log that lost records", 120.0, 20.0),
        ("an end that is not known", 120.0, np.nan),
        ("the same moment", 60.0, 170.0),
        ("a clock that went back", 30.0, 170.0),
    ]
)
def test_what_cannot_be_compared_changes_no_rate(case: tuple[str, float, float]) -> None:
    before, errors = _advance([_seen(0, [100.0]), _seen(60, [160.0])])
    rates, scored = advance(before, errors, _seen(case[1], [case[2]]), _no_hours(1))
    assert rates.last.tolist() == [1.0]
    assert rates.smoothed.tolist() == [1.0]
    assert scored.loss.tolist() == errors.loss.tolist()


def test_a_log_that_lost_records_goes_on_from_its_new_end() -> None:
    lost, _ = _advance([_seen(0, [100.0]), _seen(60, [160.0]), _seen(120, [20.0]), _seen(180, [140.0])])
    assert lost.last.tolist() == [2.0]


def test_a_snapshot_that_is_missing_only_makes_the_interval_longer() -> None:
    rates, _ = _advance([_seen(0, [0.0]), _seen(60, [60.0]), _seen(60 + 600, [60.0 + 1_200])])
    assert rates.last.tolist() == [2.0]


def test_a_topic_that_is_created_again_begins_anew() -> None:
    rates, _ = _advance([_seen(0, [0.0, 7.0]), _seen(60, [60.0, 127.0])])
    # The state of the second partition goes with its topic id.
    taken = rates.take(np.array([0, -1]))
    later, _ = advance(taken, Errors.none(1), _seen(120, [120.0, 3.0]), _no_hours(2))
    assert later.last[0] == 1.0
    assert np.isnan(later.last[1])


def test_groups_do_not_affect_each_other() -> None:
    chance = np.random.default_rng(1)
    ends = np.cumsum(chance.poisson(60, (30, 5)), axis=0).astype(float)
    both = [_seen(60 * place, end.tolist(), group=[0, 0, 1, 1, 1]) for place, end in enumerate(ends)]
    rates, errors = _advance(both)
    for group, rows in enumerate((slice(0, 2), slice(2, 5))):
        own_rates, own_errors = _advance(
            [_seen(60 * place, end[rows].tolist()) for place, end in enumerate(ends)]
        )
        for name in (field.name for field in fields(Rates)):
            np.testing.assert_array_equal(getattr(rates, name)[rows], getattr(own_rates, name))
        for name in (field.name for field in fields(Errors)):
            np.testing.assert_array_equal(getattr(errors, name)[group], getattr(own_errors, name)[0])


def _follow(ends: Int64s, every_s: float, horizon_s: float, *, hour_s: float = 3_600.0) -> GroupForecast:
    group = GroupForecast(ends.shape[1], horizon_s, hour_s=hour_s)
    for place, end in enumerate(ends):
        group.observe(place * every_s, end)
    return group


def _totals(rates: Floats, every_s: float, chance: np.random.Generator) -> Int64s:
    sent = np.cumsum(chance.poisson(rates * every_s), axis=0)
    return np.vstack([np.zeros_like(sent[:1]), sent])


def test_constant_rates_are_smoothed() -> None:
    # Of constant rates, the mean of many intervals is nearer than the last one.
    true = np.array([1.0, 5.0, 20.0])
    ends = _totals(np.tile(true, (120, 1)), 60, np.random.default_rng(2))
    group = _follow(ends, 60, 600)
    assert group.model is ForecastModel.SMOOTHED_RATE
    # Ten intervals weigh: a tenth of a Poisson count's variance is left, here three deviations of it.
    error = np.abs(group.rates() - true[:, None])
    assert (error <= 3 * np.sqrt(true / 60 / 10)[:, None]).all()


def test_a_random_walk_has_the_last_rate() -> None:
    trace = make_trace("walks", 1, 0.75, SIZES["simulation"])
    records, _ = trace.arrivals(trace.num_partitions)
    group = _follow(np.cumsum(records, axis=0)[::60], 60, 300)
    assert group.model is ForecastModel.LAST_RATE


@pytest.mark.parametrize(
    ("num_days", "model"),
    [(1, ForecastModel.SAME_HOUR_YESTERDAY), (7, ForecastModel.SAME_HOUR_LAST_WEEK)],
    ids=["each day", "each week"],
)
def test_a_season_is_found(num_days: int, model: ForecastModel) -> None:
    # Jumps at full hours that nothing but the season tells; a week has another pattern each day.
    chance = np.random.default_rng(3)
    pattern = chance.uniform(1, 10, (24 * num_days, 3))
    hour = np.arange((num_days + 2) * 24 * 6) // 6
    group = _follow(_totals(pattern[hour % len(pattern)], 600, chance), 600, 1_800)
    assert group.model is model


def test_a_season_forecasts_the_jump_within_the_horizon() -> None:
    # Odd hours have 8 records per second, even ones 2. Ten minutes before an odd hour, an hour is forecast.
    moments = np.arange(0, 5 * _DAY_S + 10 * 3_600 + 3_000 + 1, 600)
    rate = np.where(moments // 3_600 % 2 == 1, 8, 2)
    ends = np.concatenate([[0], np.cumsum(rate[:-1] * 600)])[:, None]
    group = _follow(ends, 600, 3_600)
    assert group.model is ForecastModel.SAME_HOUR_YESTERDAY
    assert group.rates().tolist() == [[2.0, *[8.0] * 5]]


def test_clock_jitter_and_unequal_intervals_change_no_constant_rate() -> None:
    chance = np.random.default_rng(4)
    at_s = np.cumsum(chance.choice([20.0, 60.0, 300.0], 100))
    group = GroupForecast(1, 600)
    for moment in at_s:
        # The end is read up to half a second before or after the time that is stored.
        jitter = chance.uniform(-0.5, 0.5)
        group.observe(moment, np.array([int(100 * (moment + jitter))]))
    assert group.rates() == pytest.approx(100.0, rel=0.01)


def test_scenarios_have_the_errors_that_were_made() -> None:
    # Each horizon, one of four partitions sends three times as much. The first begins with the first rate.
    chance = np.random.default_rng(5)
    factor = np.repeat(np.where(np.arange(4) == chance.integers(4, size=200)[:, None], 3.0, 1.0), 10, axis=0)
    group = _follow(_totals(10 * factor[9:], 60, chance), 60, 600)
    mean, arrivals = group.rates(), group.arrivals()
    assert arrivals.shape == (SCENARIOS, 4, STEPS)
    relative = arrivals[:, :, 0] / 100 / mean[:, 0]
    # Some scenario has a burst, but not in all partitions, and most are near the mean.
    assert relative.max() > 1.5
    assert np.median(relative) == pytest.approx(1.0, abs=0.35)
    assert (arrivals >= 0).all()
    np.testing.assert_array_equal(arrivals, group.arrivals())


def test_scenarios_without_errors_are_the_mean() -> None:
    mean = np.array([[1.0, 2.0], [3.0, 4.0]])
    none = np.zeros(ERROR_BINS)
    np.testing.assert_array_equal(draw_arrivals(mean, 10.0, none, none, 4), np.tile(10 * mean, (4, 1, 1)))


def test_each_partition_has_each_error_once() -> None:
    own = np.zeros(ERROR_BINS)
    own[:] = 1.0
    arrivals = draw_arrivals(np.ones((50, 1)), 1.0, np.zeros(ERROR_BINS), own, 8)
    for partition in range(50):
        np.testing.assert_array_equal(np.sort(arrivals[:, partition, 0]), np.sort(arrivals[:, 0, 0]))
    assert len(np.unique(arrivals[0])) > 4


def test_a_group_that_was_idle_expects_nothing() -> None:
    group = _follow(np.zeros((50, 3), dtype=np.int64), 60, 600)
    assert not group.rates().any()
    assert not group.arrivals().any()


def test_no_partitions_and_no_groups() -> None:
    nothing = np.zeros(0)
    seen = Seen(np.zeros(0, dtype=np.int64), nothing, nothing, nothing, nothing)
    rates, errors = advance(Rates.unknown(0), Errors.none(0), seen, _no_hours(0))
    assert forecast_rates(rates, errors, seen, _no_hours(0)).shape == (0, STEPS)
