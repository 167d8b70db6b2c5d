"""Partition ownership in each snapshot, from the rows of ``members`` and ``offsets`` only."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tests.truth.oracle.lake_rows import by

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tests.truth.oracle.lake_rows import LakeRows, Row

OWNED, NOBODY, NOT_SHOWN = "OWNED", "NOBODY", "UNKNOWN"
FREE: Final = "no member holds it"
_REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance"})
_EMPTY: Final = frozenset({"Empty", "Dead"})
_OF_A_MEMBER: Final = (
    "member_id", "group_instance_id", "client_id", "client_host", "subscription", "assignment",
)  # fmt: skip

# topic, topic id, partition number
Partition = tuple[str, str | None, int]


@dataclass(slots=True)
class GroupState:
    """A group in one snapshot.

    head: ``group_state, group_type, assignor, error``.
    seen_at: When it was read.
    topics: Topic id and number of partitions by topic.
    is_known: Whether its ownership is known.
    cells: Rows by partition: one per owner, or one for a partition without an owner.
    """

    head: Row
    seen_at: datetime
    members: dict[str, Row]
    is_known: bool
    topics: dict[str, tuple[str | None, int | None]] = field(default_factory=dict)
    cells: dict[Partition, list[Row]] = field(default_factory=dict)

    @property
    def content(self) -> tuple[Any, ...]:
        """Everything about the group in a snapshot, except the times."""
        members = [self.members[name] for name in sorted(self.members)]
        return (self.head, self.is_known, members, sorted(self.topics.items()))


class History:
    """The snapshots of an answer, and the states of groups in them.

    since, until: The requested times. Whole UTC days are read, from the day of the last snapshot before
        them to the day of the first one after them.
    """

    def __init__(self, rows: LakeRows, since: datetime, until: datetime) -> None:
        audited = sorted(
            rows.rows("audited_snapshots"), key=lambda row: (row["started_at"], row["snapshot_id"])
        )
        before = [row["day"] for row in audited if row["finished_at"] <= since]
        after = [row["day"] for row in audited if row["started_at"] >= until]
        first = max(before, default=min(row["day"] for row in audited))
        last = min(after, default=max(row["day"] for row in audited))
        self.snapshots = [row for row in audited if first <= row["day"] <= last]
        self.since, self.until = since, until
        self._rows = rows
        self._members = by(rows.rows("members"), "group_id")
        self._offsets = by(rows.rows("offsets"), "snapshot_id", "topic")
        self._states: dict[str, dict[int, GroupState]] = {}
        started = [row["started_at"] for row in self.snapshots]
        distances = [(b - a) / timedelta(milliseconds=1) for a, b in itertools.pairwise(started)]
        self.max_gap_ms = 3 * median(distances) if distances else float("inf")

    @property
    def groups(self) -> list[str]:
        """Groups in any of the snapshots."""
        ids = {row["snapshot_id"] for row in self.snapshots}
        return sorted(
            g for g, rows in self._members.items() if any(row["snapshot_id"] in ids for row in rows)
        )

    def states(self, group_id: str) -> dict[int, GroupState]:
        """Return the states of a group by index of the snapshot; none where it is not listed."""
        if group_id not in self._states:
            self._states[group_id] = self._read(group_id)
        return self._states[group_id]

    def _read(self, group_id: str) -> dict[int, GroupState]:
        by_snapshot = by(self._members.get(group_id, []), "snapshot_id")
        states = {
            place: _state(by_snapshot[row["snapshot_id"]])
            for place, row in enumerate(self.snapshots)
            if row["snapshot_id"] in by_snapshot
        }
        for day in sorted({row["day"] for row in self.snapshots}):
            places = [place for place in states if self.snapshots[place]["day"] == day]
            self._add_topics(states, places)
            for place in places:
                if states[place].is_known and states[place].members:
                    states[place].cells = _owners(states[place])
            _add_blanks(states, places)
        return states

    def _add_topics(self, states: dict[int, GroupState], places: Sequence[int]) -> None:
        for place in places:
            members = states[place].members.values()
            held = {topic["topic"] for member in members for topic in member["assignment"] or ()}
            taken = {topic for member in members for topic in member["subscription"] or ()}
            for topic in sorted(held | taken):
                size, topic_id = self._size(place, topic)
                if size is not None:
                    states[place].topics[topic] = (topic_id, size)
                elif topic in held:
                    states[place].topics[topic] = (self._nearest_id(place, topic, places), None)

    def _size(self, place: int, topic: str) -> tuple[int | None, str | None]:
        found = self._offsets.get((self.snapshots[place]["snapshot_id"], topic))
        if not found:
            return None, None
        return max(row["partition"] for row in found) + 1, found[0]["topic_id"]

    def _nearest_id(self, place: int, topic: str, places: Sequence[int]) -> str | None:
        earlier = [each for each in reversed(places) if each < place]
        for other in [*earlier, *(each for each in places if each > place)]:
            _, topic_id = self._size(other, topic)
            if topic_id is not None:
                return topic_id
        return None


def _state(rows: Sequence[Row]) -> GroupState:
    def of_all(name: str) -> Any:
        return max((row[name] for row in rows if row[name] is not None), default=None)

    head = {name: of_all(name) for name in ("group_state", "group_type", "assignor", "error")}
    members = {
        row["member_id"]: {name: row[name] for name in _OF_A_MEMBER}
        for row in rows
        if row["member_id"] is not None
    }
    is_classic = (head["group_type"] or "classic") == "classic"
    is_hidden = any(
        member["assignment"] is None or (is_classic and member["subscription"] is None)
        for member in members.values()
    )
    shows = bool(members) or head["group_state"] in _EMPTY
    is_known = head["error"] is None and not is_hidden and head["group_state"] not in _REBALANCING and shows
    return GroupState(head, of_all("read_at"), members, is_known)


def owner_key(member: Row) -> str:
    """Return the key of a member in hints."""
    instance = member["group_instance_id"]
    return f"m:{member['member_id']}" if instance is None else f"i:{instance}"


def _owners(state: GroupState) -> dict[Partition, list[Row]]:
    cells: dict[Partition, list[Row]] = {}
    for member in state.members.values():
        for topic in member["assignment"] or ():
            topic_id = state.topics[topic["topic"]][0]
            for number in set(topic["partitions"]):
                cells.setdefault((topic["topic"], topic_id, number), []).append(member)
    found = {
        partition: [_cell(OWNED, None, len(owners), member) for member in owners]
        for partition, owners in cells.items()
    }
    taken = {topic for member in state.members.values() for topic in member["subscription"] or ()}
    for topic in taken & set(state.topics):
        topic_id, size = state.topics[topic]
        for number in range(size or 0):
            found.setdefault((topic, topic_id, number), [_cell(NOBODY, FREE, 0)])
    return found


def _cell(state: str, reason: str | None, num_owners: int, member: Row | None = None) -> Row:
    names = ("member_id", "group_instance_id", "client_id", "client_host")
    return {
        "state": state,
        "reason": reason,
        **{name: None if member is None else member[name] for name in names},
        "owner_key": None if member is None else owner_key(member),
        "num_owners": num_owners,
    }


def _add_blanks(states: dict[int, GroupState], places: Sequence[int]) -> None:
    """Add the partitions of the nearest snapshots before and after to states without known owners."""
    shown = [place for place in places if states[place].is_known and states[place].members]
    for place in places:
        if place in shown:
            continue
        state = states[place]
        in_state = f"the group is {state.head['group_state'] or 'in no state'}"
        cell = (
            _cell(NOBODY, in_state, 0)
            if state.is_known
            else _cell(NOT_SHOWN, state.head["error"] or in_state, 0)
        )
        earlier = [each for each in shown if each < place][-1:]
        later = [each for each in shown if each > place][:1]
        state.cells = {
            partition: [dict(cell)] for other in (*earlier, *later) for partition in states[other].cells
        }


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive snapshots with the same content, by index."""

    first: int
    last: int


