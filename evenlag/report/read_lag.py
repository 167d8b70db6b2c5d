"""Observed lag: of all groups in one snapshot, of one group over time, and of its members around a plan."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evenlag.enums import PlanEvent
from evenlag.lag.group_lag import counted_rows
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.queries.comparisons import MEASURED_SHOWN
from evenlag.queries.lag import group_rows
from evenlag.report.model import GroupLag, LagChange, MemberLag, Series

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter
    from evenlag.report.scope import Names, Scope


# The plan to show: preferably one that was applied, then one that was published, then any.
_RANK_BY_STATUS: Final[dict[str, int]] = {
    PlanEvent.APPLIED: 0,
    PlanEvent.IGNORED: 1,
    PlanEvent.EXPIRED: 1,
    PlanEvent.PUBLISHED: 2,
    PlanEvent.WITHDRAWN: 3,
    PlanEvent.APPROVED: 3,
}
_RANK_OF_OTHERS = 4
_PLANNED_COLUMNS: Final = ("topic", "partition", "owner_before", "owner_after")
_DRAIN_COLUMNS: Final = (
    "snapshot_id", "status", "lag_records", "drain_time_ms", "arrival_rate_records_per_s",
    "consume_rate_records_per_s",
)  # fmt: skip


def group_lags(lag: pa.Table, members: pa.Table) -> list[GroupLag]:
    """Aggregate the lag of the groups of a snapshot.

    Returns by lag, largest first; last the groups of which only partitions without a subscriber are left.
    lag, members: Rows of the snapshot, as in :func:`evenlag.queries.lag.group_rows`.
    """
    unknown: dict[str, dict[str, int]] = {}
    for row in _unknown_by_status(counted_rows(lag), "group_id"):
        unknown.setdefault(row["group_id"], {})[row["status"]] = row["count_all"]
    return [
        GroupLag(
            group_id=row["group_id"],
            num_members=row["num_members"],
            num_partitions=row["num_partitions"],
            lag_records=row["lag_records"] if row["num_partitions"] else 0,
            max_member_lag_records=row["max_member_lag_records"],
            num_unknown=row["num_unknown_partitions"],
            unknown=unknown.get(row["group_id"], {}),
            lag_bound=row["lag_bound"],
            time_lag_ms=row["time_lag_ms"],
            time_lag_at_least_ms=row["time_lag_at_least_ms"],
            not_subscribed=(row["num_not_subscribed_partitions"], row["not_subscribed_lag_records"]),
        )
        for row in group_rows(lag, members)
        if row["num_partitions"] or row["num_not_subscribed_partitions"]
    ]


def observed_lag(lag: pa.Table, read_at: Mapping[str, datetime]) -> Series:
    """Aggregate the lag of a group by snapshot.

    read_at: Time at which the end offsets had been read, by snapshot id; simulations use it, too.
    """
    keys = ["snapshot_id"]
    shown = lag["snapshot_id"].unique().to_pylist()
    lag = counted_rows(lag)
    rows = lag.group_by(keys).aggregate([("lag_records", "sum"), ("lag_records", "count"), ([], "count_all")])
    by_snapshot = {row["snapshot_id"]: row for row in rows.to_pylist()}
    # Without a partition that counts, there is no lag.
    nothing = {"lag_records_sum": 0, "lag_records_count": 0, "count_all": 0}
    totals = [
        by_snapshot.get(name, {"snapshot_id": name, **nothing})
        for name in sorted(shown, key=lambda name: (read_at[name], name))
    ]
    by_member = _member_sums(lag, *keys).group_by(keys).aggregate([("lag_records_sum", "max")])
    most = {row["snapshot_id"]: row["lag_records_sum_max"] for row in by_member.to_pylist()}
    by_status: dict[str, list[int]] = {}
    for row in _unknown_by_status(lag, *keys):
        by_status.setdefault(row["status"], []).append(row["count_all"])
    return Series(
        name=MEASURED_SHOWN,
        at=tuple(read_at[row["snapshot_id"]] for row in totals),
        lag_records=tuple(row["lag_records_sum"] for row in totals),
        max_member_lag_records=tuple(most.get(row["snapshot_id"]) for row in totals),
        num_unknown=tuple(row["count_all"] - row["lag_records_count"] for row in totals),
        unknown=tuple((status, len(counts), max(counts)) for status, counts in sorted(by_status.items())),
    )


def cut(series: Series, since: datetime, until: datetime) -> Series:
    """Cut a simulated series to a period."""
    # Replays before model version 3 have times cut to milliseconds, the period has microseconds.
    since = floor_to_ms(since)
    places = [place for place, at in enumerate(series.at) if since <= at <= until]
    while places and series.lag_records[places[0]] is None:
        places.pop(0)
    return Series(
        name=series.name,
        at=tuple(series.at[place] for place in places),
        lag_records=tuple(series.lag_records[place] for place in places),
        max_member_lag_records=tuple(series.max_member_lag_records[place] for place in places),
    )


def _member_sums(lag: pa.Table, *keys: str) -> pa.Table:
    """Lag by the keys and owner; null where all of it is unknown."""
    import pyarrow.compute as pc

    owned = lag.filter(pc.is_valid(lag["owner_member_id"]))
    return owned.group_by([*keys, "owner_member_id"]).aggregate([("lag_records", "sum")])


def _unknown_by_status(lag: pa.Table, *keys: str) -> list[dict[str, Any]]:
    import pyarrow.compute as pc

    unknown = lag.filter(pc.is_null(lag["lag_records"]))
    rows: list[dict[str, Any]] = (
        unknown.group_by([*keys, "status"]).aggregate([([], "count_all")]).to_pylist()
    )
    return rows


class _Lag(NamedTuple):
    """Lag of a member: sum over the known partitions, None if there are none."""

    records: int | None
    num_partitions: int
    num_unknown: int


_NONE = _Lag(None, 0, 0)


def read_change(
    scope: Scope, lag: pa.Table, plans: Sequence[Mapping[str, Any]], names: Names
) -> LagChange | None:
    """Read the lag of the members before and after the newest plan that was applied, or the next best.

    Returns without a plan, the members of the newest snapshot; None if it has none.
    """
    import pyarrow.compute as pc

    from evenlag.lake.tables import OUTCOMES, PLAN_ASSIGNMENTS

    by_slot = lag.sort_by("slot")["snapshot_id"].to_pylist()
    readable, newest = set(by_slot), by_slot[-1]
    lag = counted_rows(lag)

    def of_snapshot(snapshot_id: str) -> tuple[pa.Table, list[str]]:
        return lag.filter(pc.equal(lag["snapshot_id"], snapshot_id)), _alive(scope, snapshot_id)

    plan = min(
        (plan for plan in plans if plan["snapshot_id"] in readable),
        key=lambda plan: _RANK_BY_STATUS.get(str(plan["status"]), _RANK_OF_OTHERS),
        default=None,
    )
    if plan is None:
        before = _lag_by_member(*of_snapshot(newest), names)
        members = _members(before, None, None)
        read_at = max(scope.read_at[name] for name in readable)
        return LagChange(members, read_at, unknown_before=_unknown(before)) if members else None
    wanted = [*scope.filters(days_after=1), ("plan_id", "=", plan["plan_id"])]
    of_plan: list[Filter] = [(name, "=", plan[name]) for name in ("cluster", "day", "plan_id")]
    planned = scope.reader.read(PLAN_ASSIGNMENTS, columns=_PLANNED_COLUMNS, filters=of_plan)
    outcome = next(iter(scope.reader.read(OUTCOMES, filters=wanted).to_pylist()), None)
    rows, alive = of_snapshot(plan["snapshot_id"])
    before, predicted = (_lag_by_member(each, alive, names) for each in (rows, _as_planned(rows, planned)))
    after = None
    if outcome is not None and outcome["snapshot_id"] in readable:
        after = _lag_by_member(*of_snapshot(outcome["snapshot_id"]), names)
    later_id = outcome["snapshot_id"] if outcome is not None and after is not None else None
    drains = _drain_times(scope, [name for name in (plan["snapshot_id"], later_id) if name])
    return LagChange(
        members=_members(before, predicted, after),
        before_at=scope.read_at[plan["snapshot_id"]],
        plan_id=plan["plan_id"],
        status=plan["status"],
        moves=plan["moves"],
        after_at=None if later_id is None else scope.read_at[later_id],
        unknown_before=_unknown(before),
        unknown_after=_unknown(after or {}),
        total_before=_total(before),
        total_after=_total(after or {}),
        drain_before_ms=drains.get(plan["snapshot_id"]),
        drain_after_ms=drains.get(later_id),
    )


def read_evaluation(scope: Scope, plan_id: str | None) -> Mapping[str, Any] | None:
    """Read the evaluation of a plan at its horizon.

    Returns row of ``plan_evaluations``; None without one, or if it was evaluated after the requested end.
    """
    from evenlag.lake.tables import PLAN_EVALUATIONS

    if plan_id is None:
        return None
    wanted: list[Filter] = [*scope.filters(), ("plan_id", "=", plan_id)]
    rows = scope.reader.read(PLAN_EVALUATIONS, filters=wanted).to_pylist()
    return next((row for row in rows if row["snapshot_id"] in scope.read_at), None)


def _alive(scope: Scope, snapshot_id: str) -> list[str]:
    """Members of the group in a snapshot."""
    from evenlag.lake.tables import MEMBERS

    of_snapshot = [*scope.filters(), ("snapshot_id", "=", snapshot_id)]
    members = scope.reader.read(MEMBERS, columns=["member_id"], filters=of_snapshot)
    return [member_id for member_id in members["member_id"].to_pylist() if member_id is not None]


def _lag_by_member(rows: pa.Table, alive: Iterable[str], names: Names) -> dict[str | None, _Lag]:
    """Lag by member name; the key None has the partitions without an owner.

    A live member without partitions has a lag of 0, unless it may own a partition with unknown lag.
    """
    sums = rows.group_by("owner_member_id").aggregate(
        [("lag_records", "sum"), ("lag_records", "count"), ([], "count_all")]
    )
    found = {
        None if row["owner_member_id"] is None else names.of(row["owner_member_id"]): _Lag(
            row["lag_records_sum"], row["count_all"], row["count_all"] - row["lag_records_count"]
        )
        for row in sums.to_pylist()
    }
    is_shown = not found.get(None, _NONE).num_unknown
    return {names.of(member_id): _Lag(0 if is_shown else None, 0, 0) for member_id in alive} | found


def _as_planned(rows: pa.Table, planned: pa.Table) -> pa.Table:
    """Replace the owners by those of a plan; the plan may contain only the partitions that it moves."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_planned = pa.array([True] * planned.num_rows, pa.bool_())
    both = rows.select(["topic", "partition", "owner_member_id", "lag_records"]).join(
        planned.select(["topic", "partition", "owner_after"]).append_column("is_planned", is_planned),
        ["topic", "partition"],
        join_type="left outer",
    )
    owner = pc.if_else(
        pc.fill_null(both["is_planned"], fill_value=False), both["owner_after"], both["owner_member_id"]
    )
    return both.select(["lag_records"]).append_column("owner_member_id", owner)


