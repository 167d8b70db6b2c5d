"""Random histories of groups across midnight, and what an audit must report for them, by snapshot.

The second half is an oracle: it computes one partition and one snapshot at a time, in Python, and shares no
code with the transforms.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = dict[str, Any]

START = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
STEP = timedelta(minutes=5)
_CLEARED = 4
_MEMBER = {"group_type": "classic", "protocol_type": "consumer", "client_host": "/10.0.0.1"}


@dataclass(frozen=True, slots=True)
class Reading:
    """One snapshot: its marker, and its rows of ``members`` and ``offsets``."""

    marker: Row
    members: list[Row]
    offsets: list[Row]

    @property
    def snapshot_id(self) -> str:
        """Its id."""
        return str(self.marker["snapshot_id"])


def make_readings(seed: int, *, num_readings: int = 12, num_groups: int = 12) -> list[Reading]:
    """Generate random snapshots in order of time; the same seed gives the same snapshots.

    One of them has a slot of the day before: its run was cleared and tried again a day later.
    """
    chance = random.Random(seed)  # noqa: S311  # repeatable, no secret
    groups = [_Group(f"g{number}", chance) for number in range(num_groups)]
    readings = []
    topic_id, num_partitions = "id-1", 3
    for number in range(num_readings):
        moment = START + number * STEP
        slot = moment - timedelta(days=1) if number == _CLEARED else moment
        if chance.random() < 0.15:
            num_partitions += 1
        if chance.random() < 0.1:
            topic_id = f"id-{number + 2}"
        shown = 0 if chance.random() < 0.1 else num_partitions
        head = {"cluster": "c", "day": slot.date(), "snapshot_id": f"{slot:%Y%m%dT%H%M%S}000Z-{seed:08x}"}
        started_at = moment + timedelta(seconds=chance.randint(1, 20))
        finished_at = started_at + timedelta(seconds=9)
        times = {"commits_read_at": finished_at, "end_read_at": finished_at, "finished_at": finished_at}
        marker = head | {"slot": slot, "started_at": started_at, "log_start_read_at": started_at} | times
        members = [
            head | {"read_at": started_at + timedelta(seconds=2)} | row
            for group in groups
            for row in group.step(num_partitions)
        ]
        offsets = [
            head | {"topic_id": topic_id, "topic": "t", "partition": partition} for partition in range(shown)
        ]
        readings.append(Reading(marker, members, offsets))
    return readings


class _Group:
    """A group that mostly stays as it is, and otherwise does everything that groups do."""

    def __init__(self, group_id: str, chance: random.Random) -> None:
        self.group_id, self.chance = group_id, chance
        self.members: dict[str, Row] = {}
        self.holders: dict[int, list[str]] = {}
        self.joined = 0

    def step(self, num_partitions: int) -> list[Row]:
        draw = self.chance.random()
        if draw < 0.2 or not self.joined:
            self._join()
        elif draw < 0.3 and self.members:
            self.members.pop(self.chance.choice(sorted(self.members)))
        if draw < 0.4 or self.joined == 1:
            self._deal(num_partitions)
        head: Row = _MEMBER | {"group_id": self.group_id, "group_state": "Stable", "assignor": "evenlag"}
        if 0.4 < draw < 0.47:
            return []
        if 0.47 < draw < 0.52:
            return [head | {"group_state": "Unknown", "assignor": None, "error": "not described"}]
        if not self.members:
            return [head | {"group_state": "Empty", "assignor": None}]
        is_hidden = 0.52 < draw < 0.62
        if is_hidden:
            head |= {"group_state": "PreparingRebalance", "assignor": None}
        return [head | self._shown(name, is_hidden=is_hidden) for name in sorted(self.members)]

    def _join(self) -> None:
        self.joined += 1
        instance = f"pod-{self.joined}" if self.chance.random() < 0.5 else None
        name = f"m{self.joined}"
        self.members[name] = {"member_id": name, "group_instance_id": instance, "client_id": "app"}

    def _deal(self, num_partitions: int) -> None:
        alive = sorted(self.members)
        for partition in range(num_partitions):
            some = self.chance.random()
            count = 0 if some < 0.1 else 2 if some > 0.95 else 1
            self.holders[partition] = self.chance.sample(alive, min(count, len(alive)))

    def _shown(self, name: str, *, is_hidden: bool) -> Row:
        if is_hidden:
            return {**self.members[name], "subscription": None, "assignment": None}
        held = [partition for partition, names in sorted(self.holders.items()) if name in names]
        assignment = [{"topic": "t", "partitions": held}] if held else []
        return {**self.members[name], "subscription": ["t"], "assignment": assignment}


# The oracle ----------------------------------------------------------------------------------------------


def expected_ownership(readings: Iterable[Reading]) -> set[tuple[Any, ...]]:
    """Tell what ``ownership`` must say, a tuple a row: see the end of :func:`_of_key`."""
    by_day: dict[Any, list[Reading]] = {}
    for reading in readings:
        by_day.setdefault(reading.marker["started_at"].date(), []).append(reading)
    rows: set[tuple[Any, ...]] = set()
    for days in by_day.values():
        in_order = sorted(days, key=lambda reading: reading.marker["started_at"])
        for group_id in {row["group_id"] for reading in in_order for row in reading.members}:
            rows |= _of_group(in_order, group_id)
    return rows


def _of_group(readings: list[Reading], group_id: str) -> set[tuple[Any, ...]]:
    views = [_view(reading, group_id) for reading in readings]
    ids = _topic_ids(readings, views)
    cells: dict[tuple[Any, ...], dict[int, tuple[Any, ...]]] = {}
    shows = [view is not None and view["known"] and bool(view["members"]) for view in views]
    shown = {n: _cells(view, readings[n], ids[n]) for n, view in enumerate(views) if view and shows[n]}
    for number, view in enumerate(views):
        if view is None:
            continue
        found = shown.get(number)
        if found is None:
            before = next((shown[n] for n in range(number, -1, -1) if n in shown), {})
            after = next((shown[n] for n in range(number, len(views)) if n in shown), {})
            state = "NOBODY" if view["known"] else "UNKNOWN"
            reason = view["error"] or f"the group is {view['state']}"
            partitions = {key[:3] for key in [*before, *after]}
            found = {(*key, None): (state, reason, None, 0) for key in partitions}
        for key, content in found.items():
            cells.setdefault(key, {})[number] = content
    return {row for key, by_number in cells.items() for row in _of_key(readings, group_id, key, by_number)}


def _view(reading: Reading, group_id: str) -> Row | None:
    rows = [row for row in reading.members if row["group_id"] == group_id]
    if not rows:
        return None
    members = [row for row in rows if row.get("member_id")]
    hidden = any(row["subscription"] is None for row in members)
    state, error = rows[0]["group_state"], rows[0].get("error")
    known = error is None and not hidden and (bool(members) or state == "Empty")
    return {"members": members, "known": known, "state": state, "error": error}


def _topic_ids(readings: list[Reading], views: list[Row | None]) -> list[str | None]:
    """The topic's id by snapshot; where it could not be read, that of snapshots with a subscription to it."""
    seen = [reading.offsets[0]["topic_id"] if reading.offsets else None for reading in readings]
    taken = [bool(view and view["known"] and view["members"]) for view in views]
    ids = []
    for number, topic_id in enumerate(seen):
        before = [seen[n] for n in range(number, -1, -1) if taken[n] and seen[n]]
        after = [seen[n] for n in range(number, len(seen)) if taken[n] and seen[n]]
        ids.append(topic_id or next(iter([*before, *after]), None))
    return ids


