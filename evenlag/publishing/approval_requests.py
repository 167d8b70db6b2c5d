"""Approval requests: which plan a user is asked to approve, and until when.

Where a request is shown (Airflow, the command line) is decided elsewhere. Each group has one open request at
a time; its later plans stay in shadow, with the reason. The group is the guard of its requests: of two at the
same time one is refused, reads the other, and finds it open.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import RequestState
from evenlag.lake.guarded_append import append_guarded
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import APPROVAL_REQUESTS
from evenlag.publishing.sealing.row_seal import Sealer
from evenlag.publishing.waiting_plans import (
    NotWaitingError,
    check_waiting,
    first_decision,
    group_by_plan,
    read_evidence,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
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
    approvers
        Who may decide if the policy names nobody; None: whoever Airflow lets answer.
    dag_id
        The DAG of that run.

    Returns
    -------
    ApprovalRequest
        The open request.

    Raises
    ------
    NotWaitingError
        When the plan does not wait, another run has requested it, or the group has another open request. The
        latter is recorded as the reason why the plan stays in shadow.
    EditedPlanError
        When the rows of the plan are not as they were sealed.
    LakeError
        When a table cannot be read or written.
    SecretError
        When the approval key cannot be read.
    """
    head = check_waiting(loaded, cluster, plan_id)
    read_evidence(loaded, head)
    if head["day"] < (now - _LOOK_BACK).date():
        raise NotWaitingError(f"plan {plan_id[:12]} of {head['day']} is too old to be asked for")
    timeout_s = loaded.policy.group_settings(cluster, head["group_id"]).approval_timeout_s
    named = loaded.policy.approvers_of(cluster, head["group_id"])
    wanted = _row(head, RequestState.ASKED, now, run_id) | {
        "answer_by": now + timedelta(seconds=timeout_s),
        "approvers": list(named or approvers or ()) or None,
        "dag_id": dag_id,
    }
    sealer = Sealer.of(loaded.policy.clusters[cluster])
    if sealer is not None:
        (wanted,) = sealer.seal_rows(APPROVAL_REQUESTS, [wanted])
    reader = LakeReader(loaded.policy.lake)
    row: dict[str, Any] = {}

    def ask() -> list[dict[str, Any]]:
        nonlocal row
        found = _requests(reader, cluster, [head])
        asked = next((known for known in found if known["state"] == RequestState.ASKED), None)
        other = _open_requests(reader, cluster, now).get(head["group_id"])
        if asked is not None:
            row = asked
            return []
        row = wanted if other is None else _shadow_row(head, _shadow_reason(other), now, run_id)
        return [] if found and row["state"] == RequestState.SHADOWED else [row]

    append_guarded(loaded.policy.lake, APPROVAL_REQUESTS, ask, _group_guard)
    if row["state"] == RequestState.SHADOWED:
        raise NotWaitingError(f"plan {plan_id[:12]} stays in shadow: {row['reason']}")
    if row["run_id"] != run_id:
        raise NotWaitingError(f"plan {plan_id[:12]} is asked for by the run {row['run_id']} already")
    return ApprovalRequest(plan_id, head["group_id"], head["slot"], row["answer_by"])


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
    reader = LakeReader(loaded.policy.lake)
    shadowed: dict[str, dict[str, Any]] = {}

    def set_aside() -> list[dict[str, Any]]:
        nonlocal shadowed
        known = {row["plan_id"] for row in _requests(reader, cluster, by_plan.values())}
        open_by_group = _open_requests(reader, cluster, now)
        others = {plan_id: open_by_group.get(head["group_id"]) for plan_id, head in by_plan.items()}
        shadowed = {
            plan_id: other
            for plan_id, other in others.items()
            if other is not None and other["plan_id"] != plan_id
        }
        return [
            _shadow_row(by_plan[plan_id], _shadow_reason(other), now, run_id)
            for plan_id, other in shadowed.items()
            if plan_id not in known
        ]

    append_guarded(loaded.policy.lake, APPROVAL_REQUESTS, set_aside, _group_guard)
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


def open_requests(reader: LakeReader, cluster: str, now: datetime) -> dict[str, dict[str, Any]]:
    """Read the open approval requests.

    Parameters
    ----------
    reader, cluster
        The lake, and the cluster's name.
    now
        Current time: an expired request is not open.

    Returns
    -------
    dict
        Rows of ``approval_requests`` by group id.

    Raises
    ------
    LakeError
        When a table cannot be read.
    """
    return _open_requests(reader, cluster, now)


def read_request(reader: LakeReader, head: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read the approval request of a plan.

    Parameters
    ----------
    reader
        The lake.
    head
        Head of the plan.

    Returns
    -------
    dict or None
        The row of ``approval_requests``, open or not; None if approval was never requested.

    Raises
    ------
    LakeError
        When the requests cannot be read.
    """
    rows = reader.read(
        APPROVAL_REQUESTS,
        filters=[
            ("cluster", "=", head["cluster"]),
            ("day", "=", head["day"]),
            ("plan_id", "=", head["plan_id"]),
            ("state", "=", RequestState.ASKED),
        ],
    ).to_pylist()
    return next(iter(rows), None)


def check_deadline(
    loaded: LoadedPolicy, head: Mapping[str, Any], request: Mapping[str, Any] | None, now: datetime
) -> None:
    """Check that the deadline of a plan's approval has not passed.

    Parameters
    ----------
    loaded
        The policy.
    head
        Head of the plan.
    request
        Its approval request; None if there is none.
    now
        Current time.

    Raises
    ------
    NotWaitingError
        When the deadline has passed.
    """
    timeout_s = loaded.policy.group_settings(head["cluster"], head["group_id"]).approval_timeout_s
    until = request["answer_by"] if request else head["slot"] + timedelta(seconds=timeout_s)
    if now > until:
        raise NotWaitingError(
            f"plan {head['plan_id'][:12]} could be approved until {until:%Y-%m-%d %H:%M:%S}Z: its group has "
            "moved on, approve a newer plan"
        )


def _requests(reader: LakeReader, cluster: str, heads: Collection[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """All requests of some plans; a request has the day of its plan."""
    filters: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", "in", {head["day"] for head in heads}),
        ("plan_id", "in", [head["plan_id"] for head in heads]),
    ]
    found: list[dict[str, Any]] = reader.read(APPROVAL_REQUESTS, filters=filters).to_pylist()
    return found


def _group_guard(row: Mapping[str, Any]) -> str:
    return f"ask/{row['cluster']}/{row['group_id']}"


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
