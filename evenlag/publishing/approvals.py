"""A person's yes or no to a plan: who is asked, what was answered, and that the first answer holds.

Where the question is put (Airflow's page, the command) is not known here. A plan waits when it was made in
mode ``approve``, passed its gates and has no answer yet, and its group still is in mode ``approve``. One plan
of a group is asked for at a time; the later ones stay in shadow, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import Mode
from evenlag.errors import JobError
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.lake.tables import APPROVAL_REQUESTS, CONTROL_EVENTS, GATE_RESULTS, PLANS
from evenlag.lake.writer import delta_rs_writer
from evenlag.publishing.eligibility import JOB_ACTORS
from evenlag.publishing.event_log import ControlEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.policy.loader import LoadedPolicy

APPROVED: Final = "APPROVED"
REJECTED: Final = "REJECTED"
ASKED: Final = "ASKED"
SHADOWED: Final = "SHADOWED"
# Who is meant when nobody answered in time.
TIME_LIMIT_ACTOR: Final = "time limit"
# Jobs speak under these names; a person who has one of them is told apart.
_RESERVED_ACTORS: Final = JOB_ACTORS | {"command", TIME_LIMIT_ACTOR}
# No request is open for longer: the largest approval_timeout_s, and a day for its slot's day.
_LOOK_BACK: Final = timedelta(days=8)
_HEAD_COLUMNS: Final = ("cluster", "day", "snapshot_id", "slot", "plan_id", "group_id", "mode")


class NotWaitingError(JobError):
    """Raised when a plan does not wait for a person; the message says why."""

    exit_code = 2


class AlreadyDecidedError(NotWaitingError):
    """Raised when a plan has its answer, or its ending, already.

    Attributes
    ----------
    event
        The event that stands, as a row.
    """

    def __init__(self, message: str, event: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.event = event


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is open.

    Attributes
    ----------
    plan_id, group_id, slot
        The plan, its group and the moment that it was planned for.
    answer_by
        From then on no answer means no.
    """

    plan_id: str
    group_id: str
    slot: datetime
    answer_by: datetime


def person(name: str) -> str:
    """The name of a person as an actor: never one that a job speaks under."""
    return f"{name} (person)" if name in _RESERVED_ACTORS else name


def find_waiting(loaded: LoadedPolicy, cluster: str, slot: datetime) -> list[dict[str, Any]]:
    """Read the plans of a slot that wait for a person, as heads, by group; groups have one each.

    Raises
    ------
    LakeError
        When a table cannot be read.
    """
    reader = LakeReader(loaded.policy.lake)
    # Tables hold slots to the millisecond; a manual run is due at a microsecond.
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
    events = _by_plan(reader.read_events(filters=by_plan).to_pylist())
    verdicts = _by_plan(reader.read(GATE_RESULTS, columns=["plan_id", "passed"], filters=by_plan).to_pylist())
    waiting = [
        head
        for head in heads
        if _obstacle(loaded, head, events.get(head["plan_id"], []), verdicts.get(head["plan_id"], [])) is None
    ]
    return sorted(waiting, key=lambda head: (head["group_id"], head["plan_id"]))


def check_waiting(loaded: LoadedPolicy, cluster: str, plan_id: str) -> dict[str, Any]:
    """Read the head of a plan that waits for a person.

    Raises
    ------
    AlreadyDecidedError
        When there is an answer or an ending.
    NotWaitingError
        When it does not wait for another reason.
    """
    reader = LakeReader(loaded.policy.lake)
    head = _read_head(reader, cluster, plan_id)
    wanted: list[Filter] = [("cluster", "=", cluster), ("day", ">=", head["day"]), ("plan_id", "=", plan_id)]
    events = reader.read_events(filters=wanted).to_pylist()
    verdicts = reader.read(GATE_RESULTS, columns=["plan_id", "passed"], filters=wanted).to_pylist()
    obstacle = _obstacle(loaded, head, events, verdicts)
    if obstacle is None:
        return head
    ending = _ending(events)
    if ending is not None:
        raise AlreadyDecidedError(obstacle, ending)
    raise NotWaitingError(obstacle)


def ask(loaded: LoadedPolicy, cluster: str, plan_id: str, *, run_id: str, now: datetime) -> Request:
    """Open the request for a plan; the same run gets the same request again.

    Raises
    ------
    NotWaitingError
        When the plan does not wait, another run asks for it, or another plan of its group is being asked for:
        then that is set down as the reason why the plan stays in shadow.
    LakeError
        When a table cannot be read or written.
    """
    head = check_waiting(loaded, cluster, plan_id)
    with delta_rs_writer(loaded.policy.lake, APPROVAL_REQUESTS) as writer:
        known = next(iter(writer.rows([("cluster", "=", cluster), ("plan_id", "=", plan_id)])), None)
        if known is not None and known["state"] == ASKED:
            if known["run_id"] != run_id:
                raise NotWaitingError(
                    f"plan {plan_id[:12]} is asked for by the run {known['run_id']} already"
                )
            return Request(plan_id, head["group_id"], head["slot"], known["answer_by"])
        other = _open_requests(writer.lake, cluster, now).get(head["group_id"])
        if other is not None:
            reason = _shadow_reason(other)
            if known is None:
                writer.append([_shadow_row(head, reason, now, run_id)])
            raise NotWaitingError(f"plan {plan_id[:12]} stays in shadow: {reason}")
        timeout_s = loaded.policy.group_settings(cluster, head["group_id"]).approval_timeout_s
        answer_by = now + timedelta(seconds=timeout_s)
        writer.append([_row(head, ASKED, now, run_id) | {"answer_by": answer_by}])
    return Request(plan_id, head["group_id"], head["slot"], answer_by)


