"""Who really owned which partition when, by the journals that the consumers wrote."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from sandbox.workload.evidence import gather
from sandbox.workload.journal import read_journal

if TYPE_CHECKING:
    from pathlib import Path

_FAR = datetime(2100, 1, 1, tzinfo=UTC)
# Neither a process that was killed nor a static one that closed told the group.
_SILENT_ENDS = frozenset({"killed", "closed"})


@dataclass(frozen=True, slots=True)
class Owned:
    """A process of this name owned the partition; `until` is when the group knew that it no longer did."""

    name: str
    since: datetime
    until: datetime


def owners(path: Path, session: timedelta) -> dict[tuple[str, int], list[Owned]]:
    """Return who owned each partition of a group, oldest first.

    A process that was killed, and a static member that closed, told nobody: to the group it owned its
    partitions until another got them or its session ran out.
    """
    events = read_journal(path)[0]
    zero = datetime.fromtimestamp(events[0]["wall_ms"] / 1000 - events[0]["at_s"], tz=UTC)
    found: dict[tuple[str, int], list[Owned]] = {}
    for each in gather([path]).ownerships:
        since = zero + timedelta(seconds=each.from_s)
        until = zero + timedelta(seconds=each.until_s) if each.end else _FAR
        silent = session if each.end in _SILENT_ENDS else timedelta(0)
        found.setdefault(each.partition, []).append(Owned(each.name, since, until + silent))
    for stretches in found.values():
        stretches.sort(key=lambda owned: owned.since)
        for place, (one, after) in enumerate(pairwise(stretches)):
            stretches[place] = Owned(one.name, one.since, min(one.until, after.since))
    return found
