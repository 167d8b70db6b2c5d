"""Owners of the partitions over time, from the audit, with rebalances and hints."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.enums import RebalanceCause
from evenlag.audit.interval_merge import FIRST_INDEX, LAST_INDEX
from evenlag.audit.period import read_period
from evenlag.audit.published_hints import hint_finder, read_hints
from evenlag.audit.rebalances import find_rebalances
from evenlag.enums import OwnershipState, PlanEvent
from evenlag.errors import NotFoundError
from evenlag.report.model import HINT_EVENTS, Interval, Mark, Timeline
from evenlag.report.scope import published_plans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from evenlag.report.scope import Names, Scope

MAX_PARTITIONS: Final = 40
# A chart with more bars has many megabytes and is not readable.
MAX_INTERVALS: Final = 3_000
_HINT_EVENTS: Final = dict(
    zip(
        (PlanEvent.PUBLISHED, PlanEvent.APPLIED, PlanEvent.IGNORED, PlanEvent.EXPIRED, PlanEvent.WITHDRAWN),
        HINT_EVENTS,
        strict=True,
    )
)
_CAUSES: Final = {
    RebalanceCause.MEMBER_JOINED: "a member joined",
    RebalanceCause.MEMBER_LEFT: "a member left",
    RebalanceCause.MEMBER_BOUNCED: "a member left and joined again",
    RebalanceCause.SUBSCRIPTION_CHANGED: "a subscription changed",
    RebalanceCause.PARTITIONS_ADDED: "partitions were added",
    RebalanceCause.TOPIC_RECREATED: "a topic was created again",
    RebalanceCause.ASSIGNOR_CHANGED: "the assignor changed",
    RebalanceCause.HINT_APPLIED: "a hint was followed",
    RebalanceCause.UNKNOWN: "the snapshots do not show why",
}
_COUNTS: Final = {
    "num_moved": "moved",
    "num_returned": "returned",
    "num_placed": "placed",
    "num_freed": "freed",
}
_NOT_OWNED: Final = {
    OwnershipState.NOBODY: "nobody held it",
    OwnershipState.UNKNOWN: "the group did not show it",
}


def read_timeline(scope: Scope, events: Sequence[Mapping[str, Any]], names: Names) -> Timeline | None:
    """Read the timeline of a period.

    None if the group was not audited in the period.
    events: Plan events of the group up to the end of the period.
    """
    try:
        period = read_period(
            scope.reader, scope.cluster, scope.since, scope.finished_at, group_id=scope.group_id
        )
    except NotFoundError:
        return None
    inside = [
        place
        for place, snapshot in enumerate(period.snapshots.to_pylist())
        if scope.since <= snapshot["slot"] <= scope.until and snapshot["finished_at"] <= scope.finished_at
    ]
    if not inside:
        return None
    found = period.ownership.sort_by([(key, "ascending") for key in ("topic", "partition", FIRST_INDEX)])
    last_end = period.snapshots["finished_at"][inside[-1]].as_py()
    intervals = [
        _interval(row, names, scope.started_at, last_end, is_open=row[LAST_INDEX] >= inside[-1])
        for row in _next_to_each_other(found.to_pylist())
        if row[FIRST_INDEX] <= inside[-1] and row[LAST_INDEX] >= inside[0]
    ]
    if not intervals:
        return None
    rebalances, _ = find_rebalances(period, find_hint=hint_finder(read_hints(scope.reader, period)))
    ids = {period.snapshots["snapshot_id"][place].as_py() for place in inside}
    marks = [
        *hint_marks(events, scope.since),
        *(_rebalance(each, names) for each in rebalances if each["snapshot_id"] in ids),
    ]
    shown = _choose(intervals)
    kept = tuple(each for each in intervals if each.partition in shown)
    return Timeline(
        partitions=tuple(dict.fromkeys(each.partition for each in kept)),
        owners=tuple(
            dict.fromkeys(
                each.owner for each in sorted(kept, key=lambda each: each.start) if each.owner is not None
            )
        ),
        intervals=kept,
        marks=tuple(sorted(marks, key=lambda mark: mark.at)),
        num_left_out=len({each.partition for each in intervals}) - len(shown),
        num_unaudited=period.num_unaudited,
    )


def _next_to_each_other(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """End each interval where the next one of the partition begins, also over midnight."""
    key = ("topic", "topic_id", "partition")
    return [
        row | {"next_seen_at": after["first_seen_at"]}
        if after is not None
        and all(row[name] == after[name] for name in key)
        and after[FIRST_INDEX] == row[LAST_INDEX] + 1
        else row
        for row, after in zip_longest(rows, rows[1:])
    ]


def _interval(
    row: Mapping[str, Any], names: Names, since: datetime, last_end: datetime, *, is_open: bool
) -> Interval:
    is_owned = row["state"] == OwnershipState.OWNED
    start = max(row["first_seen_at"], since)
    end = last_end if is_open else min(row["next_seen_at"] or row["last_seen_at"], last_end)
    return Interval(
        partition=f"{row['topic']}-{row['partition']}",
        owner=names.of(row["member_id"]) if is_owned else None,
        what="" if is_owned else row["reason"] or _NOT_OWNED.get(row["state"], row["state"]),
        start=start,
        end=max(start, end),
        is_open=is_open,
    )


def _choose(intervals: Sequence[Interval]) -> set[str]:
    """Partitions to show: all, or those with the most changes of owner."""
    counts: dict[str, int] = {}
    for each in intervals:
        counts[each.partition] = counts.get(each.partition, 0) + 1
    chosen: set[str] = set()
    room = MAX_INTERVALS
    for name in sorted(counts, key=lambda name: (-counts[name], name))[:MAX_PARTITIONS]:
        if counts[name] <= room or not chosen:
            chosen.add(name)
            room -= counts[name]
    return chosen


def _rebalance(row: Mapping[str, Any], names: Names) -> Mark:
    why = ", ".join(_CAUSES.get(cause, cause) for cause in row["causes"])
    who = [
        f"{what}: {', '.join(names.of(member) for member in row[what])}"
        for what in ("joined", "left")
        if row[what]
    ]
    counts = [f"{row[name]} {what}" for name, what in _COUNTS.items() if row[name]]
    return Mark(row["seen_at"], "rebalance", "; ".join([why, *who, ", ".join(counts) or "nothing moved"]))


def hint_marks(events: Sequence[Mapping[str, Any]], since: datetime) -> Iterator[Mark]:
    """Select the events of published hints.

    events: Plan events of the group up to the end of the period, oldest first.
    """
    published = published_plans(events)
    for event in events:
        what = _HINT_EVENTS.get(event["event"])
        if what is not None and event["plan_id"] in published and event["at"] >= since:
            because = f": {event['reason']}" if event["reason"] else ""
            yield Mark(event["at"], "hint", f"plan {event['plan_id'][:12]}{because}", event=what)
