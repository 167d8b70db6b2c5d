"""Plans that wait for a user's approval, the requests for it, and the answers.

A plan waits when it was made in mode ``approve``, passed its gates and has no decision yet, and its group
still is in mode ``approve``. Where a request is shown (Airflow, the command line) is decided elsewhere. Each
group has one open request at a time; its later plans stay in shadow, with the reason.

The store decides what is first (:mod:`evenlag.lake.writer`): of two at the same time one is refused, and
reads the other. The first recorded answer is final.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from evenlag.enums import Mode, PlanEvent, RequestState
from evenlag.errors import JobError
from evenlag.formatting import answered_by, moment
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.lake.tables import APPROVAL_REQUESTS, PLAN_EVENTS, PLANS
from evenlag.lake.writer import append_guarded
from evenlag.publishing.answers.actors import PUBLISHER_ACTOR, TIME_LIMIT, Actor, check_may_decide
from evenlag.publishing.event_log import append_plan_events, plan_event
from evenlag.publishing.sealing.row_seal import Sealer
from evenlag.publishing.sealing.verified_plans import (
    PUBLISHABLE_FOR,
    FaultyPlan,
    VerifiedPlan,
    oldest_day,
    read_plans,
    seal_events,
)

if TYPE_CHECKING:
    from evenlag.policy.loader import LoadedPolicy

    Row = Mapping[str, Any]


class NotWaitingError(JobError, exit_code=2):
    """Raised when a plan does not wait for approval; the message has the reason."""


class AlreadyDecidedError(NotWaitingError):
    """Raised when a plan is already decided or has ended, by a recorded event."""

    def __init__(self, message: str, event: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.event = event


class EditedPlanError(NotWaitingError):
    """Raised when the rows of a plan are not as they were sealed; the message names the row."""

    def __init__(self, plan: FaultyPlan) -> None:
        super().__init__(
            f"plan {plan.plan_id[:12]} cannot be approved, it is {plan.fault}; approve a newer plan"
        )
        self.plan = plan


def find_waiting(loaded: LoadedPolicy, cluster: str, slot: datetime) -> list[VerifiedPlan]:
    """Read the plans of a slot that wait for approval, by group."""
    reader = LakeReader(loaded.policy.lake, skip_unreadable=True)
    # Tables store milliseconds; the slot of a manual run has microseconds.
    slot = floor_to_ms(slot)
    wanted = matching(cluster=cluster, day=slot.date(), slot=slot, mode=Mode.APPROVE.value)
    ids = set(reader.read(PLANS, columns=["plan_id"], filters=wanted)["plan_id"].drop_null().to_pylist())
    sealer = Sealer.of(loaded.policy.clusters[cluster])
    found = read_plans(reader, sealer, cluster, slot.date(), ids, assignments="unread")
    waiting = [
        plan
        for plan in found.values()
        if isinstance(plan, VerifiedPlan) and plan.head["slot"] == slot and _blocker(loaded, plan) is None
    ]
    return sorted(waiting, key=lambda plan: (plan.head["group_id"], plan.head["plan_id"]))


def read_plan(
    loaded: LoadedPolicy, cluster: str, plan_id: str, now: datetime, *, is_sealed: bool = True
) -> VerifiedPlan:
    """Return a plan of the last days; without `is_sealed` no seals are checked, for messages alone."""
    sealer = Sealer.of(loaded.policy.clusters[cluster]) if is_sealed else None
    reader = LakeReader(loaded.policy.lake)
    found = read_plans(reader, sealer, cluster, oldest_day(now), [plan_id], assignments="kept")
    plan = found.get(plan_id)
    if plan is None:
        raise NotWaitingError(
            f"there is no plan {plan_id} on {cluster} of the last {PUBLISHABLE_FOR.days} days"
        )
    if isinstance(plan, FaultyPlan):
        raise EditedPlanError(plan)
    return plan


def check_waiting(loaded: LoadedPolicy, plan: VerifiedPlan) -> None:
    """Check that a plan waits for approval."""
    blocker = _blocker(loaded, plan)
    if blocker is None:
        return
    raise NotWaitingError(blocker) if plan.ending is None else AlreadyDecidedError(blocker, plan.ending)


def _blocker(loaded: LoadedPolicy, plan: VerifiedPlan) -> str | None:
    """Why a plan does not wait for approval; None when it does."""
    head, ending = plan.head, plan.ending
    name, group_id = f"plan {head['plan_id'][:12]}", head["group_id"]
    mode = loaded.policy.group_settings(head["cluster"], group_id).mode
    if head["mode"] != Mode.APPROVE.value:
        return f"{name} was made in mode {head['mode']}: only plans of mode approve wait for a person"
    if ending is not None:
        why = f": {ending['reason']}" if ending["reason"] else ""
        return f"{name} is {ending['event']} since {moment(ending['at'])} by {answered_by(ending)}{why}"
    if not plan.verdicts:
        return f"{name} has not been judged by the gates yet"
    if not all(plan.verdicts.values()):
        return f"{name} failed its gates"
    if mode is not Mode.APPROVE:
        return f"the group {group_id} is in mode {mode.value} by now: {name} waits for nobody"
    return None


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """An open approval request. A plan without an answer until `answer_by` is then rejected."""

    plan: VerifiedPlan = field(compare=False, repr=False)
    answer_by: datetime


def request_approval(
    loaded: LoadedPolicy,
    cluster: str,
    plan_id: str,
    *,
    run_id: str,
    now: datetime,
    approvers: Sequence[str] | None = None,
    dag_id: str | None = None,
) -> ApprovalRequest:
    """Open the approval request of a plan. Idempotent: the same run gets the same request again.

    approvers: Who may approve if the policy names nobody; None: whoever Airflow lets answer.
    """
    reader = LakeReader(loaded.policy.lake, skip_unreadable=True)
    sealer = Sealer.of(loaded.policy.clusters[cluster])
    chosen: list[tuple[VerifiedPlan, Mapping[str, Any]]] = []

    def ask() -> list[dict[str, Any]]:
        plan = read_plan(loaded, cluster, plan_id, now)
        check_waiting(loaded, plan)
        head, group_id = plan.head, plan.head["group_id"]
        other = open_requests(reader, cluster, now, sealer).get(group_id)
        new: list[dict[str, Any]] = []
        row = plan.request
        if row is None and other is None:
            timeout_s = loaded.policy.group_settings(cluster, group_id).approval_timeout_s
            named = loaded.policy.approvers_of(cluster, group_id)
            row = _row(head, RequestState.ASKED, now, run_id) | {
                "answer_by": now + timedelta(seconds=timeout_s),
                "approvers": list(named or approvers or ()) or None,
                "dag_id": dag_id,
            }
            if sealer is not None:
                (row,) = sealer.seal_rows(APPROVAL_REQUESTS, [row])
            new = [dict(row)]
        elif row is None:
            row = _shadow_row(head, other or {}, now, run_id)
            new = [] if plan.requests else [row]
        chosen.append((plan, row))
        return new

    append_guarded(loaded.policy.lake, APPROVAL_REQUESTS, ask)
    plan, row = chosen[-1]
    if row["state"] == RequestState.SHADOWED:
        raise NotWaitingError(f"plan {plan_id[:12]} stays in shadow: {row['reason']}")
    if row["run_id"] != run_id:
        raise NotWaitingError(f"plan {plan_id[:12]} is asked for by the run {row['run_id']} already")
    return ApprovalRequest(plan, row["answer_by"])


def set_aside_shadowed(
    loaded: LoadedPolicy, cluster: str, plans: Iterable[VerifiedPlan], *, run_id: str, now: datetime
) -> list[VerifiedPlan]:
    """Record which waiting plans stay in shadow because of their group's open request; return the others."""
    waiting = {plan.head["plan_id"]: plan for plan in plans}
    if not waiting:
        return []
    reader = LakeReader(loaded.policy.lake, skip_unreadable=True)
    sealer = Sealer.of(loaded.policy.clusters[cluster])
    shadowed: dict[str, dict[str, Any]] = {}

    def set_aside() -> list[dict[str, Any]]:
        first = min(plan.day for plan in waiting.values())
        of_plans = matching(cluster=cluster, plan_id=waiting.keys(), since=first)
        known = reader.read(APPROVAL_REQUESTS, columns=["plan_id"], filters=of_plans)["plan_id"].to_pylist()
        open_by_group = open_requests(reader, cluster, now, sealer)
        shadowed.clear()
        for plan_id, plan in waiting.items():
            other = open_by_group.get(plan.head["group_id"])
            if other is not None and other["plan_id"] != plan_id:
                shadowed[plan_id] = _shadow_row(plan.head, other, now, run_id)
        return [row for plan_id, row in shadowed.items() if plan_id not in known]

    append_guarded(loaded.policy.lake, APPROVAL_REQUESTS, set_aside)
    return [plan for plan_id, plan in waiting.items() if plan_id not in shadowed]


