"""How good forecasts and their intervals are: on the recorded period, and on queues in simulation.

``python -m tests.bench.forecast`` writes ``docs/bench/forecast.json``. The product's own rows of
``forecasts`` follow from one snapshot to the next. Of each measure, at the next snapshot and at the horizon:
the share of intervals of 90 % that held, and the mean interval score (Gneiting and Raftery 2007) beside that
of the last rate, which goes on with the arrivals and commits of the last interval and has intervals of the
same kind.

A simulated group has 48 partitions and 8 members, commits every 5 s and has a snapshot each minute, for the
two hours of a trace of the field (``tests/bench/field/traces.py``); the horizon is 5 minutes.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.lag.forecast_rows import POINT_COLUMNS, build_forecasts
from evenlag.lag.predictions import MISS, Intervals
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import FORECASTS, HOURLY_RATES, LAG, OFFSETS, SNAPSHOTS
from tests.bench.field.traces import SIZES, make_trace
from tests.recorded.period import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from evenlag.lag.arrays import Floats

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "forecast.json"
_MEASURES: Final = ("total_lag_records", "max_member_lag_records")
_COMMIT_S, _EVERY_S, _HORIZON_S = 5, 60, 300
_START: Final = datetime(2026, 3, 1, tzinfo=UTC)

Snapshot = tuple[dict[str, Any], "pa.Table"]


def interval_score(lower: Floats, upper: Floats, actual: Floats) -> Floats:
    """Return the interval score of Gneiting and Raftery (2007): width, and 2 / MISS times what is outside."""
    outside = np.maximum(lower - actual, 0.0) + np.maximum(actual - upper, 0.0)
    return upper - lower + 2 / MISS * outside


def recorded() -> Iterator[Snapshot]:
    """Yield the snapshots of the recorded period."""
    import pyarrow.compute as pc

    lag = read_table(LAG)
    for marker in read_table(SNAPSHOTS).sort_by("end_read_at").to_pylist():
        yield marker, lag.filter(pc.equal(lag["snapshot_id"], marker["snapshot_id"]))


def simulated(name: str, seed: int, utilisation: float) -> Iterator[Snapshot]:
    """Yield the snapshots of one group that processes a trace, each member its partitions in turn."""
    import pyarrow as pa

    trace = make_trace(name, seed, utilisation, SIZES["simulation"])
    sent = trace.arrivals(trace.num_partitions)[0]
    num_partitions, num_members = sent.shape[1], len(trace.pods)
    owner = np.arange(num_partitions) % num_members
    speed = np.array([pod.speed for pod in trace.pods])
    end, done = (np.zeros(num_partitions) for _ in range(2))
    committed, earlier = done.copy(), [(0, end.copy(), done.copy())]
    schema = arrow_schema(LAG)
    for second, new in enumerate(sent, start=1):
        end += new
        waiting = np.bincount(owner, end - done, num_members)
        share = np.divide(speed, waiting, out=np.zeros(num_members), where=waiting > 0).clip(max=1.0)
        done += (end - done) * share[owner]
        # Members do not commit at the same time.
        committed = np.where((second + owner) % _COMMIT_S == 0, np.floor(done), committed)
        if second % _EVERY_S:
            continue
        at, ends = _START + timedelta(seconds=second), end.copy()
        earlier = [*earlier[-15:], (second, ends, committed.copy())]
        since_s, first_end, first_committed = earlier[0]
        lag = ends - committed
        rows = [
            {**dict.fromkeys(schema.names), "group_id": "g", "topic_id": "T", "topic": "t", "status": "OK"}
            | {"partition": place, "owner_member_id": f"m-{owner[place]}", "lag_records": int(lag[place])}
            | {"end_offset": int(ends[place]), "committed_offset": int(committed[place]), "read_at": at}
            | {"arrival_rate_records_per_s": (ends - first_end)[place] / (second - since_s)}
            | {"consume_rate_records_per_s": (committed - first_committed)[place] / (second - since_s)}
            for place in range(num_partitions)
        ]
        head = {"cluster": "c", "day": at.date(), "snapshot_id": f"s{second}", "slot": at, "end_read_at": at}
        yield head, pa.Table.from_pylist(rows, schema=schema)


class LastRate:
    """Predictions of one group's measures by the last interval's arrivals and commits."""

    def __init__(self) -> None:
        self.before: dict[tuple[str, int], tuple[float, float]] | None = None
        self.before_s = 0.0

    def predict(self, lag: pa.Table, now_s: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return each measure's rate of change as a function of the lag of members: rise by member."""
        columns = ("topic", "partition", "owner_member_id", "end_offset", "committed_offset")
        rows = list(zip(*(lag[name].to_pylist() for name in columns), strict=True))
        now = {(topic, number): (end or 0, done or 0) for topic, number, _, end, done in rows}
        lags: dict[str, float] = defaultdict(float)
        rises: dict[str, float] = defaultdict(float)
        for topic, number, owner, end, done in rows:
            lags[owner] += max((end or 0) - (done or 0), 0)
            if self.before and (topic, number) in self.before and now_s > self.before_s:
                old_end, old_done = self.before[topic, number]
                rises[owner] += ((end or 0) - old_end - (done or 0) + old_done) / (now_s - self.before_s)
        self.before, self.before_s = now, now_s
        return lags, rises