def _unknown(by_member: Mapping[str | None, _Lag]) -> tuple[int, int]:
    lags = by_member.values()
    return sum(each.num_unknown for each in lags), sum(each.num_partitions for each in lags)


def _total(by_member: Mapping[str | None, _Lag]) -> int | None:
    known = [each.records for each in by_member.values() if each.records is not None]
    return sum(known) if known else None


def _drain_times(scope: Scope, snapshot_ids: Sequence[str]) -> dict[str | None, float | None]:
    """Time until the group has no lag, by snapshot: see `LagChange`."""
    from evenlag.lake.tables import LAG

    wanted = [*scope.filters(), ("snapshot_id", "in", list(snapshot_ids))]
    rows = counted_rows(scope.reader.read(LAG, columns=_DRAIN_COLUMNS, filters=wanted)).to_pylist()
    by_snapshot: dict[str | None, list[float | None]] = {}
    for row in rows:
        by_snapshot.setdefault(row["snapshot_id"], []).append(_drain_time(row))
    return {name: _longest(times) for name, times in by_snapshot.items()}


def _drain_time(row: Mapping[str, Any]) -> float | None:
    """Drain time of a partition: infinite if its rates are known and its lag does not shrink."""
    if row["lag_records"] == 0:
        return 0.0
    if row["lag_records"] is None or row["drain_time_ms"] is not None:
        drain_time_ms: float | None = row["drain_time_ms"]
        return drain_time_ms if row["lag_records"] is not None else None
    is_known = None not in {row["arrival_rate_records_per_s"], row["consume_rate_records_per_s"]}
    return inf if is_known else None


def _longest(times: Sequence[float | None]) -> float | None:
    known = [each for each in times if each is not None]
    if inf in known:
        return inf
    return max(known) if known and len(known) == len(times) else None


def _members(
    before: Mapping[str | None, _Lag],
    predicted: Mapping[str | None, _Lag] | None,
    after: Mapping[str | None, _Lag] | None,
) -> tuple[MemberLag, ...]:
    everyone = {name for part in (before, predicted, after) for name in part or () if name is not None}
    found = []
    for name in everyone:
        then, by_plan, now = ((part or {}).get(name, _NONE) for part in (before, predicted, after))
        unknown = (then.num_unknown, by_plan.num_unknown, now.num_unknown)
        found.append(MemberLag(name, then.records, by_plan.records, now.records, unknown))
    return tuple(sorted(found, key=_furthest_first))


def _furthest_first(member: MemberLag) -> tuple[bool, int, str]:
    return (member.before is None, -(member.before or 0), member.name)
