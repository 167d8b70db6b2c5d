"""Who held a group's partitions at a moment, and what was different at another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.joining import FIRST_INDEX, LAST_INDEX
from evenlag.options import NothingThereError
from evenlag.output import moment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    import pyarrow as pa

    from evenlag.audit.period import AuditedPeriod

    Partition = tuple[str, str | None, int]

SEEN: Final = "SEEN"
CHANGING: Final = "CHANGING"
GAP: Final = "GAP"
LAST_SEEN: Final = "LAST_SEEN"
FIRST_SEEN: Final = "FIRST_SEEN"

_HOLDER: Final = (
    "state",
    "reason",
    "member_id",
    "group_instance_id",
    "client_id",
    "client_host",
    "owner_key",
    "num_owners",
)
_BOUNDS: Final = (
    "previous_snapshot_id",
    "previous_seen_at",
    "first_snapshot_id",
    "first_seen_at",
    "last_snapshot_id",
    "last_seen_at",
    "next_snapshot_id",
    "next_seen_at",
    "longest_gap_ms",
)


@dataclass(frozen=True, slots=True)
class Around:
    """The readings around a moment, by their place in the period's; None where there is none.

    Attributes
    ----------
    before
        The last that had ended.
    after
        The first that began later. A reading under way at the moment lies between the two.
    """

    before: int | None
    after: int | None

    def edges(self) -> tuple[int, int]:
        """Both, the one standing in for the other where it is missing."""
        before = self.before if self.before is not None else self.after
        after = self.after if self.after is not None else self.before
        if before is None or after is None:
            raise NothingThereError("there is no reading at all")
        return before, after


def readings_around(period: AuditedPeriod, at: datetime) -> Around:
    """Find the readings around a moment."""
    import numpy as np

    at_us = round(at.timestamp() * 1_000_000)
    before = int(np.searchsorted(period.finished_us(), at_us, side="right")) - 1
    after = int(np.searchsorted(period.started_us(), at_us, side="left"))
    # At the very moment at which one that takes no time stands, it is both.
    after = max(after, before) if before >= 0 else after
    return Around(before if before >= 0 else None, after if after < period.snapshots.num_rows else None)


def group_around(period: AuditedPeriod, at: datetime) -> dict[str, Any]:
    """The readings around a moment, and the state of the group in the one before it, else after it.

    Returns
    -------
    dict
        ``before`` and ``after`` (``snapshot_id, slot, started_at, finished_at``; None where there is none)
        and ``group_state`` (None where that reading does not list the group).
    """
    around = readings_around(period, at)
    names = ["snapshot_id", "slot", "started_at", "finished_at"]
    readings = period.snapshots.select(names).to_pylist()
    place = around.edges()[0]
    states = [row["group_state"] for row in _overlapping(period.memberships, place, place)]
    return {
        "before": None if around.before is None else readings[around.before],
        "after": None if around.after is None else readings[around.after],
        "group_state": states[0] if states else None,
    }


def owners_at(period: AuditedPeriod, at: datetime) -> list[dict[str, Any]]:
    """Tell who held each partition at a moment, and how well that is known.

    Returns
    -------
    list of dict
        By topic and partition, a row a holder: ``topic, topic_id, partition, certainty, side``, the holder
        (``state, reason, member_id, ...``) and the bounds of its stretch. ``certainty`` is SEEN (the readings
        before and after show the same), CHANGING (they do not: a row each, ``side`` says which), GAP (they
        do, but lie too far apart to say that it was so in between), LAST_SEEN (there is none after) or
        FIRST_SEEN (none before).
    """
    around = readings_around(period, at)
    before, after = around.edges()
    rows = _overlapping(period.ownership, before, after)
    by_partition: dict[Partition, list[dict[str, Any]]] = {}
    for row in rows:
        by_partition.setdefault((row["topic"], row["topic_id"], row["partition"]), []).append(row)
    is_gap = _is_gap(period, before, after)
    answer = []
    for partition, found in sorted(by_partition.items(), key=lambda item: (item[0][0], item[0][2])):
        certainty, sides = _judge(found, around, is_gap=is_gap)
        for side, row in sides:
            answer.append(_told(partition, certainty, side, row))
    return answer


def _judge(
    rows: list[dict[str, Any]], around: Around, *, is_gap: bool
) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    before, after = around.edges()
    through = [row for row in rows if row[FIRST_INDEX] <= before and row[LAST_INDEX] >= after]
    if len(through) == len(rows):
        if around.after is None:
            return LAST_SEEN, [("before", row) for row in rows]
        if around.before is None:
            return FIRST_SEEN, [("after", row) for row in rows]
        return GAP if is_gap else SEEN, [("both", row) for row in rows]
    ends = [("before", row) for row in rows if row[LAST_INDEX] < after]
    begins = [("after", row) for row in rows if row[FIRST_INDEX] > before]
    return CHANGING, [*ends, *(("both", row) for row in through), *begins]


def diff(period: AuditedPeriod, since: datetime, until: datetime) -> list[dict[str, Any]]:
    """Tell what the last readings before two moments show differently.

    Returns
    -------
    list of dict
        By topic and partition: ``topic, topic_id, partition, change``, ``holder_before, holder_after``
        (member ids; several are a fault) and the readings. ``change`` is SAME, MOVED, RETURNED (to a consumer
        that went and came back: see :func:`is_same_client`), PLACED (nobody held it), FREED (nobody does),
        ADDED, REMOVED (the group takes it no longer) or UNKNOWN (one of them does not show it).

    Raises
    ------
    NothingThereError
        When there is no reading before one of the moments.
    """
    places = []
    for at in (since, until):
        before = readings_around(period, at).before
        if before is None:
            raise NothingThereError(f"no reading that had ended by {moment(at)} is in the audit")
        places.append(before)
    ids = period.snapshots["snapshot_id"]
    states = [_by_partition(_overlapping(period.ownership, place, place)) for place in places]
    stayed = _alive_at(period.memberships, places[0]) & _alive_at(period.memberships, places[1])
    answer = []
    for partition in sorted({*states[0], *states[1]}, key=lambda each: (each[0], each[2], each[1] or "")):
        old, new = (state.get(partition, []) for state in states)
        topic, topic_id, number = partition
        answer.append(
            {
                "topic": topic,
                "topic_id": topic_id,
                "partition": number,
                "change": _change(old, new, stayed),
                "holder_before": _members(old),
                "holder_after": _members(new),
                "state_before": old[0]["state"] if old else None,
                "state_after": new[0]["state"] if new else None,
                "snapshot_id_before": ids[places[0]].as_py(),
                "snapshot_id_after": ids[places[1]].as_py(),
            }
        )
    return answer


def _change(old: list[dict[str, Any]], new: list[dict[str, Any]], stayed: set[str]) -> str:
    if not old or not new:
        return "ADDED" if new else "REMOVED"
    if "UNKNOWN" in {old[0]["state"], new[0]["state"]}:
        return "UNKNOWN"
    if _members(old) == _members(new):
        return "SAME"
    if not _members(new):
        return "FREED"
    if not _members(old):
        return "PLACED"
    came_back = is_same_client(old[0], new[0]) and not stayed & {*_members(old), *_members(new)}
    return "RETURNED" if came_back else "MOVED"


def is_same_client(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether two member ids can stand for one consumer that went and came back.

    A static member is known by its instance id, any other by client id and host; who of the two was there all
    the time did not come back, which only the caller can tell.
    """
    if old["group_instance_id"] or new["group_instance_id"]:
        return bool(old["group_instance_id"] == new["group_instance_id"])
    known = old["client_id"] is not None and old["client_host"] is not None
    return known and all(old[name] == new[name] for name in ("client_id", "client_host"))


