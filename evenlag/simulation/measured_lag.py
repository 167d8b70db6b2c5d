"""The measured lag of a group over a period, from the rows of ``lag`` themselves: no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from evenlag.simulation.history import History


@dataclass(frozen=True, slots=True)
class MeasuredLag:
    """Metrics of a group's measured lag; None where nothing is known.

    mean_records: Time average of the sum of the known lags, linear between snapshots: each snapshot counts
        for half of the interval before it and half of the one after it. Unknown lag adds nothing, so this
        is a lower bound if `unknown_share` > 0.
    max_records: Largest sum over the partitions in a snapshot; those with unknown lag add nothing.
    num_unknown: Number of unknown lags, per partition and snapshot.
    unknown_share: Share of the partitions' time, weighted in the same way, with unknown lag.
    max_time_lag_ms: Largest measured time lag of a partition in a snapshot.
    num_unknown_time_lags: Number of partitions per snapshot that have lag, or may have, but no time lag:
        the largest time lag is a lower bound.
    """

    mean_records: float | None
    max_records: int | None
    num_unknown: int
    unknown_share: float | None
    max_time_lag_ms: int | None
    num_unknown_time_lags: int


def measure_history(history: History) -> MeasuredLag:
    """Return the metrics of the measured lag; no loop over partitions or snapshots."""
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
    return MeasuredLag(
        mean_records=float(around_s @ total) / period_s if period_s > 0 and known.any() else None,
        max_records=round(float(total.max())) if known.any() else None,
        num_unknown=int(unknown.sum()),
        unknown_share=float(around_s @ unknown.sum(axis=1)) / all_s if all_s > 0 else None,
        max_time_lag_ms=round(1000.0 * float(ages_s.max())) if len(ages_s) else None,
        num_unknown_time_lags=int((needs_age & ~has_age).sum()),
    )
