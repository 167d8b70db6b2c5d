"""Events of a group's plans until the end of a period."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.enums import PlanEvent
from evenlag.lake.read_bounds import OPEN_PLANS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader


def read_group_events(
    reader: LakeReader, cluster: str, group_id: str, *, since: datetime, until: datetime | None
) -> list[dict[str, Any]]:
    """Read the events of a group's plans, oldest first.

    since: Start of the period. Events of the 31 days before it are read too: the publishing of the hints
        that end in the period.
    until: Later events are left out; none are when not given.
    """
    filters: list[Filter] = [
        ("cluster", "=", cluster),
        ("group_id", "=", group_id),
        ("at", ">=", since - OPEN_PLANS),
    ]
    rows = reader.read_events(filters=filters).to_pylist()
    known = [row for row in rows if row["at"] is not None and (until is None or row["at"] <= until)]
    return sorted(known, key=lambda event: (event["at"], event["plan_id"], event["event"]))


def published_plans(events: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the ids of the plans whose hint was on the hint topic.

    Returns plan ids. Plans that expired or were withdrawn before publishing are not among them.
    """
    # A publisher that was killed writes no PUBLISHED event, but the withdrawal contains the sequence number.
    return {
        str(event["plan_id"])
        for event in events
        if event["event"] == PlanEvent.PUBLISHED or event["sequence"] is not None
    }


def count_events(events: Iterable[Mapping[str, Any]], since: datetime) -> dict[str, int]:
    """Count events from a moment on."""
    counts: dict[str, int] = {}
    for event in events:
        if event["at"] >= since:
            counts[event["event"]] = counts.get(event["event"], 0) + 1
    return counts