def _cells(view: Row, reading: Reading, topic_id: str | None) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    holders: dict[int, list[Row]] = {row["partition"]: [] for row in reading.offsets}
    for member in view["members"]:
        for held in member["assignment"]:
            for partition in held["partitions"]:
                holders.setdefault(partition, []).append(member)
    cells: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for partition, members in holders.items():
        key = (topic_id, "t", partition)
        if not members:
            cells[*key, None] = ("NOBODY", "no member holds it", None, 0)
        for member in members:
            instance = member["group_instance_id"]
            owner = f"i:{instance}" if instance else f"m:{member['member_id']}"
            cells[*key, member["member_id"]] = ("OWNED", None, owner, len(members))
    return cells


def _of_key(
    readings: list[Reading], group_id: str, key: tuple[Any, ...], by_number: dict[int, tuple[Any, ...]]
) -> Iterable[tuple[Any, ...]]:
    numbers = sorted(by_number)
    begins = [n for n in numbers if n - 1 not in by_number or by_number[n - 1] != by_number[n]]
    for first in begins:
        last = first
        while last + 1 in by_number and last + 1 not in begins:
            last += 1
        previous = readings[first - 1].snapshot_id if first else None
        following = readings[last + 1].snapshot_id if last + 1 < len(readings) else None
        at = [readings[n].marker["started_at"] + timedelta(seconds=2) for n in range(first, last + 1)]
        gap = max((after - before for before, after in itertools.pairwise(at)), default=timedelta(0))
        yield (
            group_id, *key, *by_number[first], readings[first].snapshot_id, readings[last].snapshot_id,
            previous, following, at[0], at[-1], last - first + 1, gap // timedelta(milliseconds=1),
        )  # fmt: skip
