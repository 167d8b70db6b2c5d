"""Time ours, Kafka's client jar and kafka-python's side by side, and write results and a picture.

``python -m tests.bench.run [part of a name ...]`` times the cases whose names hold one of the parts (all
without any), one after the other, and merges them into ``docs/bench/speed.json``; ``--draw`` only draws.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

from assignor_core.assignors import get_assignor
from assignor_core.group import Group
from assignor_core.metrics import count_moves
from tests.bench.plan import Case, all_cases
from tests.bench.support.draw import draw
from tests.bench.support.machine import this_machine
from tests.support.oracle.kafka_oracle import Oracle, class_path_or_reason

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "speed.json"
_REPEATS = 5
_SLOW_S = 2.0
_MEMORY_FROM = 100_000


def time_ours(group: Group, case: Case) -> dict[str, Any]:
    """Return the best of a few runs, from `Group` to array, the moves, and the peak of memory."""
    assignor = get_assignor(case.assignor)
    seconds: list[float] = []
    while len(seconds) < _REPEATS and sum(seconds) < _SLOW_S:
        # What a group remembers of itself belongs to the call that asks for it first.
        group._cache.clear()
        start = time.perf_counter()
        assignment = assignor.assign(group)
        seconds.append(time.perf_counter() - start)
    result: dict[str, Any] = {"ours_s": min(seconds), "moves": count_moves(group, assignment)}
    if group.num_partitions >= _MEMORY_FROM:
        group._cache.clear()
        tracemalloc.start()
        assignor.assign(group)
        result["peak_bytes_per_partition"] = tracemalloc.get_traced_memory()[1] / group.num_partitions
        tracemalloc.stop()
    return result


def time_edge(group: Group) -> float:
    """Return the seconds from columns, as they come off the wire, to a `Group`."""
    members = np.repeat(np.arange(group.num_members), np.diff(group.subscription_start))
    start = time.perf_counter()
    Group.from_arrays(
        topics=group.topics,
        num_partitions=np.diff(group.topic_start),
        member_ids=group.member_ids,
        subscriptions=(members, group.subscription_topic),
        claims=(group.claim_row, group.claim_member, group.claim_generation),
        lags=group.lag,
    )
    return time.perf_counter() - start


def time_kafka(group: Group, case: Case, class_path: str) -> float | str:
    """Return the best run of the oracle, or what happened instead."""
    with tempfile.TemporaryDirectory() as folder, Oracle(Path(folder), class_path, heap="6g") as oracle:
        timer = threading.Timer(case.budget_s, oracle.stop)
        timer.start()
        try:
            return min(oracle.ask(group, case.rival, runs=case.runs, answer=False).seconds)
        except (RuntimeError, BrokenPipeError):
            return f"> {case.budget_s:.0f}"
        finally:
            timer.cancel()


def time_kafka_python(case: Case) -> float | str:
    """Return the seconds of kafka-python's, or what happened instead."""
    command = [sys.executable, "-m", "tests.bench.support.kafka_python_run", case.name]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=case.kafka_python_s)
    except subprocess.TimeoutExpired:
        return f"> {case.kafka_python_s:.0f}"
    return float(json.loads(done.stdout)[0])


def run_case(case: Case, class_path: str) -> dict[str, Any]:
    """Return the row of one case."""
    group = case.build()
    row = {
        "members": group.num_members,
        "topics": group.num_topics,
        "partitions": group.num_partitions,
        "edge_s": time_edge(group),
        **time_ours(group, case),
    }
    if case.budget_s and class_path:
        row["kafka_s"] = time_kafka(group, case, class_path)
        if isinstance(row["kafka_s"], float):
            row["ours_by_kafka"] = row["ours_s"] / row["kafka_s"]
    if case.kafka_python_s:
        row["kafka_python_s"] = time_kafka_python(case)
        if isinstance(row["kafka_python_s"], float):
            row["kafka_python_by_ours"] = row["kafka_python_s"] / row["ours_s"]
    return row


def main(parts: list[str]) -> None:
    """Time, write, draw."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    if "--draw" not in parts:
        class_path, reason = class_path_or_reason()
        if reason:
            sys.stdout.write(f"without Kafka's jar: {reason}\n")
        results["machine"] = this_machine("numpy") | {
            "kafka_clients": "4.3.0",
            "note": "two cores shared with other work: read the ratios, not the seconds",
        }
        for case in all_cases():
            if not parts or any(part in case.name for part in parts):
                results["cases"][case.name] = row = run_case(case, class_path)
                shown = {key: round(v, 4) if isinstance(v, float) else v for key, v in row.items()}
                sys.stdout.write(f"{case.name} {shown}\n")
                sys.stdout.flush()
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    draw(results, RESULTS.with_suffix(".svg"))


if __name__ == "__main__":
    main(sys.argv[1:])
