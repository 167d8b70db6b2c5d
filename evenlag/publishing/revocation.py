"""Withdraw a group's hint, stop all hints of a cluster, resume them, remove records that nobody reads.

The hint topic is written first, then read, and the lake comes last: an operator who stops everything must
not wait for a lake that does not answer, and nothing on the topic can prevent it. When a call is killed in
between, a repeat finds what it did and records it. Only the transactional publisher of the hint topic writes
to it.
"""

import json
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from assignor_core.hint import Hint
from evenlag.enums import ControlAction, PlanEvent
from evenlag.errors import JobError, LakeError
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_ids import slot_day
from evenlag.lake.tables import CONTROL_ACTIONS, PLAN_EVENTS
from evenlag.lake.writer import append_once
from evenlag.policy.loader import LoadedPolicy
from evenlag.publishing.event_log import append_plan_events, plan_event
from evenlag.publishing.hint_topic import is_plausible
from evenlag.publishing.publishable_plans import ENDED
from evenlag.publishing.sealing.verified_plans import PUBLISHABLE_FOR, event_files, oldest_day
from evenlag.publishing.writing.blind_writes import (
    try_again_when_fenced,
    write_foreign_tombstones,
    write_stop,
    write_tombstones,
)


class NoHintError(JobError, exit_code=4):
    """Raised when a group has no hint to withdraw."""


class NotRecordedError(LakeError):
    """Raised when hints were changed as requested, but the change could not be recorded in the lake."""


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Result of a withdrawal.

    was_present: Whether the topic had any record of the group.
    plan_id, sequence: Of the hint that this call withdrew; None without a readable one of evenlag's.
    unpublished: Ids of approved plans of the group that will no longer be published.
    unread: Why the topic could not be read after the withdrawal.
    """

    group_id: str
    was_present: bool
    plan_id: str | None
    sequence: int | None
    unpublished: tuple[str, ...]
    had_loads: bool = False
    unread: str | None = None


@dataclass(frozen=True, slots=True)
class StopChange:
    """Result of stopping or resuming.

    changed: False when all partitions already were in this state.
    unread: Why the topic could not be read after the change; `changed` is then True.
    warning: Why consumers may not see the change.
    """

    hint_topic: str
    num_partitions: int
    changed: bool
    unread: str | None = None
    warning: str | None = None


def withdraw_hint(
    loaded: LoadedPolicy, cluster: str, group_id: str, *, actor: str, reason: str
) -> Withdrawal:
    """Withdraw a group's hint, and its approved plans; a repeat records what a killed try left unrecorded."""
    settings = loaded.policy.clusters[cluster]
    seen = try_again_when_fenced(lambda: write_tombstones(settings, group_id))
    state, hint = seen.state, seen.state.hints.get(group_id)
    was_present = state.has_record_of(group_id)
    lake = LakeReader(loaded.policy.lake, skip_unreadable=True)
    try:
        plans, is_known = plans_to_withdraw(lake, cluster, group_id, hint)
        if not (was_present or plans or is_known or seen.unread is not None):
            raise NoHintError(
                f"the group {group_id!r} has no hint on {settings.hint_topic}, and never had one"
            )
        hinted = next((plan for plan in plans if plan["sequence"] is not None), {})
        done = Withdrawal(
            group_id,
            was_present,
            hinted.get("plan_id"),
            hinted.get("sequence"),
            unpublished=tuple(plan["plan_id"] for plan in plans if plan["sequence"] is None),
            had_loads=group_id in state.loads or group_id in state.unreadable_loads,
            unread=seen.unread,
        )
        if was_present or plans or seen.unread is not None:
            _record_withdrawal(loaded, cluster, done, plans, actor=actor, reason=reason)
    except LakeError as error:
        raise _not_recorded(f"the hint of {group_id!r} is withdrawn", error) from error
    if done.unpublished:
        # A run that found them approved until now has published them, or is fenced now.
        try_again_when_fenced(lambda: write_tombstones(settings, group_id))
    return done


def stop_all(loaded: LoadedPolicy, cluster: str, *, actor: str, reason: str) -> StopChange:
    """Stop all hints of a cluster: write ``control/stop`` to all partitions; a missing topic is created."""
    note = {"actor": actor, "at": datetime.now(UTC).isoformat(), "reason": reason}
    return _change_stop(
        loaded, cluster, ControlAction.STOP_ALL, json.dumps(note).encode(), actor=actor, reason=reason
    )


def resume(loaded: LoadedPolicy, cluster: str, *, actor: str, reason: str) -> StopChange:
    """Remove ``control/stop``: hints are followed and published again. Errors as :func:`stop_all`."""
    return _change_stop(loaded, cluster, ControlAction.RESUME, None, actor=actor, reason=reason)


def purge_foreign(loaded: LoadedPolicy, cluster: str, *, actor: str, reason: str) -> None:
    """Remove the records on the hint topic that nobody reads."""
    settings = loaded.policy.clusters[cluster]
    try_again_when_fenced(lambda: write_foreign_tombstones(settings))
    try:
        _record(loaded, cluster, ControlAction.PURGE, actor, reason, datetime.now(UTC))
    except LakeError as error:
        raise _not_recorded("foreign records are removed", error) from error


def last_action(lake: LakeReader, cluster: str, actions: Iterable[str]) -> dict[str, Any] | None:
    """Return the newest of some actions on a cluster, a row of ``control_actions``; None without any."""
    filters = matching(cluster=cluster, action=list(actions))
    return next(iter(lake.read_newest(CONTROL_ACTIONS, "at", filters=filters).to_pylist()), None)


