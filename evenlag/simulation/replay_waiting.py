"""How long records wait in a replay, interval by interval."""

from __future__ import annotations

from typing import Final

import numpy as np

from evenlag.lag.arrays import Bools, Floats, Int64s
from evenlag.simulation.estimates import Case, Estimates, arrival_curves
from evenlag.simulation.history import ROUNDING_RECORDS, History
from evenlag.simulation.waiting import SentCurves, Waiting, Waits, measure_waiting

_MOST_PARTS: Final = 2_000_000
_BINS: Final = 4_096


class ReplayWaits:
    """The waits of L scenarios in the likely case.

    Records count that arrive after the first measured lag of their row. A row that is never measured is not
    simulated, and has none. What is not started when the row goes, or at the end of the period, waits until
    then; so does what retention deletes, or a new offset passes. What waits at a new offset waits again.
    """

    def __init__(self, history: History, estimates: Estimates, num_scenarios: int) -> None:
        self._at_s, self._num_scenarios = history.at_s, num_scenarios
        self._estimates = estimates
        position, moment = arrival_curves(history, estimates)
        counts = history.known.any(axis=0) & (position[1:] > 0)
        records = np.where(counts, np.diff(position, axis=0), 0.0)
        self._num_records = float(records.sum())
        self._curves = SentCurves(position, moment, records)
        # At each snapshot before and after its new offsets.
        self._sent = position[1::3], position[2::3]
        self._scenario: list[Int64s] = []
        self._waits: list[Waits] = []

    def add(
        self, place: int, span_s: tuple[float, float], before: Floats, after: Floats, area: Floats
    ) -> None:
        """Add a part of the interval after a snapshot, by backlogs and their integral: [L, P].

        The backlog bends once: where the arrivals change, in the middle, or where it reaches 0, so that its
        integral is the model's.
        """
        since_s, until_s = span_s
        lasts_s = until_s - since_s
        knot_s = self._estimates.from_s[Case.LIKELY, 0, place] - since_s
        bends_s = np.where((knot_s > 0) & (knot_s < lasts_s), knot_s, lasts_s / 2) + 0 * before
        middle = (2 * area - before * bends_s - after * (lasts_s - bends_s)) / lasts_s
        np.divide(2 * area, before + after, out=bends_s, where=middle < -ROUNDING_RECORDS)
        bends_s, middle = bends_s.clip(max=lasts_s), middle.clip(min=0.0)
        moments = np.stack([0 * bends_s, bends_s, np.full(bends_s.shape, lasts_s)])
        come = self._estimates.arrived_by(Case.LIKELY, place, since_s + moments)
        started = self._sent[1][place] + come - np.stack([before, middle, after])
        started[1] = started[1].clip(started[0], started[2])
        at_s = self._at_s[place] + since_s + moments
        is_late = np.maximum(np.maximum(before, after), middle) > ROUNDING_RECORDS
        for part in (slice(0, 2), slice(1, 3)):
            self._add(is_late, started[part], at_s[part])

    def end(self, place: int, goes: Bools, backlog: Floats, kept: Floats) -> None:
        """Let what rows do not keep of their backlog be started at a snapshot."""
        is_late = goes & (backlog - kept > ROUNDING_RECORDS)
        sent = np.broadcast_to(self._sent[0][place], backlog.shape)
        at_s = np.full((2, *backlog.shape), self._at_s[place])
        self._add(is_late, np.stack([sent - backlog, sent - kept]), at_s)

    def measure(self) -> tuple[Waiting, ...]:
        """Return the measures of each scenario."""
        scenario, waits = self._merged()
        measured = []
        for number in range(self._num_scenarios):
            own = Waits(*(column[scenario == number] for column in waits))
            measured.append(measure_waiting(own.of_all(self._num_records)))
        return tuple(measured)

    def _add(self, is_late: Bools, started: Floats, at_s: Floats) -> None:
        scenario, row = np.nonzero(is_late)
        part, waits = self._curves.waits(row, started[:, is_late], at_s[:, is_late])
        self._scenario.append(scenario[part])
        self._waits.append(waits)
        if sum(map(len, self._scenario)) > _MOST_PARTS:
            scenario, waits = self._merged()
            scenario, waits = merge_alike(scenario, waits)
            self._scenario, self._waits = [scenario], [waits]

    def _merged(self) -> tuple[Int64s, Waits]:
        empty = np.zeros(0)
        columns = zip(Waits(empty, empty, empty), *self._waits, strict=True)
        waits = Waits._make(np.concatenate(column) for column in columns)
        return np.concatenate([empty.astype(np.int64), *self._scenario]), waits


def merge_alike(scenario: Int64s, waits: Waits) -> tuple[Int64s, Waits]:
    """Merge parts of a scenario with the same ends but for a percent, or a hundredth of a millisecond."""
    low, high = (np.log1p(column * 1_000) * 100 for column in waits[:2])
    code = (scenario * _BINS + low.astype(np.int64)) * _BINS + high.astype(np.int64)
    distinct, place = np.unique(code, return_inverse=True)
    records: Floats = np.bincount(place, waits.records).astype(np.float64)
    ends = [
        np.divide(np.bincount(place, column * waits.records), records, out=0 * records, where=records > 0)
        for column in waits[:2]
    ]
    return distinct // _BINS**2, Waits(ends[0], ends[1], records)
