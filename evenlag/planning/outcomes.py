"""Outcomes of published plans by a snapshot: APPLIED, IGNORED or EXPIRED, and the effect on lag.

A plan has no outcome while the group may still apply its hint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenlag.enums import EVENLAG_ASSIGNOR, MEMBERLESS_STATES, GroupState, OutcomeReason
from evenlag.lag.arrays import flatten_assignments
from evenlag.lag.group_lag import measure_lag
from evenlag.planning.expectations import score_expected

if TYPE_CHECKING:
    from evenlag.planning.published_plans import PublishedPlan


MEMBER_COLUMNS: Final = (
    "group_id",
    "group_state",
    "assignor",
    "member_id",
    "group_instance_id",
    "assignment",
    "target_assignment",
)
ASSIGNMENT_COLUMNS: Final = (
    "plan_id",
    "group_id",
    "topic",
    "partition",
    "owner_after_key",
    "lag_records",
)
PLAN_COLUMNS: Final = ("plan_id", "slot", "num_members", "metrics_before", "metrics_after", "expected")
_PLACE: Final = ["group_id", "owner_after_key", "topic", "partition"]


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """State of a group, and its selected assignor; None where the snapshot does not show it."""

    state: str | None
    assignor: str | None


@dataclass(frozen=True, slots=True)
class Adherence:
    """Shares of a plan's partitions at their hinted members, and the lag that it was planned with.

    assigned: By the current assignment; None when no partition of the plan has an owner.
    targeted: By the coordinator's target assignment; None for a classic group, which has none.
    total_lag_records: Lag of the plan's partitions when planned; None when none is known.
    num_left: Members that the hint gives partitions, and that are no longer in the group.
    """

    assigned: float | None
    targeted: float | None
    total_lag_records: int | None
    num_left: int = 0
    num_members: int = 0


def measure_status(members: pa.Table) -> dict[str, GroupStatus]:
    """Return the status of each group that has rows of ``members``, by group id."""
    grouped = members.group_by("group_id").aggregate([("group_state", "max"), ("assignor", "max")])
    return {
        row["group_id"]: GroupStatus(row["group_state_max"], row["assignor_max"])
        for row in grouped.to_pylist()
    }


def measure_adherence(assignments: pa.Table, members: pa.Table) -> dict[str, Adherence]:
    """Measure how far groups follow their plans.

    Returns by plan id; a plan without rows is missing.
    assignments: Rows of ``plan_assignments``, with :data:`ASSIGNMENT_COLUMNS`.
    members: Rows of ``members`` of the plans' groups in one snapshot, with :data:`MEMBER_COLUMNS`.
    """
    hinted = assignments.filter(pc.is_valid(assignments["owner_after_key"]))
    rows = hinted.select(["plan_id", *_PLACE])
    assigned, targeted = (
        _shares(rows, explode_assignments(members, column)) for column in ("assignment", "target_assignment")
    )
    with_target = members.filter(pc.is_valid(members["target_assignment"]))
    has_target = set(pc.unique(with_target["group_id"]).to_pylist())
    totals = assignments.group_by(["plan_id", "group_id"]).aggregate([("lag_records", "sum")])
    present = _keys_by(members.append_column("key", _member_keys(members)), "group_id", "key")
    wanted = _keys_by(hinted, "plan_id", "owner_after_key")
    return {
        row["plan_id"]: Adherence(
            assigned.get(row["plan_id"]),
            targeted.get(row["plan_id"]) if row["group_id"] in has_target else None,
            row["lag_records_sum"],
            len(wanted.get(row["plan_id"], frozenset()) - present.get(row["group_id"], frozenset())),
            len(present.get(row["group_id"], frozenset())),
        )
        for row in totals.to_pylist()
    }


def explode_assignments(members: pa.Table, column: str) -> pa.Table:
    """Return a row for each partition that a member owns.

    Returns ``group_id``, ``owner_after_key`` (the member as a hint names it), ``topic``, ``partition``.
    column: ``assignment`` or ``target_assignment``; null gives no rows.
    """
    assigned = flatten_assignments(members[column])
    member = pa.array(assigned.member)
    return pa.table(
        {
            "group_id": members["group_id"].take(member),
            "owner_after_key": _member_keys(members).take(member),
            "topic": assigned.topics.take(pa.array(assigned.topic_at)),
            "partition": assigned.partition,
        }
    )


def _member_keys(members: pa.Table) -> pa.ChunkedArray:
    """Members as a hint names them; null for a row without a member."""
    instance = members["group_instance_id"]
    return pc.if_else(
        pc.is_valid(instance),
        pc.binary_join_element_wise("i:", instance, ""),
        pc.binary_join_element_wise("m:", members["member_id"], ""),
    )


def _keys_by(rows: pa.Table, name: str, key: str) -> dict[str, frozenset[str]]:
    """The different keys of each value of a column."""
    grouped = rows.group_by(name).aggregate([(key, "distinct")])
    return {
        row[name]: frozenset(each for each in row[f"{key}_distinct"] if each is not None)
        for row in grouped.to_pylist()
    }


def _shares(rows: pa.Table, held: pa.Table) -> dict[str, float]:
    """Share of each plan's rows that are in `held`."""
    places = held.group_by(_PLACE).aggregate([])
    marked = places.append_column("is_held", pa.array([1.0] * places.num_rows, pa.float64()))
    joined = rows.join(marked, keys=_PLACE, join_type="left outer")
    is_held = pc.fill_null(joined["is_held"], 0.0)
    shares = joined.select(["plan_id"]).append_column("share", is_held).group_by("plan_id")
    return {row["plan_id"]: row["share_mean"] for row in shares.aggregate([("share", "mean")]).to_pylist()}


