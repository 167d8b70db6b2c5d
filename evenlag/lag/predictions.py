"""What lag and waiting of a group will be at the next snapshot and at the horizon, with 90 % intervals.

A member is one queue: ``Q = X - min(0, min X)``, with ``X(t) = lag + arrivals - speed * t``. Errors of
earlier predictions give the interval (adaptive conformal inference, Gibbs and Candès 2021): each side is a
factor times the mean error, larger after a miss and smaller after a hit, so that either side misses one time
in twenty whatever the errors are.

The functions work on N partitions, M members and G groups at once; a member is one of one group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from evenlag.lag.arrays import Bools, Floats, Int64s, largest_in_groups
from evenlag.lag.speeds import NOISE_S

MEASURES: Final = ("total_lag_records", "max_member_lag_records", "time_lag_ms")
MISS: Final = 0.1
"""Share of the predictions whose interval does not hold."""
_FIRST_FACTOR: Final = 2.5
_STEP: Final = 0.3
_FACTORS: Final = (0.05, 50.0)
# The share of the newest error in the mean error, once there are as many.
_NEWEST: Final = 0.1
# Predictions have an interval after so many that were scored.
_LEAST_SCORED: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """Members at a snapshot, [M]; a group's partitions without an owner have one of speed 0.

    group: int64, ascending. is_member: bool, False for what has no owner.
    lag: Records. consumed: Records per second since the previous snapshot; NaN: unknown.
    behind_s: The longest time behind of its partitions; NaN: unknown.
    speed: Measured, records per second; NaN: unknown. is_bound: It is at least that.
    arrivals: [M, K] mean rates in the steps of the horizon.
    step_s: [M] seconds of a step.
    """

    group: Int64s
    is_member: Bools
    lag: Floats
    consumed: Floats
    behind_s: Floats
    speed: Floats
    is_bound: Bools
    arrivals: Floats
    step_s: Floats

    def rates(self, *, is_steady: bool) -> Floats:
        """Return what each member processes while it has records: records per second.

        A member who is behind was busy, so what it consumed is its speed, unless that is measured.

        is_steady: By measured speeds; and who keeps up goes on doing so, whatever the last interval shows:
            commits come in steps.
        """
        now = self.arrivals[:, 0]
        consumed = np.where(np.isfinite(self.consumed), self.consumed, now)
        if is_steady:
            consumed = np.where(self.lag <= NOISE_S * now, np.maximum(consumed, now), consumed)
            known = np.where(self.is_bound, np.fmax(consumed, self.speed), self.speed)
            consumed = np.where(np.isfinite(self.speed), known, consumed)
        return np.where(self.is_member, consumed.clip(min=0.0), 0.0)


def predict(members: Members, ahead_s: Floats, idle_s: Floats, num_groups: int, *, is_steady: bool) -> Floats:
    """Return the measures [G, measures] so many seconds [G] ahead; NaN where they are not known.

    idle_s: [G] seconds of arrivals that members who keep up are behind when they are seen.
    is_steady: As for :meth:`Members.rates`.
    """
    after_s = ahead_s[members.group]
    num_steps = members.arrivals.shape[1]
    edges_s = members.step_s[:, None] * np.arange(num_steps + 1)
    came = np.cumsum(members.arrivals * members.step_s[:, None], axis=1)
    came = np.column_stack([np.zeros(len(came)), came])
    arrived = _at(after_s, edges_s, came, members.arrivals)
    speed = members.rates(is_steady=is_steady)
    level = members.lag[:, None] + came - speed[:, None] * edges_s
    end = members.lag + arrived - speed * after_s
    lowest = np.where(edges_s < after_s[:, None], level, np.inf).min(axis=1)
    queue = end - np.minimum(np.minimum(lowest, end), 0.0)
    rate = np.divide(arrived, after_s, out=np.zeros(len(queue)), where=after_s > 0)
    idle = np.where(members.is_member & is_steady, idle_s[members.group], 0.0)
    queue = np.maximum(queue, idle * rate)
    wait_s = np.maximum(_age_s(members, queue, arrived, rate, after_s), np.where(queue > 0, idle, 0.0))
    total = np.bincount(members.group, queue, num_groups)
    largest = largest_in_groups(np.where(members.is_member, queue, np.nan), members.group, num_groups)
    return np.column_stack([total, largest, 1_000 * largest_in_groups(wait_s, members.group, num_groups)])


def _at(at_s: Floats, edges_s: Floats, came: Floats, rates: Floats) -> Floats:
    """Records that came until a moment of each row; after the last step its rate goes on."""
    each = np.arange(len(at_s))
    step = ((edges_s <= at_s[:, None]).sum(axis=1) - 1).clip(0, rates.shape[1] - 1)
    found: Floats = came[each, step] + (at_s - edges_s[each, step]) * rates[each, step]
    return found


def _age_s(members: Members, queue: Floats, arrived: Floats, rate: Floats, after_s: Floats) -> Floats:
    """Age of the oldest record of each queue: of those that came since, or a share of the present backlog."""
    is_new = queue <= arrived
    young = np.divide(queue, rate, out=np.zeros(len(queue)), where=rate > 0)
    share = np.divide(queue - arrived, members.lag, out=np.zeros(len(queue)), where=members.lag > 0)
    old = after_s + members.behind_s * share.clip(0.0, 1.0)
    return np.where(queue <= 0, 0.0, np.where(is_new, young, old))


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """State of predictions of one kind, all arrays of one shape.

    error: Mean absolute error so far; NaN: none. scored: Number of predictions that were scored.
    below, above: Factors of the error: the interval's sides.
    """

    error: Floats
    scored: Floats
    below: Floats
    above: Floats

    @classmethod
    def new(cls, shape: tuple[int, ...]) -> Intervals:
        """Return the state before any prediction was scored."""
        first = np.full(shape, _FIRST_FACTOR)
        return cls(np.full(shape, np.nan), np.zeros(shape), first, first.copy())

    def around(self, predicted: Floats) -> tuple[Floats, Floats]:
        """Return lower and upper bounds of what is predicted; NaN while too few were scored."""
        error = np.where(self.scored >= _LEAST_SCORED, self.error, np.nan)
        return np.maximum(predicted - self.below * error, 0.0), predicted + self.above * error

    def after(self, predicted: Floats, lower: Floats, upper: Floats, actual: Floats) -> Intervals:
        """Return the state after predictions were scored; what is NaN was not."""
        off = np.abs(predicted - actual)
        is_scored = np.isfinite(off)
        share = np.maximum(_NEWEST, 1 / (self.scored + 1))
        before = np.where(np.isfinite(self.error), self.error, 0.0)
        is_bounded = is_scored & np.isfinite(lower)
        sides = []
        for factor, other, is_missed in (
            (self.below, self.above, actual < lower),
            (self.above, self.below, actual > upper),
        ):
            # Where the other side never misses, this one may miss as often as both.
            allowed = np.where(other <= _FACTORS[0], MISS, MISS / 2)
            step = np.exp(_STEP * (is_missed - allowed))
            sides.append(np.where(is_bounded, (factor * step).clip(*_FACTORS), factor))
        return replace(
            self,
            error=np.where(is_scored, before + share * (off - before), self.error),
            scored=self.scored + is_scored,
            below=sides[0],
            above=sides[1],
        )


def newer_mean(mean: Floats, error: Floats) -> Floats:
    """Return a mean error with the newest one; NaN is none."""
    return np.where(
        np.isfinite(error), np.where(np.isfinite(mean), mean + _NEWEST * (error - mean), error), mean
    )
