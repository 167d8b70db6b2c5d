"""Lag of whole groups in one snapshot, from their rows of ``lag``: sums, bounds, and which facts are unknown.

Partitions that the group has left (``NOT_SUBSCRIBED``) are counted apart, never in its lag, times or members.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import LagBound, LagStatus

if TYPE_CHECKING:
    import pyarrow as pa

LAG_COLUMNS: Final = (
    "group_id",
    "status",
    "owner_member_id",
    "lag_records",
    "lag_bound",
    "time_lag_ms",
    "time_lag_at_least_ms",
    "drain_time_ms",
    "commit_problem",
    "subscription_problem",
    "owner_problem",
)
"""Columns of ``lag`` that :func:`measure_lag` needs."""
_PROBLEMS: Final = ("commit_problem", "subscription_problem", "owner_problem")


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Lag of one group in a snapshot.

    num_partitions, num_unknown_partitions: Partitions, and those of them whose lag is unknown, or known as
        a lower bound only.
    total_lag_records: Total lag; None where no bound of it is known.
    max_member_lag_records: Lag of the most loaded member, with the same bound; None also where an owner is
        unknown, and for a group without members.
    lag_skew: Largest by mean lag of a member; None where a lag or an owner is not known: a skew has no
        lower bound.
    drain_time_ms: Longest drain time of a partition; None when a partition never drains, or a lag is not
        known.
    lag_bound: LOWER or UPPER: both lags are such bounds; None: they are exact.
    time_lag_ms, time_lag_at_least_ms: Longest time behind of a partition; where that is unknown, a lower
        bound of it. None: unknown.
    num_unknown_times: Partitions whose time behind is unknown: those with lag and without a time, and those
        of unknown lag.
    num_not_subscribed_partitions, not_subscribed_lag_records: Partitions with commits that no member
        subscribes to, and their known lag.
    commit_problem, subscription_problem, owner_problem: Why the group's commits, subscription or owners are
        unknown; None: they are known.
    unevenness: Share of the lag that could be with others and is with the most loaded member: 0 where the
        lag is as even as whole partitions may allow, 1 where that member has all of it; None without lag,
        or as `lag_skew`.
    """

    num_partitions: int = 0
    num_unknown_partitions: int = 0
    total_lag_records: int | None = None
    max_member_lag_records: int | None = None
    lag_skew: float | None = None
    drain_time_ms: int | None = None
    lag_bound: LagBound | None = None
    time_lag_ms: int | None = None
    time_lag_at_least_ms: int | None = None
    num_unknown_times: int = 0
    num_not_subscribed_partitions: int = 0
    not_subscribed_lag_records: int = 0
    commit_problem: str | None = None
    subscription_problem: str | None = None
    owner_problem: str | None = None
    unevenness: float | None = None


def measure_lag(lag: pa.Table, members: pa.Table) -> dict[str, GroupLag]:
    """Measure the lag of each group that has rows of ``lag``, with :data:`LAG_COLUMNS`, of one snapshot."""
    import pyarrow.compute as pc

    is_left = _equal(lag["status"], LagStatus.NOT_SUBSCRIBED)
    counted = lag.filter(pc.invert(is_left))
    left = {row["group_id"]: row for row in _sums(lag.filter(is_left))}
    sums = {row["group_id"]: row for row in _sums(counted)}
    by_member = _member_lags(counted, members)
    return {
        group_id: _group_lag(sums.get(group_id), left.get(group_id), by_member.get(group_id, ()))
        for group_id in sorted(sums.keys() | left.keys())
    }


def counted_rows(lag: pa.Table) -> pa.Table:
    """Return rows of ``lag`` without those of partitions that the group has left, which are in no total."""
    import pyarrow.compute as pc

    return lag.filter(pc.fill_null(pc.not_equal(lag["status"], LagStatus.NOT_SUBSCRIBED), True))


def is_inexact(lag: pa.Table) -> Any:
    """Return which rows of ``lag`` have an unknown lag, or a lower bound of it: Booleans."""
    import pyarrow.compute as pc

    return pc.or_(pc.is_null(lag["lag_records"]), _equal(lag["lag_bound"], LagBound.LOWER))