# A group that the snapshot could not read is in it, with an error and no state; this one is not in it at all.
_GONE = GroupStatus(GroupState.DEAD, None)
_NO_ADHERENCE = Adherence(None, None, None)


def build_outcomes(
    pending: Iterable[PublishedPlan],
    heads: Mapping[str, Mapping[str, Any]],
    *,
    assignments: pa.Table,
    members: pa.Table,
    lag: pa.Table,
    marker: Mapping[str, Any],
    run_id: str,
) -> list[dict[str, Any]]:
    """Determine the outcome of the pending plans that a snapshot decides.

    Returns rows of ``outcomes``; a plan whose hint may still be applied has none.
    heads: Their rows of ``plans`` by plan id, with :data:`PLAN_COLUMNS`.
    """
    followed, statuses = measure_adherence(assignments, members), measure_status(members)
    lags = measure_lag(lag, members)
    rows = []
    for plan in pending:
        # A snapshot that began before the hint was published cannot show its effect.
        if plan.published_at >= marker["started_at"]:
            continue
        share = followed.get(plan.plan_id, _NO_ADHERENCE)
        status = statuses.get(plan.group_id, _GONE)
        head = heads[plan.plan_id]
        code = _reason_code(plan, head, share, status, marker)
        if code is None:
            continue
        before, after = head["metrics_before"] or {}, head["metrics_after"] or {}
        actual = lags.get(plan.group_id)
        is_followed = code is OutcomeReason.AS_HINTED
        rows.append(
            {
                **{name: marker[name] for name in ("cluster", "day", "snapshot_id", "slot")},
                "plan_id": plan.plan_id,
                "group_id": plan.group_id,
                "outcome": code.outcome.value,
                "reason": _reason(code, plan, share, status),
                "reason_code": code.value,
                "adherence": share.assigned,
                "target_adherence": share.targeted,
                "max_member_lag_before_records": before.get("max_member_lag_records"),
                "max_member_lag_predicted_records": after.get("max_member_lag_records"),
                "max_member_lag_actual_records": actual and actual.max_member_lag_records,
                "total_lag_before_records": share.total_lag_records,
                "total_lag_actual_records": actual and actual.total_lag_records,
                "lag_skew_before": before.get("lag_skew"),
                "lag_skew_predicted": after.get("lag_skew"),
                "lag_skew_actual": actual and actual.lag_skew,
                "num_partitions": actual and actual.num_partitions,
                "num_unknown_partitions": actual and actual.num_unknown_partitions,
                **plan.cost,
                "expected": score_expected(head, marker, actual if is_followed else None, is_horizon=False),
                "run_id": run_id,
            }
        )
    return rows


def _reason_code(
    plan: PublishedPlan,
    head: Mapping[str, Any],
    share: Adherence,
    status: GroupStatus,
    marker: Mapping[str, Any],
) -> OutcomeReason | None:
    """Why the plan has an outcome now; None while the group may still apply its hint."""
    if share.assigned == 1.0:
        return OutcomeReason.AS_HINTED
    if plan.next_plan_id is not None:
        return OutcomeReason.NEWER_HINT
    # A stable group that reports no assignor may still be one that follows.
    is_other = status.assignor is not None and status.assignor != EVENLAG_ASSIGNOR
    if status.state == GroupState.STABLE and is_other:
        return OutcomeReason.OTHER_ASSIGNOR
    if status.state in MEMBERLESS_STATES:
        return OutcomeReason.NO_MEMBERS
    # A hint expires only if the coordinator has not started on it: its target is not yet as hinted.
    is_over = plan.expires_at is not None and plan.expires_at <= marker["started_at"]
    return _expiry(head, share) if is_over and (share.targeted or 0.0) < 1.0 else None


def _expiry(head: Mapping[str, Any], share: Adherence) -> OutcomeReason:
    # A group without members was handled before: here the snapshot does not show them.
    if share.assigned is None or not share.num_members:
        return OutcomeReason.UNKNOWN
    planned = head.get("num_members")
    is_changed = share.num_left > 0 or (planned is not None and planned != share.num_members)
    return OutcomeReason.MEMBERS_CHANGED if is_changed else OutcomeReason.NOT_FOLLOWED


def _reason(code: OutcomeReason, plan: PublishedPlan, share: Adherence, status: GroupStatus) -> str | None:
    match code:
        case OutcomeReason.AS_HINTED:
            return "every hinted partition is with its hinted member"
        case OutcomeReason.NEWER_HINT:
            return f"a newer plan took its place: {plan.next_plan_id}"
        case OutcomeReason.OTHER_ASSIGNOR:
            return f"the group has selected {status.assignor}"
        case OutcomeReason.NO_MEMBERS:
            return "the group has no members any more"
        case OutcomeReason.MEMBERS_CHANGED:
            return f"{_expired(share)}; the group's members have changed since"
        case OutcomeReason.NOT_FOLLOWED | OutcomeReason.UNKNOWN:
            return _expired(share)


def _expired(share: Adherence) -> str | None:
    if share.assigned is None:
        return None
    reason = f"the hint's time is over with {_percent(share.assigned)} of its partitions as hinted"
    if share.targeted is None:
        return reason
    return f"{reason}, and {_percent(share.targeted)} in the coordinator's target"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
