"""Approval requests: which plan a user is asked to approve, and until when.

Where a request is shown (Airflow, the command line) is decided elsewhere. Each group has one open request at
a time; its later plans stay in shadow, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import RequestState
from evenlag.lake.tables import APPROVAL_REQUESTS
from evenlag.lake.writer import delta_rs_writer
from evenlag.publishing.waiting_plans import NotWaitingError, check_waiting, first_decision, group_by_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader
    from evenlag.policy.loader import LoadedPolicy

# No request is open for longer: the largest approval_timeout_s, and one day for the slot's day.
_LOOK_BACK: Final = timedelta(days=8)


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """An open approval request.

    Attributes
    ----------
    plan_id, group_id, slot
        The plan, its group and its slot.
    answer_by
        Deadline: a plan without an answer is then rejected.
    """

    plan_id: str
    group_id: str
    slot: datetime
    answer_by: datetime


def request_approval(
    loaded: LoadedPolicy, cluster: str, plan_id: str, *, run_id: str, now: datetime
) -> ApprovalRequest:
    """Open the approval request of a plan. Idempotent: the same run gets the same request again.

    Parameters
    ----------
    loaded, cluster
        The policy, and the cluster's name in it.
    plan_id
        The plan.
    run_id
        The run that waits for the answer.
    now
        Current time.

    Returns
    -------
    ApprovalRequest
        The open request.

    Raises
    ------
    NotWaitingError
        When the plan does not wait, another run has requested it, or the group has another open request. The
        latter is recorded as the reason why the plan stays in shadow.
    LakeError
        When a table cannot be read or written.
    """
    head = check_waiting(loaded, cluster, plan_id)
    with delta_rs_writer(loaded.policy.lake, APPROVAL_REQUESTS) as writer:
        known = next(iter(writer.rows([("cluster", "=", cluster), ("plan_id", "=", plan_id)])), None)
        if known is not None and known["state"] == RequestState.ASKED:
            if known["run_id"] != run_id:
                raise NotWaitingError(
                    f"plan {plan_id[:12]} is asked for by the run {known['run_id']} already"
                )
            return ApprovalRequest(plan_id, head["group_id"], head["slot"], known["answer_by"])
        other = _open_requests(writer.lake, cluster, now).get(head["group_id"])
        if other is not None:
            reason = _shadow_reason(other)
            if known is None:
                writer.append([_shadow_row(head, reason, now, run_id)])
            raise NotWaitingError(f"plan {plan_id[:12]} stays in shadow: {reason}")
        timeout_s = loaded.policy.group_settings(cluster, head["group_id"]).approval_timeout_s
        answer_by = now + timedelta(seconds=timeout_s)
        writer.append([_row(head, RequestState.ASKED, now, run_id) | {"answer_by": answer_by}])
    return ApprovalRequest(plan_id, head["group_id"], head["slot"], answer_by)


def set_aside_shadowed(
    loaded: LoadedPolicy, cluster: str, heads: Iterable[Mapping[str, Any]], *, run_id: str, now: datetime
) -> list[dict[str, Any]]:
    """Record which waiting plans stay in shadow because their group has an open request.

    Parameters
    ----------
    loaded, cluster
        The policy, and the cluster's name in it.
    heads
        Heads of waiting plans.
    run_id, now
        Recorded with the requests.

    Returns
    -------
    list of dict
        The heads of plans that may be requested.

    Raises
    ------
    LakeError
        When the table cannot be read or written.
    """
    by_plan = {head["plan_id"]: dict(head) for head in heads}
    if not by_plan:
        return []
    with delta_rs_writer(loaded.policy.lake, APPROVAL_REQUESTS) as writer:
        wanted: list[Filter] = [("cluster", "=", cluster), ("plan_id", "in", list(by_plan))]
        known = {row["plan_id"] for row in writer.rows(wanted, columns=["plan_id"])}
        open_by_group = _open_requests(writer.lake, cluster, now)
        others = {plan_id: open_by_group.get(head["group_id"]) for plan_id, head in by_plan.items()}
        shadowed = {
            plan_id: other
            for plan_id, other in others.items()
            if other is not None and other["plan_id"] != plan_id
        }
        writer.append(
            [
                _shadow_row(by_plan[plan_id], _shadow_reason(other), now, run_id)
                for plan_id, other in shadowed.items()
                if plan_id not in known
            ]
        )
    return [head for plan_id, head in by_plan.items() if plan_id not in shadowed]


def count_open_requests(reader: LakeReader, cluster: str, now: datetime) -> int:
    """Count the open approval requests.

    Parameters
    ----------
    reader, cluster
        The lake, and the cluster's name.
    now
        Current time: an expired request is not open.

    Returns
    -------
    int
        Number of open requests.

    Raises
    ------
    LakeError
        When a table cannot be read.
    """
    return len(_open_requests(reader, cluster, now))


def check_deadline(loaded: LoadedPolicy, head: Mapping[str, Any], reader: LakeReader, now: datetime) -> None:
    """Check that the deadline of a plan's approval has not passed.

    Parameters
    ----------
    loaded
        The policy.
    head
        Head of the plan.
    reader
        The lake.
    now
        Current time.

    Raises
    ------
    NotWaitingError
        When the deadline has passed.
    LakeError
        When the requests cannot be read.
    """
    rows = reader.read(
        APPROVAL_REQUESTS,
        filters=[
            ("cluster", "=", head["cluster"]),
            ("plan_id", "=", head["plan_id"]),
            ("state", "=", RequestState.ASKED),
        ],
    ).to_pylist()
    timeout_s = loaded.policy.group_settings(head["cluster"], head["group_id"]).approval_timeout_s
    until = rows[0]["answer_by"] if rows else head["slot"] + timedelta(seconds=timeout_s)
    if now > until:
        raise NotWaitingError(
            f"plan {head['plan_id'][:12]} could be approved until {until:%Y-%m-%d %H:%M:%S}Z: its group has "
            "moved on, approve a newer plan"
        )


def _open_requests(reader: LakeReader, cluster: str, now: datetime) -> dict[str, dict[str, Any]]:
    """The open request of each group: requested, before its deadline, and without a decision."""
    filters: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", ">=", (now - _LOOK_BACK).date()),
        ("state", "=", RequestState.ASKED),
        ("answer_by", ">", now),
    ]
    asked = reader.read(APPROVAL_REQUESTS, filters=filters).to_pylist()
    if not asked:
        return {}
    wanted: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", ">=", min(row["day"] for row in asked)),
        ("plan_id", "in", [row["plan_id"] for row in asked]),
    ]
    events = group_by_plan(reader.read_events(filters=wanted).to_pylist())
    return {row["group_id"]: row for row in asked if first_decision(events.get(row["plan_id"], [])) is None}


def _shadow_reason(other: Mapping[str, Any]) -> str:
    return (
        f"plan {other['plan_id'][:12]} of the group waits for a person, until "
        f"{other['answer_by']:%Y-%m-%d %H:%M:%S}Z"
    )


def _shadow_row(head: Mapping[str, Any], reason: str, now: datetime, run_id: str) -> dict[str, Any]:
    return _row(head, RequestState.SHADOWED, now, run_id) | {"reason": reason}


def _row(head: Mapping[str, Any], state: str, now: datetime, run_id: str) -> dict[str, Any]:
    names = ("cluster", "day", "snapshot_id", "plan_id", "group_id")
    return {name: head[name] for name in names} | {"state": state, "at": now, "run_id": run_id}
