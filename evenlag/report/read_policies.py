"""What other policies would have come to, from the comparisons and replays of the period's days."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from evenlag.report.model import PolicyResult, Series

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from evenlag.report.read import Scope

OBSERVED = "observed"


@dataclass(frozen=True, slots=True)
class Comparison:
    """All of it: lag over time by policy, the table, and how far the model was off."""

    series: tuple[Series, ...] = ()
    results: tuple[PolicyResult, ...] = ()
    model_error: float | None = None


def read_policies(scope: Scope) -> Comparison:
    """Read the replays whose days lie in the period, day after day; empty when nothing was compared."""
    from spark_jobs.tables import COMPARISONS, REPLAYS

    rows = scope.reader.read(REPLAYS, filters=scope.filters()).sort_by("day").to_pylist()
    by_policy: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_policy.setdefault(row["policy"], []).append(row)
    if not by_policy:
        return Comparison()
    columns = ["policy", "distance"]
    distances = scope.reader.read(COMPARISONS, columns=columns, filters=scope.filters())
    means = distances.group_by("policy").aggregate([("distance", "mean")]).to_pylist()
    distance = {row["policy"]: row["distance_mean"] for row in means}
    results = [_result(name, days, distance.get(name)) for name, days in by_policy.items()]
    observed = [row for row in by_policy.get(OBSERVED, ()) if row["median_error"] is not None]
    return Comparison(
        series=tuple(_series(name, days) for name, days in sorted(by_policy.items(), key=_place)),
        results=mark_best(results),
        model_error=_mean([(row["median_error"], row["num_snapshots"]) for row in observed]),
    )


def mark_best(results: Iterable[PolicyResult]) -> tuple[PolicyResult, ...]:
    """Order results, best first, what really ran last, and mark the best of those that cover all days."""
    found = sorted(results, key=lambda each: (each.name == OBSERVED, *_score(each)))
    most = max((each.num_days for each in found), default=0)
    for number, each in enumerate(found):
        if each.name != OBSERVED and each.num_days == most and each.mean_lag_records is not None:
            found[number] = replace(each, is_best=True)
            break
    return tuple(found)


def _score(each: PolicyResult) -> tuple[float, float, float, str]:
    measures = (each.p95_time_lag_ms, each.mean_lag_records, each.moves)
    first, second, third = (float("inf") if value is None else float(value) for value in measures)
    return first, second, third, each.name


def _place(item: tuple[str, Sequence[Mapping[str, Any]]]) -> tuple[bool, str]:
    return item[0] != OBSERVED, item[0]


def _result(name: str, days: Sequence[Mapping[str, Any]], distance: float | None) -> PolicyResult:
    done = [row for row in days if row["reason"] is None]
    return PolicyResult(
        name=name,
        num_days=len(done),
        mean_lag_records=_mean([(row["mean_lag_records"], row["num_snapshots"]) for row in done]),
        max_lag_records=_most(done, "max_lag_records"),
        p95_time_lag_ms=_most(done, "p95_time_lag_ms"),
        # One day on which the backlog was not drained, and the longest time is not known.
        drain_time_ms=None
        if any(row["drain_time_ms"] is None for row in done)
        else _most(done, "drain_time_ms"),
        moves=_total(done, "moves"),
        rebalances=_total(done, "rebalances"),
        paused_ms=_total(done, "paused_ms"),
        distance=distance,
        reason=next((row["reason"] for row in days if row["reason"] is not None), None),
    )


def _most(rows: Iterable[Mapping[str, Any]], column: str) -> int | None:
    return max((row[column] for row in rows if row[column] is not None), default=None)


def _total(rows: Iterable[Mapping[str, Any]], column: str) -> int | None:
    known = [row[column] for row in rows if row[column] is not None]
    return sum(known) if known else None


def _mean(weighed: Iterable[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in weighed if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def _series(name: str, days: Sequence[Mapping[str, Any]]) -> Series:
    """A policy's days one after another; each begins from what was seen, so nothing joins them."""
    at: list[Any] = []
    lag: list[int | None] = []
    most: list[int | None] = []
    for row in days:
        if not row["at"]:
            continue
        if at:
            at, lag, most = [*at, row["at"][0]], [*lag, None], [*most, None]
        at += row["at"]
        lag += row["lag_records"]
        most += row["max_member_lag_records"]
    return Series(name, tuple(at), tuple(lag), tuple(most))
