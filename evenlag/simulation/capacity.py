"""The capacity of members, estimated from their processing rates while they had a backlog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evenlag.simulation.history import History

# Twice auto.commit.interval.ms: a smaller backlog may be records that are processed but not yet committed.
BUSY_BACKLOG_S: Final = 10.0
# One interval may contain a pause or a burst; the median of three ignores it.
_FEWEST_INTERVALS: Final = 3


@dataclass(frozen=True, slots=True)
class Capacities:
    """The capacities of members.

    records_per_s: [M], finite.
    is_observed: bool [M]: measured while the member was busy; otherwise assumed.
    """

    records_per_s: NDArray[np.float64]
    is_observed: NDArray[np.bool_]


def estimate_capacities(history: History, relative: NDArray[np.float64] | None = None) -> Capacities:
    """Estimate the capacity of each member over a period.

    A member is busy in an interval if it owns the same partitions at both ends and if its backlog at both
    ends is more than the arrivals of ten seconds. Its capacity is the median of its rates in at least three
    such intervals. Intervals without progress do not count: that member was stuck, not loaded.

    A member without enough busy intervals gets the median of the observed capacities, or its own largest
    rate if that is higher. If no member was busy, all get the largest rate of any member, a lower bound.

    A partition whose lag is never known is not simulated, so its part of a member's rate is left out. Where
    other lag is unknown, the rate of the known partitions is a lower bound of the member's: it counts among
    the largest rates, not in the median.

    relative: [M] relative capacities from the policy; NaN for members without a rule. A member with a rule
        gets its share of the group's observed scale, whatever its own rates.
    """
    rates, is_busy = _member_rates(history)
    busy_rates = np.where(is_busy & (rates > 0), rates, np.nan)
    seen_often = np.isfinite(busy_rates).sum(axis=0) >= _FEWEST_INTERVALS
    observed = np.where(seen_often, _median(busy_rates), np.nan)
    given = np.full(len(observed), np.nan) if relative is None else relative
    weight = np.where(np.isfinite(given), given, 1.0)
    largest = np.nan_to_num(rates, nan=0.0).max(axis=0, initial=0.0)
    if seen_often.any():
        scale = float(np.median((observed / weight)[seen_often]))
    else:
        scale = float((largest / weight).max(initial=0.0))
    assumed = np.maximum(scale * weight, largest)
    is_observed = seen_often & ~np.isfinite(given)
    capacity = np.where(is_observed, observed, np.where(np.isfinite(given), scale * weight, assumed))
    return Capacities(np.nan_to_num(capacity, nan=0.0), is_observed)


def _median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Median of the known values of each column; NaN if there are none."""
    ranked = np.sort(values, axis=0)
    count = np.isfinite(ranked).sum(axis=0)
    columns = np.arange(values.shape[1])
    last = max(len(values) - 1, 0)
    if not len(values):
        return np.full(values.shape[1], np.nan)
    low = ranked[np.clip((count - 1) // 2, 0, last), columns]
    high = ranked[np.clip(count // 2, 0, last), columns]
    return np.where(count > 0, (low + high) / 2, np.nan)


def _member_rates(history: History) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Rates of members by interval, of the partitions with known lag, and whether they were busy: [S - 1, M].

    NaN where none is known; busy only where all are.
    """
    num_intervals, num_members = history.num_snapshots - 1, len(history.member_keys)
    lag = history.lag
    owner = np.where(history.known.any(axis=0), history.owner, np.int32(-1))
    kept = (owner[:-1] >= 0) & (owner[:-1] == owner[1:])
    measured = kept & np.isfinite(lag[:-1]) & np.isfinite(lag[1:])
    interval = np.broadcast_to(np.arange(num_intervals)[:, None], kept.shape)

    def by_member(
        who: NDArray[np.int32], where: NDArray[np.bool_], what: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        cell = interval[where] * num_members + who[where]
        summed = np.bincount(
            cell, None if what is None else what[where], minlength=num_intervals * num_members
        )
        return summed.reshape(num_intervals, num_members).astype(np.float64)

    processed = (history.arrived + lag[:-1] - lag[1:]).clip(min=0.0)
    held_before = by_member(owner[:-1], owner[:-1] >= 0, None)
    held_after = by_member(owner[1:], owner[1:] >= 0, None)
    num_measured = by_member(owner[:-1], measured, None)
    is_measured = (num_measured > 0) & (num_measured == held_before) & (num_measured == held_after)
    rates = np.where(
        num_measured > 0, by_member(owner[:-1], measured, processed) / history.interval_s[:, None], np.nan
    )
    backlog = np.minimum(by_member(owner[:-1], measured, lag[:-1]), by_member(owner[1:], measured, lag[1:]))
    arriving = by_member(owner[:-1], measured, history.arrived) / history.interval_s[:, None]
    return rates, is_measured & (backlog > 0) & (backlog >= BUSY_BACKLOG_S * arriving)
