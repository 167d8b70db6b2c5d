"""What tests and benches do with the sandbox's Spark cluster: run a cycle's steps on it, see who worked."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.spark_cluster import SparkCluster

ROOT = Path(__file__).resolve().parents[1]


def driver_environment(cluster: SparkCluster) -> dict[str, str]:
    """Variables for a driver on this machine: as an Airflow worker has them."""
    bin_folder = str(Path(sys.executable).parent)
    return cluster.environment() | {
        "AIRFLOW_CONN_SPARK_DEFAULT": cluster.connection(),
        "EVENLAG_SPARK_MASTER": cluster.master_url,
        "PATH": os.pathsep.join([bin_folder, os.environ.get("PATH", os.defpath)]),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }


def events_of(cluster: SparkCluster) -> list[dict[str, Any]]:
    """All events of all applications that have run, in order; one that is killed leaves what it wrote."""
    events = []
    for path in sorted((cluster.directory / "events").glob("eventlog_*/events_*")):
        lines = path.read_text(encoding="utf-8").splitlines()
        events += [json.loads(line) for line in lines if line.endswith("}")]
    return events


def tasks_by_executor(events: list[dict[str, Any]]) -> dict[str, int]:
    """How many tasks came to a good end, by the application's and the executor's id."""
    done: dict[str, int] = defaultdict(int)
    application = ""
    for event in events:
        if event["Event"] == "SparkListenerApplicationStart":
            application = event["App ID"]
        if event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
            done[f"{application}/{event['Task Info']['Executor ID']}"] += 1
    return dict(done)
