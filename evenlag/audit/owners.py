"""Who owned a group's partitions at a moment, and what was different at another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.interval_merge import FIRST_INDEX, LAST_INDEX
from evenlag.errors import NothingThereError

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
    """The snapshots around a moment, by their place in the period's.

    A snapshot is no instant: it reads each group at some time between its start and its end. One that was
    being taken at the moment may have read the group before or after it.

    Attributes
    ----------
    before
        The last that had ended; None where there is none.
    during
        Those that were being taken.
    after
        The first that began later; None where there is none.
    """

    before: int | None
    after: int | None
    during: tuple[int, ...] = ()

    def edges(self) -> tuple[int, int]:
        """The first and the last of them."""
        places = [place for place in (self.before, *self.during, self.after) if place is not None]
        if not places:
            raise NothingThereError("there is no snapshot at all")
        return places[0], places[-1]


def readings_around(period: AuditedPeriod, at: datetime) -> Around:
    """Find the snapshots around a moment."""
    import numpy as np

    at_us = round(at.timestamp() * 1_000_000)
    # Two snapshots may overlap: one that ends late keeps those that began after it from being the last word.
    finished = np.maximum.accumulate(period.finished_us())
    before = int(np.searchsorted(finished, at_us, side="right")) - 1
    after = int(np.searchsorted(period.started_us(), at_us, side="left"))
    # At the very moment of one that takes no time, it is both.
    after = max(after, before) if before >= 0 else after
    return Around(
        before=before if before >= 0 else None,
        after=after if after < period.snapshots.num_rows else None,
        during=tuple(range(before + 1, after)),
    )


def group_around(period: AuditedPeriod, at: datetime) -> dict[str, Any]:
    """The snapshots around a moment, and the state of the group in the first of them.

    Returns
    -------
    dict
        ``before`` and ``after`` (``snapshot_id, slot, started_at, finished_at``; None where there is none),
        ``during`` (those that were being taken at the moment) and ``group_state`` (None where that
        snapshot does not list the group).
    """
    around = readings_around(period, at)
    names = ["snapshot_id", "slot", "started_at", "finished_at"]
    readings = period.snapshots.select(names).to_pylist()
    place = around.edges()[0]
    states = [row["group_state"] for row in overlapping(period.memberships, place, place)]
    return {
        "before": None if around.before is None else readings[around.before],
        "during": [readings[place] for place in around.during],
        "after": None if around.after is None else readings[around.after],
        "group_state": states[0] if states else None,
    }


def owners_at(period: AuditedPeriod, at: datetime) -> list[dict[str, Any]]:
    """Tell who owned each partition at a moment, and how well that is known.

    Returns
    -------
    list of dict
        By topic and partition, a row an owner: ``topic, topic_id, partition, certainty, side``, the owner
        (``state, reason, member_id, ...``) and the bounds of its stretch. ``certainty`` is SEEN (all
        snapshots around the moment show the same), CHANGING (they do not: a row each, ``side`` says which
        shows it: ``before``, ``during``, ``after`` or ``both``), GAP (they do, but lie too far apart to say
        that it was so in between), LAST_SEEN (none began later) or FIRST_SEEN (none had ended).
    """
    around = readings_around(period, at)
    before, after = around.edges()
    is_far_apart = is_gap(period, before, after)
    answer = []
    for partition, found in sorted(
        by_partition(overlapping(period.ownership, before, after)).items(), key=_by_name
    ):
        certainty = _certainty(found, around, is_far_apart=is_far_apart)
        answer += [_told(partition, certainty, _side(row, around), row) for row in _in_time(found, around)]
    return answer


def _by_name(item: tuple[Partition, Any]) -> tuple[str, int, str]:
    topic, topic_id, number = item[0]
    return topic, number, topic_id or ""


def _in_time(rows: Iterable[dict[str, Any]], around: Around) -> list[dict[str, Any]]:
    order = {"before": 0, "both": 1, "during": 2, "after": 3}
    return sorted(rows, key=lambda row: (order[_side(row, around)], row[FIRST_INDEX]))


def _certainty(rows: Iterable[dict[str, Any]], around: Around, *, is_far_apart: bool) -> str:
    first, last = around.edges()
    if not all(row[FIRST_INDEX] <= first and row[LAST_INDEX] >= last for row in rows):
        return CHANGING
    if around.before is None:
        return FIRST_SEEN
    if around.after is None:
        return LAST_SEEN
    return GAP if is_far_apart else SEEN


def _side(row: dict[str, Any], around: Around) -> str:
    is_before, is_after = (
        place is not None and row[FIRST_INDEX] <= place <= row[LAST_INDEX]
        for place in (around.before, around.after)
    )
    if is_before and is_after:
        return "both"
    return "before" if is_before else "after" if is_after else "during"


def is_same_client(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether two member ids can stand for one consumer that went and came back.

    A static member is known by its instance id, any other by client id and host; who of the two was there all
    the time did not come back, which only the caller can tell.
    """
    if old["group_instance_id"] or new["group_instance_id"]:
        return bool(old["group_instance_id"] == new["group_instance_id"])
    known = old["client_id"] is not None and old["client_host"] is not None
    return known and all(old[name] == new[name] for name in ("client_id", "client_host"))


def by_partition(rows: Iterable[dict[str, Any]]) -> dict[Partition, list[dict[str, Any]]]:
    """Collect the rows of each partition."""
    found: dict[Partition, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["topic"], row["topic_id"], row["partition"]), []).append(row)
    return found


def overlapping(stretches: pa.Table, before: int, after: int) -> list[dict[str, Any]]:
    """Rows of the stretches that any snapshot from one place to another shows."""
    import pyarrow.compute as pc

    touches = pc.and_(
        pc.less_equal(stretches[FIRST_INDEX], after), pc.greater_equal(stretches[LAST_INDEX], before)
    )
    found: list[dict[str, Any]] = stretches.filter(touches).to_pylist()
    return found


def is_gap(period: AuditedPeriod, first: int, last: int) -> bool:
    """Whether two snapshots, one after the other, lie too far apart to say what was in between."""
    import numpy as np

    distances = np.diff(period.started_us()[first : last + 1])
    return bool(len(distances) and distances.max() / 1000 > period.max_gap_ms)


def _told(partition: Partition, certainty: str, side: str, row: dict[str, Any]) -> dict[str, Any]:
    topic, topic_id, number = partition
    head = {"topic": topic, "topic_id": topic_id, "partition": number, "certainty": certainty, "side": side}
    return head | {name: row[name] for name in (*_HOLDER, *_BOUNDS)}
