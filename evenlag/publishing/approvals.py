"""Manual plan approval. The first recorded decision is final."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import PlanEvent
from evenlag.lake.tables import PLAN_EVENTS
from evenlag.lake.writer import delta_rs_writer
from evenlag.publishing.approval_requests import check_deadline
from evenlag.publishing.eligibility import JOB_ACTORS
from evenlag.publishing.event_log import PlanEventRow
from evenlag.publishing.waiting_plans import AlreadyDecidedError, check_waiting, read_head

if TYPE_CHECKING:
    from datetime import datetime

    from evenlag.policy.loader import LoadedPolicy

# Actor of the rejection that is recorded when the deadline passes without an answer.
TIME_LIMIT_ACTOR: Final = "time limit"
# Names that jobs record as their actor; a user with such a name gets a suffix.
_RESERVED_ACTORS: Final = JOB_ACTORS | {"command", TIME_LIMIT_ACTOR}


def person(name: str) -> str:
    """Return the actor to record for a user, which is never the name of a job.

    Parameters
    ----------
    name
        Name of the user.

    Returns
    -------
    str
        The name, with a suffix when a job has the same name.
    """
    return f"{name} (person)" if name in _RESERVED_ACTORS else name


def decide(
    loaded: LoadedPolicy,
    cluster: str,
    plan_id: str,
    *,
    approve: bool,
    actor: str,
    reason: str,
    run_id: str,
    now: datetime,
) -> dict[str, Any]:
    """Record a user's decision on a plan. The first recorded decision is final.

    Idempotent: the same decision by the same run changes nothing.

    Parameters
    ----------
    loaded, cluster
        The policy, and the cluster's name in it.
    plan_id
        The plan.
    approve
        Whether the plan is approved; else it is rejected.
    actor, reason, run_id, now
        Recorded with the event.

    Returns
    -------
    dict
        The plan's head.

    Raises
    ------
    AlreadyDecidedError
        When the plan is decided or has ended.
    NotWaitingError
        When the plan does not wait for approval, or its deadline has passed.
    LakeError
        When a table cannot be read or written.
    """
    event = PlanEvent.APPROVED if approve else PlanEvent.REJECTED
    with delta_rs_writer(loaded.policy.lake, PLAN_EVENTS) as writer:
        try:
            head = check_waiting(loaded, cluster, plan_id)
        except AlreadyDecidedError as error:
            if (error.event["event"], error.event["run_id"]) != (event, run_id):
                raise
            return read_head(writer.lake, cluster, plan_id)
        if approve:
            check_deadline(loaded, head, writer.lake, now)
        writer.append(
            [
                PlanEventRow(
                    cluster=cluster,
                    day=head["day"],
                    snapshot_id=head["snapshot_id"],
                    plan_id=plan_id,
                    group_id=head["group_id"],
                    event=event,
                    reason=reason,
                    actor=actor,
                    at=now,
                    run_id=run_id,
                ).as_row()
            ]
        )
    return head
