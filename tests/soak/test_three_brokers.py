"""The integration tests that concern brokers, ten times in a row on a cluster of three nodes.

``make soak``. Each round is a pytest of its own with ``--brokers 3``, on a new cluster. The counts of the
rounds are written to ``docs/bench/three_brokers.json``; ``EVENLAG_SOAK_BROKER_ROUNDS`` sets how many, and
``EVENLAG_SOAK_BROKER_AT_ONCE`` how many of them run beside each other: they wait half of their time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(12 * 3600)]

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "docs" / "bench" / "three_brokers.json"
NUM_BROKERS: Final = 3
ROUNDS: Final = 10
# Snapshots, publishing, consumers, the newer protocol, the command and whole cycles.
PATHS: Final = (
    "tests/evenlag/kafka",
    "tests/evenlag/publishing",
    "tests/evenlag/consumer",
    "tests/evenlag/doctor",
    "tests/evenlag/cli",
    "tests/spark_jobs/steps",
    "tests/sandbox/workload",
    "tests/end_to_end",
    "tests/broker_plugin",
    "tests/java_client",
)
COUNTS: Final = ("tests", "failures", "errors", "skipped")


def test_the_integration_tests_pass_on_three_nodes_in_every_round(tmp_path: Path) -> None:
    rounds: list[dict[str, Any]] = []
    num_rounds = int(os.environ.get("EVENLAG_SOAK_BROKER_ROUNDS") or ROUNDS)
    at_once = int(os.environ.get("EVENLAG_SOAK_BROKER_AT_ONCE") or 1)
    with ThreadPoolExecutor(at_once) as pool:
        for found in pool.map(run_round, [tmp_path / f"round-{number}" for number in range(num_rounds)]):
            rounds.append(found)
            results = {
                "brokers": NUM_BROKERS,
                "replication": NUM_BROKERS,
                "at_once": at_once,
                "paths": PATHS,
                "rounds": rounds,
            }
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    assert [found["failed"] for found in rounds] == [[]] * num_rounds
    assert all(found["tests"] - found["skipped"] > 0 for found in rounds)


def run_round(folder: Path) -> dict[str, Any]:
    """Run the tests once; returns their counts, and the names of those that failed."""
    folder.mkdir()
    report = folder / "report.xml"
    options = ["-n0", "-q", "-m", "broker and not soak and not airflow", "--brokers", str(NUM_BROKERS)]
    options += [f"--junitxml={report}", f"--basetemp={folder / 'tmp'}"]
    command = [sys.executable, "-m", "pytest", *options, *PATHS]
    started = time.monotonic()
    log = folder / "output.txt"
    with log.open("wb") as output:
        ended = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False)
    assert ended.returncode in {0, 1}, log.read_text(encoding="utf-8", errors="replace")[-3000:]
    suite = next(ET.parse(report).iter("testsuite"))  # noqa: S314  # pytest has just written it
    failed = [
        f"{case.get('classname')}.{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    counts = {name: int(suite.get(name, 0)) for name in COUNTS}
    return {**counts, "failed": failed, "seconds": round(time.monotonic() - started)}
