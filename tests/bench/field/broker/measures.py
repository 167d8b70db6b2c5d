"""The measures of a run, from the journals of its pods.

All begin after the warm-up and end with the trace: what is started later is unfinished.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sandbox.workload.evidence import gather
from sandbox.workload.journal import read_journal
from tests.bench.field.broker.producer import scheduled_ns
from tests.bench.field.broker.wire import read_entries
from tests.bench.field.waiting import measure_records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sandbox.workload.evidence import Ownership
    from tests.bench.field.traces import Trace

# After its first record, a group has settled for long; the first plan comes later.
_SETTLED_NS: Final = 20_000_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """The first start of each record that was started: its number in the schedule, and the trace's second.

    duplicates: Further starts of the same records.
    """

    record: NDArray[np.int64]
    started_s: NDArray[np.float64]
    duplicates: int


def read_starts(folder: Path, trace: Trace, begin_ns: int) -> Starts:
    """Read the pods' journals of records until the end of the trace."""
    entries = read_entries(folder)
    entries = entries[entries["started_ns"] < begin_ns + trace.duration_s * 1_000_000_000]
    entries = entries[np.argsort(entries["started_ns"], kind="stable")]
    _, first = np.unique(entries[["partition", "offset"]], return_index=True)
    begun = entries[first]
    begun = begun[np.argsort(begun["scheduled_ns"], kind="stable")]
    found = begun["scheduled_ns"].astype(np.int64)
    due_ns = scheduled_ns(trace, begin_ns)
    # Records that are due at the same nanosecond cannot be told apart, and need not be.
    rank = np.arange(len(found)) - np.searchsorted(found, found)
    record = np.searchsorted(due_ns, found) + rank
    if not np.array_equal(due_ns[np.minimum(record, len(due_ns) - 1)], found):
        raise ValueError("a pod has started records that were never sent")
    return Starts(record, (begun["started_ns"] - begin_ns) / 1e9, len(entries) - len(begun))


def first_owners(folder: Path, trace: Trace) -> list[int]:
    """Return the number of the pod that owns each partition at first; -1 without any.

    It starts the partition's first record after the group has settled: in the consumer protocol the first
    member has all partitions for some seconds.
    """
    journals = [
        (int(path.stem.rpartition("-")[2]), np.sort(read_entries(path.parent, path.name), order="started_ns"))
        for path in sorted(folder.glob("*.records"))
    ]
    begun_ns = (int(entries["started_ns"][0]) for _, entries in journals if len(entries))
    settled_ns = min(begun_ns, default=0) + _SETTLED_NS
    first_ns, owner = np.full((2, trace.num_partitions), -1, dtype=np.int64)
    for pod, entries in journals:
        started_ns = entries["started_ns"].astype(np.int64)
        later = started_ns >= settled_ns
        partition, at = np.unique(entries["partition"][later], return_index=True)
        started_ns = started_ns[later][at]
        is_first = (owner[partition] < 0) | (started_ns < first_ns[partition])
        first_ns[partition[is_first]] = started_ns[is_first]
        owner[partition[is_first]] = pod
    found: list[int] = owner.tolist()
    return found


def waiting_measures(starts: Starts, trace: Trace) -> dict[str, float]:
    """Return the measures of waiting, as in the simulation."""
    return measure_records(trace, trace.schedule()[0], starts.record, starts.started_s).figures()


def ownership_measures(folder: Path, trace: Trace, begin_ns: int) -> dict[str, float]:
    """Return moves, partition-seconds without an owner outside outages, and overlaps of owners."""
    evidence = gather(sorted(folder.glob("*.jsonl")))
    by_partition: dict[int, list[Ownership]] = {number: [] for number in range(trace.num_partitions)}
    for each in evidence.ownerships:
        by_partition[each.partition[1]].append(each)
    seconds = _Seconds(begin_ns / 1e9, trace)
    return {
        "moves": sum(map(seconds.moves, by_partition.values())),
        "unowned_s": sum(map(seconds.unowned_s, by_partition.values())),
        "overlaps": len(evidence.overlaps),
    }


