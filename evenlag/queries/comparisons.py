"""Aggregated simulations: one row per policy, over groups and days, with the best one marked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from enum import StrEnum
from math import inf, isfinite
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from evenlag.formatting import at_least, between, bounded_duration, count_of, number, percent
from evenlag.lake.filters import matching, of_group
from evenlag.lake.tables import COMPARISONS, CONTINUOUS_REPLAYS, REPLAYS

if TYPE_CHECKING:
    from evenlag.lake.reader import LakeReader

OBSERVED: Final = "observed"
# Displayed names of the real history: in the model like the candidates, and as Kafka reported it.
OBSERVED_SHOWN: Final = "as it ran (replayed)"
MEASURED_SHOWN: Final = "as it ran (measured)"
# The others have a value for each snapshot.
_COLUMNS: Final = tuple(column.name for column in REPLAYS.columns if not column.type.startswith("ARRAY"))
# (day, group id, policy) → sum and number of the gaps of its snapshots.
OptimalityGaps: TypeAlias = "dict[tuple[date, str, str], tuple[float, int]]"
_Cells: TypeAlias = "list[dict[str, dict[str, Any]]]"


class By(StrEnum):
    """Columns that policies can be ranked by; less is better."""

    WAITING_P99 = "waiting_p99_ms"
    WAITING_P95 = "waiting_p95_ms"
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
    is_continuous: bool,
) -> list[dict[str, Any]]:
    """Read the replays of days, or of the periods that begin on them, by day, group and policy."""
    table = CONTINUOUS_REPLAYS if is_continuous else REPLAYS
    filters = matching(cluster=cluster, since=since, until=until) + of_group(group)
    rows: list[dict[str, Any]] = reader.read(table, columns=_COLUMNS, filters=filters).to_pylist()
    return rows


def read_optimality_gaps(
    reader: LakeReader, cluster: str, *, since: date | None, until: date | None, group: str | None
) -> OptimalityGaps:
    """Read how far the most loaded member is above the lower bound, by the lag of each snapshot."""
    keys = ["day", "group_id", "policy"]
    filters = matching(cluster=cluster, since=since, until=until) + of_group(group)
    rows = reader.read(COMPARISONS, columns=[*keys, "optimality_gap"], filters=filters)
    sums = rows.group_by(keys).aggregate([("optimality_gap", "sum"), ("optimality_gap", "count")]).to_pylist()
    return {
        (row["day"], row["group_id"], row["policy"]): (row["optimality_gap_sum"], row["optimality_gap_count"])
        for row in sums
        if row["optimality_gap_count"]
    }


def shown_policy(name: str) -> str:
    """Return the displayed name of a policy: `observed` is a replay, not a measurement."""
    return OBSERVED_SHOWN if name == OBSERVED else name


def sum_up(
    replays: Sequence[dict[str, Any]], gaps: OptimalityGaps, by: str, *, is_continuous: bool = False
) -> list[dict[str, Any]]:
    """Aggregate replays by policy, the best first (`is_best`: several if they are equal).

    Only group-days that all policies have count, so that all policies are compared on the same data. A
    group-day with a partition whose lag was never known is a lower bound: it counts only if all are.

    Percentiles of waiting are means over group-days, ``above_*`` shares of all their record-time, and the
    time to drain is the median (None: the median did not drain). ``least_*`` and ``most_*`` bound what the
    snapshots leave open. ``unknown_*`` is data missing from these
    numbers, see the table ``replays``; ``measured_*``, of `observed` only, are without the model. A
    continuous replay covers all days up to the end of its period.
    """
    _, whole, policies = _cells(replays)
    best_in: dict[str, int] = defaultdict(int)
    for cell in whole:
        least = min(_rank(row, by) for row in cell.values())
        for policy, row in cell.items():
            best_in[policy] += _rank(row, by) == least
    rows = []
    for policy in sorted(policies) if whole else []:
        own = [cell[policy] for cell in whole]
        gap = _mean_gap(own, gaps, is_continuous=is_continuous)
        rows.append(_summed(policy, own) | {"best_in": best_in[policy], "optimality_gap": gap})
    rows.sort(key=lambda row: (*_rank(row, by), row["policy"]))
    return [row | {"is_best": _rank(row, by) == _rank(rows[0], by)} for row in rows]


def count_left_out(replays: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Count the group-days that :func:`sum_up` leaves out.

    ``left_out``: a policy has no replay of them; ``partly_known``: the lag of a partition was never known.
    """
    whole, counted, _ = _cells(replays)
    return {
        "left_out": len({(row["day"], row["group_id"]) for row in replays}) - len(whole),
        "partly_known": len(whole) - len(counted),
    }


