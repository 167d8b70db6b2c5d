"""What really was, by the consumers' own journals: who held which partition, and when, by wall clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from sandbox.evidence import gather
from tests.recorded.period import journal, journal_file

# What the recording's consumers had; for so long the broker keeps the partitions of one that said no word.
SESSION = timedelta(seconds=30)
_FAR = datetime(2100, 1, 1, tzinfo=UTC)
_SILENT_ENDS = frozenset({"killed", "closed"})


@dataclass(frozen=True, slots=True)
class Held:
    """A process of this name held the partition; `until` is when the group knew that it no longer did."""

    name: str
    since: datetime
    until: datetime


def holders(group_id: str) -> dict[tuple[str, int], list[Held]]:
    """Return who held each partition of a group, oldest first.

    A process that was killed, and a static member that closed, told nobody: to the group it held its
    partitions until another got them or its session ran out.
    """
    events = journal(group_id)
    zero = datetime.fromtimestamp(events[0]["wall_ms"] / 1000 - events[0]["at_s"], tz=UTC)
    found: dict[tuple[str, int], list[Held]] = {}
    for each in gather([journal_file(group_id)]).ownerships:
        since = zero + timedelta(seconds=each.from_s)
        until = _FAR if not each.end else zero + timedelta(seconds=each.until_s)
        silent = SESSION if each.end in _SILENT_ENDS else timedelta(0)
        found.setdefault(each.partition, []).append(Held(each.name, since, until + silent))
    for stretches in found.values():
        stretches.sort(key=lambda held: held.since)
        for place, (one, after) in enumerate(pairwise(stretches)):
            stretches[place] = Held(one.name, one.since, min(one.until, after.since))
    return found


def done(group_id: str, what: str) -> list[datetime]:
    """Return when something of the script was done."""
    return [
        datetime.fromtimestamp(event["wall_ms"] / 1000, tz=UTC)
        for event in journal(group_id)
        if event["event"] == "done" and event["what"] == what
    ]
