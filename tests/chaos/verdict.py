"""What the journals of a storm prove: one owner, nothing lost, repeated only with an excuse, no orphans."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sandbox.workload.evidence import Evidence, Ownership, Partition, gather
from sandbox.workload.journal import read_journal
from tests.chaos.orphans import find_gaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

# A commit that failed this long after the broker was back is not the broker's fault any more.
_AFTER_OUTAGE_S = 20.0
# An ownership is logged a moment after its first record may be processed, and as late before its end.
_LOG_SLACK_S = 0.5


@dataclass(frozen=True)
class Verdict:
    """What was found; all findings empty is what is wanted.

    lost: Offsets that nobody processed, in words.
    two_owners: Partitions that two members processed in one generation, in words.
    unexcused: Records that were processed again though who did them first neither died nor was evicted nor
        failed to commit to a broker that was down or did not answer in time, in words.
    orphans: Partitions that stayed without an owner for more than two rebalances, in words.
    figures: Counts, for the record.
    """

    lost: list[str]
    two_owners: list[str]
    unexcused: list[str]
    orphans: list[str]
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def findings(self) -> list[str]:
        """All that should not be."""
        return [*self.lost, *self.two_owners, *self.unexcused, *self.orphans]


def judge(
    journals: Sequence[Path],
    offsets: Mapping[Partition, tuple[int, int, int | None]],
    *,
    ignored_topics: Iterable[str] = (),
) -> Verdict:
    """Read all journals and judge; topics that were deleted are ignored but for who owned them."""
    events = sorted((e for path in journals for e in read_journal(path)[0]), key=lambda e: float(e["at_s"]))
    evidence = gather(journals, offsets)
    ignored = set(ignored_topics)
    lost = [
        f"lost: {p[0]}-{p[1]} {spans}" for p, spans in sorted(evidence.lost.items()) if p[0] not in ignored
    ]
    processed = [e for e in events if e["event"] == "processed" and e["topic"] not in ignored]
    unexcused, num_repeated = _unexcused(processed, evidence, _outages(events), events)
    gaps = find_gaps(evidence.ownerships, events, ignored)
    orphans = [
        f"orphan: {gap.partition[0]}-{gap.partition[1]} without an owner for {gap.num_rebalances} rebalances,"
        f" {gap.seconds:.1f} s"
        for gap in gaps
        if gap.num_rebalances > 2  # two phases
    ]
    generations = {e["generation"] for e in events if e.get("generation", -1) >= 0}
    reasons = Counter(str(e["reason"]) for e in events if e["event"] == "hint")
    two_owners = _two_owners(processed, _ends(events))
    figures = {
        "records_processed": sum(evidence.num_processed.values()),
        "records_repeated_with_an_excuse": num_repeated,
        "records_lost": sum(
            last - first + 1
            for partition, spans in evidence.lost.items()
            if partition[0] not in ignored
            for first, last in spans
        ),
        "with_two_owners": len(two_owners),
        "batches_repeated_without_an_excuse": len(unexcused),
        "generations": len(generations),
        "moves": sum(e["event"] == "assigned" and bool(e["partitions"]) for e in events),
        "longest_without_owner_rebalances": max((gap.num_rebalances for gap in gaps), default=0),
        "actions": dict(sorted(Counter(e["action"] for e in events if e["event"] == "action").items())),
        "hint_events": dict(sorted(reasons.items())),
    }
    return Verdict(lost, two_owners, unexcused, orphans, figures)


def _two_owners(processed: Iterable[Mapping[str, Any]], ended: Mapping[int, float]) -> list[str]:
    """Return who worked on a partition in one generation while another that had was alive.

    A static member that comes back after its death has the generation of its former life.
    """
    began: dict[tuple[str, int, int], dict[tuple[str, int], float]] = defaultdict(dict)
    for event in processed:
        if event["generation"] >= 0:
            key = (event["topic"], event["partition"], event["generation"])
            began[key].setdefault((event["name"], event["pid"]), event["at_s"])
    return [
        f"two owners: {topic}-{partition} in generation {generation}: {sorted(who)}"
        for (topic, partition, generation), who in sorted(began.items())
        if any(
            ended.get(before[1], float("inf")) > who[after]
            for before, after in pairwise(sorted(who, key=who.__getitem__))
        )
    ]


def _ends(events: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Return when each process ended, by its id."""
    ends: dict[int, float] = {}
    for event in events:
        if event["event"] in {"killed", "closed"}:
            ends.setdefault(event["victim_pid" if event["event"] == "killed" else "pid"], event["at_s"])
    return ends


def _outages(events: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return when the broker was down, or a node of the cluster had a fault."""
    found: list[tuple[float, float]] = []
    for event in events:
        if event["event"] in {"broker_down", "fault_begun"}:
            found.append((event["at_s"], float("inf")))
        elif event["event"] in {"broker_up", "fault_ended"}:
            found[-1] = (found[-1][0], event["at_s"] + _AFTER_OUTAGE_S)
    return found


def _unexcused(
    processed: Iterable[Mapping[str, Any]],
    evidence: Evidence,
    outages: Sequence[tuple[float, float]],
    events: Iterable[Mapping[str, Any]],
) -> tuple[list[str], int]:
    """Return repetitions without an excuse, in words, and the number of those with one."""
    failed: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for event in events:
        if event["event"] == "commit_failed":
            failed[event["pid"]].append((event["at_s"], "Timeout" in event["error"]))
    ends: dict[tuple[int, Partition], list[Ownership]] = defaultdict(list)
    for ownership in evidence.ownerships:
        ends[ownership.pid, ownership.partition].append(ownership)
    seen: dict[Partition, list[Mapping[str, Any]]] = defaultdict(list)
    unexcused, num_excused = [], 0
    for event in processed:
        partition = (event["topic"], event["partition"])
        for before in seen[partition]:
            if before["first"] <= event["last"] and event["first"] <= before["last"]:
                # Either who did it first could not say so, or who did it again had been thrown out while it
                # had the records in hand.
                is_excused = _is_excused(
                    before, ends[before["pid"], partition], failed[before["pid"]], outages
                ) or _was_thrown_out(event, ends[event["pid"], partition])
                if is_excused:
                    num_excused += (
                        min(before["last"], event["last"]) - max(before["first"], event["first"]) + 1
                    )
                else:
                    unexcused.append(
                        f"twice: {partition[0]}-{partition[1]} {event['first']}-{event['last']} by"
                        f" {before['name']} at {before['at_s']:.3f}"
                        f" and {event['name']} at {event['at_s']:.3f}"
                    )
        seen[partition].append(event)
    return unexcused, num_excused


def _covers(ownership: Ownership, work: Mapping[str, Any]) -> bool:
    at_s = float(work["at_s"])
    return ownership.from_s - _LOG_SLACK_S <= at_s <= ownership.until_s + _LOG_SLACK_S


def _was_thrown_out(work: Mapping[str, Any], ownerships: Iterable[Ownership]) -> bool:
    return any(_covers(ownership, work) and ownership.end == "lost" for ownership in ownerships)


def _is_excused(
    work: Mapping[str, Any],
    ownerships: Iterable[Ownership],
    failed: Iterable[tuple[float, bool]],
    outages: Iterable[tuple[float, float]],
) -> bool:
    for ownership in ownerships:
        if _covers(ownership, work):
            if ownership.end in ("lost", "killed"):
                return True
            until_s = ownership.until_s + _LOG_SLACK_S
            for at_s, is_unanswered in failed:
                is_down = any(down <= at_s <= up for down, up in outages)
                if work["at_s"] <= at_s <= until_s and (is_unanswered or is_down):
                    return True
    return False
