"""How many rebalances a partition stayed without an owner, from the journals of a storm.

Counted are the generations from the one in which a member gave a partition up, or died with it, to the one
in which a member took it. Not counted is a generation that gave it to a member that died, or was paused, or
lost the broker before it could take it: nobody can hand a partition past a member that the coordinator still
believes in. Nor is one that no member received because one of them was ending, or another one joined: when
a member leaves or joins before the leader has handed out, the coordinator begins the next round. A member
that lives and fetches its assignment too late has no such excuse.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.workload.evidence import Ownership, Partition

    Event = Mapping[str, Any]

_FOREVER = float("inf")


class Gap(NamedTuple):
    """A time without an owner."""

    partition: Partition
    num_rebalances: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Round:
    """What a leader handed out, and when the next round was led.

    is_overtaken: Whether no member received it, and the next round has a member that this one lacks.
    """

    at_s: float
    until_s: float
    owner: Mapping[Partition, str]
    members: frozenset[str]
    was_received: bool
    is_overtaken: bool


def find_gaps(ownerships: Sequence[Ownership], events: Sequence[Event], ignored: set[str]) -> list[Gap]:
    """Return every time in which a partition had no owner, from its end to the next beginning."""
    generations = _Generations(events)
    rounds = _rounds(events)
    unwell = _unwell(events)
    by_partition: dict[Partition, list[Ownership]] = defaultdict(list)
    for ownership in ownerships:
        if ownership.partition[0] not in ignored:
            by_partition[ownership.partition].append(ownership)
    gaps = []
    for partition, held in by_partition.items():
        before = held[0]
        for after in held[1:]:
            if after.from_s > before.until_s:
                # Who was evicted while it was paused tells so late, and of the generation that it was in.
                ended = [each for each in held if each.until_s <= before.until_s]
                from_generation = max(generations.at(each, each.until_s) for each in ended)
                passed = range(from_generation, generations.at(after, after.from_s))
                excused = sum(_is_excused(partition, rounds.get(n), unwell) for n in passed[1:])
                gaps.append(Gap(partition, len(passed) - excused, after.from_s - before.until_s))
            if after.until_s > before.until_s:
                before = after
    return gaps


class _Generations:
    """The generation in which something came or went."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._told: dict[tuple[int, float], int] = {}
        self._reached: list[tuple[float, int]] = []
        newest = 0
        for event in events:
            generation = event.get("generation", -1)
            if generation < 0:
                continue
            if event["event"] != "led":
                self._told[event["pid"], event["at_s"]] = generation
            newest = max(newest, generation)
            self._reached.append((event["at_s"], newest))

    def at(self, ownership: Ownership, at_s: float) -> int:
        """Return what the member itself said or, of one that died, the newest that anybody knew of."""
        shown = self._told.get((ownership.pid, at_s))
        if shown is not None:
            return shown
        index = bisect_right(self._reached, (at_s, 1 << 60))
        return self._reached[index - 1][1] if index else 0


def _rounds(events: Sequence[Event]) -> dict[int, _Round]:
    led = {event["generation"]: event for event in events if event["event"] == "led"}
    received = {event["generation"] for event in events if event["event"] == "assigned"}
    found = {}
    for generation, event in led.items():
        following = led.get(generation + 1)
        owner = {(topic, number): name for name, pairs in event["given"].items() for topic, number in pairs}
        until_s = _FOREVER if following is None else following["at_s"]
        members, was_received = frozenset(event["given"]), generation in received
        is_overtaken = not was_received and following is not None and not members >= following["given"].keys()
        found[generation] = _Round(event["at_s"], until_s, owner, members, was_received, is_overtaken)
    return found


def _unwell(events: Sequence[Event]) -> dict[str, list[tuple[float, float]]]:
    """Return by member, with "" for the broker, when it was dead or paused: (from, until)."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        kind = event["event"]
        if kind in {"killed", "paused", "closed", "broker_down"}:
            name = "" if kind == "broker_down" else event.get("victim", event["name"])
            found[name].append((event["at_s"], _FOREVER))
        elif kind in {"started", "resumed", "broker_up"}:
            name = "" if kind == "broker_up" else event.get("victim", event["name"])
            found[name] = [(down, min(up, event["at_s"])) for down, up in found[name]]
    return found


def _is_excused(
    partition: Partition, led: _Round | None, unwell: Mapping[str, list[tuple[float, float]]]
) -> bool:
    if led is None:
        return False
    if led.is_overtaken:
        return True
    if not led.was_received:
        spans = [span for name in (*led.members, "") for span in unwell.get(name, ())]
    elif partition in led.owner:
        spans = [*unwell.get(led.owner[partition], ()), *unwell.get("", ())]
    else:
        return False
    return any(down <= led.until_s and up >= led.at_s for down, up in spans)
