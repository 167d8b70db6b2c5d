"""Intervals and ranks by a paired bootstrap over seeds: runs of a seed are drawn together, records never."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlag.lag.arrays import Floats, Int64s

    Statistic = Callable[..., Floats]

RESAMPLES: Final = 10_000
# With fewer seeds the resamples have too few values for an interval: the least and the largest are shown.
FEWEST_SEEDS: Final = 8
# Contenders whose waiting differs by less share a rank: no user would notice it.
TIE_SHARE: Final = 0.02
TIE_S: Final = 0.1
# What no interval of 95 % holds, at both ends.
_TAILS: Final = (2.5, 97.5)


class Interval(NamedTuple):
    """A statistic of all seeds, and its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class PairedBootstrap:
    """The resamples of S seeds, the same for everything that is compared.

    draws: [B, S] places of seeds; of few seeds None, and intervals are the least and the largest value.
    """

    draws: Int64s | None

    @classmethod
    def of(cls, num_seeds: int, *, resamples: int = RESAMPLES, seed: int = 0) -> PairedBootstrap:
        """Draw the resamples."""
        if num_seeds < FEWEST_SEEDS:
            return cls(None)
        chance = np.random.default_rng([39, seed])
        return cls(chance.integers(0, num_seeds, (resamples, num_seeds)))

    def interval(self, values: Floats, statistic: Statistic = np.median) -> Interval:
        """Return a statistic of values [S] by seed, with its percentile interval of 95 %."""
        value = float(statistic(values))
        if self.draws is None:
            return Interval(value, float(values.min()), float(values.max()))
        low, high = np.percentile(statistic(values[self.draws], axis=1), _TAILS)
        return Interval(value, float(low), float(high))

    def ratio(self, values: Floats, base: Floats, statistic: Statistic = np.median) -> Interval:
        """Return a statistic of each seed's ratio to a base, of values above 0."""
        return self.interval(values / base, statistic)

    def difference(self, values: Floats, base: Floats, statistic: Statistic = np.median) -> Interval:
        """Return a statistic of each seed's difference to a base."""
        return self.interval(values - base, statistic)

    def rank(self, waiting_s: Floats, others_s: Floats) -> Interval:
        """Return the rank, 1 the best, of a contender [S] among others [C, S], by the medians of waiting.

        Only a contender that is better by more than `TIE_SHARE` and `TIE_S` takes a rank. Of few seeds each
        run alone is ranked.
        """
        places = np.arange(len(waiting_s))[:, None] if self.draws is None else self.draws
        found = ranks(np.median(waiting_s[places], axis=1), np.median(others_s[:, places], axis=2))
        tails = (0.0, 100.0) if self.draws is None else _TAILS
        low, high = np.percentile(found, tails, method="nearest")
        return Interval(rank_by_waiting(waiting_s, others_s), float(low), float(high))


def rank_by_waiting(waiting_s: Floats, others_s: Floats) -> int:
    """Return the rank of a contender [S] among others [C, S], by the medians of waiting over all seeds."""
    return int(ranks(np.median(waiting_s, keepdims=True), np.median(others_s, axis=1, keepdims=True))[0])


def ranks(own_s: Floats, others_s: Floats) -> Int64s:
    """Return ranks [B] of waiting [B] among that of others [C, B]."""
    least = own_s - np.maximum(TIE_SHARE * own_s, TIE_S)
    return np.asarray(1 + (others_s < least).sum(axis=0))
