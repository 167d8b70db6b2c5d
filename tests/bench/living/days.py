"""How even a group stays over random days: cooperative-sticky, today's hints, living hints, and an oracle.

``python -m tests.bench.living.days [--days N] [--processes N]`` writes ``docs/bench/living_hints.json`` and
``docs/bench/living_hints.svg``. The days are those of the seeds 0, 1, 2, …, so a shorter run is a part of a
longer one.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tests.bench.living.policies import LivingHints, Oracle, Policy, TodaysHints
from tests.bench.living.simulation import largest_loads, run_day
from tests.bench.living.world import make_day

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

RESULTS: Final = Path(__file__).resolve().parents[3] / "docs" / "bench" / "living_hints.json"
_NOTE_EVERY_DAYS = 25
# Bins of the largest load by the mean, or by the least possible; more than ten times counts as ten times.
_BINS = 10_000
_MOST = 10.0


class Way(NamedTuple):
    """A policy, and how often its loads are measured."""

    policy: type[Policy]
    loads_every_minutes: int = 5


BASE, TARGET, GOAL = "cooperative-sticky", "living hints, 5 min", "oracle"
WAYS: Final = {
    BASE: Way(Policy),
    "today's hints": Way(TodaysHints),
    "living hints, 1 min": Way(LivingHints, 1),
    TARGET: Way(LivingHints, 5),
    "living hints, 15 min": Way(LivingHints, 15),
    GOAL: Way(Oracle),
}
# The third is the second one, in the minutes after the members have changed.
MEASURES: Final = ("by_mean", "by_least_possible", "by_least_possible_after_a_change")
_AFTER_A_CHANGE_S = 300


@dataclass(eq=False)
class Total:
    """What one way adds up to over days.

    seconds: [3, bins], how long the largest load was so large, by each measure.
    sums: Of all measures, each by seconds.
    counts: Moves, rebalances, and hints followed.
    """

    seconds: NDArray[np.float64] = field(default_factory=lambda: np.zeros((3, _BINS)))
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, dtype=np.int64))

    def add(self, other: Total) -> None:
        """Add the days of another total."""
        self.seconds += other.seconds
        self.sums += other.sums
        self.counts += other.counts

    def figures(self, days: int) -> dict[str, Any]:
        """Return means, 95th percentiles, and counts a day."""
        figures: dict[str, Any] = {}
        for number, name in enumerate(MEASURES):
            spent = np.cumsum(self.seconds[number])
            at = int(np.searchsorted(spent, 0.95 * spent[-1]))
            figures[name] = {
                "mean": round(float(self.sums[number] / spent[-1]), 4),
                "p95": round(1 + (at + 0.5) * (_MOST - 1) / _BINS, 4),
            }
        names = ("moves", "rebalances", "hints_followed")
        return figures | {
            f"{name}_a_day": round(float(count) / days, 1)
            for name, count in zip(names, self.counts, strict=True)
        }


def run_seed(seed: int, ways: Sequence[str] = tuple(WAYS), **fixed: Any) -> dict[str, Total]:
    """Return a day under each of the ways; `fixed` as in `make_day`."""
    day = make_day(seed, **fixed)
    courses = run_day(day, [(WAYS[name].policy(day), WAYS[name].loads_every_minutes) for name in ways])
    totals = {}
    for name, course in zip(ways, courses, strict=True):
        by_mean, by_bound, seconds, ago = largest_loads(day, course)
        measured = (
            (by_mean, seconds),
            (by_bound, seconds),
            (by_bound, np.where(ago < _AFTER_A_CHANGE_S, seconds, 0.0)),
        )
        total = Total(counts=np.array([course.moves, course.generations, course.hints]))
        for number, (value, weight) in enumerate(measured):
            bins = ((value - 1) * _BINS / (_MOST - 1)).astype(np.int64).clip(0, _BINS - 1)
            total.seconds[number] = np.bincount(bins, weight, minlength=_BINS)
            total.sums[number] = float((value * weight).sum())
        totals[name] = total
    return totals


def report(totals: dict[str, Total], days: int) -> dict[str, Any]:
    """Return the figures of all ways, and how much of the way to the oracle each goes."""
    ways = {name: total.figures(days) for name, total in totals.items()}
    for figures in ways.values():
        figures["share_of_the_way"] = {
            measure: {
                kind: _share(ways[BASE][measure][kind], ways[GOAL][measure][kind], figures[measure][kind])
                for kind in ("mean", "p95")
            }
            for measure in MEASURES
        }
    return {"days": days, "ways": ways}


def _share(base: float, goal: float, value: float) -> float | None:
    return round((base - value) / (base - goal), 3) if base != goal else None


def main(argv: list[str]) -> int:
    """Simulate, write and draw."""
    parser = argparse.ArgumentParser(prog="tests.bench.living.days", description=__doc__)
    parser.add_argument("--days", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args(argv)
    totals: dict[str, Total] = {}
    results: dict[str, Any] = {}
    with ProcessPoolExecutor(arguments.processes) as pool:
        for number, day in enumerate(pool.map(run_seed, range(arguments.days)), 1):
            for name, total in day.items():
                totals.setdefault(name, Total()).add(total)
            if number % _NOTE_EVERY_DAYS == 0 or number == arguments.days:
                results = report(totals, number)
                arguments.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
                sys.stderr.write(f"{number} days\n")
    sys.stdout.write(json.dumps(results, indent=1) + "\n")
    from tests.bench.living.picture import draw

    draw(results, arguments.results.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
