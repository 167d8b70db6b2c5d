"""Place by load in a large group, beside its general steps: ``python -m tests.bench.living.place_by_load``.

Half of the members are empty. The general steps, which serve unequal subscriptions, look at all members for
each row; where everybody takes every row, heaps do the same. Both in turn in one process, by CPU time, and
both must give the same target. It writes ``docs/bench/place_by_load.json``.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from assignor_core.algorithms.place_by_load import PlaceProblem, place_by_load
from assignor_core.group import Group
from assignor_core.loads import LoadsPayload

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "bench" / "place_by_load.json"
_MEMBERS, _PARTITIONS, _MAX_MOVES, _RUNS = 2_000, 100_000, 1_000, 3
_TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"


def main() -> int:
    """Time and write."""
    owner = np.arange(_PARTITIONS) % (_MEMBERS // 2)
    group = Group.from_arrays(
        topics=["t"],
        num_partitions=np.array([_PARTITIONS]),
        member_ids=[f"m{number:04}" for number in range(_MEMBERS)],
        subscriptions=(np.arange(_MEMBERS), np.zeros(_MEMBERS, dtype=np.int64)),
        claims=(np.arange(_PARTITIONS), owner, np.full(_PARTITIONS, 5)),
    )
    weights = (np.arange(1, _PARTITIONS + 1) ** -0.8 * 1e6).astype(np.int64)
    np.random.default_rng(20).shuffle(weights)
    loads = LoadsPayload("cluster", "group", "s", 0, 1, {_TOPIC: weights.tolist()}, {}, 100, 0, _MAX_MOVES)
    rounds = [(_time(group, loads, general=True), _time(group, loads, general=False)) for _ in range(_RUNS)]
    if any(not np.array_equal(general[1], alike[1]) for general, alike in rounds):
        raise AssertionError("the two give different targets")
    general_s = statistics.median(general[0] for general, _ in rounds)
    alike_s = statistics.median(alike[0] for _, alike in rounds)
    result = {
        "members": _MEMBERS,
        "empty_members": _MEMBERS // 2,
        "partitions": _PARTITIONS,
        "max_moves": _MAX_MOVES,
        "runs": _RUNS,
        "general_steps_cpu_s": round(general_s, 3),
        "place_by_load_cpu_s": round(alike_s, 3),
        "ratio": round(alike_s / general_s, 3),
    }
    text = json.dumps(result, indent=1) + "\n"
    RESULTS.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


def _time(group: Group, loads: LoadsPayload, *, general: bool) -> tuple[float, Any]:
    started = time.process_time()
    if general:
        with patch.object(PlaceProblem, "is_equal", new=False):
            target = place_by_load(group, {"t": _TOPIC}, loads).target
    else:
        target = place_by_load(group, {"t": _TOPIC}, loads).target
    return time.process_time() - started, target


if __name__ == "__main__":
    sys.exit(main())
