"""A group in the snapshots around a time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tests.truth.oracle.history import History

if TYPE_CHECKING:
    from datetime import datetime

    from tests.truth.oracle.history import Partition
    from tests.truth.oracle.lake_rows import Row
    from tests.truth.oracle.session import Session


_SNAPSHOT: Final = ("snapshot_id", "slot", "started_at", "finished_at")


_MS: Final = timedelta(milliseconds=1)


class Moment:
    """A group in the snapshots around a time."""

    def __init__(self, history: History, group_id: str, at: datetime) -> None:
        self.at, self.history = at, history
        self.states = history.states(group_id)
        snapshots = history.snapshots
        places = range(len(snapshots))
        ended = [p for p in places if all(s["finished_at"] <= at for s in snapshots[: p + 1])]
        later = [p for p in places if snapshots[p]["started_at"] >= at]
        self.before: int | None = ended[-1] if ended else None
        self.after: int | None = later[0] if later else None
        if self.before is not None and self.after is not None:
            self.after = max(self.after, self.before)
        start = -1 if self.before is None else self.before
        end = len(snapshots) if self.after is None else self.after
        self.during = list(range(start + 1, end))
        known = [p for p in (self.before, *self.during, self.after) if p is not None]
        self.first, self.last = known[0], known[-1]

    def around(self) -> Row:
        """Return the snapshots around, and the group's state in the first of them."""
        first = self.states.get(self.first)
        return {
            "before": self._head(self.before),
            "during": [self._head(place) for place in self.during],
            "after": self._head(self.after),
            "group_state": first.head["group_state"] if first else None,
        }

    def _head(self, place: int | None) -> Row | None:
        return None if place is None else {name: self.history.snapshots[place][name] for name in _SNAPSHOT}

    def shown(self, place: int, partition: Partition) -> list[Row]:
        """Return the rows of a partition in a snapshot."""
        state = self.states.get(place)
        return state.cells.get(partition, []) if state else []

    def partitions(self) -> set[Partition]:
        """Return all partitions in any of the snapshots around."""
        places = range(self.first, self.last + 1)
        return {each for place in places if place in self.states for each in self.states[place].cells}

    def is_gap(self) -> bool:
        """Return whether two of the snapshots are too far apart."""
        started = [s["started_at"] for s in self.history.snapshots[self.first : self.last + 1]]
        distances = [(b - a) / _MS for a, b in pairwise(started)]
        return any(distance > self.history.max_gap_ms for distance in distances)


def interesting_moments(session: Session) -> list[datetime]:
    """Return times around which owners change: in a snapshot, between two, at their ends."""
    snapshots = sorted(session.rows.rows("audited_snapshots"), key=lambda row: row["started_at"])
    history = History(session.rows, snapshots[0]["started_at"], snapshots[-1]["finished_at"])
    changes: Counter[int] = Counter()
    for group_id in history.groups:
        states = history.states(group_id)
        for place in range(1, len(snapshots)):
            old, new = states.get(place - 1), states.get(place)
            changes[place] += (old.cells if old else None) != (new.cells if new else None)
    places = sorted(place for place, count in changes.most_common(2) if count) or [1]
    found = [snapshots[0]["started_at"] + (snapshots[0]["finished_at"] - snapshots[0]["started_at"]) / 2]
    for place in places:
        row, before = snapshots[place], snapshots[place - 1]
        found.append(row["started_at"] + (row["finished_at"] - row["started_at"]) / 2)
        found.append(before["finished_at"] + (row["started_at"] - before["finished_at"]) / 2)
    found.append(snapshots[-1]["finished_at"] + timedelta(seconds=1))
    return sorted(found)
