"""What a plan did to the lag of each member: before, as predicted, as seen after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evenlag.enums import PlanEvent
from evenlag.report.model import LagChange, MemberLag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from evenlag.report.member_names import Names
    from evenlag.report.scope import Scope

# The plan that tells most is one that was followed; then one that was published, then any.
_RANK_BY_STATUS: Final[dict[str, int]] = {
    PlanEvent.APPLIED: 0,
    PlanEvent.IGNORED: 1,
    PlanEvent.EXPIRED: 1,
    PlanEvent.PUBLISHED: 2,
    PlanEvent.WITHDRAWN: 3,
    PlanEvent.APPROVED: 3,
}
_RANK_OF_OTHERS = 4


class _Lag(NamedTuple):
    """The lag of a member: of the partitions known, None when there is none."""

    records: int | None
    num_partitions: int
    num_unknown: int


_NONE = _Lag(None, 0, 0)


def read_change(
    scope: Scope, lag: pa.Table, plans: Sequence[Mapping[str, Any]], names: Names
) -> LagChange | None:
    """Read the lag of the members around the newest plan that was followed, or the next best.

    Parameters
    ----------
    lag
        The group's rows of ``lag`` over the period.
    plans
        The group's plans, newest first.

    Returns
    -------
    LagChange or None
        Without a plan, the members of the newest reading; None when it has none.
    """
    import pyarrow.compute as pc

    from evenlag.lake.tables import OUTCOMES, PLAN_ASSIGNMENTS

    newest = pc.max(lag["slot"]).as_py()
    readable = set(lag["snapshot_id"].to_pylist())
    plan = min(
        (plan for plan in plans if plan["snapshot_id"] in readable),
        key=lambda plan: _RANK_BY_STATUS.get(str(plan["status"]), _RANK_OF_OTHERS),
        default=None,
    )
    if plan is None:
        rows = lag.filter(pc.equal(lag["slot"], newest))
        before = _lag_by_member(rows, _alive(scope, rows), names)
        members = _members(before, None, None)
        read_at = max(scope.read_at[name] for name in readable)
        return LagChange(members, read_at, unknown_before=_unknown(before)) if members else None
    wanted = [*scope.filters(days_after=1), ("plan_id", "=", plan["plan_id"])]
    columns = ["topic", "partition", "owner_before", "owner_after"]
    planned = scope.reader.read(PLAN_ASSIGNMENTS, columns=columns, filters=wanted)
    outcome = next(iter(scope.reader.read(OUTCOMES, filters=wanted).to_pylist()), None)
    rows = lag.filter(pc.equal(lag["snapshot_id"], plan["snapshot_id"]))
    alive = _alive(scope, rows)
    before, predicted = (_lag_by_member(each, alive, names) for each in (rows, _as_planned(rows, planned)))
    after = None
    if outcome is not None and outcome["snapshot_id"] in readable:
        rows = lag.filter(pc.equal(lag["snapshot_id"], outcome["snapshot_id"]))
        after = _lag_by_member(rows, _alive(scope, rows), names)
    return LagChange(
        members=_members(before, predicted, after),
        before_at=scope.read_at[plan["snapshot_id"]],
        plan_id=plan["plan_id"],
        status=plan["status"],
        moves=plan["moves"],
        after_at=scope.read_at[outcome["snapshot_id"]] if outcome is not None and after is not None else None,
        unknown_before=_unknown(before),
        unknown_after=_unknown(after or {}),
    )


def _alive(scope: Scope, rows: pa.Table) -> list[str]:
    """The members that the snapshot of some rows of ``lag`` shows."""
    from evenlag.lake.tables import MEMBERS

    of_snapshot = [*scope.filters(), ("snapshot_id", "in", rows["snapshot_id"].unique().to_pylist())]
    members = scope.reader.read(MEMBERS, columns=["member_id"], filters=of_snapshot)
    return [member_id for member_id in members["member_id"].to_pylist() if member_id is not None]


def _lag_by_member(rows: pa.Table, alive: Iterable[str], names: Names) -> dict[str | None, _Lag]:
    """Sum up the lag of each member; under None that of partitions without an owner.

    A live member that owns nothing is behind by nothing, if the owner of no unknown partition is unknown.
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
    """Give each partition the owner that a plan gives it; the table may hold only those that change owner."""
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
