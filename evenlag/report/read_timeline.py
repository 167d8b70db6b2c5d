"""Who held what when, from the audit, with the rebalances and hints between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.adherence import hint_finder, read_hints
from evenlag.audit.churn import find_rebalances
from evenlag.audit.period import read_period
from evenlag.options import NothingThereError
from evenlag.report.model import Mark, Stretch, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from evenlag.report.read import Scope
    from evenlag.report.read_names import Names

MAX_PARTITIONS: Final = 40
# More bars than that are a page of many megabytes in which nothing can be made out.
MAX_STRETCHES: Final = 3_000
_HINT_EVENTS: Final = {
    "PUBLISHED": "published",
    "APPLIED": "followed",
    "IGNORED": "not followed",
    "EXPIRED": "ran out",
    "WITHDRAWN": "withdrawn",
}
_CAUSES: Final = {
    "MEMBER_JOINED": "a member joined",
    "MEMBER_LEFT": "a member left",
    "MEMBER_BOUNCED": "a member went and came back",
    "SUBSCRIPTION_CHANGED": "a subscription changed",
    "PARTITIONS_ADDED": "partitions were added",
    "TOPIC_RECREATED": "a topic was created anew",
    "ASSIGNOR_CHANGED": "the assignor changed",
    "HINT_APPLIED": "a hint was followed",
    "UNKNOWN": "the readings do not show why",
}
_COUNTS: Final = {
    "num_moved": "moved",
    "num_returned": "returned",
    "num_placed": "placed",
    "num_freed": "freed",
}
_NOT_OWNED: Final = {"NOBODY": "nobody held it", "UNKNOWN": "the group did not show it"}


def read_timeline(scope: Scope, events: Iterable[Mapping[str, Any]], names: Names) -> Timeline | None:
    """Read the period's stretches and what lies between them; None when the group was not audited then.

    Raises
    ------
    LakeError
        When the audit is being made anew at this moment.
    """
    begin, end = scope.since, scope.finished_at
    try:
        period = read_period(scope.reader, scope.cluster, begin, end, group_id=scope.group_id)
    except NothingThereError:
        return None
    found = period.ownership.sort_by([(key, "ascending") for key in ("topic", "partition", "first_seen_at")])
    stretches = [
        stretch
        for row in found.to_pylist()
        if (stretch := _stretch(row, names, begin, end)).start <= stretch.end
    ]
    if not stretches:
        return None
    rebalances, _ = find_rebalances(period, find_hint=hint_finder(read_hints(scope.reader, period)))
    marks = [*_hints(events), *(_rebalance(each, names) for each in rebalances)]
    shown = _choose(stretches)
    kept = tuple(each for each in stretches if each.partition in shown)
    return Timeline(
        partitions=tuple(dict.fromkeys(each.partition for each in kept)),
        owners=tuple(
            dict.fromkeys(
                each.owner for each in sorted(kept, key=lambda each: each.start) if each.owner is not None
            )
        ),
        stretches=kept,
        marks=tuple(sorted(marks, key=lambda mark: mark.at)),
        num_left_out=len({each.partition for each in stretches}) - len(shown),
        num_unaudited=period.num_unaudited,
    )


def _stretch(row: Mapping[str, Any], names: Names, since: datetime, until: datetime) -> Stretch:
    is_owned = row["state"] == "OWNED"
    return Stretch(
        partition=f"{row['topic']}-{row['partition']}",
        owner=names.of(row["member_id"]) if is_owned else None,
        what="" if is_owned else row["reason"] or _NOT_OWNED.get(row["state"], row["state"]),
        start=max(row["first_seen_at"], since),
        end=min(row["next_seen_at"] or row["last_seen_at"], until),
    )


def _choose(stretches: Sequence[Stretch]) -> set[str]:
    """The partitions to show: all, or those that changed hands most often."""
    counts: dict[str, int] = {}
    for each in stretches:
        counts[each.partition] = counts.get(each.partition, 0) + 1
    chosen: set[str] = set()
    room = MAX_STRETCHES
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


def _hints(events: Iterable[Mapping[str, Any]]) -> Iterable[Mark]:
    for event in events:
        if (what := _HINT_EVENTS.get(event["event"])) and event["at"] is not None:
            because = f": {event['reason']}" if event["reason"] else ""
            yield Mark(event["at"], "hint", f"{what}, plan {event['plan_id'][:12]}{because}")