def asked_plans(reader: LakeReader, cluster: str, now: datetime) -> set[str]:
    """Return the plans with a request before its deadline, by rows that anybody may have written."""
    asked = matching(cluster=cluster, state=RequestState.ASKED, since=oldest_day(now))
    filters = [*asked, ("answer_by", ">", now)]
    found = reader.read(APPROVAL_REQUESTS, columns=["plan_id"], filters=filters)["plan_id"]
    return set(found.drop_null().to_pylist())


def open_requests(
    reader: LakeReader, cluster: str, now: datetime, sealer: Sealer | None = None
) -> dict[str, Mapping[str, Any]]:
    """Return the open approval requests: before their deadline, of plans without a decision.

    sealer: The cluster's sealer; None to believe the rows, where nothing depends on them.
    """
    ids = asked_plans(reader, cluster, now)
    plans = read_plans(reader, sealer, cluster, oldest_day(now), ids, assignments="unread").values()
    return {
        plan.head["group_id"]: plan.request
        for plan in plans
        if isinstance(plan, VerifiedPlan)
        and plan.ending is None
        and plan.request is not None
        and plan.request["answer_by"] > now
    }


def check_deadline(loaded: LoadedPolicy, plan: VerifiedPlan, now: datetime) -> None:
    """Check that the deadline of a plan's approval has not passed."""
    head, request = plan.head, plan.request
    timeout_s = loaded.policy.group_settings(head["cluster"], head["group_id"]).approval_timeout_s
    until = request["answer_by"] if request else head["slot"] + timedelta(seconds=timeout_s)
    if now > until:
        raise NotWaitingError(
            f"plan {head['plan_id'][:12]} could be approved until {moment(until)}: its group has "
            "moved on, approve a newer plan"
        )


def _shadow_row(head: Row, other: Row, now: datetime, run_id: str) -> dict[str, Any]:
    until = moment(other["answer_by"])
    reason = f"plan {other['plan_id'][:12]} of the group waits for a person, until {until}"
    return _row(head, RequestState.SHADOWED, now, run_id) | {"reason": reason}


def _row(head: Row, state: str, now: datetime, run_id: str) -> dict[str, Any]:
    names = ("cluster", "day", "snapshot_id", "plan_id", "group_id")
    return {name: head[name] for name in names} | {"state": state, "at": now, "run_id": run_id}


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
        append_guarded(loaded.policy.lake, PLAN_EVENTS, answer)
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
