"""Differences between a group's assignments at two moments, and how certain they are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise, product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from evenlag.audit.enums import Certainty, OwnerChange
from evenlag.audit.interval_merge import FIRST_INDEX, LAST_INDEX
from evenlag.audit.owners import (
    Around,
    Partition,
    by_partition,
    is_gap,
    is_same_client,
    overlapping,
    snapshots_around,
)
from evenlag.audit.period import AuditedPeriod
from evenlag.audit.rebalances import compare_members
from evenlag.enums import OwnershipState
from evenlag.errors import NotFoundError
from evenlag.formatting import moment

# Position of the first snapshot that shows it, and new member id by old one.
_Returns = Sequence[tuple[int, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Owners of a partition in one snapshot around a moment; no rows: the group does not consume it."""

    place: int
    rows: tuple[dict[str, Any], ...]

    @property
    def members(self) -> list[str]:
        return sorted(row["member_id"] for row in self.rows if row["member_id"] is not None)

    @property
    def state(self) -> str | None:
        return self.rows[0]["state"] if self.rows else None


class _End:
    """One of the two moments: the snapshots around it, and the owners of each partition in them."""

    def __init__(self, period: AuditedPeriod, at: datetime) -> None:
        self.around: Around = snapshots_around(period, at)
        if self.around.before is None:
            raise NotFoundError(f"no snapshot that had ended by {moment(at)} is in the audit")
        self.first, self.last = self.around.edges()
        self.rows: Mapping[Partition, list[dict[str, Any]]] = by_partition(
            overlapping(period.ownership, self.first, self.last)
        )
        ids = period.snapshots["snapshot_id"]
        self.snapshot_id: str = ids[self.first].as_py()
        self.next_snapshot_id: str | None = None if self.last == self.first else ids[self.last].as_py()
        self._is_gap = is_gap(period, self.first, self.last)

    def candidates(self, partition: Partition) -> list[_Candidate]:
        """Possible owners at the moment, oldest first: one entry where all snapshots agree."""
        found: list[_Candidate] = []
        rows = self.rows.get(partition, [])
        for place in range(self.first, self.last + 1):
            shown = tuple(row for row in rows if row[FIRST_INDEX] <= place <= row[LAST_INDEX])
            candidate = _Candidate(place, shown)
            if all((each.state, each.members) != (candidate.state, candidate.members) for each in found):
                found.append(candidate)
        return found

    def certainty(self, candidates: Sequence[_Candidate]) -> Certainty:
        """How well the owner at the moment is known."""
        if len(candidates) > 1:
            return Certainty.CHANGING
        if self.around.after is None:
            return Certainty.LAST_SEEN
        return Certainty.GAP if self._is_gap else Certainty.SEEN


def diff(period: AuditedPeriod, since: datetime, until: datetime) -> list[dict[str, Any]]:
    """Compare the assignment of a group at two moments, by topic and partition.

    A moment lies between two snapshots or within one. Where these show different owners, each of them may
    have owned the partition at that moment; a change is reported only if it is the same for all of them.
    """
    ends = _End(period, since), _End(period, until)
    newest = pc.max(period.snapshots["finished_at"]).as_py()
    if since > newest:
        raise NotFoundError(
            f"no snapshot after {moment(since)} is in the audit: the newest ended at {moment(newest)}"
        )
    places = {place for end in ends for place in range(end.first, end.last + 1)}
    alive = {place: _alive_at(period.memberships, place) for place in places}
    returns = _returns(period.memberships)
    partitions = sorted({*ends[0].rows, *ends[1].rows}, key=lambda each: (each[0], each[2], each[1] or ""))
    return [row for each in partitions if (row := _compare(each, ends, alive, returns)) is not None]


def _compare(
    partition: Partition, ends: tuple[_End, _End], alive: Mapping[int, set[str]], returns: _Returns
) -> dict[str, Any] | None:
    old, new = (end.candidates(partition) for end in ends)
    changes = {_change(one, other, alive, returns) for one, other in product(old, new)}
    if changes == {None}:
        return None
    topic, topic_id, number = partition
    row: dict[str, Any] = {
        "topic": topic,
        "topic_id": topic_id,
        "partition": number,
        "change": changes.pop() if len(changes) == 1 else OwnerChange.CHANGING,
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


def _change(
    old: _Candidate, new: _Candidate, alive: Mapping[int, set[str]], returns: _Returns
) -> OwnerChange | None:
    if not old.rows or not new.rows:
        return OwnerChange.ADDED if new.rows else OwnerChange.REMOVED if old.rows else None
    if OwnershipState.UNKNOWN in {old.state, new.state}:
        return OwnerChange.UNKNOWN
    if old.members == new.members:
        return OwnerChange.SAME
    if not new.members:
        return OwnerChange.FREED
    if not old.members:
        return OwnerChange.PLACED
    stayed = alive[old.place] & alive[new.place]
    came_back = is_same_client(old.rows[0], new.rows[0]) and not stayed & {*old.members, *new.members}
    if not came_back:
        # Where clients' names were removed.
        came_back = _names_at(old, new.place, returns) == new.members
    return OwnerChange.RETURNED if came_back else OwnerChange.MOVED


def _returns(memberships: pa.Table) -> _Returns:
    """Return which clients had another member id in a known interval than in the known one before it."""
    known = memberships.filter(memberships["is_known"]).sort_by(FIRST_INDEX).to_pylist()
    return [
        (new[FIRST_INDEX], compare_members(old["members"], new["members"], old["returned"]).bounced)
        for old, new in pairwise(known)
    ]


def _names_at(candidate: _Candidate, place: int, returns: _Returns) -> list[str]:
    """Return the member ids that a candidate's owners had in a later snapshot, if they returned by then."""
    names = candidate.members
    for returned_at, pairs in returns:
        if candidate.place < returned_at <= place:
            names = [pairs.get(name, name) for name in names]
    return sorted(names)


def _alive_at(memberships: pa.Table, place: int) -> set[str]:
    rows: Iterable[dict[str, Any]] = overlapping(memberships, place, place)
    return {member["member_id"] for row in rows for member in row["members"]}
