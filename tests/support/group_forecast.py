"""The forecast of one group whose ends are seen one after the other, as tests and simulations have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evenlag.lag.forecast import (
    HOURS_BEFORE,
    MODELS,
    SCENARIOS,
    STEPS,
    Errors,
    Hours,
    Rates,
    Seen,
    advance,
    draw_arrivals,
    forecast_rates,
    likely_growth,
)

if TYPE_CHECKING:
    from evenlag.enums import ForecastModel
    from evenlag.lag.arrays import Floats, Int64s


class GroupForecast:
    """The forecast of one group whose ends are seen one after the other, as a simulation has them."""

    def __init__(self, num_partitions: int, horizon_s: float, *, hour_s: float = 3_600.0) -> None:
        self._group = np.zeros(num_partitions, dtype=np.int64)
        self._horizon_s = np.array([horizon_s])
        self._rates, self._errors = Rates.unknown(num_partitions), Errors.none(1)
        self._hour_s = hour_s
        self._by_hour: dict[int, Floats] = {}
        self._seen: Seen | None = None
        self._hour_begins: tuple[float, Floats] | None = None

    def observe(self, at_s: float, end: Int64s) -> None:
        """Add the ends [P] of a snapshot, of a later one each time."""
        self._finish_hour(at_s, end)
        unknown = np.full(len(end), np.nan)
        read_at = np.full(len(end), at_s)
        self._seen = Seen(self._group, read_at, end.astype(np.float64), unknown, self._horizon_s)
        self._rates, self._errors = advance(self._rates, self._errors, self._seen, self._hours(at_s))

    def rates(self) -> Floats:
        """Return the mean rates [P, STEPS]; 0 where nothing is known."""
        if self._seen is None:
            return np.zeros((len(self._group), STEPS))
        return forecast_rates(self._rates, self._errors, self._seen, self._hours(float(self._seen.at_s[0])))

    def arrivals(self, num_scenarios: int = SCENARIOS) -> Floats:
        """Return the records that arrive in scenarios: [S, P, STEPS]."""
        step_s = float(self._horizon_s[0]) / STEPS
        errors = self._errors
        return draw_arrivals(self.rates(), step_s, errors.common[0], errors.own[0], num_scenarios)

    @property
    def growth(self) -> float:
        """What :func:`likely_growth` says of the errors so far."""
        return likely_growth(self._errors.common[0])

    @property
    def model(self) -> ForecastModel:
        """The chosen model."""
        return MODELS[max(int(self._errors.model[0]), 0)]

    def _finish_hour(self, at_s: float, end: Int64s) -> None:
        """Keep the rates of the hour that is over, by the snapshots next after its begin and its end."""
        begins = self._hour_begins
        if begins is not None and at_s // self._hour_s == begins[0] // self._hour_s:
            return
        if begins is not None:
            rate = (end - begins[1]) / (at_s - begins[0])
            for number in range(int(begins[0] // self._hour_s), int(at_s // self._hour_s)):
                self._by_hour[number] = rate
        self._hour_begins = at_s, end.astype(np.float64)

    def _hours(self, at_s: float) -> Hours:
        now = int(at_s // self._hour_s)
        reach = int(self._horizon_s[0] // self._hour_s) + 1
        wanted = [
            now - before + number
            for before in HOURS_BEFORE.values()
            for number in range(-reach, reach + 1)
            if now - before + number in self._by_hour
        ]
        rate = np.zeros((len(self._group), len(wanted)))
        for place, number in enumerate(wanted):
            rate[:, place] = self._by_hour[number]
        return Hours(np.array(wanted, dtype=np.int64), rate, self._hour_s)
