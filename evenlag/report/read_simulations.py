"""Simulated results of other policies on the days of a period."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evenlag.queries.comparisons import (
    OBSERVED,
    By,
    model_error_text,
    model_row,
    not_compared,
    read_optimality_gaps,
    shown_policy,
    sum_up,
)
from evenlag.report.candidates import MeasuredResult, ModelError, PolicyResult
from evenlag.report.model import Series

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlag.report.scope import Scope


@dataclass(frozen=True, slots=True)
class Comparison:
    """Simulations of a period.

    series: Simulated lag over time, by policy.
    results: Result of each policy, the best first.
    model_error: Error of the simulation of the real assignment; None: unknown.
    reasons: Why policies or days are missing.
    """

    series: tuple[Series, ...] = ()
    results: tuple[PolicyResult, ...] = ()
    model_error: ModelError | None = None
    reasons: tuple[str, ...] = ()


def read_policies(scope: Scope) -> Comparison:
    """Read the simulations of the days of a period.

    The results are aggregated as in `evenlag compare`, so that both report the same best policy.

    Empty if nothing was simulated.
    """
    from evenlag.lake.tables import REPLAYS

    rows = scope.reader.read(REPLAYS, filters=scope.filters()).sort_by("day").to_pylist()
    if not rows:
        return Comparison()
    by_policy: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_policy.setdefault(row["policy"], []).append(row)
    series = tuple(_series(name, days) for name, days in sorted(by_policy.items(), key=_place))
    # Days are simulated as a whole: leave out a day with data from after the requested end.
    whole = [row for row in rows if scope.end is None or row["period_end"] <= scope.end]
    goes_on = sorted({row["day"] for row in rows} - {row["day"] for row in whole})
    later = [f"{day} is left out: its simulation continues after the end of the period" for day in goes_on]
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
        model_error=None
        if model is None
        else ModelError(model["median_error"], model["p95_error"], model_error_text(model)),
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
        unknown_partitions=row["unknown_partitions"],
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
    """Concatenate the days of a policy, separated by None: each day starts from the observed state."""
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
