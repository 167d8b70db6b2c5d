"""Time planning beside a Spark job that only reads the same rows and writes as many plan rows to Delta.

``python -m tests.bench.planning`` runs all of it on one warm session and writes ``docs/bench/planning.json``
and the picture of it; ``--quick`` runs every case at a tenth of its size, twice, and writes nothing;
``--only scale`` (or ``shapes``, ``skew``) runs a part and leaves the others' results as they stand. Snapshots
are made before anything is timed. The default assignor plans, and every figure says what share of the groups
got a plan: a group without one costs less.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from evenlag.lake.snapshot_ids import slot_day
from evenlag.lake.tables import LAG, PLAN_ASSIGNMENTS
from spark_jobs.runtime.classic_session import build_session
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.session import sized_session
from spark_jobs.steps.plan_groups import plan_groups
from tests.bench.support.planning_data import (
    SNAPSHOT,
    Groups,
    lake_without_plans,
    plan_context,
    snapshot_rows,
    write_groups,
)
from tests.bench.support.planning_picture import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "planning.json"
DRIVER_MEMORY = "2g"
REPEATS = 5
SHAPES = {
    "1,000 groups x 1,000": Groups(1_000, 1_000),
    "10,000 groups x 100": Groups(10_000, 100),
    "1,000 groups x 100, all partitions behind": Groups(1_000, 100, "rough"),
}
SCALE = {
    "100,000 rows": (Groups(1_000, 100), REPEATS),
    "1,000,000 rows": (Groups(10_000, 100), REPEATS),
    # It takes minutes: once.
    "10,000,000 rows": (Groups(100_000, 100), 1),
}
LARGE = Groups(1, 1_000_000, per_member=1_000, name="large")
# What a Spark job writes that plans nothing: as many rows, of the same columns.
ROWS_OF_SPARK = replace(PLAN_ASSIGNMENTS, name="plan_rows", writer="spark")
SMALL = Groups(10_000, 100, name="small")


class Bench:
    """One session, one folder of lakes, and what was found."""

    def __init__(self, spark: SparkSession, folder: Path, *, is_quick: bool) -> None:
        self.spark = spark
        self.folder = folder
        self.is_quick = is_quick
        self.number = 0
        self.compared: dict[Groups, dict[str, Any]] = {}

    def lake(self, *sizes: Groups) -> tuple[Lake, int, int]:
        """Write a snapshot: the lake, its rows of lag, its groups."""
        self.number += 1
        lake = Lake(self.spark, str(self.folder / str(self.number)))
        if self.is_quick:
            sizes = tuple(
                replace(size, groups=max(size.groups // 10, 1))
                if size.groups > 1
                else replace(size, partitions=size.partitions // 10)
                for size in sizes
            )
        rows = sum(size.rows for size in sizes)
        with sized_session(self.spark, rows):
            for size in sizes:
                write_groups(lake, size)
        return lake, rows, sum(size.groups for size in sizes)

    def plan(self, lake: Lake, rows: int, mode: str, repeat: int) -> dict[str, float]:
        """Plan once: seconds, plans, groups that failed, plan rows written."""
        context = plan_context(mode, f"{repeat}-{time.monotonic_ns()}")
        with lake_without_plans(lake) as own:
            start = time.perf_counter()
            with sized_session(self.spark, rows):
                planned = plan_groups(snapshot_rows(own), context)
            seconds = time.perf_counter() - start
            written = own.read(PLAN_ASSIGNMENTS).count()
        plans, failed = len(planned.heads), planned.num_failed
        return {"s": seconds, "plans": plans, "failed": failed, "rows": written}

    def only_write(self, lake: Lake, rows: int, per_group: float | None) -> float:
        """Read the snapshot's rows and write them, or so many a group, as rows of plans: seconds."""
        from pyspark.sql import functions as sf

        start = time.perf_counter()
        with sized_session(self.spark, rows):
            lag = lake.read_days(LAG, "c", [slot_day(SNAPSHOT)], [SNAPSHOT])
            if per_group is not None:
                lag = lag.where(sf.col("partition") < round(per_group))
            plan_rows = lag.select(
                "cluster",
                "day",
                "snapshot_id",
                sf.col("group_id").alias("plan_id"),
                "group_id",
                "topic_id",
                "topic",
                "partition",
                sf.col("owner_member_id").alias("owner_before"),
                sf.col("owner_member_id").alias("owner_after"),
                sf.concat(sf.lit("m:"), "owner_member_id").alias("owner_after_key"),
                (sf.col("lag_records") > 0).alias("moved"),
                "lag_records",
                sf.col("status").alias("lag_status"),
            )
            files = -(-rows // 1_000_000)
            lake.append(ROWS_OF_SPARK, plan_rows, files=files)
        return time.perf_counter() - start

    def compare(self, name: str, size: Groups, repeats: int) -> dict[str, Any]:
        """Both modes beside their job that only reads and writes, in turns; a size that was done is kept."""
        if size in self.compared:
            return self.compared[size]
        lake, rows, groups = self.lake(size)
        times: dict[str, list[float]] = {"shadow": [], "auto": [], "write_moved": [], "write_all": []}
        plans = failed = 0.0
        moved = 0.0
        for repeat in range(repeats):
            for mode in ("shadow", "auto"):
                done = self.plan(lake, rows, mode, repeat)
                times[mode].append(done["s"])
                plans, failed = done["plans"], done["failed"]
                if mode == "shadow" and not repeat:
                    moved = done["rows"] / groups
            times["write_moved"].append(self.only_write(lake, rows, moved))
            times["write_all"].append(self.only_write(lake, rows, None))
            message = ", ".join(f"{key} {values[-1]:.1f} s" for key, values in times.items())
            say(f"{name}: {message}")
        found = {f"{key}_s": round(median(values), 2) for key, values in times.items()}
        self.compared[size] = found | {
            "repeats": repeats,
            "rows": rows,
            "groups": groups,
            "share_planned": plans / groups,
            "failed": failed,
            "rows_moved_per_group": round(moved, 2),
            "shadow_by_write": round(found["shadow_s"] / found["write_moved_s"], 2),
            "auto_by_write": round(found["auto_s"] / found["write_all_s"], 2),
        }
        return self.compared[size]

    def shapes(self) -> dict[str, Any]:
        """Groups of different sizes, as many rows."""
        return {name: self.compare(name, size, self.repeats(REPEATS)) for name, size in SHAPES.items()}

    def scale(self) -> dict[str, Any]:
        """Ten times the rows, and again; with the driver's memory after each."""
        found = {}
        for name, (size, repeats) in SCALE.items():
            reset_peak_heap(self.spark)
            found[name] = self.compare(name, size, self.repeats(repeats)) | memory(self.spark)
            say(f"{name}: {found[name]}")
        return found

    def skew(self) -> dict[str, Any]:
        """One group of a million partitions beside 10,000 small ones, and each of the two alone."""
        cores = self.spark.sparkContext.defaultParallelism
        lakes = {"both": (LARGE, SMALL), "large": (LARGE,), "small": (SMALL,)}
        made = {name: self.lake(*sizes) for name, sizes in lakes.items()}
        times: dict[str, list[float]] = {name: [] for name in lakes}
        for repeat in range(self.repeats(REPEATS)):
            for name, (lake, rows, _) in made.items():
                times[name].append(self.plan(lake, rows, "shadow", repeat)["s"])
            say(f"skew: { ({name: round(values[-1], 1) for name, values in times.items()}) }")
        found = {name: round(median(values), 2) for name, values in times.items()}
        # The large one keeps one core busy, the small ones all of them.
        even = found["large"] / cores + found["small"]
        bound = max(found["large"], even)
        return {
            "repeats": len(times["both"]),
            "seconds": found,
            "cores": cores,
            "total_by_cores_s": round(even, 2),
            "by_bound": round(found["both"] / bound, 2),
        }

    def repeats(self, wanted: int) -> int:
        """How often a case runs."""
        return min(wanted, 2) if self.is_quick else wanted


def reset_peak_heap(spark: SparkSession) -> None:
    """Forget how full the driver's heap was."""
    jvm = spark._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    for pool in jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans():
        pool.resetPeakUsage()


def memory(spark: SparkSession) -> dict[str, float]:
    """What the driver held, in MB: heap at its fullest and after a collection, and both processes at most."""
    jvm = spark._jvm
    assert jvm is not None
    management = jvm.java.lang.management
    pools = [
        pool
        for pool in management.ManagementFactory.getMemoryPoolMXBeans()
        if pool.getType() == management.MemoryType.HEAP
    ]
    peak = sum(pool.getPeakUsage().getUsed() for pool in pools)
    jvm.java.lang.System.gc()
    kept = management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    status = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status").read_text(encoding="ascii")
    largest_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return {
        "heap_peak_mb": round(peak / 2**20),
        "heap_kept_mb": round(kept / 2**20),
        "jvm_rss_peak_mb": round(largest_kb / 2**10),
        "python_rss_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10),
    }


def say(text: str) -> None:
    """Tell how far it is."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Warm up, time, write."""
    parser = argparse.ArgumentParser(prog="tests.bench.planning", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, twice; writes nothing")
    parser.add_argument("--only", choices=("shapes", "scale", "skew"), help="one part")
    given = parser.parse_args(arguments)
    spark = build_session("evenlag-bench-planning", conf={"spark.driver.memory": DRIVER_MEMORY})
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="evenlag-bench-") as folder:
        bench = Bench(spark, Path(folder), is_quick=given.quick)
        for size in (Groups(20, 100), Groups(3_000, 100)):
            bench.compare("warming up", size, 1)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "scale": bench.scale,
            "shapes": bench.shapes,
            "skew": bench.skew,
        }
        found = {name: run() for name, run in parts.items() if given.only in {None, name}}
    machine = {"cpus": os.cpu_count(), "spark": spark.version, "driver_memory": DRIVER_MEMORY}
    spark.stop()
    before = json.loads(RESULTS.read_text(encoding="utf-8")) if given.only and RESULTS.is_file() else {}
    result = before | {"machine": machine, **found}
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    if not given.quick:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        draw(result, RESULTS.with_suffix(".svg"))


if __name__ == "__main__":
    main(sys.argv[1:])
