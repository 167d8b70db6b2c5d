"""Metrics of a simulation: lag and time lag over time, drain time, and the error of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.lag.speeds import NOISE_S
from evenlag.simulation.estimates import Estimates, arrival_curves
from evenlag.simulation.history import ROUNDING_RECORDS, History, first_lags
from evenlag.simulation.waiting import SentCurves

if TYPE_CHECKING:
    from evenlag.lag.arrays import Floats
    from evenlag.simulation.fluid_model import Simulated

_WIDE: Final = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class ScenarioMetrics:
    """Metrics of L scenarios; times in ms.

    lag, time_lag_ms: [L, S]: of the group, and the age of the oldest unprocessed record.
    max_member_lag: [3, L, S], of the most loaded member, by :class:`~evenlag.simulation.estimates.Case`.
    mean_lag: [3, L] the integral of the group's lag in the model, divided by the length of the period.
    drain_time_ms: [L] from the snapshot with the largest measured lag on; NaN if the period ends before.
    """

    lag: Floats
    max_member_lag: Floats
    time_lag_ms: Floats
    mean_lag: Floats
    drain_time_ms: Floats


def measure_scenarios(history: History, estimates: Estimates, simulated: Simulated) -> ScenarioMetrics:
    """Compute the metrics of all scenarios; no loop over rows or snapshots."""
    backlog = simulated.backlog
    age_ms = 1000.0 * time_lags_s(history, estimates, backlog)
    drain_s = simulated.drain_s.max(axis=1, initial=0.0)
    return ScenarioMetrics(
        lag=backlog.sum(axis=2).T,
        max_member_lag=simulated.max_member_lag.transpose(0, 2, 1),
        time_lag_ms=age_ms.max(axis=2, initial=0.0).T,
        mean_lag=simulated.lag_records_s.sum(axis=1) / (history.at_s[-1] - history.at_s[0]),
        drain_time_ms=np.where(np.isfinite(drain_s), 1000.0 * drain_s, np.nan),
    )


def time_lags_s(history: History, estimates: Estimates, backlog: Floats) -> Floats:
    """Compute the age of the oldest unprocessed record.

    The k-th record of a row arrived when its arrivals, as estimated, passed k. Records before the
    first end offset of the period arrived evenly over the measured time lag. If that is unknown, their age
    counts from that first end offset: no record counts as older than was measured.

    Returns [S, L, P] seconds; 0 without a backlog.
    """
    position, moment = arrival_curves(history, estimates)
    queue = np.broadcast_to(np.arange(backlog.shape[2]), backlog.shape)
    came = SentCurves(position, moment).sent_at(queue, position[2::3, None, :] - backlog, ROUNDING_RECORDS)
    age = (history.at_s[:, None, None] - came).clip(min=0.0)
    return np.where(backlog > ROUNDING_RECORDS, age, 0.0)


def count_unknown_ages(history: History) -> int:
    """Count rows whose first backlog has an unknown age: their time lag is a lower bound."""
    begins, first, age_s = first_lags(history)
    columns = np.arange(len(begins))
    arrived = np.zeros(history.live.shape)
    np.cumsum(history.arrived, axis=0, out=arrived[1:])
    is_older = begins > arrived[first, columns] + ROUNDING_RECORDS
    return int((is_older & np.isnan(age_s)).sum())


def model_error(history: History, backlog: Floats) -> dict[str, Any]:
    """Compare the observed scenario's simulation [S, P] with the measured lag, after the first snapshot.

    Only snapshots with lag count: at least the arrivals of ten seconds, measured or simulated. In a snapshot
    without, every model is right. Of a group that never has so much, all count.

    Returns columns of ``replays``: |simulated - measured| lag of the group, in records, and relative to the
    measured lag, or to the arrivals of ten seconds if these are more.
    """
    known = history.known
    is_known = known[1:].any(axis=1)
    if not is_known.any():
        return {"num_error_snapshots": 0}
    measured, simulated = (
        np.where(known, lag, 0.0).sum(axis=1)[1:][is_known] for lag in (history.lag, backlog)
    )
    rate = (np.where(known[1:], history.arrived, 0.0).sum(axis=1) / history.interval_s)[is_known]
    in_flight = np.maximum(NOISE_S * rate, 1.0)
    has_lag = np.maximum(measured, simulated) >= in_flight
    counts = has_lag if has_lag.any() else np.ones_like(has_lag)
    off = np.abs(simulated - measured)[counts]
    share = off / np.maximum(measured, in_flight)[counts]
    return {
        "median_error": float(np.median(share)),
        "p95_error": float(np.percentile(share, 95)),
        "median_error_records": float(np.median(off)),
        "p95_error_records": float(np.percentile(off, 95)),
        "num_error_snapshots": int(counts.sum()),
    }


def wide_share(history: History, lag: Floats, max_member_lag: Floats) -> float | None:
    """Share of the snapshots with lag, after the first, whose bounds of the largest member lag are wide.

    A snapshot has lag from the group's arrivals of ten seconds on. None: none has.

    lag, max_member_lag: [S] of the group, [3, S] by case.
    """
    in_flight = NOISE_S * history.arrived.sum(axis=1) / history.interval_s
    likely, least, most = max_member_lag[:, 1:]
    has_lag = lag[1:] >= np.maximum(in_flight, 1.0)
    is_wide = most - least > _WIDE * np.maximum(likely, in_flight)
    return float(is_wide[has_lag].mean()) if has_lag.any() else None


def measure_history(history: History) -> dict[str, Any]:
    """Return columns of ``replays`` of the measured lag; no loop over partitions or snapshots.

    The mean is over time, of the sum of the known lags, linear between snapshots. Unknown lag adds nothing,
    so it is a lower bound if ``measured_unknown_share``, weighted in the same way, is above 0. So is the
    largest time lag if there are ``num_unknown_time_lags``: of partitions that have lag, or may have.
    """
    known = history.known
    unknown = history.live & ~known
    total = np.where(known, history.lag, 0.0).sum(axis=1)
    has_age = history.live & np.isfinite(history.age_s)
    needs_age = history.live & ~(known & (history.lag == 0))
    ages_s = history.age_s[has_age]
    half_s = history.interval_s / 2
    around_s = np.append(half_s, 0.0) + np.append(0.0, half_s)
    period_s = float(around_s.sum())
    all_s = float(around_s @ history.live.sum(axis=1))
    is_measured = period_s > 0 and known.any()
    return {
        "measured_mean_lag_records": float(around_s @ total) / period_s if is_measured else None,
        "measured_max_lag_records": round(float(total.max())) if known.any() else None,
        "num_unknown_lags": int(unknown.sum()),
        "measured_unknown_share": float(around_s @ unknown.sum(axis=1)) / all_s if all_s > 0 else None,
        "measured_max_time_lag_ms": round(1000.0 * float(ages_s.max())) if len(ages_s) else None,
        "num_unknown_time_lags": int((needs_age & ~has_age).sum()),
    }
