"""Replays and scores summed up: a row a policy, over groups and days, with the best one marked."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date

    from spark_jobs.lake_reader import Filter, LakeReader

OBSERVED: Final = "observed"
_COLUMNS: Final = (
    "day",
    "group_id",
    "policy",
    "settings",
    "reason",
    "mean_lag_records",
    "max_lag_records",
    "p95_time_lag_ms",
    "max_time_lag_ms",
    "drain_time_ms",
    "moves",
    "takeover_moves",
    "rebalances",
    "num_observed_capacities",
    "num_assumed_capacities",
    "median_error",
    "p95_error",
    "median_error_records",
)


class By(StrEnum):
    """What policies can be ranked by: a column of the answer, less is better."""

    P95_TIME_LAG = "p95_time_lag_ms"
    MEAN_LAG = "mean_lag_records"
    MAX_LAG = "max_lag_records"
    MAX_TIME_LAG = "max_time_lag_ms"
    MOVES = "moves"


def read_replays(
    reader: LakeReader,
    cluster: str,
    *,
    since: date | None,
    until: date | None,
    group: str | None,
    is_continuous: bool = False,
) -> list[dict[str, Any]]:
    """The replays of the days, or of the periods that begin on them, without what they hold over time."""
    from spark_jobs.tables import CONTINUOUS_REPLAYS, REPLAYS

    table = CONTINUOUS_REPLAYS if is_continuous else REPLAYS
    rows: list[dict[str, Any]] = reader.read(
        table, columns=_COLUMNS, filters=_filters(cluster, since, until, group)
    ).to_pylist()
    return rows


def read_distances(
    reader: LakeReader, cluster: str, *, since: date | None, until: date | None, group: str | None
) -> dict[str, float]:
    """By policy: how far the most loaded member is above the bound on average, by the lag of the moment."""
    from spark_jobs.tables import COMPARISONS

    rows = reader.read(
        COMPARISONS, columns=["policy", "distance"], filters=_filters(cluster, since, until, group)
    )
    means = rows.group_by("policy").aggregate([("distance", "mean")]).to_pylist()
    return {row["policy"]: row["distance_mean"] for row in means}


def _filters(cluster: str, since: date | None, until: date | None, group: str | None) -> list[Filter]:
    filters: list[Filter] = [("cluster", "=", cluster)]
    if since is not None:
        filters.append(("day", ">=", since))
    if until is not None:
        filters.append(("day", "<=", until))
    if group is not None:
        filters.append(("group_id", "=", group))
    return filters


def sum_up(replays: Sequence[dict[str, Any]], distances: dict[str, float], by: str) -> list[dict[str, Any]]:
    """A row a policy, the best first.

    Only group-days that every policy has are counted, so that all are judged by the same.

    Parameters
    ----------
    replays
        As `read_replays` gives them.
    distances
        As `read_distances` gives them.
    by
        One of `By`.

    Returns
    -------
    list of dict
        ``policy, is_best, group_days, best_in, mean_lag_records`` (of a group), ``max_lag_records,
        p95_time_lag_ms`` (mean over group-days), ``max_time_lag_ms, drain_time_ms`` (median of the known),
        ``not_drained`` (group-days in which it was not, until the day's end), ``moves, takeover_moves,
        rebalances, distance``.
    """
    cells: dict[tuple[date, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in replays:
        if row["reason"] is None:
            cells[row["day"], row["group_id"]][row["policy"]] = row
    policies = {row["policy"] for row in replays if row["reason"] is None}
    whole = [cell for cell in cells.values() if set(cell) == policies]
    best_in: dict[str, int] = defaultdict(int)
    for cell in whole:
        best_in[min(cell.values(), key=lambda row: _rank(row, by))["policy"]] += 1
    rows = [
        _summed(policy, [cell[policy] for cell in whole])
        | {"best_in": best_in[policy], "distance": distances.get(policy)}
        for policy in sorted(policies)
    ]
    rows = sorted((row for row in rows if row["group_days"]), key=lambda row: _rank(row, by))
    return [row | {"is_best": place == 0} for place, row in enumerate(rows)]


def _rank(row: dict[str, Any], by: str) -> tuple[float, float, int, str]:
    """Of equals, what has less lag, then what moves less."""
    return row[by], row["mean_lag_records"], row["moves"], row["policy"]


def _summed(policy: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    drained = [row["drain_time_ms"] for row in rows if row["drain_time_ms"] is not None]
    return {
        "policy": policy,
        "group_days": len(rows),
        "mean_lag_records": _mean(row["mean_lag_records"] for row in rows),
        "max_lag_records": max((row["max_lag_records"] for row in rows), default=0),
        "p95_time_lag_ms": _mean(row["p95_time_lag_ms"] for row in rows),
        "max_time_lag_ms": max((row["max_time_lag_ms"] for row in rows), default=0),
        "drain_time_ms": median(drained) if drained else None,
        "not_drained": len(rows) - len(drained),
        "moves": sum(row["moves"] for row in rows),
        "takeover_moves": sum(row["takeover_moves"] for row in rows),
        "rebalances": sum(row["rebalances"] for row in rows),
    }


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return fmean(found) if found else 0.0


def model_row(replays: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """How far the replay of what really ran is off; None when nothing was replayed.

    Returns
    -------
    dict
        ``group_days``; ``median_error`` and ``p95_error``: of a reading of a group, as a share of the lag
        seen, medians over group-days; ``median_error_records``; ``observed_capacities`` and
        ``assumed_capacities``: members by where their capacity is from.
    """
    rows = [row for row in replays if row["policy"] == OBSERVED and row["median_error"] is not None]
    if not rows:
        return None
    names = ("median_error", "p95_error", "median_error_records")
    return (
        {"group_days": len(rows)}
        | {name: median(row[name] for row in rows) for name in names}
        | {
            "observed_capacities": sum(row["num_observed_capacities"] for row in rows),
            "assumed_capacities": sum(row["num_assumed_capacities"] for row in rows),
        }
    )


def not_compared(replays: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups that could not be replayed on some day: ``group_id, policy, reason, days``, sorted."""
    days: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in replays:
        if row["reason"] is not None:
            days[row["group_id"], row["policy"], row["reason"]] += 1
    return [
        {"group_id": group, "policy": policy, "reason": reason, "days": count}
        for (group, policy, reason), count in sorted(days.items())
    ]
