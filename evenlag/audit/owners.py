"""Owners of a group's partitions at a moment, and how certain they are."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.audit.enums import Certainty
from evenlag.audit.interval_merge import FIRST_INDEX, LAST_INDEX
from evenlag.audit.period import AuditedPeriod
from evenlag.errors import NotFoundError

Partition = tuple[str, str | None, int]

_HOLDER: Final = (
    "state", "reason", "member_id", "group_instance_id", "client_id", "client_host", "owner_key",
    "num_owners",
)  # fmt: skip
_BOUNDS: Final = (
    "previous_snapshot_id", "previous_seen_at", "first_snapshot_id", "first_seen_at", "last_snapshot_id",
    "last_seen_at", "next_snapshot_id", "next_seen_at", "longest_gap_ms",
)  # fmt: skip
# Which of the snapshots around a moment show an owner, in time order.
_SIDES: Final = ("before", "both", "during", "after")


@dataclass(frozen=True, slots=True)
class Around:
    """Snapshots around a moment, as positions in the period's ``snapshots``.

    A snapshot takes time: it reads each group at some time between its start and its end. One that was
    running at the moment may have read the group before or after it.
    """

    before: int | None
    after: int | None
    during: tuple[int, ...] = ()

    def edges(self) -> tuple[int, int]:
        """Return the first and the last position."""
        places = [place for place in (self.before, *self.during, self.after) if place is not None]
        if not places:
            raise NotFoundError("there is no snapshot at all")
        return places[0], places[-1]


def snapshots_around(period: AuditedPeriod, at: datetime) -> Around:
    """Find the snapshots around a moment."""
    at_us = round(at.timestamp() * 1_000_000)
    # Snapshots may overlap: a snapshot counts as ended only when all earlier ones have ended, too.
    finished = np.maximum.accumulate(period.finished_us())
    before = int(np.searchsorted(finished, at_us, side="right")) - 1
    after = int(np.searchsorted(period.started_us(), at_us, side="left"))
    # A snapshot that starts and ends exactly at the moment is both.
    after = max(after, before) if before >= 0 else after
    return Around(
        before=before if before >= 0 else None,
        after=after if after < period.snapshots.num_rows else None,
        during=tuple(range(before + 1, after)),
    )


def group_around(period: AuditedPeriod, at: datetime) -> dict[str, Any]:
    """Describe the snapshots around a moment and the state of the group in the first of them."""
    around = snapshots_around(period, at)
    names = ["snapshot_id", "slot", "started_at", "finished_at"]
    snapshots = period.snapshots.select(names).to_pylist()
    place = around.edges()[0]
    states = [row["group_state"] for row in overlapping(period.memberships, place, place)]
    return {
        "before": None if around.before is None else snapshots[around.before],
        "during": [snapshots[place] for place in around.during],
        "after": None if around.after is None else snapshots[around.after],
        "group_state": states[0] if states else None,
    }


def owners_at(period: AuditedPeriod, at: datetime) -> list[dict[str, Any]]:
    """Find the owner of each partition at a moment, and how well it is known, by topic and partition.

    A partition has several rows if it has two owners, or if ``certainty`` is CHANGING: ``side`` has the
    snapshots that show the row's owner.
    """
    around = snapshots_around(period, at)
    before, after = around.edges()
    is_far_apart = is_gap(period, before, after)
    owners = by_partition(overlapping(period.ownership, before, after))
    answer = []
    for topic, topic_id, number in sorted(owners, key=lambda each: (each[0], each[2], each[1] or "")):
        found = owners[topic, topic_id, number]
        certainty = _certainty(found, around, is_far_apart=is_far_apart)
        head = {"topic": topic, "topic_id": topic_id, "partition": number, "certainty": certainty}
        sides = [(_side(row, around), row) for row in found]
        sides.sort(key=lambda side: (_SIDES.index(side[0]), side[1][FIRST_INDEX]))
        answer += [
            head | {"side": side} | {name: row[name] for name in (*_HOLDER, *_BOUNDS)} for side, row in sides
        ]
    return answer


def _certainty(rows: Iterable[dict[str, Any]], around: Around, *, is_far_apart: bool) -> Certainty:
    first, last = around.edges()
    if not all(row[FIRST_INDEX] <= first and row[LAST_INDEX] >= last for row in rows):
        return Certainty.CHANGING
    if around.before is None:
        return Certainty.FIRST_SEEN
    if around.after is None:
        return Certainty.LAST_SEEN
    return Certainty.GAP if is_far_apart else Certainty.SEEN


def _side(row: dict[str, Any], around: Around) -> str:
    is_before, is_after = (
        place is not None and row[FIRST_INDEX] <= place <= row[LAST_INDEX]
        for place in (around.before, around.after)
    )
    if is_before and is_after:
        return "both"
    return "before" if is_before else "after" if is_after else "during"


def is_same_client(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Check whether two member ids can belong to one client that left and joined again.

    Static members are compared by instance id, others by client id and host; without these they never match.
    A member that is present before and after did not leave; the caller checks this.
    """
    if old["group_instance_id"] or new["group_instance_id"]:
        return bool(old["group_instance_id"] == new["group_instance_id"])
    known = old["client_id"] is not None and old["client_host"] is not None
    return known and all(old[name] == new[name] for name in ("client_id", "client_host"))


def by_partition(rows: Iterable[dict[str, Any]]) -> dict[Partition, list[dict[str, Any]]]:
    """Group rows, in their order, by ``(topic, topic_id, partition)``."""
    found: dict[Partition, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["topic"], row["topic_id"], row["partition"]), []).append(row)
    return found


def overlapping(intervals: pa.Table, before: int, after: int) -> list[dict[str, Any]]:
    """Select the intervals that contain any of the snapshots in a range, in their order."""
    touches = pc.and_(
        pc.less_equal(intervals[FIRST_INDEX], after), pc.greater_equal(intervals[LAST_INDEX], before)
    )
    return list(intervals.filter(touches).to_pylist())


def is_gap(period: AuditedPeriod, first: int, last: int) -> bool:
    """Check whether snapshots are too far apart to conclude what happened between them."""
    distances = np.diff(period.started_us()[first : last + 1])
    return bool(len(distances) and distances.max() / 1000 > period.max_gap_ms)
