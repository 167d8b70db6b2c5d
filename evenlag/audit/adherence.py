"""Adherence: whether a group held what a hint said, from which reading to which, and what ended it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.interval_merge import FIRST_INDEX, LAST_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    import numpy as np
    import pyarrow as pa

    from evenlag.audit.period import AuditedPeriod
    from evenlag.audit.rebalances import FindHint, Stretch
    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

FOLLOWED: Final = "FOLLOWED"
PARTLY: Final = "PARTLY"
NOT_FOLLOWED: Final = "NOT_FOLLOWED"
NOT_SEEN: Final = "NOT_SEEN"
LEFT_WHILE_IT_STOOD: Final = "the group held something else while it stood"

# (topic id, partition) → the member key that shall hold it.
Hinted = dict[tuple[str, int], str]


@dataclass(frozen=True, slots=True)
class Hint:
    """A hint as it was published.

    Attributes
    ----------
    published_at, ended_at
        From when to when it stood on the topic; the second is None while it does.
    ended_by
        Why it stands no longer: the newer plan's id, or ``withdrawn``.
    holders
        What it says.
    """

    plan_id: str
    group_id: str
    sequence: int | None
    published_at: datetime
    expires_at: datetime | None
    ended_at: datetime | None
    ended_by: str | None
    holders: Hinted


def read_hints(reader: LakeReader, period: AuditedPeriod) -> list[Hint]:
    """Read the hints that stood at any time of a period, oldest first."""
    from evenlag.lake.tables import PLAN_ASSIGNMENTS

    filters: list[Filter] = [("cluster", "=", period.cluster)]
    if period.group_id is not None:
        filters.append(("group_id", "=", period.group_id))
    events = reader.read_events(filters=[*filters, ("event", "in", ["PUBLISHED", "WITHDRAWN"])]).to_pylist()
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
    """Hints from their events: each ends with the next of its group, or when it is withdrawn."""
    by_group: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        by_group[event["group_id"]].append(event)
    hints = []
    for group_id, of_group in by_group.items():
        in_order = sorted(of_group, key=lambda event: (event["at"], event["sequence"] or 0))
        for place, event in enumerate(in_order):
            if event["event"] != "PUBLISHED":
                continue
            ending = next(
                (
                    later
                    for later in in_order[place + 1 :]
                    if later["event"] == "PUBLISHED" or later["plan_id"] == event["plan_id"]
                ),
                None,
            )
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
                )
            )
    return sorted(hints, key=lambda hint: (hint.published_at, hint.group_id))


def _ended_by(ending: Mapping[str, Any] | None) -> str | None:
    if ending is None:
        return None
    return "withdrawn" if ending["event"] == "WITHDRAWN" else str(ending["plan_id"])


def hint_finder(hints: Iterable[Hint]) -> FindHint:
    """Make what tells, for two stretches, which hint the group began to follow in between."""
    by_group: dict[str, list[Hint]] = defaultdict(list)
    for hint in hints:
        by_group[hint.group_id].append(hint)

    def find(old: Stretch, new: Stretch) -> str | None:
        for hint in reversed(by_group.get(new["group_id"], [])):
            is_in_time = hint.published_at < new["first_seen_at"] and (
                hint.ended_at is None or hint.ended_at > old["last_seen_at"]
            )
            if is_in_time and _share(hint, new) == 1.0 > _share(hint, old):
                return hint.plan_id
        return None

    return find


def _share(hint: Hint, stretch: Stretch) -> float:
    """The share of a hint's partitions that a known stretch shows with their hinted members."""
    ids = {topic["topic"]: topic["topic_id"] for topic in stretch["topics"]}
    holders: dict[tuple[str | None, int], list[str]] = defaultdict(list)
    for member in stretch["members"]:
        for topic in member["assignment"] or ():
            for number in topic["partitions"]:
                holders[ids.get(topic["topic"]), number].append(member_key(member))
    held = sum(holders.get(partition) == [key] for partition, key in hint.holders.items())
    return held / len(hint.holders) if hint.holders else 0.0


def member_key(member: Mapping[str, Any]) -> str:
    """How a hint names a member."""
    instance = member["group_instance_id"]
    return f"i:{instance}" if instance is not None else f"m:{member['member_id']}"


