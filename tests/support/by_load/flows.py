"""Random loads with a flow, and the plain implementation of what they are later (ADR 114)."""

from __future__ import annotations

import random

from assignor_core.loads import MAX_FLOW_AGE_S, LoadFlow, LoadsPayload
from assignor_core.record import MAX_NUMBER

Partition = tuple[str, int]
TOPICS = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "vPeOCWypqUOSepEvx0cbog")


def random_flow(chance: random.Random, loads: dict[str, list[int | None]]) -> LoadFlow:
    """Return a flow for loads: small numbers, and such at their bounds."""
    largest = chance.choice([3, 50, 10_000, MAX_NUMBER])
    num_members = chance.randint(0, 4)

    def owner() -> int | None:
        return chance.randrange(num_members) if num_members and chance.random() < 0.9 else None

    return LoadFlow(
        arrivals={topic: [chance.randint(0, largest) for _ in values] for topic, values in loads.items()},
        owners={topic: [owner() for _ in values] for topic, values in loads.items()},
        speeds=[chance.randint(0, min(3 * largest, MAX_NUMBER)) for _ in range(num_members)],
        per_s=chance.choice([1, 7, 1000, 1_000_000]),
        horizon_s=chance.choice([0, 0, 5, MAX_FLOW_AGE_S]),
    )


def random_loads(seed: int) -> LoadsPayload:
    """Return loads with a flow of up to three topics; measured at 1 s."""
    chance = random.Random(seed)  # noqa: S311  # repeatable on purpose
    largest = chance.choice([3, 50, 10_000, MAX_NUMBER])
    loads: dict[str, list[int | None]] = {
        topic: [
            None if chance.random() < 0.1 else chance.randint(0, largest) for _ in range(chance.randint(1, 9))
        ]
        for topic in TOPICS[: chance.randint(0, 3)]
    }
    flow = random_flow(chance, loads)
    return LoadsPayload("cluster", "group", "snapshot", 1_000, 2**50, loads, {}, 1, 0, 0, flow=flow)


def later_times(seed: int) -> list[int]:
    """Return times at which to look at loads: clocks that are behind, near ones, and beyond any age."""
    return [0, 1_999, 1_000 + random.Random(seed).randint(1, 600_000), 2**50]  # noqa: S311  # as above


def plain_present(measured: LoadsPayload, now_ms: int) -> dict[str, list[int | None]]:
    """Return the loads at a time, as their specification says it."""
    flow = measured.flow
    assert flow is not None
    age_s = min(max(now_ms - measured.measured_at_ms, 0) // 1000, MAX_FLOW_AGE_S)
    lasting: dict[Partition, int] = {}
    backlog: dict[Partition, int] = {}
    by_member: dict[int, list[Partition]] = {}
    for topic, values in measured.loads.items():
        for number, load in enumerate(values):
            if load is None:
                continue
            at, arrivals, owner = (topic, number), flow.arrivals[topic][number], flow.owners[topic][number]
            lasting[at] = min(arrivals * flow.horizon_s // flow.per_s, MAX_NUMBER)
            backlog[at] = min(max(0, load - lasting[at]) + arrivals * age_s // flow.per_s, MAX_NUMBER)
            if owner is not None:
                by_member.setdefault(owner, []).append(at)
    for member, rows in by_member.items():
        level = _level([backlog[at] for at in rows], flow.speeds[member] * age_s // flow.per_s)
        for at in rows:
            backlog[at] -= min(backlog[at], level)
    return {
        topic: [
            None if load is None else min(backlog[topic, number] + lasting[topic, number], MAX_NUMBER)
            for number, load in enumerate(values)
        ]
        for topic, values in measured.loads.items()
    }


def _level(backlogs: list[int], work: int) -> int:
    """Return the largest level at which min(backlog, level) adds up to the work at most, by halving."""
    low, high = 0, MAX_NUMBER
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(each, middle) for each in backlogs) <= work:
            low = middle
        else:
            high = middle - 1
    return low
