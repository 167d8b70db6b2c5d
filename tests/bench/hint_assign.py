"""What a hint adds to ``assign()``: ``python -m tests.bench.hint_assign`` writes docs/bench/hint_assign.json.

The same group, from kafka-python's wire types to kafka-python's assignments, with no hint and with one: that
asks for moves, one that keeps the assignment, and one for another group.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from assignor_core.hint import HintPayload, encode_hint, fingerprint
from assignor_core.record import topic_id_text
from evenlag.consumer import HintAssignor, HintCache
from tests.evenlag.consumer.test_assignor import Cluster, member

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "hint_assign.json"
_NUM_MEMBERS, _NUM_TOPICS, _NUM_PARTITIONS, _NUM_MOVES = 2_000, 10, 10_000, 1_000
_REPEATS = 10


def main() -> int:
    """Time and write."""
    topics = {f"t{i}": _NUM_PARTITIONS for i in range(_NUM_TOPICS)}
    ids = {name: uuid.UUID(int=100 + i) for i, name in enumerate(topics)}
    owner = np.arange(_NUM_TOPICS * _NUM_PARTITIONS) % _NUM_MEMBERS
    moved = owner.copy()
    chosen = np.random.default_rng(3).choice(len(owner), _NUM_MOVES, replace=False)
    moved[chosen] = (moved[chosen] + 1) % _NUM_MEMBERS
    names = [f"m{i:04d}" for i in range(_NUM_MEMBERS)]
    members = [member(name, topics, _pairs(owner == i), 7) for i, name in enumerate(names)]
    identity = fingerprint(
        [(f"m:{name}", [topic_id_text(each) for each in ids.values()]) for name in names],
        {topic_id_text(ids[name]): count for name, count in topics.items()},
    )
    cluster = Cluster(topics, dict(ids))
    cases: dict[str, tuple[Any, str]] = {
        "no_hint": (None, "NO_HINT"),
        "moves": (_hint(names, ids, moved, identity), "FOLLOWED"),
        "kept": (_hint(names, ids, owner, identity), "FOLLOWED"),
        "other_group": (_hint(names, ids, moved, "0" * 64), "FINGERPRINT"),
    }
    result: dict[str, Any] = {
        "members": _NUM_MEMBERS,
        "partitions": len(owner),
        "moves": _NUM_MOVES,
        "repeats": _REPEATS,
    }
    # Turn by turn, so that a busy moment of the machine is not one case's alone.
    rounds = [
        {name: _time(cluster, members, value, wanted) for name, (value, wanted) in cases.items()}
        for _ in range(_REPEATS)
    ]
    best = {name: min(each[name] for each in rounds) for name in cases}
    result |= {f"{name}_s": round(seconds, 3) for name, seconds in best.items()}
    result |= {f"{name}_by_no_hint": round(seconds / best["no_hint"], 2) for name, seconds in best.items()}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 0


def _pairs(rows: Any) -> list[tuple[str, int]]:
    return [(f"t{row // _NUM_PARTITIONS}", int(row % _NUM_PARTITIONS)) for row in np.flatnonzero(rows)]


def _hint(names: list[str], ids: dict[str, uuid.UUID], owner: Any, identity: str) -> bytes:
    assignment: dict[str, dict[str, tuple[int, ...]]] = {}
    for index, name in enumerate(names):
        by_topic: dict[str, list[int]] = {}
        for topic, number in _pairs(owner == index):
            by_topic.setdefault(topic_id_text(ids[topic]), []).append(number)
        assignment[f"m:{name}"] = {topic: tuple(numbers) for topic, numbers in by_topic.items()}
    payload = HintPayload(
        cluster_id="A" * 21 + "Q",
        group_id="g",
        snapshot_id="bench",
        fingerprint=identity,
        assignment=assignment,
        count_slack=100,
        max_moves=_NUM_MOVES,
    )
    return encode_hint(payload.encode(), sequence=1, issued_at_ms=1, expires_at_ms=2**53)


def _time(cluster: Any, members: list[Any], value: bytes | None, wanted: str) -> float:
    cache = HintCache("g")
    cache.apply_hint(value)
    cache.mark_ready()
    assignor = HintAssignor(cache)
    started = time.perf_counter()
    assignor.assign(cluster, members)
    seconds = time.perf_counter() - started
    decision = assignor.last_decision
    if decision is None or decision.reason != wanted:
        raise AssertionError(f"the leader's verdict is {decision and decision.reason}, not {wanted}")
    return seconds


if __name__ == "__main__":
    raise SystemExit(main())
