"""Plans that wait for a user's approval.

A plan waits when it was made in mode ``approve``, passed its gates and has no decision yet, and its group
still is in mode ``approve``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import Mode, PlanEvent
from evenlag.errors import JobError
from evenlag.formatting import decided_by
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.lake.tables import GATE_RESULTS, PLANS
from evenlag.publishing.sealing.row_seal import Sealer
from evenlag.publishing.sealing.sealed_plans import check_plans

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.policy.loader import LoadedPolicy

_HEAD_COLUMNS: Final = ("cluster", "day", "snapshot_id", "slot", "plan_id", "group_id", "mode")


class NotWaitingError(JobError):
    """Raised when a plan does not wait for approval; the message has the reason."""

    exit_code = 2


class AlreadyDecidedError(NotWaitingError):
    """Raised when a plan is already decided or has ended.

    Attributes
    ----------
    event
        The recorded event, as a row.
    """

    def __init__(self, message: str, event: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.event = event


class EditedPlanError(NotWaitingError):
    """Raised when the rows of a plan are not as they were sealed; the message names the row.

    Attributes
    ----------
    fault
        What is wrong with the plan.
    """

    def __init__(self, plan_id: str, fault: str) -> None:
        super().__init__(f"plan {plan_id[:12]} cannot be approved, it is {fault}; approve a newer plan")
        self.fault = fault


def find_waiting(loaded: LoadedPolicy, cluster: str, slot: datetime) -> list[dict[str, Any]]:
    """Read the plans of a slot that wait for approval.

    Parameters
    ----------
    loaded, cluster
        The policy, and the cluster's name in it.
    slot
        The slot that the plans were made for.

    Returns
    -------
    list of dict
        Heads of the plans, ordered by group; one per group.

    Raises
    ------
    LakeError
        When a table cannot be read.
    """
    reader = LakeReader(loaded.policy.lake)
    # Tables store milliseconds; the slot of a manual run has microseconds.
    slot = floor_to_ms(slot)
    wanted: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", "=", slot.date()),
        ("slot", "=", slot),
        ("mode", "=", Mode.APPROVE.value),
    ]
    heads = reader.read(PLANS, columns=_HEAD_COLUMNS, filters=wanted).to_pylist()
    if not heads:
        return []
    by_plan: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", ">=", slot.date()),
        ("plan_id", "in", [head["plan_id"] for head in heads]),
    ]
    events = group_by_plan(reader.read_events(filters=by_plan).to_pylist())
    verdicts = group_by_plan(
        reader.read(GATE_RESULTS, columns=["plan_id", "passed"], filters=by_plan).to_pylist()
    )
    waiting = [
        head
        for head in heads
        if _waiting_blocker(loaded, head, events.get(head["plan_id"], []), verdicts.get(head["plan_id"], []))
        is None
    ]
    return sorted(waiting, key=lambda head: (head["group_id"], head["plan_id"]))


def check_waiting(loaded: LoadedPolicy, cluster: str, plan_id: str) -> dict[str, Any]:
    """Read the head of a plan that waits for approval.

    Parameters
    ----------
    loaded, cluster
        The policy, and the cluster's name in it.
    plan_id
        The plan.

    Returns
    -------
    dict
        Its head: columns of ``plans`` that identify it.

    Raises
    ------
    AlreadyDecidedError
        When it is decided or has ended.
    NotWaitingError
        When it does not wait for another reason.
    """
    reader = LakeReader(loaded.policy.lake)
    head = read_head(reader, cluster, plan_id)
    wanted: list[Filter] = [("cluster", "=", cluster), ("day", ">=", head["day"]), ("plan_id", "=", plan_id)]
    events = reader.read_events(filters=wanted).to_pylist()
    verdicts = reader.read(GATE_RESULTS, columns=["plan_id", "passed"], filters=wanted).to_pylist()
    blocker = _waiting_blocker(loaded, head, events, verdicts)
    if blocker is None:
        return head
    ending = first_decision(events)
    if ending is not None:
        raise AlreadyDecidedError(blocker, ending)
    raise NotWaitingError(blocker)


def read_head(reader: LakeReader, cluster: str, plan_id: str) -> dict[str, Any]:
    """Read the head of a plan.

    Parameters
    ----------
    reader, cluster
        The lake, and the cluster's name.
    plan_id
        The plan.

    Returns
    -------
    dict
        Columns of ``plans`` that identify it.

    Raises
    ------
    NotWaitingError
        When there is no such plan.
    LakeError
        When the table cannot be read.
    """
    filters: list[Filter] = [("cluster", "=", cluster), ("plan_id", "=", plan_id)]
    # Nearly always a plan of today.
    found = reader.read_newest(PLANS, "day", columns=_HEAD_COLUMNS, filters=filters).to_pylist()
    if not found:
        raise NotWaitingError(f"there is no plan {plan_id} on {cluster}")
    head: dict[str, Any] = found[0]
    return head


def read_evidence(loaded: LoadedPolicy, head: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Check the seals of a plan that waits, and return what its approval covers.

    Parameters
    ----------
    loaded
        The policy.
    head
        Head of the plan.

    Returns
    -------
    tuple of str or None
        Seals of the plan's rows; None where the policy configures no key.

    Raises
    ------
    EditedPlanError
        When the rows are not as they were sealed.
    LakeError
        When a table cannot be read.
    SecretError
        When the approval key cannot be read.
    """
    cluster, plan_id = head["cluster"], head["plan_id"]
    sealer = Sealer.of(loaded.policy.clusters[cluster])
    if sealer is None:
        return None
    check = check_plans(LakeReader(loaded.policy.lake), sealer, cluster, head["day"], [plan_id])[plan_id]
    if check.fault is not None:
        raise EditedPlanError(plan_id, check.fault)
    return check.evidence


def first_decision(events: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the event that decided or ended a plan.

    Parameters
    ----------
    events
        All events of the plan, as rows.

    Returns
    -------
    dict or None
        The earliest event after PROPOSED; None when there is none.
    """
    ends = [event for event in events if event["event"] != PlanEvent.PROPOSED]
    # Lakes of earlier versions may have two answers: all readers take the same one.
    return min(ends, key=lambda event: (event["at"], event["event"], event["run_id"] or ""), default=None)


def group_by_plan(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group rows by plan.

    Parameters
    ----------
    rows
        Rows with a ``plan_id``.

    Returns
    -------
    dict
        Rows by plan id, in their order.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["plan_id"], []).append(row)
    return found


def _waiting_blocker(
    loaded: LoadedPolicy,
    head: Mapping[str, Any],
    events: list[dict[str, Any]],
    verdicts: list[dict[str, Any]],
) -> str | None:
    """Why a plan does not wait for approval; None when it does."""
    name, group_id = f"plan {head['plan_id'][:12]}", head["group_id"]
    ending = first_decision(events)
    mode = loaded.policy.group_settings(head["cluster"], group_id).mode
    if head["mode"] != Mode.APPROVE.value:
        return f"{name} was made in mode {head['mode']}: only plans of mode approve wait for a person"
    if ending is not None:
        why = f": {ending['reason']}" if ending["reason"] else ""
        at = f"{ending['at']:%Y-%m-%d %H:%M:%S}Z"
        return f"{name} is {ending['event']} since {at} by {decided_by(ending)}{why}"
    if not verdicts:
        return f"{name} has not been judged by the gates yet"
    if not all(verdict["passed"] for verdict in verdicts):
        return f"{name} failed its gates"
    if mode is not Mode.APPROVE:
        return f"the group {group_id} is in mode {mode.value} by now: {name} waits for nobody"
    return None
