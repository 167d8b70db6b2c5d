"""Time planning on two standalone Spark workers of one core beside one: ``python -m tests.bench.workers``.

1,000 groups of 1,000 partitions, in a warm session each; results go to docs/bench/workers.json with the
number of the machine's cores. Driver and workers share them: with two cores there is none for the driver, so
a ratio that says something of two workers takes four or more. ``--quick`` runs a tenth and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from spark_jobs.runtime.classic_session import build_session
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.plan_groups import plan_groups
from tests.bench.support.planning_data import (
    Groups,
    lake_without_plans,
    plan_context,
    snapshot_rows,
    write_groups,
)
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_cluster_runs import driver_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "workers.json"
GROUPS = Groups(1_000, 1_000)
REPEATS = 5
# What is timed runs for minutes: it pays to compile, and there are rows to hold.
CONF = {
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "16",
    "spark.eventLog.enabled": "false",
}


def time_planning(spark: SparkSession, root: str, size: Groups, name: str, repeats: int) -> list[float]:
    """Plan the snapshot, once to warm up and then for the clock: seconds."""
    lake, times = Lake(spark, root), []
    for repeat in range(repeats + 1):
        context = plan_context("shadow", f"{name}-{repeat}")
        with lake_without_plans(lake) as own:
            started = time.perf_counter()
            planned = plan_groups(snapshot_rows(own), context)
            seconds = time.perf_counter() - started
        if len(planned.heads) != size.groups:
            raise RuntimeError(f"{len(planned.heads)} of {size.groups} groups have a plan")
        if repeat:
            times.append(round(seconds, 2))
        sys.stdout.write(f"{name}: {f'repeat {repeat}' if repeat else 'warming up'} {seconds:.1f} s\n")
        sys.stdout.flush()
    return times


def run(folder: Path, size: Groups, repeats: int) -> dict[str, Any]:
    """One worker, then another one beside it, over the same snapshot."""
    found: dict[str, list[float]] = {}
    with SparkCluster.start(folder / "spark", num_workers=1, memory="2g", conf=CONF) as cluster:
        os.environ.update(driver_environment(cluster))
        for count in (1, 2):
            if count > len(cluster.workers):
                cluster.start_worker()
                cluster.wait_for_workers(count)
            spark = build_session(f"evenlag workers {count}")
            try:
                if count == 1:
                    write_groups(Lake(spark, str(folder / "lake")), size)
                found[f"workers_{count}"] = time_planning(
                    spark, str(folder / "lake"), size, f"{count} workers", repeats
                )
            finally:
                spark.stop()
    one, two = (median(found[f"workers_{count}"]) for count in (1, 2))
    return {
        "cores": os.cpu_count(),
        "groups": size.groups,
        "partitions": size.partitions,
        "seconds": found,
        "median_s": {"workers_1": one, "workers_2": two},
        "ratio": round(one / two, 2),
    }


def main(argv: list[str] | None = None) -> int:
    """Run it, say what came out, and keep it."""
    parser = argparse.ArgumentParser(prog="tests.bench.workers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the groups, once; keeps nothing")
    arguments = parser.parse_args(argv)
    size = replace(GROUPS, groups=GROUPS.groups // 10) if arguments.quick else GROUPS
    with tempfile.TemporaryDirectory() as temporary:
        results = run(Path(temporary), size, 1 if arguments.quick else REPEATS)
    text = json.dumps(results, indent=1)
    sys.stdout.write(text + "\n")
    if not arguments.quick:
        RESULTS.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