@dataclass(frozen=True, slots=True)
class _Seconds:
    """The measured time of a trace that began at a moment of the journals' clock."""

    begin_s: float
    trace: Trace

    def moves(self, owned: Sequence[Ownership]) -> int:
        """Return how often the next owner of a partition is another pod."""
        first_s, end_s = self.begin_s + self.trace.warm_up_s, self.begin_s + self.trace.duration_s
        return sum(
            one.name != after.name and first_s <= after.from_s < end_s for one, after in pairwise(owned)
        )

    def unowned_s(self, owned: Sequence[Ownership]) -> float:
        """Return the time in which nobody has a partition."""
        stretches = [(self.trace.warm_up_s, self.trace.duration_s)]
        for first_s, after_s in self.trace.outages:
            last_from, last_until = stretches.pop()
            stretches += [(last_from, first_s), (after_s, last_until)]
        return sum(
            self._unowned_s(owned, self.begin_s + from_s, self.begin_s + until_s)
            for from_s, until_s in stretches
        )

    @staticmethod
    def _unowned_s(owned: Sequence[Ownership], from_s: float, until_s: float) -> float:
        reached_s, gaps_s = from_s, 0.0
        for each in sorted(owned, key=lambda each: each.from_s):
            gaps_s += max(0.0, min(each.from_s, until_s) - reached_s)
            reached_s = max(reached_s, min(each.until_s, until_s))
        return gaps_s + max(0.0, until_s - reached_s)


def generations(folder: Path, begin_ns: int, trace: Trace) -> int:
    """Return how many generations of a classic group began in the measured time."""
    first_s, end_s = (begin_ns / 1e9 + second for second in (trace.warm_up_s, trace.duration_s))
    seen = [
        (event["at_s"], event["generation"]) for event in events(folder) if event.get("generation", -1) >= 0
    ]
    before = {number for at_s, number in seen if at_s < first_s}
    return len({number for at_s, number in seen if at_s < end_s} - before)


def consumer_hours(folder: Path, begin_ns: int, trace: Trace) -> float:
    """Return the hours of running pods in the measured time."""
    first_s, end_s = (begin_ns / 1e9 + second for second in (trace.warm_up_s, trace.duration_s))
    running: dict[tuple[Any, Any], float] = {}
    total_s = 0.0
    for event in [*events(folder), {"event": "end"}]:
        # A process that still closes may have a successor of its name.
        kind = event["event"]
        pod = event.get("victim", event.get("name")), event.get("victim_pid", event.get("pid"))
        if kind == "started":
            running[pod] = event["at_s"]
        for ended in {"closed": [pod], "killed": [pod], "end": list(running)}.get(kind, []):
            until_s = min(event.get("at_s", end_s), end_s)
            total_s += max(0.0, until_s - max(running.pop(ended, until_s), first_s))
    return total_s / 3600


def assignor_cpu_s(folder: Path, begin_ns: int, trace: Trace) -> float:
    """Return the processor time of the leaders' assignors in the measured time."""
    first_s, end_s = (begin_ns / 1e9 + second for second in (trace.warm_up_s, trace.duration_s))
    return sum(
        float(event["cpu_s"])
        for event in events(folder)
        if event["event"] == "led" and first_s <= event["at_s"] < end_s
    )


def late_starts(folder: Path) -> dict[str, float]:
    """Return how late pods began works that they had no reason to wait for: the machine's delays."""
    closed = [event for event in events(folder) if event["event"] == "closed" and event.get("records")]
    num_records = sum(event["records"] for event in closed)
    total_ms = sum(event["records"] * event["mean_late_start_ms"] for event in closed)
    return {
        "mean_late_start_ms": total_ms / max(1, num_records),
        "worst_late_start_ms": max((event["latest_start_ms"] for event in closed), default=0.0),
    }


def events(folder: Path) -> list[Mapping[str, Any]]:
    """Return the events of all journals of a folder by time."""
    found = [event for path in sorted(folder.glob("*.jsonl")) for event in read_journal(path)[0]]
    return sorted(found, key=lambda event: float(event["at_s"]))
