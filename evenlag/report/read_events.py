"""Plan events of a group up to the end of a period, at the times at which they were observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import PlanEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from evenlag.lake.reader import LakeReader

# Actor of the events that a snapshot proves.
_OBSERVER: Final = "observer"


def read_group_events(
    reader: LakeReader,
    cluster: str,
    group_id: str,
    *,
    finished_at: Mapping[str, datetime],
    until: datetime | None,
) -> list[dict[str, Any]]:
    """Read the plan events of a group, oldest first.

    Parameters
    ----------
    reader
        Reader of the lake.
    cluster, group_id
        The cluster's name in the policy, and the group.
    finished_at
        End of each snapshot, by snapshot id. An outcome is observed at the end of its snapshot, even if its
        event has an earlier time.
    until
        Leave out later events; default: none.

    Returns
    -------
    list of dict
        Rows of the plan events, with ``at`` as observed; by time, plan and event.

    Raises
    ------
    LakeError
        When a table cannot be read.
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
    """Return the ids of the plans whose hint was on the hint topic.

    Parameters
    ----------
    events
        Plan events.

    Returns
    -------
    set of str
        Plan ids. Plans that expired or were withdrawn before publishing are not among them.
    """
    # A publisher that was killed writes no PUBLISHED event, but the withdrawal contains the sequence number.
    return {
        str(event["plan_id"])
        for event in events
        if event["event"] == PlanEvent.PUBLISHED or event["sequence"] is not None
    }


def count_events(events: Iterable[Mapping[str, Any]], since: datetime) -> dict[str, int]:
    """Count events from a moment on.

    Parameters
    ----------
    events
        Plan events.
    since
        Ignore earlier events.

    Returns
    -------
    dict
        Number of events by name.
    """
    counts: dict[str, int] = {}
    for event in events:
        if event["at"] >= since:
            counts[event["event"]] = counts.get(event["event"], 0) + 1
    return counts
