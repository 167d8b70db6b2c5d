"""Revoke hints: withdraw a group's hint, stop all hints of a cluster, resume them.

The hint topic is written before the lake: an operator who stops everything must not wait for a lake that does
not answer. When a call is killed in between, a repeat finds what it did and records it. Only the cluster's
transactional publisher writes to the topic, so no other publishing comes in between.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from evenlag.enums import ControlAction, PlanEvent
from evenlag.errors import FencedPublisherError, JobError, LakeError
from evenlag.kafka.connection import admin_client
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_ids import slot_day
from evenlag.lake.tables import CONTROL_ACTIONS
from evenlag.lake.writer import delta_rs_writer
from evenlag.publishing.event_log import PlanEventRow, append_plan_events
from evenlag.publishing.hint_topic import TopicState, ensure_hint_topic, hint_publisher, read_hint_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from assignor_core.hint import Hint
    from evenlag.policy.cluster_settings import ClusterSettings
    from evenlag.policy.loader import LoadedPolicy

_Result = TypeVar("_Result")
_LOG = logging.getLogger(__name__)

# Events that end a plan, or its hint.
_NEVER_MORE: Final = frozenset(
    {
        PlanEvent.REJECTED,
        PlanEvent.EXPIRED,
        PlanEvent.WITHDRAWN,
        PlanEvent.PUBLISHED,
        PlanEvent.APPLIED,
        PlanEvent.IGNORED,
    }
)
_FENCED_TRIES: Final = 3
_FENCED_PAUSE_S: Final = 2.0


class NoHintError(JobError):
    """Raised when a group has no hint to withdraw."""

    exit_code = 4


class NotRecordedError(LakeError):
    """Raised when hints were changed as requested, but the change could not be recorded in the lake."""


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Result of a withdrawal.

    Attributes
    ----------
    group_id, was_present
        The group, and whether the topic had a hint of it.
    plan_id, sequence
        Of the hint that this call withdrew; None when its record could not be read, or a repeat had nothing
        left to do.
    unpublished
        Ids of approved plans of the group that will no longer be published.
    """

    group_id: str
    was_present: bool
    plan_id: str | None
    sequence: int | None
    unpublished: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StopChange:
    """Result of stopping or resuming.

    Attributes
    ----------
    hint_topic, num_partitions
        The topic, and the number of partitions that were written to.
    changed
        False when all partitions already were in this state.
    """

    hint_topic: str
    num_partitions: int
    changed: bool


def withdraw_hint(
    loaded: LoadedPolicy, cluster: str, group_id: str, *, actor: str, reason: str
) -> Withdrawal:
    """Withdraw a group's hint, and its approved plans that are not published yet.

    Idempotent: a repeat only records what an earlier, killed try left unrecorded.

    Parameters
    ----------
    loaded, cluster, group_id, actor, reason
        The policy, the cluster's name in it, the group; and the actor and reason to record with the events.

    Returns
    -------
    Withdrawal
        What was withdrawn.

    Raises
    ------
    NoHintError
        When the group has no hint and nothing is left to record.
    NotRecordedError
        When the hint is withdrawn and the lake cannot be written, by :func:`_not_recorded`.
    KafkaUnreachableError, KafkaAuthenticationError, PublishError
        When the hint was not withdrawn.
    """
    settings = loaded.policy.clusters[cluster]
    state = try_again_when_fenced(lambda: _write_tombstone(cluster, settings, group_id))
    hint = state.hints.get(group_id)
    was_present = hint is not None or group_id in state.unreadable
    try:
        plans, is_known = _plans_to_withdraw(LakeReader(loaded.policy.lake), cluster, group_id, hint)
        if not was_present and not is_known:
            raise NoHintError(
                f"the group {group_id!r} has no hint on {settings.hint_topic}, and never had one"
            )
        hinted = next((plan for plan in plans if plan["sequence"] is not None), {})
        done = Withdrawal(
            group_id=group_id,
            was_present=was_present,
            plan_id=hinted.get("plan_id"),
            sequence=hinted.get("sequence"),
            unpublished=tuple(plan["plan_id"] for plan in plans if plan["sequence"] is None),
        )
        if was_present or plans:
            _record_withdrawal(loaded, cluster, done, plans, actor=actor, reason=reason)
    except LakeError as error:
        raise _not_recorded(f"the hint of {group_id!r} is withdrawn", error) from error
    return done


def stop_all(loaded: LoadedPolicy, cluster: str, *, actor: str, reason: str) -> StopChange:
    """Stop all hints of a cluster: write ``control/stop`` to all partitions; a missing topic is created.

    Parameters
    ----------
    loaded, cluster, actor, reason
        The policy, the cluster's name in it; and the actor and reason to record, also on the topic.

    Returns
    -------
    StopChange
        The topic, and whether its state changed.

    Raises
    ------
    NotRecordedError
        When hints are stopped and the lake cannot be written.
    KafkaUnreachableError, KafkaAuthenticationError, PublishError
        When nothing was stopped.
    """
    note = {"actor": actor, "at": datetime.now(UTC).isoformat(), "reason": reason}
    return _change_stop(
        loaded, cluster, ControlAction.STOP_ALL, json.dumps(note).encode(), actor=actor, reason=reason
    )


