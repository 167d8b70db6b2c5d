"""Simulated results of the candidates as plain values, and the error of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Beyond these relative errors of the model the page warns (ADR 84).
LARGE_MEDIAN_ERROR: Final = 0.1
LARGE_P95_ERROR: Final = 0.25


@dataclass(frozen=True, slots=True)
class MeasuredResult:
    """Measured lag on the days that were simulated; None: unknown.

    unknown_lags, unknown_share, unknown_time_lags: Unknown lags, share of the time, and time lags: if there
        are any, the largest lag, the mean lag and the largest time lag are lower bounds.
    """

    mean_lag_records: float | None
    max_lag_records: int
    max_time_lag_ms: int | None
    unknown_lags: int
    unknown_share: float | None
    unknown_time_lags: int


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """Simulated result of a policy over the days that all policies have.

    name: Name of the policy; ``observed`` is the real assignment, simulated like the others.
    p95_time_lag_ms, drain_time_ms, num_not_drained: Mean of the 95th percentiles of the days; median over
        the days, None if the median day did not drain; number of days that did not drain.
    optimality_gap: Mean relative distance of the most loaded member from the lower bound; None: unknown.
    is_best: As in `evenlag compare`: the least time lag, then the least mean lag, then the fewest moves;
        several policies may be equal.
    unknown_ages: Partitions whose initial lag has no known age: if there are any, time lags are lower
        bounds.
    unknown_partitions: Partitions whose lag was never known: if there are any, lags and time lags are lower
        bounds.
    measured: For ``observed`` only: measured lag, without the model; None: unknown.
    """

    name: str
    num_days: int
    mean_lag_records: float
    max_lag_records: int
    p95_time_lag_ms: float
    max_time_lag_ms: int
    drain_time_ms: float | None
    num_not_drained: int
    moves: int
    rebalances: int
    optimality_gap: float | None = None
    is_best: bool = False
    unknown_ages: int = 0
    unknown_partitions: int = 0
    measured: MeasuredResult | None = None


@dataclass(frozen=True, slots=True)
class ModelError:
    """How far the simulation of the real assignment is from the measured lag, over the snapshots with lag.

    median, p95: Relative error; over several days, the median of the days.
    text: Both, also in records, as `evenlag compare` says it.
    """

    median: float
    p95: float
    text: str

    @property
    def is_large(self) -> bool:
        """Whether small differences between candidates say nothing."""
        return self.median > LARGE_MEDIAN_ERROR or self.p95 > LARGE_P95_ERROR
