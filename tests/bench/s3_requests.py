"""Requests to S3 by the cycles of a small cluster: by operation, by table, and how they grow.

``python -m tests.bench.s3_requests [--cycles N]`` starts a broker, two groups and an S3 server behind a proxy
that counts. Cycles run in one process, from an empty lake on and then warm; then as Airflow's tasks, each of
which opens its tables itself, in the same session, as tasks are clients of one Spark Connect server: those of
a cluster's own DAG, and the two of ``group_clusters``. Publishing and the report are included. It writes
``docs/bench/s3_requests.json``.

Each tenth cycle writes checkpoints, and each step may compact a table's twenty small files: the mean of 20
warm cycles is that of a day.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.delta_log import forget_tables, one_look
from evenlag.monitoring.alerts import find_changes, record_changes
from evenlag.overview.metrics import read_metrics
from evenlag.policy.loader import load_policy
from evenlag.publishing.publish import publish_hints
from evenlag.spark_installation import JARS_VARIABLE
from spark_jobs.runtime.session import open_session
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.bench.support.cycle_world import CLUSTER, CycleWorld
from tests.support.s3.counted import CountingProxy, counting_proxy
from tests.support.s3.jars import jars_for_s3
from tests.support.s3.server import s3_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "s3_requests.json"
# Before which steps a process begins.
_WAYS: Final = {
    "first": frozenset[str](),
    "warm": frozenset[str](),
    "airflow": frozenset({"observe", "decide", "publish", "report"}),
    "grouped": frozenset({"observe", "report"}),
}
_BUCKET: Final = "bench"
_POLICY: Final = """\
lake: s3://{bucket}/lake
audit_schedule: null
clusters:
  bench: {{bootstrap_servers: "{servers}", hint_topic: hints, schedule: null, temporary_member_after_s: null}}
groups:
  - {{match: "*", mode: auto, reset_policy: earliest, min_gain: 0.05, gates: {{cooldown_s: 0}}}}
"""


def _tasks(spark: SparkSession, config: Path, run_id: str) -> dict[str, Callable[[], Any]]:
    """The tasks of a cycle, in order."""
    loaded, slot = load_policy(config), datetime.now(UTC)

    def report() -> None:
        with one_look():
            changes = find_changes(loaded, CLUSTER, datetime.now(UTC))
            read_metrics(loaded.policy.lake, CLUSTER, datetime.now(UTC))
            record_changes(loaded, CLUSTER, changes, run_id=run_id, now=datetime.now(UTC))

    return {
        "observe": lambda: run_observe(spark, loaded, CLUSTER, slot, run_id),
        "decide": lambda: run_decide(spark, loaded, CLUSTER, slot, run_id),
        "publish": lambda: publish_hints(loaded, CLUSTER, slot, run_id).summary(),
        "report": report,
    }


def measure(
    spark: SparkSession, world: CycleWorld, proxy: CountingProxy, config: Path, cycles: int, way: str
) -> list[dict[str, Any]]:
    """Count the requests of cycles, some steps of which open the tables again."""
    rows = []
    for number in range(cycles):
        if number % 10 == 0:
            world.skew(30.0)
        row: dict[str, Any] = {"total": 0, "tasks": {}, "operations": Counter(), "tables": {}}
        for name, work in _tasks(spark, config, f"{way}-{number}").items():
            if name in _WAYS[way]:
                forget_tables()
            with proxy.counted() as counts:
                work()
            row["tasks"][name] = counts.total()
            row["total"] += counts.total()
            for (operation, table), count in counts.items():
                row["operations"][operation] += count
                of_table = row["tables"].setdefault(table, Counter())
                of_table[operation] += count
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        rows.append(row)
    return rows


def log_bytes(lake: Path) -> dict[str, dict[str, int]]:
    """Bytes and number of the files in the logs, by the end of their names."""
    found: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for path in lake.glob("*/_delta_log/*"):
        found[path.suffix] += path.stat().st_size
        counts[path.suffix] += 1
    return {"bytes": found, "files": counts}


def main(argv: list[str] | None = None) -> int:
    """Run the cycles and write the counts."""
    parser = argparse.ArgumentParser(prog="tests.bench.s3_requests", description=__doc__)
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--write", type=Path, default=RESULTS)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        jars = jars_for_s3(folder / "jars")
        with (
            CycleWorld(folder) as world,
            s3_server(folder / "s3") as server,
            counting_proxy(server.endpoint) as proxy,
        ):
            server.make_bucket(_BUCKET)
            os.environ |= server.environment()
            os.environ |= {"AWS_ENDPOINT_URL": proxy.endpoint, JARS_VARIABLE: str(jars)}
            servers = world.broker.bootstrap_servers
            world.config.write_text(_POLICY.format(bucket=_BUCKET, servers=servers), encoding="utf-8")
            with open_session("evenlag-bench") as spark:
                found: dict[str, Any] = {
                    way: measure(spark, world, proxy, world.config, arguments.cycles, way) for way in _WAYS
                }
            found["log_bytes"] = log_bytes(server.folder / _BUCKET / "lake")
    arguments.write.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