def judge_hints(
    period: AuditedPeriod, hints: Sequence[Hint], rebalances: Iterable[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Tell of each hint whether its group held what it said while it stood, and from when to when.

    Parameters
    ----------
    rebalances
        Rebalances of the period (:func:`evenlag.audit.rebalances.find_rebalances`): their causes explain
        why a hint was left.

    Returns
    -------
    list of dict
        In the order of `hints`: the hint's head, ``verdict`` (FOLLOWED: all of it at some reading; PARTLY:
        more of it than when it was published; NOT_FOLLOWED; NOT_SEEN: no reading shows the group while it
        stood), ``share_before`` and ``share_best``, and of the first stretch in which all of it was held:
        ``not_yet_at`` and ``followed_from`` (it began between the two), ``followed_until`` and
        ``no_longer_at``, the readings of these, and ``left_because``.
    """
    causes = {(each["group_id"], each["snapshot_id"]): each["causes"] for each in rebalances}
    return [_judge(period, hint, causes) for hint in hints]


def _judge(
    period: AuditedPeriod, hint: Hint, causes: Mapping[tuple[str, str], Sequence[str]]
) -> dict[str, Any]:
    import numpy as np

    shares = _shares(period, hint)
    finished, started = period.finished_us(), period.started_us()
    published = _us(hint.published_at)
    ended = _us(hint.ended_at) if hint.ended_at is not None else np.iinfo(np.int64).max
    stood = (started >= published) & (finished <= ended)
    known = ~np.isnan(shares)
    before = np.flatnonzero(known & (finished <= published))
    while_it_stood = np.flatnonzero(known & stood)
    row: dict[str, Any] = {
        "group_id": hint.group_id,
        "plan_id": hint.plan_id,
        "sequence": hint.sequence,
        "published_at": hint.published_at,
        "expires_at": hint.expires_at,
        "ended_at": hint.ended_at,
        "ended_by": hint.ended_by,
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


def _verdict(row: Mapping[str, Any], *, is_full: bool) -> str:
    if is_full:
        return FOLLOWED
    if row["share_best"] is None:
        return NOT_SEEN
    return PARTLY if row["share_best"] > (row["share_before"] or 0.0) else NOT_FOLLOWED


def _followed(period: AuditedPeriod, shares: np.ndarray, first: int | None, ended_us: int) -> dict[str, Any]:
    """From which reading to which all of a hint was held, beginning with a given reading."""
    import numpy as np

    names = (
        "not_yet_at", "not_yet_snapshot_id", "followed_from", "followed_from_snapshot_id", "followed_until",
        "followed_until_snapshot_id", "no_longer_at", "no_longer_snapshot_id", "left_because",
    )  # fmt: skip
    if first is None:
        return dict.fromkeys(names)
    # A reading that does not show the group breaks nothing: the next that does tells.
    others = np.flatnonzero(~np.isnan(shares) & (shares < 1.0))
    earlier, later = others[others < first], others[others > first]
    full = np.flatnonzero(shares == 1.0)
    end = int(later[0]) if len(later) else None
    last = int(full[full < end][-1]) if end is not None else int(full[-1])
    not_yet = int(earlier[-1]) if len(earlier) else None
    reason = None
    if end is not None:
        is_after = period.started_us()[end] > ended_us
        reason = "the hint stood no longer" if is_after else LEFT_WHILE_IT_STOOD
    followed_from = _moment(period, first, "finished_at")
    return {
        "not_yet_at": _moment(period, not_yet, "started_at"),
        "not_yet_snapshot_id": _moment(period, not_yet, "snapshot_id"),
        "followed_from": followed_from,
        "followed_from_snapshot_id": _moment(period, first, "snapshot_id"),
        # Of a single reading, the begin lies before what stands for "from then on".
        "followed_until": max(followed_from, _moment(period, last, "started_at")),
        "followed_until_snapshot_id": _moment(period, last, "snapshot_id"),
        "no_longer_at": _moment(period, end, "finished_at"),
        "no_longer_snapshot_id": _moment(period, end, "snapshot_id"),
        "left_because": reason,
    }


def _shares(period: AuditedPeriod, hint: Hint) -> np.ndarray:
    """By reading, the share of a hint that was held; not a number where the group does not show it."""
    import numpy as np
    import pyarrow.compute as pc

    memberships = period.memberships
    known = memberships.filter(
        pc.and_(pc.equal(memberships["group_id"], hint.group_id), memberships["is_known"])
    )
    count = period.snapshots.num_rows
    is_known = _cover(known, np.ones(known.num_rows, dtype=np.int64), count) > 0
    ownership = period.ownership
    # What two hold at once is with neither as the hint says.
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


def _cover(stretches: pa.Table, weights: np.ndarray, count: int) -> np.ndarray:
    """By reading, the sum of the weights of the stretches that it lies in."""
    import numpy as np

    steps = np.zeros(count + 1, dtype=np.int64)
    np.add.at(steps, stretches[FIRST_INDEX].to_numpy(), weights)
    np.add.at(steps, stretches[LAST_INDEX].to_numpy() + 1, -weights)
    return np.cumsum(steps)[:-1]


def _moment(period: AuditedPeriod, place: int | None, name: str) -> Any:
    return None if place is None else period.snapshots[name][place].as_py()


def _us(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
