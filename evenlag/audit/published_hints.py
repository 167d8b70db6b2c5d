"""The hints that were on the hint topic, and whether their groups applied them, from when to when."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignor_core.hint import member_key
from evenlag.audit.enums import HintVerdict
from evenlag.audit.interval_merge import FIRST_INDEX, LAST_INDEX
from evenlag.audit.period import AuditedPeriod
from evenlag.audit.rebalances import FindHint, Interval
from evenlag.enums import PlanEvent
from evenlag.formatting import answered_by
from evenlag.lake.filters import matching, of_group
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import PLAN_ASSIGNMENTS

# A hint may start a rebalance for a week at most. Who still follows a much older one does so by chance.
HINTS_LOOK_BACK: Final = timedelta(days=31)

# (topic id, partition) → key of the member that the hint assigns it to.
Hinted = dict[tuple[str, int], str]


@dataclass(frozen=True, slots=True)
class Hint:
    """A published hint, and when and by what it was replaced or withdrawn on the topic.

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
    filters = matching(cluster=period.cluster) + of_group(period.group_id)
    kinds = [PlanEvent.APPROVED, PlanEvent.PUBLISHED, PlanEvent.WITHDRAWN]
    recent = [*filters, *matching(event=kinds), ("at", ">=", period.since - HINTS_LOOK_BACK)]
    events = reader.read_events(filters=recent).to_pylist()
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
        filters=[*filters, *matching(day=days, plan_id=list(by_plan))],
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
    for group_id, changes in by_group.items():
        in_order = sorted(changes, key=lambda event: (event["at"], event["sequence"] or 0))
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


LEFT_WHILE_IT_STOOD: Final = "the group held something else while it stood"
_HINT_COLUMNS: Final = (
    "group_id", "plan_id", "sequence", "approved_by", "published_at", "expires_at", "ended_at", "ended_by",
)  # fmt: skip


def hint_finder(hints: Iterable[Hint]) -> FindHint:
    """Create the function that finds the hint that a group applied between two intervals.

    It takes two known intervals of ``memberships`` of one group, the older one first, and returns the newest
    plan whose hint the second interval matches in full and the first one does not.
    hints: Hints of one or more groups, oldest first.
    """
    by_group: dict[str, list[Hint]] = defaultdict(list)
    for hint in hints:
        by_group[hint.group_id].append(hint)

    def find(old: Interval, new: Interval) -> str | None:
        for hint in reversed(by_group.get(new["group_id"], [])):
            is_in_time = hint.published_at < new["first_seen_at"] and (
                hint.ended_at is None or hint.ended_at > old["last_seen_at"]
            )
            if is_in_time and _share(hint, new) == 1.0 > _share(hint, old):
                return hint.plan_id
        return None

    return find


def _share(hint: Hint, interval: Interval) -> float:
    """Share of a hint's partitions, 0 to 1, that an interval shows at their hinted members."""
    ids = {topic["topic"]: topic["topic_id"] for topic in interval["topics"]}
    holders: dict[tuple[str | None, int], list[str]] = defaultdict(list)
    for member in interval["members"]:
        key = member_key(member["member_id"], member["group_instance_id"])
        for topic in member["assignment"] or ():
            for number in topic["partitions"]:
                holders[ids.get(topic["topic"]), number].append(key)
    held = sum(holders.get(partition) == [key] for partition, key in hint.holders.items())
    return held / len(hint.holders) if hint.holders else 0.0


