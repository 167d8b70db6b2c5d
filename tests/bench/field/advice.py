"""How many members are advised on the traces of the field, beside an oracle who knows what arrives.

``python -m tests.bench.field.advice [--seeds N] [--only TRACE ...]`` prints figures and merges them into
``docs/bench/field/advice.json``.

The utilisation of a seed is between 0.55 and 0.95, so that the least number of members is as often just
sufficient as just too small. The target is 30 s. Each minute a snapshot, a forecast of five minutes with true
speeds and costs, and advice; a change of the number takes effect at the next minute. Members are queues of
work, and partitions are placed again each minute, by what the advice knows.

The oracle chooses a number for each five minutes, knowing all arrivals: the least sum of them that a greedy
search finds with at most 1 % of the record-time above the target.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from evenlag.lag.forecast import STEPS
from evenlag.planning.advice import HOLD_S, advise, demand, hold
from tests.bench.field.traces import SIZES, make_trace
from tests.support.group_forecast import GroupForecast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lag.arrays import Floats, Int64s
    from evenlag.planning.advice import Held
    from tests.bench.field.traces import Trace

RESULTS: Final = Path(__file__).resolve().parents[3] / "docs" / "bench" / "field" / "advice.json"
TRACES: Final = ("walks", "seasons", "hot", "even", "unequal", "backlog", "recorded")
TARGET_S: Final = 30.0
_EVERY_S, _WINDOW_S, _BEGIN_S = 60, 300, 900
_HORIZON_S: Final = 300.0
_MOST_ABOVE: Final = 0.01
# Days of this trace are so much shorter than real ones; so is the time for which fewer must suffice.
_SPEED_UP: Final = {"seasons": 84.0}


class Played(NamedTuple):
    """Record-time above the target, and all of it, in units of work; the backlog [P] at the end."""

    above: float
    total: float
    backlog: Floats


def place(size: Floats, speed: Floats) -> Int64s:
    """Place partitions, the largest first, each where it takes least of a member's speed."""
    load, target = np.zeros(len(speed)), np.zeros(len(size), dtype=np.int64)
    for row in np.argsort(-size, kind="stable").tolist():
        member = int(np.argmin((load + size[row]) / speed))
        target[row] = member
        load[member] += size[row]
    return target


def serve(work: Floats, backlog: Floats, target: Int64s, speed: Floats) -> Played:
    """Let members work off what arrives, [second, P], first in, first out."""
    arrived = np.zeros((len(speed), len(work)))
    np.add.at(arrived, target, work.T)
    begun = np.bincount(target, backlog, minlength=len(speed))
    level = begun[:, None] + np.cumsum(arrived - speed[:, None], axis=1)
    level = np.column_stack([begun, level])
    queue = level - np.minimum(np.minimum.accumulate(level, axis=1), 0.0)
    wait = queue[:, 1:] / speed[:, None]
    share = queue[:, -1] / np.maximum(begun + arrived.sum(axis=1), 1e-9)
    above = float((arrived * (wait - TARGET_S).clip(min=0.0)).sum())
    return Played(above, float((arrived * wait).sum()), (backlog + work.sum(axis=0)) * share[target])


