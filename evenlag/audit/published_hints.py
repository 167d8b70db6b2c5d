"""The hints that were on the hint topic, from the events that record them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import PlanEvent
from evenlag.formatting import answered_by
from evenlag.lake.tables import PLAN_ASSIGNMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from evenlag.audit.period import AuditedPeriod
    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

# A hint may start a rebalance for a week at most. Who still follows a much older one does so by chance.
HINTS_LOOK_BACK: Final = timedelta(days=31)

# (topic id, partition) → key of the member that the hint assigns it to.
Hinted = dict[tuple[str, int], str]


@dataclass(frozen=True, slots=True)
class Hint:
    """A published hint.

    published_at, ended_at: When the hint was written to the hint topic, and when it was replaced or
        withdrawn there. ``ended_at`` is None while it is the current hint of its group.
    ended_by: Id of the plan that replaced it, or ``withdrawn``; None while it is current.
    holders: Member key by topic id and partition.
    approved_by: Who approved the plan, and over which channel; None if the approval is not on record.
    """

    plan_id: str
    group_id: str
    sequence: int | None
    published_at: datetime
    expires_at: datetime | None
    ended_at: datetime | None
    ended_by: str | None
    holders: Hinted
    approved_by: str | None = None


def read_hints(reader: LakeReader, period: AuditedPeriod) -> list[Hint]:
    """Read the hints that were on the hint topic in a period, published at most 31 days before it."""
    filters: list[Filter] = [("cluster", "=", period.cluster)]
    if period.group_id is not None:
        filters.append(("group_id", "=", period.group_id))
    events = reader.read_events(
        filters=[
            *filters,
            ("at", ">=", period.since - HINTS_LOOK_BACK),
            ("event", "in", [PlanEvent.APPROVED, PlanEvent.PUBLISHED, PlanEvent.WITHDRAWN]),
        ]
    ).to_pylist()
    standing = [
        hint
        for hint in _standing(events)
        if hint.published_at <= period.until and (hint.ended_at is None or hint.ended_at >= period.since)
    ]
    if not standing:
        return []
    by_plan = {hint.plan_id: hint for hint in standing}
    days = {event["day"] for event in events if event["plan_id"] in by_plan}
    rows = reader.read(
        PLAN_ASSIGNMENTS,
        columns=["plan_id", "topic_id", "partition", "owner_after_key"],
        filters=[*filters, ("day", "in", days), ("plan_id", "in", list(by_plan))],
    )
    for row in rows.to_pylist():
        if row["owner_after_key"] is not None:
            by_plan[row["plan_id"]].holders[row["topic_id"], row["partition"]] = row["owner_after_key"]
    return standing


def _standing(events: Iterable[Mapping[str, Any]]) -> list[Hint]:
    """Build hints from their events: a hint ends with the next one of its group, or when it is withdrawn."""
    by_group: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    approvals = {}
    for event in events:
        if event["event"] == PlanEvent.APPROVED:
            approvals[event["plan_id"]] = answered_by(event)
        else:
            by_group[event["group_id"]].append(event)
    hints = []
    for group_id, of_group in by_group.items():
        in_order = sorted(of_group, key=lambda event: (event["at"], event["sequence"] or 0))
        for place, event in enumerate(in_order):
            if event["event"] != PlanEvent.PUBLISHED:
                continue
            endings = (
                later
                for later in in_order[place + 1 :]
                if later["event"] == PlanEvent.PUBLISHED or later["plan_id"] == event["plan_id"]
            )
            ending = next(endings, None)
            hints.append(
                Hint(
                    plan_id=event["plan_id"],
                    group_id=group_id,
                    sequence=event["sequence"],
                    published_at=event["at"],
                    expires_at=event["expires_at"],
                    ended_at=ending["at"] if ending else None,
                    ended_by=_ended_by(ending),
                    holders={},
                    approved_by=approvals.get(event["plan_id"]),
                )
            )
    return sorted(hints, key=lambda hint: (hint.published_at, hint.group_id))


def _ended_by(ending: Mapping[str, Any] | None) -> str | None:
    if ending is None:
        return None
    return "withdrawn" if ending["event"] == PlanEvent.WITHDRAWN else str(ending["plan_id"])
