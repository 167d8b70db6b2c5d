"""The runs of one trace and utilisation as arrays by contender, with intervals and ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.bench.field.statistics import PairedBootstrap, rank_by_waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lag.arrays import Floats
    from tests.bench.field.results import ResultFile
    from tests.bench.field.statistics import Interval

OURS: Final = "evenlag"
"""The contender that is ranked: classic, `auto`, each minute. Its other forms take no rank from it."""
KAFKAS: Final = ("range", "cooperative-sticky", "uniform")
REFERENCES: Final = ("oracle", "bound")
# Waiting below a millisecond is none: ratios are of at least so much.
_LEAST_S: Final = 0.001


@dataclass(eq=False)
class FieldTable:
    """The runs of a file on the seeds that all its contenders have."""

    file: ResultFile

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds, ascending."""
        known = [set(runs) for runs in self.file.runs.values()]
        return sorted(set.intersection(*known)) if known else []

    @cached_property
    def bootstrap(self) -> PairedBootstrap:
        """The resamples of these seeds."""
        return PairedBootstrap.of(len(self.seeds))

    def values(self, contender: str, measure: str) -> Floats:
        """Return a measure [S] by seed; infinite where it did not end, such as a drain."""
        runs = self.file.runs[contender]
        found: list[Any] = [runs[seed][measure] for seed in self.seeds]
        return np.array([np.inf if value is None else value for value in found], dtype=np.float64)

    def waiting_s(self, contender: str, measure: str = "p99_s") -> Floats:
        """Return a percentile of waiting [S], at least a millisecond."""
        return np.maximum(self.values(contender, measure), _LEAST_S)

    def interval(self, contender: str, measure: str) -> Interval:
        """Return the median over seeds."""
        return self.bootstrap.interval(self.values(contender, measure))

    def ratio(self, contender: str, base: str) -> Interval:
        """Return the median ratio of the 99th percentiles of waiting."""
        return self.bootstrap.ratio(self.waiting_s(contender), self.waiting_s(base))

    def best(self, contenders: Sequence[str]) -> str:
        """Return the contender with the least median of the 99th percentile."""
        return min(contenders, key=lambda name: (float(np.median(self.waiting_s(name))), name))

    @property
    def kafkas(self) -> list[str]:
        """Kafka's own assignors among the contenders."""
        return [name for name in KAFKAS if name in self.file.runs]

    @property
    def others(self) -> list[str]:
        """All that compete with evenlag."""
        return [name for name in self.file.runs if not name.startswith(OURS) and name not in REFERENCES]

    def rank(self) -> Interval:
        """Return evenlag's rank among :attr:`others`."""
        return self.bootstrap.rank(
            self.waiting_s(OURS), np.stack([self.waiting_s(name) for name in self.others])
        )

    def better(self) -> list[str]:
        """Return who takes a rank before evenlag, the best first."""
        own, waiting_s = self.waiting_s(OURS), {name: self.waiting_s(name) for name in self.others}
        ahead = [name for name in waiting_s if rank_by_waiting(own, waiting_s[name][None]) > 1]
        return sorted(ahead, key=lambda name: float(np.median(waiting_s[name])))
