"""Append plan events: from the publisher, manual approvals and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import PLAN_EVENTS
from evenlag.lake.writer import append_guarded

if TYPE_CHECKING:
    from evenlag.lake.filters import Filter

    Row = Mapping[str, Any]


def plan_event(
    plan: Row, event: str, *, reason: str | None, actor: str, at: datetime, **more: Any
) -> dict[str, Any]:
    """Return an event of a plan, from a row that has the plan's columns, with `more` columns.

    at: A job derives it from the data, so that a repeat builds the same row; it is not earlier than the end
        of the snapshot that the event is based on.
    """
    names = ("cluster", "day", "snapshot_id", "plan_id", "group_id")
    own = {name: plan[name] for name in names} | {"run_id": plan.get("run_id")}
    return own | {"event": event, "reason": reason, "actor": actor, "at": at, **more}


def append_plan_events(root: str, events: Sequence[Row], written: Sequence[Filter] | None = None) -> int:
    """Append the events that are not recorded yet. Idempotent, also beside other writers.

    (plan_id, event) identifies an event: a plan is published once, expires once, is withdrawn once. An event
    has the day of its plan; only APPLIED, IGNORED and EXPIRED of a published plan have the day of the
    snapshot that settled it, which is never earlier.

    written: What events of another attempt match: if there is one, that attempt has written them all.
    """
    if not events:
        return 0

    def choose() -> Sequence[Row]:
        if written is not None and LakeReader(root).count(PLAN_EVENTS, filters=written):
            return ()
        return _not_recorded(root, events)

    return len(append_guarded(root, PLAN_EVENTS, choose))


def _not_recorded(root: str, events: Sequence[Row]) -> list[Row]:
    key = ("cluster", "plan_id", "event")
    known = LakeReader(root, skip_unreadable=True).read(
        PLAN_EVENTS,
        columns=key,
        filters=[
            ("day", ">=", min(event["day"] for event in events)),
            *((name, "in", {event[name] for event in events}) for name in key[:2]),
        ],
    )
    seen = set(zip(*(known[name].to_pylist() for name in key), strict=True))
    # One of several equal events of a call too.
    new = {tuple(event[name] for name in key): event for event in reversed(events)}
    return [row for values, row in reversed(new.items()) if values not in seen]
