"""Random groups placed by both implementations: ``python -m tests.support.by_load.compare``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tests.support.by_load.groups import place, random_vector, with_racks, with_results, with_together

if TYPE_CHECKING:
    from collections.abc import Iterable


def differing(seeds: Iterable[int]) -> list[str]:
    """Return the names of the groups that the two place differently; every eighth group is larger."""
    found = []
    for seed in seeds:
        size = {"max_members": 16, "max_partitions": 30} if seed % 8 == 0 else {}
        plain = random_vector(seed, **size)
        racks = with_racks(plain, seed)
        kinds = (plain, racks, with_together(plain, seed), with_together(racks, seed))
        vectors = [with_results(vector) for vector in kinds]
        found += [v["name"] for v in vectors if place(v) != (v["target"], v["is_uneven"])]
    return found


def main() -> int:
    """Compare, and return 1 if there is a difference."""
    parser = argparse.ArgumentParser(description="Compare the two implementations of placing by load.")
    parser.add_argument("--groups", type=int, default=10_000, help="number of random groups")
    parser.add_argument("--seed", type=int, default=100_000, help="of the first group")
    options = parser.parse_args()
    found = differing(range(options.seed, options.seed + options.groups))
    sys.stdout.write(f"{options.groups} groups, {len(found)} placed differently: {found[:3]}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
