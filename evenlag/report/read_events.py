"""What happened to a group's plans until the end of a period, each at the time at which it was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import PlanEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from evenlag.lake.reader import LakeReader

# Who tells what became of a hint, by a snapshot that shows it.
_OBSERVER: Final = "observer"


def read_group_events(
    reader: LakeReader,
    cluster: str,
    group_id: str,
    *,
    finished_at: Mapping[str, datetime],
    until: datetime | None,
) -> list[dict[str, Any]]:
    """Read a group's events, oldest first.

    Parameters
    ----------
    finished_at
        When snapshots had been read: an outcome was seen no earlier, also where its event names the slot.
    until
        What happened later is left out; nothing is, when not given.
    """
    events = reader.read_events(filters=[("cluster", "=", cluster), ("group_id", "=", group_id)])
    seen = [event | {"at": _seen_at(event, finished_at)} for event in events.to_pylist()]
    known = [event for event in seen if event["at"] is not None and (until is None or event["at"] <= until)]
    return sorted(known, key=lambda event: (event["at"], event["plan_id"], event["event"]))


def _seen_at(event: Mapping[str, Any], finished_at: Mapping[str, datetime]) -> datetime | None:
    at: datetime | None = event["at"]
    if at is None or event["actor"] != _OBSERVER:
        return at
    return max(at, finished_at.get(event["snapshot_id"], at))


def published_plans(events: Iterable[Mapping[str, Any]]) -> set[str]:
    """Ids of the plans whose hint was on the topic: the rest expired or was withdrawn before."""
    # A publisher that was killed leaves no PUBLISHED, but what took the hint back names its number.
    return {
        str(event["plan_id"])
        for event in events
        if event["event"] == PlanEvent.PUBLISHED or event["sequence"] is not None
    }


def count_events(events: Iterable[Mapping[str, Any]], since: datetime) -> dict[str, int]:
    """Count what happened from a moment on, by event."""
    counts: dict[str, int] = {}
    for event in events:
        if event["at"] >= since:
            counts[event["event"]] = counts.get(event["event"], 0) + 1
    return counts
