"""The Java client beside Kafka's cooperative-sticky: ``python -m tests.bench.jvm.client_assign [--quick]``.

Both in turn in one JVM. Kafka's general algorithm takes minutes for large groups with unequal subscriptions,
so a run that exceeds a cap ends its series. It writes ``docs/bench/client_assign.json``.
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
_WARM_UP = 40  # the JVM compiles meanwhile
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
    """Return the figures; the first runs, in which the JVM still compiles, are left out."""
    answer = harness.ask("bench", **shape, runs=_WARM_UP + runs, cap_ms=_CAP_MS)
    ours = statistics.median(answer["ours_ms"][_WARM_UP:])
    kept = answer["theirs_ms"][_WARM_UP:] or answer["theirs_ms"]
    # Of a series that was ended, the cap is the least that a run takes.
    theirs = statistics.median(kept) if kept else float(_CAP_MS)
    return {
        **shape,
        "runs": runs,
        "ours_median_ms": round(ours, 2),
        "cooperative_sticky_median_ms": round(theirs, 2),
        "is_capped": answer["is_capped"],
        "ratio": round(ours / theirs, 3),
    }


def main() -> int:
    """Time and write."""
    parser = argparse.ArgumentParser(description="Time assign beside Kafka's cooperative-sticky.")
    parser.add_argument("--runs", type=int, default=15, help="of each assignor")
    parser.add_argument("--quick", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "classes").mkdir()
        options = ("-Xmx2g", "-XX:+UseG1GC")
        with ClientHarness(build_client(folder), folder / "classes", options=options) as harness:
            rows = [measure(harness, shape, arguments.runs) for shape in _SHAPES]
    text = json.dumps(rows, indent=1)
    sys.stdout.write(text + "\n")
    if not arguments.quick:
        RESULTS.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
