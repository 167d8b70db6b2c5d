"""Append plan events: from the publisher, manual approvals and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import PLAN_EVENTS
from evenlag.lake.writer import append_guarded, append_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEventRow:
    """One row of ``plan_events``; the fields are the table's columns."""

    cluster: str
    day: date
    snapshot_id: str
    plan_id: str
    group_id: str
    event: str
    reason: str | None
    actor: str
    at: datetime
    sequence: int | None = None
    expires_at: datetime | None = None
    run_id: str | None = None
    channel: str | None = None
    actor_name: str | None = None
    account: str | None = None
    seal: str | None = None
    signing_key_id: str | None = None

    @classmethod
    def of_plan(
        cls, plan: Mapping[str, Any], event: str, *, reason: str | None, actor: str, at: datetime
    ) -> Self:
        """Build an event of a plan, from a row that has the plan's columns.

        at: Time of the event. A job derives it from the data, so that a repeat builds the same row; it is
            not earlier than the end of the snapshot that the event is based on.
        """
        names = ("cluster", "day", "snapshot_id", "plan_id", "group_id", "run_id")
        return cls(**{name: plan[name] for name in names}, event=event, reason=reason, actor=actor, at=at)

    def as_row(self) -> dict[str, Any]:
        """Return the event as a row."""
        return {name: getattr(self, name) for name in self.__slots__}


def append_plan_events(root: str, events: Sequence[PlanEventRow], once: str | None = None) -> int:
    """Append the events that are not recorded yet. Idempotent, also beside other writers.

    (plan_id, event) identifies an event: a plan is published once, expires once, is withdrawn once. An event
    has the day of its plan; only APPLIED, IGNORED and EXPIRED of a published plan have the day of the
    snapshot that settled it, which is never earlier.

    once: A transaction id for all of them, if every attempt to write them has the same events, e.g.
        ``proposed/orders/<snapshot>``: one id in the log instead of one per plan. Without it each plan is a
        guard (:mod:`evenlag.lake.writer`).
    """
    if not events:
        return 0
    if once is None:
        return len(append_guarded(root, PLAN_EVENTS, lambda: _not_recorded(root, events), plan_guard))
    new = _not_recorded(root, events)
    return len(new) if append_once(root, PLAN_EVENTS, new, once) else 0


def plan_guard(row: Mapping[str, Any]) -> str:
    """Return the guard of events of a plan that depend on its earlier events."""
    return f"events/{row['cluster']}/{row['plan_id']}"


def _not_recorded(root: str, events: Sequence[PlanEventRow]) -> list[dict[str, Any]]:
    known = LakeReader(root, skip_unreadable=True).read(
        PLAN_EVENTS,
        columns=["cluster", "plan_id", "event"],
        filters=[
            ("cluster", "in", {event.cluster for event in events}),
            ("day", ">=", min(event.day for event in events)),
            ("plan_id", "in", {event.plan_id for event in events}),
        ],
    )
    seen = set(zip(*(known[name].to_pylist() for name in known.column_names), strict=True))
    # One of several equal events of a call too.
    new = {(event.cluster, event.plan_id, event.event): event.as_row() for event in reversed(events)}
    return [row for key, row in reversed(new.items()) if key not in seen]