def runs(places: Sequence[int], content: dict[int, Any]) -> list[Run]:
    """Return the runs of consecutive indices with the same content."""
    found: list[Run] = []
    for place in sorted(places):
        last = found[-1] if found else None
        if last is not None and last.last == place - 1 and content[last.last] == content[place]:
            found[-1] = Run(last.first, place)
        else:
            found.append(Run(place, place))
    return found


def bounds(history: History, states: dict[int, GroupState], run: Run) -> Row:
    """Return the times of a run and of the snapshots next to it, as the tables' page describes them."""
    snapshots = history.snapshots
    row: Row = {}
    for edge, place, step, clock in (
        ("previous", run.first - 1, 1, "started_at"),
        ("next", run.last + 1, -1, "finished_at"),
    ):
        is_there = 0 <= place < len(snapshots)
        same_day = is_there and snapshots[place]["day"] == snapshots[place + step]["day"]
        at = None if not is_there else snapshots[place][clock]
        row[f"{edge}_snapshot_id"] = snapshots[place]["snapshot_id"] if is_there else None
        row[f"{edge}_seen_at"] = states[place].seen_at if same_day and place in states else at
    for edge, place in (("first", run.first), ("last", run.last)):
        row[f"{edge}_snapshot_id"] = snapshots[place]["snapshot_id"]
        row[f"{edge}_seen_at"] = states[place].seen_at
    row["longest_gap_ms"] = max(
        (_gap_ms(history, states, place) for place in range(run.first, run.last)), default=0
    )
    return row


def _gap_ms(history: History, states: dict[int, GroupState], place: int) -> int:
    early, late = states[place].seen_at, states[place + 1].seen_at
    if history.snapshots[place]["day"] != history.snapshots[place + 1]["day"]:
        return (late - early) // timedelta(milliseconds=1)
    return _millis(late) - _millis(early)


def _millis(at: datetime) -> int:
    return int(at.timestamp()) * 1000 + at.microsecond // 1000