def set_aside_shadowed(
    loaded: LoadedPolicy, cluster: str, heads: Iterable[Mapping[str, Any]], *, run_id: str, now: datetime
) -> list[dict[str, Any]]:
    """Set down which waiting plans stay in shadow because their group is being asked already.

    Returns
    -------
    list of dict
        The heads whose groups may be asked.
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
    """How many plans wait for a person now."""
    return len(_open_requests(reader, cluster, now))


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
    """Record a person's answer; the first one holds.

    The same answer by the same run is a repeat and changes nothing.

    Returns
    -------
    dict
        The plan's head.

    Raises
    ------
    AlreadyDecidedError
        When there is an answer or an ending.
    NotWaitingError
        When the plan does not wait for a person, or its time to be approved is over.
    LakeError
        When a table cannot be read or written.
    """
    event = APPROVED if approve else REJECTED
    with delta_rs_writer(loaded.policy.lake, CONTROL_EVENTS) as writer:
        try:
            head = check_waiting(loaded, cluster, plan_id)
        except AlreadyDecidedError as error:
            if (error.event["event"], error.event["run_id"]) != (event, run_id):
                raise
            return _read_head(writer.lake, cluster, plan_id)
        if approve:
            _check_time(loaded, head, writer.lake, now)
        writer.append(
            [
                ControlEvent(
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


def _read_head(reader: LakeReader, cluster: str, plan_id: str) -> dict[str, Any]:
    found = reader.read(
        PLANS, columns=_HEAD_COLUMNS, filters=[("cluster", "=", cluster), ("plan_id", "=", plan_id)]
    ).to_pylist()
    if not found:
        raise NotWaitingError(f"there is no plan {plan_id} on {cluster}")
    head: dict[str, Any] = found[0]
    return head


def _obstacle(
    loaded: LoadedPolicy,
    head: Mapping[str, Any],
    events: list[dict[str, Any]],
    verdicts: list[dict[str, Any]],
) -> str | None:
    """Why a plan does not wait for a person; None when it does."""
    name, group_id = f"plan {head['plan_id'][:12]}", head["group_id"]
    ending = _ending(events)
    mode = loaded.policy.group_settings(head["cluster"], group_id).mode
    if head["mode"] != Mode.APPROVE.value:
        return f"{name} was made in mode {head['mode']}: only plans of mode approve wait for a person"
    if ending is not None:
        why = f": {ending['reason']}" if ending["reason"] else ""
        at = f"{ending['at']:%Y-%m-%d %H:%M:%S}Z"
        return f"{name} is {ending['event']} since {at} by {ending['actor']}{why}"
    if not verdicts:
        return f"{name} has not been judged by the gates yet"
    if not all(verdict["passed"] for verdict in verdicts):
        return f"{name} failed its gates"
    if mode is not Mode.APPROVE:
        return f"the group {group_id} is in mode {mode.value} by now: {name} waits for nobody"
    return None


def _ending(events: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The first answer or ending of a plan, None when it has none."""
    ends = [event for event in events if event["event"] != "PROPOSED"]
    return min(ends, key=lambda event: event["at"], default=None)


def _check_time(loaded: LoadedPolicy, head: Mapping[str, Any], reader: LakeReader, now: datetime) -> None:
    rows = reader.read(
        APPROVAL_REQUESTS,
        filters=[("cluster", "=", head["cluster"]), ("plan_id", "=", head["plan_id"]), ("state", "=", ASKED)],
    ).to_pylist()
    timeout_s = loaded.policy.group_settings(head["cluster"], head["group_id"]).approval_timeout_s
    until = rows[0]["answer_by"] if rows else head["slot"] + timedelta(seconds=timeout_s)
    if now > until:
        raise NotWaitingError(
            f"plan {head['plan_id'][:12]} could be approved until {until:%Y-%m-%d %H:%M:%S}Z: its group has "
            "moved on, approve a newer plan"
        )


def _open_requests(reader: LakeReader, cluster: str, now: datetime) -> dict[str, dict[str, Any]]:
    """The open request of each group: asked, its time not over, and no answer yet."""
    filters: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", ">=", (now - _LOOK_BACK).date()),
        ("state", "=", ASKED),
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
    events = _by_plan(reader.read_events(filters=wanted).to_pylist())
    return {row["group_id"]: row for row in asked if _ending(events.get(row["plan_id"], [])) is None}


def _shadow_reason(other: Mapping[str, Any]) -> str:
    return (
        f"plan {other['plan_id'][:12]} of the group waits for a person, until "
        f"{other['answer_by']:%Y-%m-%d %H:%M:%S}Z"
    )


def _shadow_row(head: Mapping[str, Any], reason: str, now: datetime, run_id: str) -> dict[str, Any]:
    return _row(head, SHADOWED, now, run_id) | {"reason": reason}


def _row(head: Mapping[str, Any], state: str, now: datetime, run_id: str) -> dict[str, Any]:
    names = ("cluster", "day", "snapshot_id", "plan_id", "group_id")
    return {name: head[name] for name in names} | {"state": state, "at": now, "run_id": run_id}


def _by_plan(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["plan_id"], []).append(row)
    return found