def _is_partly_known(row: dict[str, Any]) -> bool:
    return bool(row["num_unknown_partitions"])


def _cells(replays: Sequence[dict[str, Any]]) -> tuple[_Cells, _Cells, set[str]]:
    """Replays by policy, of each group-day that all policies have.

    Returns all of them; those without a partition of unknown lag, or all if each has one; and the policies.
    """
    cells: dict[tuple[date, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in replays:
        if row["reason"] is None:
            cells[row["day"], row["group_id"]][row["policy"]] = row
    policies = {row["policy"] for row in replays if row["reason"] is None}
    whole = [cell for cell in cells.values() if set(cell) == policies]
    known = [cell for cell in whole if not any(map(_is_partly_known, cell.values()))]
    return whole, known or whole, policies


def _rank(row: dict[str, Any], by: str) -> tuple[float, float, int]:
    """Sort key: the chosen measure, unknown ones last, then mean lag, then moves."""
    return inf if row[by] is None else row[by], row["mean_lag_records"], row["moves"]


def _summed(policy: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    drain_ms = [inf if row["drain_time_ms"] is None else row["drain_time_ms"] for row in rows]
    middle = median(drain_ms)
    return {
        "policy": policy,
        "group_days": len(rows),
        "mean_lag_records": fmean(row["mean_lag_records"] for row in rows),
        "max_lag_records": max(row["max_lag_records"] for row in rows),
        "max_time_lag_ms": max(row["max_time_lag_ms"] for row in rows),
        "drain_time_ms": middle if isfinite(middle) else None,
        "not_drained": drain_ms.count(inf),
        "moves": sum(row["moves"] for row in rows),
        "takeover_moves": sum(row["takeover_moves"] for row in rows),
        "rebalances": sum(row["rebalances"] for row in rows),
        "unknown_share": _mean(_known(rows, "unknown_share")),
        "unknown_ages": sum(_known(rows, "num_unknown_ages")),
        "unknown_partitions": sum(_known(rows, "num_unknown_partitions")),
        **_waiting(rows),
        **_bounds(rows),
    } | (_measured(rows) if policy == OBSERVED else {})


def _waiting(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Waiting on the group-days that have it: those of older versions do not (``unknown_waiting``)."""
    record_s = sum(_known(rows, "record_s"))
    above_s = {limit: sum(_known(rows, f"record_s_above_{limit}")) for limit in ("5s", "30s", "300s")}
    num_known = len(_known(rows, "record_s"))
    return (
        {f"waiting_{each}_ms": _mean(_known(rows, f"waiting_{each}_ms")) for each in ("p50", "p95", "p99")}
        | {"record_s": record_s if num_known else None}
        | {
            f"above_{limit}": (above / record_s if record_s else 0.0) if num_known else None
            for limit, above in above_s.items()
        }
        | {"unknown_waiting": len(rows) - num_known}
    )


def _bounds(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What snapshots leave open, if all group-days have it: those of older versions do not."""
    is_known = len(_known(rows, "most_record_s")) == len(rows)
    peaks = ("peak_member_lag_records", "least_peak_member_lag_records", "most_peak_member_lag_records")
    return (
        {name: max(row[name] for row in rows) if is_known else None for name in peaks}
        | {
            name: sum(row[name] for row in rows) if is_known else None
            for name in ("least_record_s", "most_record_s")
        }
        | {"wide_share": _mean(_known(rows, "wide_share"))}
    )


def _measured(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Lag that was measured on the group-days, beside what the model computed."""
    return {
        "measured_mean_lag_records": _mean(_known(rows, "measured_mean_lag_records")),
        "measured_max_lag_records": max(_known(rows, "measured_max_lag_records"), default=None),
        "measured_max_time_lag_ms": max(_known(rows, "measured_max_time_lag_ms"), default=None),
        "measured_unknown_share": _mean(_known(rows, "measured_unknown_share")),
        "unknown_lags": sum(_known(rows, "num_unknown_lags")),
        "unknown_time_lags": sum(_known(rows, "num_unknown_time_lags")),
    }


def _mean_gap(rows: list[dict[str, Any]], gaps: OptimalityGaps, *, is_continuous: bool) -> float | None:
    """Mean over the snapshots of these group-days; None without any."""
    total, count = 0.0, 0
    for row in rows:
        last = row["period_end"].date() if is_continuous and row["period_end"] else row["day"]
        for offset in range((last - row["day"]).days + 1):
            day = row["day"] + timedelta(days=offset)
            of_day, num_of_day = gaps.get((day, row["group_id"], row["policy"]), (0.0, 0))
            total, count = total + of_day, count + num_of_day
    return total / count if count else None


def _known(rows: Iterable[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows if row[name] is not None]


def _mean(values: list[float]) -> float | None:
    return fmean(values) if values else None


def model_row(replays: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Summarize the error of the model: the replay of the real assignment against the measured lag.

    Errors are medians over group-days, which count as in :func:`sum_up`; ``error_snapshots`` is the number of
    snapshots with lag (None: of some group-days all snapshots count).
    """
    found = [row for row in replays if row["policy"] == OBSERVED and row["median_error"] is not None]
    if not found:
        return None
    rows = [row for row in found if not _is_partly_known(row)] or found
    names = ("median_error", "p95_error", "median_error_records", "p95_error_records")
    counts = [row["num_error_snapshots"] for row in rows]
    return (
        {"group_days": len(rows), "error_snapshots": None if None in counts else sum(counts)}
        | {name: median(row[name] for row in rows) for name in names}
        | {
            "observed_capacities": sum(row["num_observed_capacities"] for row in rows),
            "assumed_capacities": sum(row["num_assumed_capacities"] for row in rows),
        }
    )


def model_error_text(model: Mapping[str, Any]) -> str:
    """Say how far the model is off, in per cent and in records."""
    count = model["error_snapshots"]
    median_error, p95_error = (
        f"{percent(model[f'{name}_error'])} ({number(model[f'{name}_error_records'])} records)"
        for name in ("median", "p95")
    )
    of = "all snapshots" if count is None else f"the {count_of(count, 'snapshot')} with lag"
    return (
        f"differs from the measured lag by {median_error} at the median and {p95_error} at the 95th "
        f"percentile of {of}"
    )


def waiting_text(row: Mapping[str, Any], name: str) -> str:
    """Format a time of :func:`sum_up`: a lower bound where ages or lags are unknown."""
    is_bound = row["unknown_ages"] or row["unknown_partitions"]
    return bounded_duration(row[name], row[name] if is_bound else None)


def bounded_text(row: Mapping[str, Any], name: str) -> str:
    """Format a number of :func:`sum_up` with the bounds that the snapshots leave."""
    return between(row[name], row[f"least_{name}"], row[f"most_{name}"])


def measured_texts(row: Mapping[str, Any]) -> tuple[str, str]:
    """Format the longest time behind and the mean lag that Kafka reported."""
    worst = row["measured_max_time_lag_ms"]
    return (
        bounded_duration(worst, worst if row["unknown_time_lags"] else None),
        at_least(row["measured_mean_lag_records"], row["measured_unknown_share"]),
    )


def not_compared(replays: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """List the groups that could not be replayed, with the number of days."""
    failed = (row for row in replays if row["reason"] is not None)
    days = Counter((row["group_id"], row["policy"], row["reason"]) for row in failed)
    return [
        {"group_id": group, "policy": policy, "reason": reason, "days": count}
        for (group, policy, reason), count in sorted(days.items())
    ]