def evaluate(snapshots: Iterable[Snapshot], horizon_s: int) -> dict[str, list[tuple[float, ...]]]:
    """Score both kinds of predictions; returns (held, score, held by last rate, its score) by measure."""
    import pyarrow as pa
    import pyarrow.compute as pc

    previous = arrow_schema(FORECASTS).empty_table()
    points = pa.table({name: arrow_schema(OFFSETS).empty_table()[name] for name in POINT_COLUMNS})
    hourly = arrow_schema(HOURLY_RATES).empty_table()
    rates: dict[str, LastRate] = defaultdict(LastRate)
    pending: dict[tuple[str, str, bool], tuple[float, float, float]] = {}
    states: dict[tuple[str, str, bool], Intervals] = defaultdict(lambda: Intervals.new((1,)))
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for marker, lag in snapshots:
        now_s = marker["end_read_at"].timestamp()
        previous = build_forecasts(lag, points, previous, hourly, marker, lambda _: horizon_s)
        for row in previous.to_pylist():
            group = row["group_id"]
            lags, rises = rates[group].predict(lag.filter(pc.equal(lag["group_id"], group)), now_s)
            for one in row["predictions"]:
                key = (group, one["measure"], one["is_horizon"])
                if one["measure"] in _MEASURES:
                    scored = _score_last(states, pending.get(key), key, one)
                    if scored is not None and one["held"] is not None:
                        bounds = np.array([one["scored_lower"], one["scored_upper"], one["actual"]])
                        name = f"{one['measure']} {'horizon' if one['is_horizon'] else 'next'}"
                        found[name].append((float(one["held"]), float(interval_score(*bounds)), *scored))
                    if one["pending_at"] is None or one["pending_at"].timestamp() == now_s:
                        pending[key] = _predict_last(states[key], one, lags, rises)
    return found


def _predict_last(
    state: Intervals, one: Mapping[str, Any], lags: Mapping[str, float], rises: Mapping[str, float]
) -> tuple[float, float, float]:
    ahead_s = one["ahead_s"] or np.nan
    later = [max(lag + rises.get(owner, 0.0) * ahead_s, 0.0) for owner, lag in lags.items()]
    value = np.array([sum(later) if one["measure"] == _MEASURES[0] else max(later, default=0.0)])
    lower, upper = state.around(value)
    return float(value[0]), float(lower[0]), float(upper[0])


def _score_last(
    states: dict[tuple[str, str, bool], Intervals],
    pending: tuple[float, float, float] | None,
    key: tuple[str, str, bool],
    one: Mapping[str, Any],
) -> tuple[float, float] | None:
    if pending is None or one["actual"] is None:
        return None
    arrays = [np.array([each]) for each in (*pending, one["actual"])]
    states[key] = states[key].after(*arrays)
    if not np.isfinite(pending[1]):
        return None
    _, lower, upper, actual = (float(each[0]) for each in arrays)
    return float(lower <= actual <= upper), float(interval_score(*arrays[1:])[0])


def summarize(found: Mapping[str, list[tuple[float, ...]]]) -> dict[str, dict[str, float]]:
    """Return shares that held, and interval scores relative to those of the last rate."""
    summary = {}
    for name, scored in sorted(found.items()):
        held, score, held_last, score_last = np.array(scored).mean(axis=0).tolist()
        summary[name] = {
            "num_scored": len(scored),
            "held": round(held, 3),
            "held_by_last_rate": round(held_last, 3),
            "interval_score_by_last_rate": round(score / score_last, 3) if score_last else 1.0,
        }
    return summary


def run(seeds: int) -> dict[str, Any]:
    """Return the results by kind of snapshots."""
    results: dict[str, Any] = {"recorded": summarize(evaluate(recorded(), 40))}
    for name in ("walks", "seasons", "recorded"):
        for utilisation in (0.75, 0.95):
            found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
            for seed in range(seeds):
                for key, scored in evaluate(simulated(name, seed, utilisation), _HORIZON_S).items():
                    found[key] += scored
            results[f"simulated {name}, {utilisation:.0%}"] = summarize(found)
    return results


def main() -> None:
    """Write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    RESULTS.write_text(json.dumps(run(given.seeds), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
