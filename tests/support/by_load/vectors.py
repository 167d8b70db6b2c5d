"""The vectors of placing by load: ``python -m tests.support.by_load.vectors``.

Each line of ``tests/assignor_core/data/place_by_load.jsonl`` is a group with loads, and what the plain
implementation makes of it (`tests.support.by_load.reference`): fields ``topics`` (id → partitions),
``members``, ``record`` (of the loads' payload), ``owners`` (the live owners, claims resolved),
``row_loads`` (unknown ones filled), ``target`` and ``is_uneven``. The broker plug-in is tested with the
same file.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.by_load.groups import (
    MAX_LOAD,
    Vector,
    random_vector,
    with_racks,
    with_results,
    with_together,
)

VECTORS = Path(__file__).parents[2] / "assignor_core" / "data" / "place_by_load.jsonl"
_NUM_SMALL, _NUM_LARGE, _NUM_WITH_RACKS, _NUM_TOGETHER = 270, 14, 80, 80
_TOPIC, _OTHER = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def read_vectors() -> list[Vector]:
    """Return the vectors."""
    return [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]


def _even(name: str, owned: list[int], loads: list[int | None], **changes: int) -> Vector:
    """Return members c0, c1, … that own so many partitions of one topic, dealt in turn."""
    partitions = iter(range(sum(owned)))
    members = [
        {
            "id": f"c{number}",
            "instance": None,
            "topics": [_TOPIC],
            "owned": [[_TOPIC, next(partitions)] for _ in range(count)],
            "generation": 3 if count else -1,
        }
        for number, count in enumerate(owned)
    ]
    record = {
        "loads": {_TOPIC: loads},
        "capacities": {},
        "default_capacity": 100,
        "count_slack": 0,
        "max_moves": 0,
        **changes,
    }
    return {"name": name, "topics": {_TOPIC: len(loads)}, "members": members, "record": record}


def chosen_vectors() -> list[Vector]:
    """Return groups with a purpose of their own; their names say which."""
    cold = _even("nobody owns anything", [0, 0, 0], [9, 8, 7, 6, 5, 4, 3])
    none = {**_even("nobody is there", [], [1, 2]), "members": []}
    alien = _even("an owner does not take the topic", [2, 2], [1, 2, 3, 4])
    alien["members"][0]["topics"] = [_OTHER]
    alien["topics"][_OTHER] = 0
    twice = _even("two claim a partition in one generation", [2, 2], [5, 1, 1, 5])
    twice["members"][1]["owned"].append([_TOPIC, 0])
    stale = _even("the newer of two claims counts", [2, 2], [5, 1, 1, 5])
    stale["members"][1].update(owned=[[_TOPIC, 0], *stale["members"][1]["owned"]], generation=2)
    unlike = _even("capacities differ", [4, 4, 0], [1] * 8, max_moves=8, count_slack=8)
    unlike["record"]["capacities"] = {"m:c0": 300, "m:c2": 1}
    return [
        cold,
        none,
        alien,
        twice,
        stale,
        unlike,
        _even("four members join four with two each", [2, 2, 2, 2, 0, 0, 0, 0], [1] * 8, count_slack=3),
        _even("one joins", [4, 4, 0], [8, 7, 6, 5, 4, 3, 2, 1]),
        _even("one joins, moves are enough", [4, 4, 0], [8, 7, 6, 5, 4, 3, 2, 1], max_moves=100),
        _even("a free partition and a newcomer", [3, 3, 0], [9, 1, 1, 1, 1, 1, 2]),
        _even("one partition dominates", [3, 3, 0], [1000, 1, 1, 1, 1, 1], max_moves=9),
        _even("no loads are known", [4, 4, 0], [None] * 8),
        _even("all loads are zero", [5, 1, 0], [0] * 6, max_moves=9),
        _even("loads at their bound", [4, 4, 0], [MAX_LOAD] * 8, default_capacity=1, max_moves=MAX_LOAD),
        _even("a swap is needed", [2, 2], [10, 9, 2, 1], max_moves=2),
        _even("a swap of one move is not allowed", [2, 2], [10, 9, 2, 1], max_moves=1),
        # The mean is 10, so that the largest level must sink by 1.25, rounded up to thousandths.
        _even("even: an eighth is gained", [2, 2], [9, 5, 3, 3], max_moves=9),
        _even("even: an eighth is not gained", [2, 2], [8, 4, 3, 5], max_moves=9),
        _even("even, but a partition is free", [2, 2], [8, 4, 3, 5, 1], max_moves=9),
        _even("too small a gain moves nothing", [2, 2], [100, 101, 100, 100], max_moves=9),
    ]


def main() -> None:
    """Write the file."""
    vectors = chosen_vectors()
    vectors += [random_vector(seed) for seed in range(_NUM_SMALL)]
    vectors += [
        random_vector(10_000 + seed, max_members=20, max_partitions=40, max_topics=5)
        for seed in range(_NUM_LARGE)
    ]
    vectors += [with_racks(random_vector(seed), seed) for seed in range(_NUM_WITH_RACKS)]
    vectors += [with_together(random_vector(seed, max_topics=6), seed) for seed in range(_NUM_TOGETHER // 2)]
    vectors += [
        with_together(with_racks(random_vector(seed, max_topics=6), seed), seed)
        for seed in range(_NUM_TOGETHER // 2, _NUM_TOGETHER)
    ]
    lines = (json.dumps(with_results(vector), separators=(",", ":")) for vector in vectors)
    VECTORS.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
