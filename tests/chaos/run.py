"""The long storms: ``python -m tests.chaos.run [--seconds N] [--seed N] [--only NAME]``.

One on a broker that does not create topics by itself, one on a broker that does, one with consumers of
Kafka's Java client among the eight, and one on three nodes that fail one after the other. The figures are
written to docs/bench/chaos.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.kafka.broker import Broker
from tests.chaos.cluster_storm import ClusterStorm
from tests.chaos.storm import Storm
from tests.support.kafka_cluster import Cluster

if TYPE_CHECKING:
    from tests.chaos.verdict import Verdict

# A consumer with its watcher has 60 MB; a compressed batch of the storm would add 32 MB, and more while it
# is decompressed.
MOST_CONSUMER_MB = 90.0
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "chaos.json"


STORMS = ("auto_create_off", "auto_create_on", "java_members", "three_nodes")


def main(argv: list[str]) -> int:
    """Run the storms and write the figures."""
    parser = argparse.ArgumentParser(prog="tests.chaos.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=240.0, help="how long each of the storms lasts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the journals, to look at")
    parser.add_argument("--only", choices=STORMS, help="one of the storms")
    arguments = parser.parse_args(argv)
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    status = 0
    for name in STORMS:
        if arguments.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            directory = (arguments.keep or Path(temporary)) / name
            directory.mkdir(parents=True, exist_ok=True)
            verdict = run_storm(name, directory, arguments.seconds, arguments.seed)
        for finding in verdict.findings:
            sys.stdout.write(f"{finding}\n")
        is_bloated = verdict.figures["consumer_peak_mb"] > MOST_CONSUMER_MB
        figures = {
            "seed": arguments.seed,
            "seconds": arguments.seconds,
            "findings": len(verdict.findings) + is_bloated,
            **verdict.figures,
        }
        results[name] = figures
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")
        status |= bool(verdict.findings) or is_bloated
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return status


def run_storm(name: str, directory: Path, seconds: float, seed: int) -> Verdict:
    """Start the brokers of a storm, and run it."""
    if name == "three_nodes":
        with Cluster.start(directory / "nodes") as nodes:
            return ClusterStorm(nodes, directory / "journals", seed=seed).run(seconds)
    auto_create = name == "auto_create_on"
    properties = {"auto.create.topics.enable": str(auto_create).lower()}
    with Broker.start(directory / "node", properties=properties) as broker:
        return Storm(
            broker,
            directory / "journals",
            seed=seed,
            auto_create=auto_create,
            has_java=name == "java_members",
        ).run(seconds)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
