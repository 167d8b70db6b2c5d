"""What a published hint costs its group, by the journals of its consumers."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sandbox.workload.evidence import gather
from sandbox.workload.journal import read_journal
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Mapping

    from sandbox.workload.evidence import Ownership
    from sandbox.workload.workload import Workload

Owners = dict[str, set[int]]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one hint cost; times in seconds.

    follow_s: From its publication until each partition is with the consumer that the hint names.
    longest_stop_s: The longest time in which a partition that stays was not processed.
    unowned_s: The sum over partitions of the time without an owner.
    num_moves: Partitions that changed their consumer.
    """

    follow_s: float
    longest_stop_s: float
    unowned_s: float
    num_moves: int


def draw_placement(
    owners: Mapping[str, Collection[int]], chance: random.Random, *, num_moves: range
) -> Owners:
    """Draw a placement with the members' counts of now, and a number of moves within a range."""
    while True:
        numbers = sorted(number for held in owners.values() for number in held)
        chance.shuffle(numbers)
        wanted = {name: {numbers.pop() for _ in held} for name, held in owners.items()}
        if sum(len(wanted[name] - set(held)) for name, held in owners.items()) in num_moves:
            return wanted


def measure_following(
    workload: Workload, wanted: Owners, publish: Callable[[], object], *, slow: Collection[str] = ()
) -> Cost:
    """Publish a hint, wait until it is followed, and return what it cost.

    wanted: Partitions by consumer, as the hint places them.
    publish: Publishes the hint.
    slow: Consumers whose long batches are no stop: their partitions are left out of ``longest_stop_s``.
    """
    before = workload.wait_until_owned()
    began_s = time.monotonic()
    publish()
    after = workload.wait_until_owned(condition=lambda owners: owners == wanted)
    return _cost(workload, before, after, began_s, slow)


def measure_joining(workload: Workload, name: str, **fields: Any) -> Cost:
    """Start a consumer, wait until it has its share, and return what that cost the group.

    The time to follow begins when the process of the consumer runs.
    """
    before = workload.wait_until_owned()
    began_s = time.monotonic()
    workload.start_consumer(name, **fields)
    after = workload.wait_until_owned(condition=lambda owners: bool(owners.get(name)))
    started_s = next(
        event["at_s"]
        for event in read_journal(workload.directory / f"{name}.jsonl")[0]
        if event["event"] == "started" and event["at_s"] > began_s
    )
    return _cost(workload, before, after, started_s, ())


def newest_generation(workload: Workload) -> int:
    """Return the newest generation in the journals; -1 where consumers do not know it (KIP-848)."""
    events = (event for path in workload.journals for event in read_journal(path)[0])
    return max((int(event["generation"]) for event in events if "generation" in event), default=-1)


def _cost(workload: Workload, before: Owners, after: Owners, began_s: float, slow: Collection[str]) -> Cost:
    stays = {number for name in after if name not in slow for number in after[name] & before.get(name, set())}
    ended_s = time.monotonic()

    def times() -> dict[int, list[float]]:
        found = _times_of_processing(workload, since_s=began_s)
        return {number: found[number] for number in stays}

    wait_until(lambda: all(found and found[-1] > ended_s for found in times().values()), what=times)
    held = [each for each in gather(workload.journals).ownerships if each.partition[0] == workload.topic]
    return Cost(
        follow_s=max([each.from_s for each in held if each.from_s > began_s], default=began_s) - began_s,
        longest_stop_s=max(
            (later - first for found in times().values() for first, later in pairwise([began_s, *found])),
            default=0.0,
        ),
        unowned_s=_unowned_s(held, began_s),
        num_moves=sum(len(after[name] - before.get(name, set())) for name in after),
    )


def _times_of_processing(workload: Workload, *, since_s: float) -> dict[int, list[float]]:
    times: dict[int, list[float]] = defaultdict(list)
    for path in workload.journals:
        for event in read_journal(path)[0]:
            if event["event"] == "processed" and event["at_s"] > since_s:
                times[event["partition"]].append(event["at_s"])
    return times


def _unowned_s(held: Collection[Ownership], since_s: float) -> float:
    """Return the sum of the times between one ownership of a partition and its next."""
    by_partition: dict[tuple[str, int], list[Ownership]] = defaultdict(list)
    for each in held:
        by_partition[each.partition].append(each)
    return sum(
        max(0.0, after.from_s - max(one.until_s, since_s))
        for owned in by_partition.values()
        for one, after in pairwise(sorted(owned, key=lambda each: each.from_s))
        if after.from_s > since_s
    )
