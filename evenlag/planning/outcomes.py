"""Outcomes of published plans by a snapshot: APPLIED, IGNORED or EXPIRED, and the effect on lag.

A plan has no outcome while the group may still apply its hint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.enums import EVENLAG_ASSIGNOR, MEMBERLESS_STATES, GroupState, OutcomeReason
from evenlag.lag.group_lag import measure_lag
from evenlag.planning.adherence import Adherence, GroupStatus, measure_adherence, measure_status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from evenlag.planning.published_plans import PublishedPlan

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
    heads: Their rows of ``plans`` by plan id, with ``metrics_before`` and ``metrics_after``.
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
        code = _reason_code(plan, heads[plan.plan_id], share, status, marker)
        if code is None:
            continue
        before = heads[plan.plan_id]["metrics_before"] or {}
        after = heads[plan.plan_id]["metrics_after"] or {}
        actual = lags.get(plan.group_id)
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