def hint_verdicts(
    period: AuditedPeriod, hints: Sequence[Hint], rebalances: Iterable[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Determine for each hint whether its group applied it, and the first interval in which it did.

    The shares are of the hint's partitions at their hinted members, at publishing and at best. The
    application began between ``not_yet_at`` and ``followed_from``, and ended between ``followed_until`` and
    ``no_longer_at``.
    """
    causes = {(each["group_id"], each["snapshot_id"]): each["causes"] for each in rebalances}
    return [_hint_verdict(period, hint, causes) for hint in hints]


def _hint_verdict(
    period: AuditedPeriod, hint: Hint, causes: Mapping[tuple[str, str], Sequence[str]]
) -> dict[str, Any]:
    shares = _shares(period, hint)
    finished, started = period.finished_us(), period.started_us()
    published = _us(hint.published_at)
    ended = _us(hint.ended_at) if hint.ended_at is not None else np.iinfo(np.int64).max
    stood = (started >= published) & (finished <= ended)
    known = ~np.isnan(shares)
    before = np.flatnonzero(known & (finished <= published))
    while_it_stood = np.flatnonzero(known & stood)
    row: dict[str, Any] = {
        **{name: getattr(hint, name) for name in _HINT_COLUMNS},
        "num_partitions": len(hint.holders),
        "share_before": float(shares[before[-1]]) if len(before) else None,
        "share_best": float(shares[while_it_stood].max()) if len(while_it_stood) else None,
        "num_snapshots": len(while_it_stood),
    }
    full = while_it_stood[shares[while_it_stood] == 1.0]
    row["verdict"] = _verdict(row, is_full=len(full) > 0)
    row |= _followed(period, shares, int(full[0]) if len(full) else None, ended)
    known_causes = causes.get((hint.group_id, row["no_longer_snapshot_id"]))
    if row["left_because"] == LEFT_WHILE_IT_STOOD and known_causes:
        row["left_because"] = f"{LEFT_WHILE_IT_STOOD}: {', '.join(known_causes)}"
    return row


def _verdict(row: Mapping[str, Any], *, is_full: bool) -> HintVerdict:
    if is_full:
        return HintVerdict.FOLLOWED
    if row["share_best"] is None:
        return HintVerdict.NOT_SEEN
    return (
        HintVerdict.PARTLY if row["share_best"] > (row["share_before"] or 0.0) else HintVerdict.NOT_FOLLOWED
    )


def _followed(period: AuditedPeriod, shares: np.ndarray, first: int | None, ended_us: int) -> dict[str, Any]:
    """Return the interval in which the whole hint was applied, given its first snapshot."""
    not_yet = last = end = reason = None
    if first is not None:
        # A snapshot that does not show the group does not end the interval: the next that shows it decides.
        others = np.flatnonzero(~np.isnan(shares) & (shares < 1.0))
        earlier, later = others[others < first], others[others > first]
        full = np.flatnonzero(shares == 1.0)
        end = int(later[0]) if len(later) else None
        last = int(full[full < end][-1]) if end is not None else int(full[-1])
        not_yet = int(earlier[-1]) if len(earlier) else None
    if end is not None:
        is_after = period.started_us()[end] > ended_us
        reason = "the hint stood no longer" if is_after else LEFT_WHILE_IT_STOOD
    edges = {
        "not_yet": (not_yet, "not_yet_at", "started_at"),
        "followed_from": (first, "followed_from", "finished_at"),
        "followed_until": (last, "followed_until", "started_at"),
        "no_longer": (end, "no_longer_at", "finished_at"),
    }
    found: dict[str, Any] = {}
    for edge, (place, name, moment) in edges.items():
        found[name] = period.value_at(place, moment)
        found[f"{edge}_snapshot_id"] = period.value_at(place, "snapshot_id")
    if first is not None:
        # With a single snapshot, its start is earlier than its end, which followed_from is.
        found["followed_until"] = max(found["followed_from"], found["followed_until"])
    return found | {"left_because": reason}


def _shares(period: AuditedPeriod, hint: Hint) -> np.ndarray:
    """Share of a hint that was applied, by snapshot; NaN where a snapshot does not show the group."""
    memberships = period.memberships
    known = memberships.filter(
        pc.and_(pc.equal(memberships["group_id"], hint.group_id), memberships["is_known"])
    )
    count = period.snapshots.num_rows
    is_known = _cover(known, np.ones(known.num_rows, dtype=np.int64), count) > 0
    ownership = period.ownership
    # A partition with two owners matches the hint with neither of them.
    held = ownership.filter(
        pc.and_(pc.equal(ownership["group_id"], hint.group_id), pc.equal(ownership["num_owners"], 1))
    )
    keys = zip(*(held[name].to_pylist() for name in ("topic_id", "partition", "owner_key")), strict=True)
    matches = np.fromiter(
        (hint.holders.get((topic_id, number)) == key for topic_id, number, key in keys),
        dtype=np.int64,
        count=held.num_rows,
    )
    shares = _cover(held, matches, count) / max(len(hint.holders), 1)
    return np.where(is_known, shares, np.nan)


def _cover(intervals: pa.Table, weights: np.ndarray, count: int) -> np.ndarray:
    """Sum of the weights of the intervals that contain each snapshot; shape (count,)."""
    steps = np.zeros(count + 1, dtype=np.int64)
    np.add.at(steps, intervals[FIRST_INDEX].to_numpy(), weights)
    np.add.at(steps, intervals[LAST_INDEX].to_numpy() + 1, -weights)
    return np.cumsum(steps)[:-1]


def _us(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