def resume(loaded: LoadedPolicy, cluster: str, *, actor: str, reason: str) -> StopChange:
    """Remove ``control/stop``: hints are followed and published again. Errors as :func:`stop_all`.

    Parameters
    ----------
    loaded, cluster, actor, reason
        As :func:`stop_all`.

    Returns
    -------
    StopChange
        The topic, and whether its state changed.
    """
    return _change_stop(loaded, cluster, ControlAction.RESUME, None, actor=actor, reason=reason)


def last_action(lake: LakeReader, cluster: str, actions: Iterable[str]) -> dict[str, Any] | None:
    """Return the newest of some actions on a cluster, a row of ``control_actions``; None when there is none.

    Parameters
    ----------
    lake, cluster, actions
        The lake, the cluster's name, and the actions to consider.
    """
    rows = lake.read(
        CONTROL_ACTIONS, filters=[("cluster", "=", cluster), ("action", "in", list(actions))]
    ).to_pylist()
    return max(rows, key=lambda row: row["at"], default=None)


def _change_stop(
    loaded: LoadedPolicy, cluster: str, action: str, value: bytes | None, *, actor: str, reason: str
) -> StopChange:
    settings = loaded.policy.clusters[cluster]
    before, num_partitions = try_again_when_fenced(lambda: _write_stop(cluster, settings, value))
    is_new = value is not None and len(before.stopped_partitions) < num_partitions
    is_over = value is None and before.stopped
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
    return StopChange(settings.hint_topic, num_partitions, changed=is_new or is_over)


def _write_stop(cluster: str, settings: ClusterSettings, value: bytes | None) -> tuple[TopicState, int]:
    """Write or remove the stop behind the fence; return the earlier state, and the number of partitions."""
    with admin_client(settings) as client:
        ensure_hint_topic(client, settings)
    with hint_publisher(cluster, settings) as publisher:
        state = read_hint_topic(settings)
        publisher.write_stop(state.num_partitions, value)
    return state, state.num_partitions


def _write_tombstone(cluster: str, settings: ClusterSettings, group_id: str) -> TopicState:
    """Write a tombstone if the group has a record; return the earlier state."""
    with hint_publisher(cluster, settings) as publisher:
        state = read_hint_topic(settings)
        if group_id in state.hints or group_id in state.unreadable:
            publisher.write({group_id: None})
    return state


def try_again_when_fenced(act: Callable[[], _Result]) -> _Result:
    """Run ``act`` again when another publisher has fenced it; every try reads the topic again."""
    for _ in range(_FENCED_TRIES - 1):
        try:
            return act()
        except FencedPublisherError:
            _LOG.info("another publisher came in between; trying again")
            time.sleep(_FENCED_PAUSE_S)
    return act()


def _plans_to_withdraw(
    lake: LakeReader, cluster: str, group_id: str, hint: Hint | None
) -> tuple[list[dict[str, Any]], bool]:
    """Plans of a group to withdraw, and whether the lake has any published hint of the group.

    Each has ``plan_id``, ``snapshot_id`` and the ``sequence`` of its hint (None: not published). They are the
    plan of the hint on the topic or, without one, the last published plan that is not withdrawn yet; and the
    approved plans that are not published yet.
    """
    events = lake.read_events(filters=[("cluster", "=", cluster), ("group_id", "=", group_id)]).to_pylist()
    told: dict[str, set[str]] = {}
    for event in events:
        told.setdefault(event["plan_id"], set()).add(event["event"])
    published = [event for event in events if event["event"] == PlanEvent.PUBLISHED]
    last = max(published, key=lambda event: event["sequence"] or 0, default=None)
    plans = []
    if hint is not None:
        # Its PUBLISHED event is missing if the publisher was killed: the hint has its snapshot id.
        head = {"snapshot_id": hint.payload.snapshot_id, "sequence": hint.sequence}
        plans.append({"plan_id": hint.plan_id} | head)
    elif last is not None and PlanEvent.WITHDRAWN not in told[last["plan_id"]]:
        plans.append(last)
    plans += [
        event | {"sequence": None}
        for event in events
        if event["event"] == PlanEvent.APPROVED
        and not told[event["plan_id"]] & _NEVER_MORE
        and event["plan_id"] not in {plan["plan_id"] for plan in plans}
    ]
    return plans, bool(published)


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
    events = [
        PlanEventRow(
            cluster=cluster,
            day=slot_day(plan["snapshot_id"]),
            snapshot_id=plan["snapshot_id"],
            plan_id=plan["plan_id"],
            group_id=done.group_id,
            event=PlanEvent.WITHDRAWN,
            reason=reason,
            actor=actor,
            at=at,
            sequence=plan["sequence"],
        )
        for plan in plans
    ]
    append_plan_events(loaded.policy.lake, events)


def _record(
    loaded: LoadedPolicy,
    cluster: str,
    action: str,
    actor: str,
    reason: str,
    at: datetime,
    **about: Any,
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
    with delta_rs_writer(loaded.policy.lake, CONTROL_ACTIONS) as writer:
        writer.append([row])


def _not_recorded(done: str, error: LakeError) -> NotRecordedError:
    return NotRecordedError(
        f"{done}, but that could not be recorded: {error}. The same call again records it"
    )
