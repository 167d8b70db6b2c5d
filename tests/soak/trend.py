"""Whether what is measured again and again grows: by the trend of the whole, never by single values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Trend:
    """How a measure went over a run, its warm-up left out.

    rise: What the Theil-Sen line (the median of the slopes of all pairs) rises by from the first value to
        the last, in the measure's unit.
    thirds: Medians of the first, the middle and the last third.
    allowance: What it may rise by.
    """

    rise: float
    thirds: tuple[float, float, float]
    allowance: float

    @property
    def is_growing(self) -> bool:
        """Whether it rises by more than is allowed, and still does so in the end.

        Both have to say so: a step in the middle lifts the line but not the last third over the one before
        it as much; a few large values at the end lift neither. What grows evenly by the allowance stands
        a third of it higher from third to third.
        """
        _, middle, last = self.thirds
        return self.rise > self.allowance and last - middle > self.allowance / 3


def trend(values: Sequence[float], *, warm_up: int, allowance: float = 0.0, relative: float = 0.0) -> Trend:
    """Judge a series.

    values: In the order of time, evenly spaced.
    allowance: What it may rise by over the rest, in its unit.
    relative: The same as a share of the first third's median; the larger of both counts.
    """
    rest = np.asarray(values[warm_up:], dtype=float)
    if rest.size < 6:  # two for each third
        raise ValueError(f"{rest.size} values after a warm-up of {warm_up}: a trend needs six")
    slope = float(stats.theilslopes(rest, np.arange(rest.size))[0])
    first, middle, last = (float(np.median(part)) for part in np.array_split(rest, 3))
    return Trend(slope * (rest.size - 1), (first, middle, last), max(allowance, relative * first))
