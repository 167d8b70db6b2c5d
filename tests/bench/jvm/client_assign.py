"""The Java client beside Kafka's cooperative-sticky: ``python -m tests.bench.jvm.client_assign [--quick]``.

Each shape has a JVM of its own, in which both run in turn after it has compiled both. Kafka's general
algorithm takes minutes for some large groups, so a run that exceeds a cap ends its series. The ratio is that
of medians by the clock; that of processor times tells the same on a machine with other work.

It writes ``docs/bench/client_assign.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from sandbox.kafka.jvm_jars import build_client
from tests.support.java_client.harness import ClientHarness

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "bench" / "client_assign.json"
# The JVM compiles meanwhile: so many runs of each, or so long.
_WARM_UP = {"warm_up_runs": 1_000, "warm_up_ms": 10_000}
_CAP_MS = 60_000
_SMALL: Final = {"members": 500, "partitions": 5_000, "fresh": False}
_EQUAL: Final = {"members": 2_000, "topics": 100, "partitions": 100_000, "subscriptions": "equal"}
# Who takes which topics, of how many, is explained in AssignBench.java.
_SUBSCRIPTIONS: Final = (("random", 100), ("neighbours", 100), ("neighbours", 1_000), ("added", 100))
_SHAPES: Final[tuple[dict[str, Any], ...]] = (
    {**_EQUAL, "fresh": True, "owned_from": "evenlag"},
    {**_EQUAL, "fresh": False, "owned_from": "evenlag"},
    *(
        {**_SMALL, "subscriptions": subscriptions, "topics": topics, "owned_from": owned_from}
        for subscriptions, topics in _SUBSCRIPTIONS
        for owned_from in ("evenlag", "kafka")
    ),
)


def measure(harness: ClientHarness, shape: dict[str, Any], runs: int) -> dict[str, Any]:
    """Return the figures."""
    answer = harness.ask("bench", **shape, **_WARM_UP, runs=runs, cap_ms=_CAP_MS)
    ours, ours_cpu = (statistics.median(answer[key]) for key in ("ours_ms", "ours_cpu_ms"))
    # Of a series that was ended, the cap is the least that a run takes.
    theirs, theirs_cpu = (
        statistics.median(answer[key] or [float(_CAP_MS)]) for key in ("theirs_ms", "theirs_cpu_ms")
    )
    return {
        **shape,
        "runs": runs,
        "ours_median_ms": round(ours, 2),
        "cooperative_sticky_median_ms": round(theirs, 2),
        "is_capped": answer["is_capped"],
        "ratio": round(ours / theirs, 3),
        "ratio_of_processor_time": round(ours_cpu / theirs_cpu, 3),
    }


def main() -> int:
    """Time and write."""
    parser = argparse.ArgumentParser(description="Time assign beside Kafka's cooperative-sticky.")
    parser.add_argument("--runs", type=int, default=31, help="of each assignor")
    parser.add_argument("--quick", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jar = build_client(folder)
        rows = []
        for number, shape in enumerate(_SHAPES):
            classes = folder / f"classes-{number}"
            classes.mkdir()
            with ClientHarness(jar, classes, options=("-Xmx2g", "-XX:+UseG1GC")) as harness:
                rows.append(measure(harness, shape, arguments.runs))
    text = json.dumps(rows, indent=1)
    sys.stdout.write(text + "\n")
    if not arguments.quick:
        RESULTS.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