class Case:
    """One trace."""

    def __init__(self, name: str, seed: int) -> None:
        utilisation = 0.55 + 0.4 * ((0.5 + seed * 0.618034) % 1.0)
        self.trace: Trace = make_trace(name, seed, utilisation, SIZES["simulation"])
        records, self.work = self.trace.arrivals(self.trace.num_partitions)
        self._cost = self.work.sum(axis=0) / records.sum(axis=0).clip(min=1)
        self._ends = np.vstack([np.zeros(records.shape[1], dtype=np.int64), np.cumsum(records, axis=0)])
        speed = np.array([self.trace.pods[pod].speed for pod in self.trace.changes[0][1]])
        self._speed = np.sort(speed)[::-1]
        self._typical = float(np.median(speed))
        self._starts = range(_BEGIN_S, self.trace.duration_s - _WINDOW_S + 1, _WINDOW_S)
        self._speed_up = _SPEED_UP.get(name, 1.0)

    def speeds(self, count: int) -> Floats:
        """Return the speeds of so many members, the fastest first."""
        more = np.full(max(count - len(self._speed), 0), self._typical)
        return np.concatenate([self._speed, more])[:count]

    def play(self, counts: Sequence[int]) -> tuple[Floats, Floats]:
        """Return record-time above the target, and all of it, of each five minutes with so many members."""
        backlog = np.zeros(self.work.shape[1])
        parts = []
        for start_s, count in zip(self._starts, counts, strict=True):
            work, speed = self.work[start_s : start_s + _WINDOW_S], self.speeds(count)
            played = serve(work, backlog, place(work.mean(axis=0) + backlog / _WINDOW_S, speed), speed)
            backlog = played.backlog
            parts.append((played.above, played.total))
        above, total = np.array(parts).T
        return above, total

    def oracle(self) -> list[int]:
        """Return the members of each five minutes."""
        rates = [self.work[start_s : start_s + _WINDOW_S].mean(axis=0).sum() for start_s in self._starts]
        sums = np.cumsum(self.speeds(self.work.shape[1]))
        counts = [int(np.searchsorted(sums, 0.95 * rate)) + 1 for rate in rates]
        above, total = self.play(counts)
        while above.sum() > _MOST_ABOVE * total.sum() and max(counts) < self.work.shape[1]:
            worst = int(above.argmax())
            tried = []
            for window in {worst, max(worst - 1, 0)}:
                more = list(counts)
                more[window] += 1
                tried.append((self.play(more)[0].sum(), window))
            counts[min(tried)[1]] += 1
            above, total = self.play(counts)
        for window in np.argsort(counts)[::-1].tolist():
            fewer = list(counts)
            fewer[window] = max(fewer[window] - 1, 1)
            above, total = self.play(fewer)
            if above.sum() <= _MOST_ABOVE * total.sum():
                counts = fewer
        return counts

    def advised(self, counts: Sequence[int] = ()) -> tuple[list[int], float, float]:
        """Return the members of each minute, and the shares of late record-time and of hot minutes.

        counts: Members that there are instead of those that are advised.
        """
        num_partitions = self.work.shape[1]
        forecast = GroupForecast(num_partitions, _HORIZON_S, hour_s=3_600.0 / self._speed_up)
        held: Held | None = None
        backlog, above, total = np.zeros(num_partitions), 0.0, 0.0
        taken: list[int] = []
        hot = []
        owner = np.arange(num_partitions) % len(self._speed)
        is_bound = np.zeros(len(self._speed), dtype=np.bool_)
        for now_s in range(0, self._starts[-1] + _WINDOW_S, _EVERY_S):
            forecast.observe(float(now_s), self._ends[now_s])
            rates = forecast.rates() * self._cost[:, None]
            step_s = _HORIZON_S / STEPS
            wanted = demand(backlog, rates * forecast.growth * step_s, step_s, TARGET_S)
            advice = advise(wanted, self._speed, is_bound, owner, self._typical)
            held = hold(held, advice.members, float(now_s), HOLD_S / self._speed_up)
            if now_s < _BEGIN_S:
                held = None
                continue
            taken.append(counts[len(taken)] if counts else held.members)
            hot.append(len(advice.hot) > 0)
            speed = self.speeds(taken[-1])
            target = place(rates.mean(axis=1) + backlog / _EVERY_S, speed)
            played = serve(self.work[now_s : now_s + _EVERY_S], backlog, target, speed)
            above, total, backlog = above + played.above, total + played.total, played.backlog
        return taken, above / max(total, 1e-9), float(np.mean(hot))


def measure(name: str, seeds: int) -> list[dict[str, float]]:
    """Return the figures of each seed of a trace."""
    found = []
    for seed in range(seeds):
        case = Case(name, seed)
        members, above, hot = case.advised()
        _, fewer_above, _ = case.advised([max(count - 1, 1) for count in members])
        figures = {
            "oracle_members": float(np.mean(case.oracle())),
            "advised_members": float(np.mean(members)),
            "above": above,
            "above_with_one_fewer": fewer_above,
            "hot": hot,
        }
        found.append({key: round(value, 4) for key, value in figures.items()})
    return found


def summary(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the shares of seeds for which each part of the promise holds."""
    oracle, advised = (np.array([row[f"{who}_members"] for row in rows]) for who in ("oracle", "advised"))
    above, fewer = (np.array([row[name] for row in rows]) for name in ("above", "above_with_one_fewer"))
    return {
        "within_a_tenth_or_one": float((np.abs(advised - oracle) <= np.maximum(1.0, oracle / 10)).mean()),
        "target_held": float((above <= _MOST_ABOVE).mean()),
        "fails_with_one_fewer": float((fewer > _MOST_ABOVE).mean()),
    }


def main() -> None:
    """Measure all traces."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=TRACES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    result = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    for name in given.only:
        rows = measure(name, given.seeds)
        result[name] = {"summary": summary(rows), "seeds": rows}
        means = {key: round(float(np.mean([row[key] for row in rows])), 3) for key in rows[0]}
        print(name, result[name]["summary"], means, flush=True)  # noqa: T201  # a bench prints its table
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