def _sums(rows: pa.Table) -> list[dict[str, Any]]:
    import pyarrow.compute as pc

    inexact = is_inexact(rows)
    is_zero = pc.and_(pc.invert(inexact), _equal(rows["lag_records"], 0))
    drains = pc.and_(pc.invert(inexact), pc.is_valid(rows["drain_time_ms"]))
    flagged = {
        "inexact": inexact,
        "upper": _equal(rows["lag_bound"], LagBound.UPPER),
        "timeless": pc.is_null(rows["time_lag_ms"]),
        "never": pc.invert(pc.or_(is_zero, drains)),
    }
    for name, values in flagged.items():
        rows = rows.append_column(name, pc.cast(values, "int64"))
    at_least = pc.coalesce(rows["time_lag_ms"], rows["time_lag_at_least_ms"])
    sums = [*((name, "sum") for name in ("lag_records", *flagged)), ([], "count_all")]
    largest = [(name, "max") for name in ("owned", "time_lag_ms", "at_least", "drain_time_ms")]
    texts = [(name, "min") for name in _PROBLEMS]
    owned = pc.if_else(pc.is_valid(rows["owner_member_id"]), rows["lag_records"], None)
    grouped = rows.append_column("at_least", at_least).append_column("owned", owned).group_by("group_id")
    found: list[dict[str, Any]] = grouped.aggregate([*sums, *largest, *texts]).to_pylist()
    return found


def _group_lag(
    row: Mapping[str, Any] | None, left: Mapping[str, Any] | None, members: Sequence[int | None]
) -> GroupLag:
    aside = (left["count_all"], left["lag_records_sum"] or 0) if left else (0, 0)
    if row is None:
        return GroupLag(num_not_subscribed_partitions=aside[0], not_subscribed_lag_records=aside[1])
    has_inexact, has_upper = row["inexact_sum"] > 0, row["upper_sum"] > 0
    bound = LagBound.LOWER if has_inexact else LagBound.UPPER if has_upper else None
    total = None if has_inexact and has_upper else row["lag_records_sum"]
    lags = [one for one in members if one is not None]
    is_owned = total is not None and row["owner_problem_min"] is None
    return GroupLag(
        num_partitions=row["count_all"],
        num_unknown_partitions=row["inexact_sum"],
        total_lag_records=total,
        max_member_lag_records=max(lags, default=None) if is_owned else None,
        lag_skew=_skew(lags) if is_owned and bound is None else None,
        unevenness=_unevenness(lags, row["owned_max"] or 0) if is_owned and bound is None else None,
        drain_time_ms=(row["drain_time_ms_max"] or 0) if row["never_sum"] == 0 else None,
        lag_bound=bound,
        time_lag_ms=row["time_lag_ms_max"] if row["timeless_sum"] == 0 else None,
        # A time of 0 beside unknown ones bounds nothing.
        time_lag_at_least_ms=(row["at_least_max"] or None) if row["timeless_sum"] else None,
        num_unknown_times=row["timeless_sum"],
        num_not_subscribed_partitions=aside[0],
        not_subscribed_lag_records=aside[1],
        **{name: row[f"{name}_min"] for name in _PROBLEMS},
    )


def _member_lags(counted: pa.Table, members: pa.Table) -> Mapping[str, list[int | None]]:
    """Lag of each member by group; 0 without partitions, None where all its partitions are unknown."""
    import pyarrow.compute as pc

    sums = counted.group_by(["group_id", "owner_member_id"]).aggregate([("lag_records", "sum")])
    names = ("group_id", "owner_member_id", "lag_records_sum")
    columns = (sums[name].to_pylist() for name in names)
    by_owner = {(group, member): lag for group, member, lag in zip(*columns, strict=True)}
    alive = members.filter(pc.is_valid(members["member_id"])).group_by(["group_id", "member_id"])
    lags: dict[str, list[int | None]] = defaultdict(list)
    for row in alive.aggregate([]).to_pylist():
        lags[row["group_id"]].append(by_owner.get((row["group_id"], row["member_id"]), 0))
    return lags


def _skew(lags: list[int]) -> float | None:
    if not lags:
        return None
    largest = max(lags)
    return largest * len(lags) / sum(lags) if largest > 0 else 1.0


def _unevenness(lags: list[int], largest_partition: int) -> float | None:
    """Excess of the largest lag over the least that is possible, as a share of the largest excess.

    Two members reach a skew of 2 at most, ten of 10: a limit of the skew means another thing for each group.
    """
    total = sum(lags)
    if not total:
        return None
    least = max(total / len(lags), largest_partition)
    return max(0.0, max(lags) - least) / (total - least) if total > least else 0.0


def _equal(values: Any, wanted: Any) -> Any:
    import pyarrow.compute as pc

    return pc.fill_null(pc.equal(values, wanted), False)
