"""Evidence from the journals of all processes: partition ownership, lost records, records processed twice.

Times are from the system's monotonic clock, which all processes of a machine share. A member's ownership of a
partition begins when its listener reports the assignment. It ends when the listener reports the revocation,
when the process exits, or when it is killed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.workload.journal import read_journal

Partition = tuple[str, int]
_FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Ownership:
    """A member owned a partition from `from_s` until `until_s` (infinite: still); `end` is why it ended."""

    name: str
    pid: int
    partition: Partition
    from_s: float
    until_s: float
    end: str


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two members owned a partition at once, for `seconds`."""

    partition: Partition
    first: str
    second: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """The verdict and its evidence.

    lost: (first, last) offsets by partition that no member processed, although the group committed past
        them.
    repeated: (first, last) offsets by partition that were processed more than once.
    num_processed: Number of processed records by member.
    num_waiting: The group's lag.
    """

    lost: Mapping[Partition, tuple[tuple[int, int], ...]]
    repeated: Mapping[Partition, tuple[tuple[int, int], ...]]
    overlaps: tuple[Overlap, ...]
    ownerships: tuple[Ownership, ...]
    num_processed: Mapping[str, int] = field(default_factory=dict)
    num_waiting: int = 0


def gather(
    journals: Iterable[Path], offsets: Mapping[Partition, tuple[int, int, int | None]] | None = None
) -> Evidence:
    """Read the journals and derive the evidence.

    journals: Journals of all processes, including the workload's own, which records the kills.
    offsets: (log start, end, committed or None) by partition (`sandbox.kafka.topic_admin.read_offsets`),
        read after the processes had time to log. Without it, the start and the end of each log are not
        checked.
    """
    events = sorted((e for path in journals for e in read_journal(path)[0]), key=lambda e: float(e["at_s"]))
    ownerships = _ownerships(events)
    spans: dict[Partition, list[tuple[int, int]]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for event in events:
        if event["event"] == "processed":
            spans[event["topic"], event["partition"]].append((event["first"], event["last"]))
            counts[event["name"]] += event["last"] - event["first"] + 1
    lost, repeated, waiting = {}, {}, 0
    for partition in sorted(set(spans) | set(offsets or {})):
        union, twice = _merge(spans[partition])
        start, end, committed = (offsets or {}).get(partition, (None, None, None))
        holes = _holes(union, start, committed)
        if holes:
            lost[partition] = holes
        if twice:
            repeated[partition] = twice
        waiting += (end - max(committed or 0, start or 0)) if end is not None else 0
    return Evidence(lost, repeated, _overlaps(ownerships), ownerships, dict(counts), waiting)


class OwnerTracker:
    """Follows journals and tracks the current owners; each call reads only new lines."""

    def __init__(self) -> None:
        self._offsets: dict[Path, int] = {}
        self._owners: dict[str, set[Partition]] = {}
        self.num_processed: dict[str, int] = defaultdict(int)
        """Records processed so far, by member; some perhaps twice."""

    def read(self, journals: Iterable[Path]) -> dict[str, set[Partition]]:
        """Return the partitions by member; a running member that owns none has an empty set."""
        for path in journals:
            events, self._offsets[path] = read_journal(path, self._offsets.get(path, 0))
            for event in events:
                self._apply(event)
        return {name: set(owned) for name, owned in self._owners.items()}

    def _apply(self, event: Mapping[str, Any]) -> None:
        kind, name = event["event"], event["name"]
        pairs = {(topic, number) for topic, number in event.get("partitions", ())}
        if kind == "started":
            self._owners[name] = set()
        elif kind == "assigned":
            self._owners.setdefault(name, set()).update(pairs)
        elif kind in ("revoked", "lost"):
            self._owners.setdefault(name, set()).difference_update(pairs)
        elif kind == "closed":
            self._owners.pop(name, None)
        elif kind == "processed":
            self.num_processed[name] += event["last"] - event["first"] + 1


def _ownerships(events: Iterable[Mapping[str, Any]]) -> tuple[Ownership, ...]:
    begun: dict[tuple[str, int, Partition], float] = {}
    done: list[Ownership] = []

    def end(key: tuple[str, int, Partition], at_s: float, how: str) -> None:
        if key in begun:
            done.append(Ownership(*key, begun.pop(key), at_s, how))

    for event in events:
        kind = event["event"]
        name, pid, at_s = (
            event.get("victim", event["name"]),
            event.get("victim_pid", event["pid"]),
            event["at_s"],
        )
        pairs = [(topic, number) for topic, number in event.get("partitions", ())]
        if kind == "assigned":
            for pair in pairs:
                begun.setdefault((name, pid, pair), at_s)
        elif kind in ("revoked", "lost"):
            for pair in pairs:
                end((name, pid, pair), at_s, kind)
        elif kind in ("closed", "killed"):
            for key in [key for key in begun if key[:2] == (name, pid)]:
                end(key, at_s, kind)
    done += [Ownership(*key, from_s, _FOREVER, "") for key, from_s in begun.items()]
    return tuple(sorted(done, key=lambda o: (o.from_s, o.name)))


def _overlaps(ownerships: Iterable[Ownership]) -> tuple[Overlap, ...]:
    by_partition: dict[Partition, list[Ownership]] = defaultdict(list)
    for each in ownerships:
        by_partition[each.partition].append(each)
    found: list[Overlap] = []
    for partition, held in by_partition.items():
        for i, first in enumerate(held):
            for second in held[i + 1 :]:
                seconds = min(first.until_s, second.until_s) - second.from_s
                if seconds > 0:
                    found.append(Overlap(partition, first.name, second.name, seconds))
    return tuple(found)


def _merge(
    spans: Iterable[tuple[int, int]],
) -> tuple[list[tuple[int, int]], tuple[tuple[int, int], ...]]:
    """Return the union of spans, and what is in more than one of them, both merged and ascending."""
    union: list[tuple[int, int]] = []
    twice: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if union and first <= union[-1][1]:
            _extend(twice, first, min(last, union[-1][1]))
        _extend(union, first, last)
    return union, tuple(twice)


def _extend(spans: list[tuple[int, int]], first: int, last: int) -> None:
    if spans and first <= spans[-1][1] + 1:
        spans[-1] = (spans[-1][0], max(spans[-1][1], last))
    else:
        spans.append((first, last))


def _holes(
    union: list[tuple[int, int]], start: int | None, committed: int | None
) -> tuple[tuple[int, int], ...]:
    """Return the gaps: between the spans, from the log start to the first, from the last to the commit."""
    edges = list(union)
    if start is not None and (union or committed is not None):
        edges.insert(0, (start - 1, start - 1))
    if committed is not None and edges:
        edges.append((committed, committed))
    reach, holes = None, []
    for first, last in edges:
        if reach is not None and first > reach + 1:
            holes.append((reach + 1, first - 1))
        reach = last if reach is None else max(reach, last)
    return tuple(holes)
