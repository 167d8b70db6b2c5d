"""Random groups placed by load in Java and by the plain Python implementation.

``python -m tests.support.broker_plugin.placements --groups 10000`` compares that many.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sandbox.kafka.jvm_jars import build_plugin
from tests.support.broker_plugin.harness import Harness
from tests.support.by_load.reference import Case, place_by_load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BATCH = 100


def random_case(chance: np.random.Generator) -> Case:
    """Return a group of up to eight members and four topics: even, skewed, with free rows, or new."""
    num_topics, num_members = int(chance.integers(1, 5)), int(chance.integers(1, 9))
    is_equal = chance.random() < 0.5
    takes = [
        [topic for topic in range(num_topics) if is_equal or chance.random() < 0.6]
        for _ in range(num_members)
    ]
    topic = [t for t in range(num_topics) for _ in range(int(chance.integers(0, 11)))]
    largest = int(chance.choice([3, 20, 1000, 2**31 - 1]))
    free = chance.choice([0.0, 0.0, 0.3, 1.0])
    holders = num_members if chance.random() < 0.7 else max(1, num_members // 2)
    is_dealt = chance.random() < 0.3
    return Case(
        capacity=[int(chance.choice([1, 100, 100, 1000, int(chance.integers(1, 1001))])) for _ in takes],
        takes=takes,
        topic=topic,
        load=[int(chance.integers(0, largest + 1)) for _ in topic],
        owner=[
            -1 if chance.random() < free else row % holders if is_dealt else int(chance.integers(holders))
            for row in range(len(topic))
        ],
        count_slack=int(chance.choice([0, 0, 1, 2, 5, 2**31 - 1])),
        max_moves=int(chance.choice([0, 1, 3, 10, 1000, 2**31 - 1])),
    )


def place_in_java(harness: Harness, cases: Sequence[Case]) -> list[tuple[list[int], bool]]:
    """Return each group's target and whether it is uneven."""
    groups = [
        {
            "members": [
                [capacity, list(topics)] for capacity, topics in zip(c.capacity, c.takes, strict=True)
            ],
            "rows": [list(row) for row in zip(c.topic, c.load, c.owner, strict=True)],
            "num_topics": 1 + max([t for topics in c.takes for t in topics] + list(c.topic), default=0),
            "slack": c.count_slack,
            "max_moves": c.max_moves,
        }
        for c in cases
    ]
    placed: list[dict[str, Any]] = harness.ask("place", groups=groups)["placed"]
    return [(each["target"], each["is_uneven"]) for each in placed]


def disagreements(harness: Harness, number: int, seed: int) -> Iterator[Case]:
    """Yield the groups, of so many random ones, that the two place differently."""
    chance = np.random.default_rng(seed)
    for start in range(0, number, _BATCH):
        cases = [random_case(chance) for _ in range(min(_BATCH, number - start))]
        for case, placed in zip(cases, place_in_java(harness, cases), strict=True):
            if place_by_load(case) != placed:
                yield case


def main() -> int:
    """Compare, and return 1 if there is a difference."""
    parser = argparse.ArgumentParser(description="Compare placing by load in Java and in Python.")
    parser.add_argument("--groups", type=int, default=10_000, help="number of random groups")
    parser.add_argument("--seed", type=int, default=20, help="of the random groups")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "classes").mkdir()
        with Harness(build_plugin(folder), folder / "classes") as harness:
            found = list(disagreements(harness, options.groups, options.seed))
    for case in found[:3]:
        sys.stdout.write(f"{case}\n")
    sys.stdout.write(f"{options.groups} groups, {len(found)} placed differently\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