def plans_to_withdraw(
    lake: LakeReader, cluster: str, group_id: str, hint: Hint | None
) -> tuple[list[dict[str, Any]], bool]:
    """Return the plans of a group to withdraw, and whether the lake has any published hint of the group.

    hint: The group's hint on the topic; one that evenlag has not written, by its numbers, is not recorded.
    """
    published = matching(cluster=cluster, group_id=group_id, event=PlanEvent.PUBLISHED)
    newest = lake.read_newest(PLAN_EVENTS, "at", filters=published).to_pylist()
    newest = [event for event in newest if None not in (event["plan_id"], event["snapshot_id"], event["day"])]
    last = max(newest, key=lambda event: event["sequence"] or 0, default=None)
    found = lake.read_checked(
        PLAN_EVENTS,
        ("group_id", "=", group_id),
        filters=event_files(cluster, oldest_day(datetime.now(UTC))),
        columns=["plan_id", "snapshot_id", "day", "event"],
    )
    events = [event for event in found.rows.to_pylist() if None not in event.values()]
    ended = {event["plan_id"] for event in events if event["event"] in ENDED}
    plans: dict[str, dict[str, Any]] = {
        event["plan_id"]: event | {"sequence": None}
        for event in events
        if event["event"] == PlanEvent.APPROVED and event["plan_id"] not in ended
    }
    if hint is not None and _is_recordable(hint):
        # Its PUBLISHED event is missing if the publisher was killed: the hint has its snapshot id.
        own = {"plan_id": hint.plan_id, "snapshot_id": hint.payload.snapshot_id, "sequence": hint.sequence}
        plans[hint.plan_id] = own | {"day": slot_day(hint.payload.snapshot_id)}
    elif last is not None and not _is_withdrawn(lake, last):
        plans[last["plan_id"]] = last
    return sorted(plans.values(), key=lambda plan: plan["sequence"] is None), last is not None


def _is_withdrawn(lake: LakeReader, event: Mapping[str, Any]) -> bool:
    withdrawn = matching(cluster=event["cluster"], plan_id=event["plan_id"], event=PlanEvent.WITHDRAWN)
    wanted = [*withdrawn, ("day", ">=", event["day"])]
    return bool(lake.read(PLAN_EVENTS, columns=["plan_id"], filters=wanted).num_rows)


def _is_recordable(hint: Hint) -> bool:
    """Whether a hint may be from a publisher: whoever writes to the topic chooses what it contains."""
    now_ms = time.time_ns() // 1_000_000
    if not is_plausible(hint, now_ms):
        return False
    try:
        day = slot_day(hint.payload.snapshot_id)
    except ValueError:
        return False
    issued_on = datetime.fromtimestamp(hint.issued_at_ms / 1000, UTC).date()
    return abs(issued_on - day) <= PUBLISHABLE_FOR


def _change_stop(
    loaded: LoadedPolicy, cluster: str, action: str, value: bytes | None, *, actor: str, reason: str
) -> StopChange:
    settings = loaded.policy.clusters[cluster]
    seen, num_partitions, warning = try_again_when_fenced(lambda: write_stop(settings, value))
    is_unknown, stopped = seen.unread is not None, seen.state.stopped_partitions
    is_new = value is not None and (is_unknown or len(stopped) < num_partitions)
    is_over = value is None and (is_unknown or bool(stopped))
    try:
        last = last_action(
            LakeReader(loaded.policy.lake), cluster, (ControlAction.STOP_ALL, ControlAction.RESUME)
        )
        # A repeat has nothing to record, unless its first try was killed before recording.
        if is_new or is_over or (last or {"action": ControlAction.RESUME})["action"] != action:
            _record(loaded, cluster, action, actor, reason, datetime.now(UTC))
    except LakeError as error:
        done = "all hints are stopped" if action == ControlAction.STOP_ALL else "hints are followed again"
        raise _not_recorded(done, error) from error
    return StopChange(
        settings.hint_topic, num_partitions, changed=is_new or is_over, unread=seen.unread, warning=warning
    )


def _record_withdrawal(
    loaded: LoadedPolicy,
    cluster: str,
    done: Withdrawal,
    plans: list[dict[str, Any]],
    *,
    actor: str,
    reason: str,
) -> None:
    """Record the action, then the events: after a kill in between, a repeat records both."""
    at = datetime.now(UTC)
    about = {"group_id": done.group_id, "plan_id": done.plan_id, "sequence": done.sequence}
    _record(loaded, cluster, ControlAction.WITHDRAW, actor, reason, at, **about)
    own = {"cluster": cluster, "group_id": done.group_id, "run_id": None}
    withdrawn = [
        plan_event(
            plan | own, PlanEvent.WITHDRAWN, reason=reason, actor=actor, at=at, sequence=plan["sequence"]
        )
        for plan in plans
    ]
    append_plan_events(loaded.policy.lake, withdrawn)


def _record(
    loaded: LoadedPolicy, cluster: str, action: str, actor: str, reason: str, at: datetime, **about: Any
) -> None:
    row = {
        "cluster": cluster,
        "day": at.date(),
        "action_id": secrets.token_hex(16),
        "action": action,
        "hint_topic": loaded.policy.clusters[cluster].hint_topic,
        "reason": reason,
        "actor": actor,
        "at": at,
        **about,
    }
    append_once(loaded.policy.lake, CONTROL_ACTIONS, [row], None)


def _not_recorded(done: str, error: LakeError) -> NotRecordedError:
    return NotRecordedError(
        f"{done}, but that could not be recorded: {error}. The same call again records it"
    )
