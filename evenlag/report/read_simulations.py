"""What other policies would have come to, from the comparisons and replays of the period's days."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evenlag.queries.comparisons import (
    OBSERVED,
    By,
    model_row,
    not_compared,
    read_optimality_gaps,
    shown_policy,
    sum_up,
)
from evenlag.report.model import MeasuredResult, PolicyResult, Series

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlag.report.scope import Scope


@dataclass(frozen=True, slots=True)
class Comparison:
    """All of it: lag over time by policy, the table, how far the model was off, what could not be done."""

    series: tuple[Series, ...] = ()
    results: tuple[PolicyResult, ...] = ()
    model_error: float | None = None
    reasons: tuple[str, ...] = ()


def read_policies(scope: Scope) -> Comparison:
    """Read the replays whose days lie in the period, day after day; empty when nothing was compared.

    The table is summed up as `evenlag compare` does it, so that both name the same policy the best.
    """
    from evenlag.lake.tables import REPLAYS

    rows = scope.reader.read(REPLAYS, filters=scope.filters()).sort_by("day").to_pylist()
    if not rows:
        return Comparison()
    by_policy: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_policy.setdefault(row["policy"], []).append(row)
    series = tuple(_series(name, days) for name, days in sorted(by_policy.items(), key=_place))
    # A day is compared as a whole: one that goes on after the period's end would tell what came later.
    whole = [row for row in rows if scope.end is None or row["period_end"] <= scope.end]
    goes_on = sorted({row["day"] for row in rows} - {row["day"] for row in whole})
    later = [
        f"{day} is not counted: what was compared of it goes on after the period's end" for day in goes_on
    ]
    if not whole:
        return Comparison(series=series, reasons=tuple(later))
    days = [row["day"] for row in whole]
    gaps = read_optimality_gaps(
        scope.reader, scope.cluster, since=min(days), until=max(days), group=scope.group_id
    )
    model = model_row(whole)
    return Comparison(
        series=series,
        results=tuple(_result(row) for row in sum_up(whole, gaps, By.P95_TIME_LAG.value)),
        model_error=None if model is None else model["median_error"],
        reasons=(
            *(
                f"{row['policy']} could not be replayed on {row['days']} days: {row['reason']}"
                for row in not_compared(whole)
            ),
            *later,
        ),
    )


def _place(item: tuple[str, Sequence[Mapping[str, Any]]]) -> tuple[bool, str]:
    return item[0] != OBSERVED, item[0]


def _result(row: Mapping[str, Any]) -> PolicyResult:
    return PolicyResult(
        name=row["policy"],
        num_days=row["group_days"],
        mean_lag_records=row["mean_lag_records"],
        max_lag_records=row["max_lag_records"],
        p95_time_lag_ms=row["p95_time_lag_ms"],
        max_time_lag_ms=row["max_time_lag_ms"],
        drain_time_ms=row["drain_time_ms"],
        num_not_drained=row["not_drained"],
        moves=row["moves"],
        rebalances=row["rebalances"],
        optimality_gap=row["optimality_gap"],
        is_best=row["is_best"],
        unknown_ages=row["unknown_ages"],
        measured=_measured(row),
    )


def _measured(row: Mapping[str, Any]) -> MeasuredResult | None:
    if row.get("measured_max_lag_records") is None:
        return None
    return MeasuredResult(
        mean_lag_records=row["measured_mean_lag_records"],
        max_lag_records=row["measured_max_lag_records"],
        max_time_lag_ms=row["measured_max_time_lag_ms"],
        unknown_lags=row["unknown_lags"],
        unknown_share=row["measured_unknown_share"],
        unknown_time_lags=row["unknown_time_lags"],
    )


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
    return Series(shown_policy(name), tuple(at), tuple(lag), tuple(most))
