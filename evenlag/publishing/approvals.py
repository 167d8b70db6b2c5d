"""Manual plan approval. The first recorded answer is final.

The store decides which one is first: all events of a plan that depend on its earlier events have one guard
(:func:`~evenlag.publishing.event_log.plan_guard`), so of two answers at the same time one is refused, and
reads the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.enums import PlanEvent
from evenlag.lake.tables import PLAN_EVENTS
from evenlag.lake.writer import append_guarded
from evenlag.publishing.answers.actors import PUBLISHER_ACTOR, TIME_LIMIT, check_may_decide
from evenlag.publishing.approval_requests import check_deadline
from evenlag.publishing.event_log import append_plan_events, plan_event, plan_guard
from evenlag.publishing.sealing.row_seal import Sealer
from evenlag.publishing.sealing.verified_plans import seal_events
from evenlag.publishing.waiting_plans import AlreadyDecidedError, EditedPlanError, check_waiting, read_plan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from evenlag.policy.loader import LoadedPolicy
    from evenlag.publishing.answers.actors import Actor
    from evenlag.publishing.sealing.verified_plans import VerifiedPlan


def record_answer(
    loaded: LoadedPolicy,
    cluster: str,
    plan_id: str,
    *,
    approve: bool,
    actor: Actor,
    reason: str,
    run_id: str,
    now: datetime,
    approvers: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Record a user's approval or rejection of a plan. The same answer by the same run changes nothing.

    approvers: Who may approve if the policy names nobody; None: whom the plan's request names.
    """
    event = PlanEvent.APPROVED if approve else PlanEvent.REJECTED
    sealer = Sealer.of(loaded.policy.clusters[cluster])
    plans: list[VerifiedPlan] = []

    def answer() -> list[dict[str, Any]]:
        plan = read_plan(loaded, cluster, plan_id, now)
        plans.append(plan)
        try:
            check_waiting(loaded, plan)
        except AlreadyDecidedError as error:
            if (error.event["event"], error.event["run_id"]) != (event, run_id):
                raise
            return []
        if approve or actor != TIME_LIMIT:
            check_may_decide(
                loaded.policy, plan.head, actor, approvers or (plan.request or {}).get("approvers")
            )
        if approve:
            check_deadline(loaded, plan, now)
        row = plan_event({**plan.head, "run_id": run_id}, event, reason=reason, at=now, **actor.columns())
        return seal_events(sealer, [row], {plan_id: plan.evidence}) if approve else [row]

    try:
        append_guarded(loaded.policy.lake, PLAN_EVENTS, answer, plan_guard)
    except EditedPlanError as error:
        # Nobody can approve it any more, and an open request would hold up the group's later plans.
        columns = {"cluster": cluster, "run_id": run_id, "day": error.plan.day or now.date()}
        columns |= {name: getattr(error.plan, name) for name in ("snapshot_id", "plan_id", "group_id")}
        refused = plan_event(
            columns, PlanEvent.REJECTED, reason=error.plan.fault, actor=PUBLISHER_ACTOR, at=now
        )
        append_plan_events(loaded.policy.lake, [refused])
        raise
    return dict(plans[-1].head)
