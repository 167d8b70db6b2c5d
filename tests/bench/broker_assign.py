"""``assign`` in a broker beside Kafka's own: ``python -m tests.bench.broker_assign [--quick]``.

One JVM, one group of 2,000 static members that hold 100,000 partitions, three assignors in turn: Kafka's
``uniform``, the plug-in with a hint that asks for 1,000 moves, and the plug-in without one; beside them the
fingerprint alone, which is part of following. It writes ``docs/bench/broker_assign.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from sandbox.kafka.jvm_jars import build_plugin
from tests.support.broker_plugin.harness import Harness

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "broker_assign.json"
_WARM_UP = 20


def measure(harness: Harness, *, runs: int, members: int, topics: int, partitions: int) -> dict[str, Any]:
    """Return the figures; the first runs, in which the JVM still compiles, are left out."""
    answer = harness.ask(
        "bench",
        members=members,
        topics=topics,
        partitions=partitions,
        moves=members // 4 * 2,
        runs=_WARM_UP + runs,
    )
    taken = {name: [ns / 1e6 for ns in times[_WARM_UP:]] for name, times in answer["times_ns"].items()}
    medians = {name: statistics.median(times) for name, times in taken.items()}
    return {
        "members": members,
        "topics": topics,
        "partitions": topics * partitions,
        "moves": members // 4 * 2,
        "runs": runs,
        "median_ms": {name: round(value, 2) for name, value in medians.items()},
        "best_ms": {name: round(min(times), 2) for name, times in taken.items()},
        "worst_ms": {name: round(max(times), 2) for name, times in taken.items()},
        "median_by_uniform": {name: round(value / medians["uniform"], 2) for name, value in medians.items()},
        "record_bytes": answer["record_bytes"],
        "held_bytes": answer["hint_bytes"],
        "decode_ms_cold": round(answer["decode_ns"] / 1e6, 1),
    }


def main() -> int:
    """Time and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40, help="of each assignor")
    parser.add_argument("--quick", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        classes = Path(folder) / "classes"
        classes.mkdir()
        with Harness(build_plugin(Path(folder)), classes, options=["-Xmx2g", "-XX:+UseG1GC"]) as harness:
            shapes = [(2_000, 100, 1_000), (2_000, 10, 10_000), (50, 10, 20)]
            rows = [
                measure(harness, runs=arguments.runs, members=m, topics=t, partitions=p) for m, t, p in shapes
            ]
    text = json.dumps(rows, indent=1)
    sys.stdout.write(text + "\n")
    if not arguments.quick:
        RESULTS.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
