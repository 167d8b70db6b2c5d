"""What two moments show differently of a group's assignment, and what cannot be told of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.interval_merge import FIRST_INDEX, LAST_INDEX
from evenlag.audit.owners import (
    CHANGING,
    GAP,
    LAST_SEEN,
    SEEN,
    Around,
    by_partition,
    is_gap,
    is_same_client,
    overlapping,
    readings_around,
)
from evenlag.errors import NothingThereError
from evenlag.formatting import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from evenlag.audit.owners import Partition
    from evenlag.audit.period import AuditedPeriod

SAME: Final = "SAME"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What one of the snapshots around a moment shows of a partition; no rows: the group does not take it."""

    place: int
    rows: tuple[dict[str, Any], ...]

    @property
    def members(self) -> list[str]:
        return sorted(row["member_id"] for row in self.rows if row["member_id"] is not None)

    @property
    def state(self) -> str | None:
        return self.rows[0]["state"] if self.rows else None


class _End:
    """One of the two moments: the snapshots around it, and what they show of each partition."""

    def __init__(self, period: AuditedPeriod, at: datetime) -> None:
        self.around: Around = readings_around(period, at)
        if self.around.before is None:
            raise NothingThereError(f"no snapshot that had ended by {moment(at)} is in the audit")
        self.first, self.last = self.around.edges()
        self.rows: Mapping[Partition, list[dict[str, Any]]] = by_partition(
            overlapping(period.ownership, self.first, self.last)
        )
        ids = period.snapshots["snapshot_id"]
        self.snapshot_id: str = ids[self.first].as_py()
        self.next_snapshot_id: str | None = None if self.last == self.first else ids[self.last].as_py()
        self._is_gap = is_gap(period, self.first, self.last)

    def candidates(self, partition: Partition) -> list[_Candidate]:
        """What may have been so at the moment, oldest first: one, where all snapshots show the same."""
        found: list[_Candidate] = []
        rows = self.rows.get(partition, [])
        for place in range(self.first, self.last + 1):
            shown = tuple(row for row in rows if row[FIRST_INDEX] <= place <= row[LAST_INDEX])
            candidate = _Candidate(place, shown)
            if all((each.state, each.members) != (candidate.state, candidate.members) for each in found):
                found.append(candidate)
        return found

    def certainty(self, candidates: Sequence[_Candidate]) -> str:
        """How well it is known, by the words of `evenlag audit owner`."""
        if len(candidates) > 1:
            return CHANGING
        if self.around.after is None:
            return LAST_SEEN
        return GAP if self._is_gap else SEEN


def diff(period: AuditedPeriod, since: datetime, until: datetime) -> list[dict[str, Any]]:
    """Tell what was different at two moments.

    A moment lies between two snapshots, or in one. Where these show different owners, either may have owned
    the partition at the moment: then it is only told what every choice of them has in common.

    Returns
    -------
    list of dict
        By topic and partition: ``topic, topic_id, partition, change``; then for each moment, with the endings
        ``_before`` and ``_after``: ``holder`` (member ids; several are candidates, or a fault), ``state``,
        ``certainty`` (see :func:`evenlag.audit.owners.owners_at`), ``snapshot_id`` (the last that had ended)
        and ``next_snapshot_id`` (the one up to which the answer rests on; None where none began later).
        ``change`` is SAME, MOVED, RETURNED (to a consumer that went and came back: see
        :func:`is_same_client`), PLACED (nobody owned it), FREED (nobody does), ADDED, REMOVED (the group
        takes it no longer), UNKNOWN (one of the snapshots does not show it) or CHANGING (the snapshots around
        one of the moments show different owners, and which of them it was decides).

    Raises
    ------
    NothingThereError
        When no snapshot had ended by one of the moments, or none was taken from the first of them on.
    """
    import pyarrow.compute as pc

    ends = _End(period, since), _End(period, until)
    newest = pc.max(period.snapshots["finished_at"]).as_py()
    if since > newest:
        raise NothingThereError(
            f"no snapshot after {moment(since)} is in the audit: the newest ended at {moment(newest)}"
        )
    alive = {
        place: _alive_at(period.memberships, place)
        for end in ends
        for place in range(end.first, end.last + 1)
    }
    partitions = sorted({*ends[0].rows, *ends[1].rows}, key=lambda each: (each[0], each[2], each[1] or ""))
    return [row for each in partitions if (row := _compare(each, ends, alive)) is not None]


def _compare(
    partition: Partition, ends: tuple[_End, _End], alive: Mapping[int, set[str]]
) -> dict[str, Any] | None:
    old, new = (end.candidates(partition) for end in ends)
    changes = {_change(one, other, alive) for one, other in product(old, new)}
    if changes == {None}:
        return None
    topic, topic_id, number = partition
    row: dict[str, Any] = {
        "topic": topic,
        "topic_id": topic_id,
        "partition": number,
        "change": changes.pop() if len(changes) == 1 else CHANGING,
    }
    for name, end, found in (("before", ends[0], old), ("after", ends[1], new)):
        row |= {
            f"holder_{name}": list(dict.fromkeys(member for each in found for member in each.members)),
            f"state_{name}": found[0].state,
            f"certainty_{name}": end.certainty(found),
            f"snapshot_id_{name}": end.snapshot_id,
            f"next_snapshot_id_{name}": end.next_snapshot_id,
        }
    return row


def _change(old: _Candidate, new: _Candidate, alive: Mapping[int, set[str]]) -> str | None:
    if not old.rows or not new.rows:
        return "ADDED" if new.rows else "REMOVED" if old.rows else None
    if "UNKNOWN" in {old.state, new.state}:
        return "UNKNOWN"
    if old.members == new.members:
        return SAME
    if not new.members:
        return "FREED"
    if not old.members:
        return "PLACED"
    stayed = alive[old.place] & alive[new.place]
    came_back = is_same_client(old.rows[0], new.rows[0]) and not stayed & {*old.members, *new.members}
    return "RETURNED" if came_back else "MOVED"


def _alive_at(memberships: pa.Table, place: int) -> set[str]:
    rows: Iterable[dict[str, Any]] = overlapping(memberships, place, place)
    return {member["member_id"] for row in rows for member in row["members"]}
