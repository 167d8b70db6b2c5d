"""What a plan did to the lag of each member: before, as predicted, as seen after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.report.model import LagChange, MemberLag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from evenlag.report.read import Scope
    from evenlag.report.read_names import Names

# The plan that tells most is one that was followed; then one that was published, then any.
_RANK_BY_STATUS = {"APPLIED": 0, "IGNORED": 1, "EXPIRED": 1, "PUBLISHED": 2, "WITHDRAWN": 3, "APPROVED": 3}
_RANK_OF_OTHERS = 4


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

    from spark_jobs.tables import OUTCOMES, PLAN_ASSIGNMENTS

    newest = pc.max(lag["slot"]).as_py()
    readable = set(lag["snapshot_id"].to_pylist())
    plan = min(
        (plan for plan in plans if plan["snapshot_id"] in readable),
        key=lambda plan: _RANK_BY_STATUS.get(str(plan["status"]), _RANK_OF_OTHERS),
        default=None,
    )
    if plan is None:
        before = _lag_by_member(lag.filter(pc.equal(lag["slot"], newest)), names)
        members = _members(before, None, None)
        return LagChange(members, newest) if members else None
    wanted = [*scope.filters(days_after=1), ("plan_id", "=", plan["plan_id"])]
    moves = scope.reader.read(PLAN_ASSIGNMENTS, filters=[*wanted, ("moved", "=", True)]).to_pylist()
    outcome = next(iter(scope.reader.read(OUTCOMES, filters=wanted).to_pylist()), None)
    rows = lag.filter(pc.equal(lag["snapshot_id"], plan["snapshot_id"]))
    before = _lag_by_member(rows, names)
    after = None
    if outcome is not None and outcome["snapshot_id"] in readable:
        after = _lag_by_member(lag.filter(pc.equal(lag["snapshot_id"], outcome["snapshot_id"])), names)
    return LagChange(
        members=_members(before, _predict(before, moves, names), after),
        before_at=plan["slot"],
        plan_id=plan["plan_id"],
        status=plan["status"],
        moves=plan["moves"],
        after_at=outcome["slot"] if outcome is not None and after is not None else None,
    )


def _lag_by_member(rows: pa.Table, names: Names) -> dict[str, int | None]:
    import pyarrow.compute as pc

    owned = rows.filter(pc.is_valid(rows["owner_member_id"]))
    sums = owned.group_by("owner_member_id").aggregate([("lag_records", "sum")]).to_pylist()
    return {names.of(row["owner_member_id"]): row["lag_records_sum"] for row in sums}


def _predict(
    before: Mapping[str, int | None], moves: Iterable[Mapping[str, Any]], names: Names
) -> dict[str, int | None]:
    """Move the lag with the partitions that move; the table may hold those alone."""
    predicted = dict(before)
    for move in moves:
        lag = move["lag_records"] or 0
        for member, change in ((move["owner_before"], -lag), (move["owner_after"], lag)):
            known = 0 if member is None else predicted.get(names.of(member), 0)
            if member is not None and known is not None:
                predicted[names.of(member)] = known + change
    return predicted


def _members(
    before: Mapping[str, int | None],
    predicted: Mapping[str, int | None] | None,
    after: Mapping[str, int | None] | None,
) -> tuple[MemberLag, ...]:
    everyone = {*before, *(predicted or {}), *(after or {})}
    found = (
        MemberLag(
            name=name,
            before=before.get(name),
            predicted=None if predicted is None else predicted.get(name),
            after=None if after is None else after.get(name),
        )
        for name in everyone
    )
    return tuple(sorted(found, key=lambda member: (-(member.before or 0), member.name)))