def _alive_at(memberships: pa.Table, place: int) -> set[str]:
    return {
        member["member_id"] for row in _overlapping(memberships, place, place) for member in row["members"]
    }


def _members(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(row["member_id"] for row in rows if row["member_id"] is not None)


def _by_partition(rows: Iterable[dict[str, Any]]) -> dict[Partition, list[dict[str, Any]]]:
    found: dict[Partition, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["topic"], row["topic_id"], row["partition"]), []).append(row)
    return found


def _overlapping(stretches: pa.Table, before: int, after: int) -> list[dict[str, Any]]:
    import pyarrow.compute as pc

    touches = pc.and_(
        pc.less_equal(stretches[FIRST_INDEX], after), pc.greater_equal(stretches[LAST_INDEX], before)
    )
    found: list[dict[str, Any]] = stretches.filter(touches).to_pylist()
    return found


def _is_gap(period: AuditedPeriod, before: int, after: int) -> bool:
    started = period.started_us()
    return bool((started[after] - started[before]) / 1000 > period.max_gap_ms)


def _told(partition: Partition, certainty: str, side: str, row: dict[str, Any]) -> dict[str, Any]:
    topic, topic_id, number = partition
    head = {"topic": topic, "topic_id": topic_id, "partition": number, "certainty": certainty, "side": side}
    return head | {name: row[name] for name in (*_HOLDER, *_BOUNDS)}
