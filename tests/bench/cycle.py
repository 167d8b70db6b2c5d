"""What a cycle costs beside the least that Spark and Delta cost: warm, and from a cold start.

``python -m tests.bench.cycle [--rounds N] [--only warm|cold] [--connect]`` starts a broker and two groups on
31 partitions, and writes ``docs/bench/cycle.json``.

- *warm*: in one session, in turn, ``base`` (one Delta append of 31 rows by Spark, and one read of them), a
  quiet cycle, and a cycle that plans and publishes. Reported are the ratios to ``base`` of the same round,
  Spark jobs, Delta commits by writer, and CPU seconds. ``--connect`` uses a Spark Connect server.
- *cold*: ``evenlag run``, and a PySpark program with the same JVM options that appends one row, in turn.
  There are as many rounds as a table of Spark has commits between two checkpoints, on a new lake: the last
  one writes them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.location import LOG_FOLDER
from evenlag.lake.table_properties import COMMITS_PER_CHECKPOINT
from evenlag.lake.tables import TABLES
from evenlag.policy.loader import load_policy
from evenlag.publishing.publish import publish_hints
from evenlag.spark_connect import REMOTE_VARIABLE
from spark_jobs.runtime.session import open_session
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.bench.support.cycle_world import CLUSTER, CycleWorld
from tests.bench.support.machine import this_machine
from tests.soak.probes import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "cycle.json"
_NUM_ROWS: Final = 31
_WARM_UP: Final = 3
_BACKLOG_S: Final = 30.0
_COLD_BACKLOG_S: Final = 60.0


class Counter:
    """Counts Spark jobs, Delta commits and CPU seconds of a piece of work."""

    def __init__(self, spark: SparkSession, lake: Path) -> None:
        self._spark, self._lake = spark, lake

    def measure(self, work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
        """Run the work; return its result and the counts."""
        before, begin = self._read(), time.perf_counter()
        result = work()
        seconds = time.perf_counter() - begin
        after = self._read()
        return result, {"seconds": seconds} | {name: after[name] - before[name] for name in after}

    def _read(self) -> dict[str, float]:
        # The JVM of a classic session is a child of this process.
        counts: dict[str, float] = {"cpu_s": cpu_seconds(os.getpid())}
        counts |= {"commits_by_spark": 0, "commits_by_deltalake": 0}
        for table in TABLES.values():
            name = "commits_by_spark" if table.writer == "spark" else "commits_by_deltalake"
            counts[name] += len(list((self._lake / table.name / LOG_FOLDER).glob("*[0-9].json")))
        if REMOTE_VARIABLE not in os.environ:
            counts["spark_jobs"] = len(self._spark.sparkContext.statusTracker().getJobIdsForGroup(None))
        return counts


def measure_warm(world: CycleWorld, rounds: int, *, by_connect: bool) -> dict[str, Any]:
    """Measure cycles in one warm session."""
    with ExitStack() as stack:
        if by_connect:
            stack.enter_context(_connect_server())
        spark = stack.enter_context(open_session("evenlag-bench"))
        counter = Counter(spark, world.lake)
        rows = []
        for number in range(_WARM_UP + rounds):
            row = _round(spark, world, counter, number)
            sys.stdout.write(f"{number} {json.dumps(row)}\n")
            sys.stdout.flush()
            if number >= _WARM_UP:
                rows.append(row)
    summary = {
        f"{kind}_by_base": statistics.median(row[kind]["seconds"] / row["base"]["seconds"] for row in rows)
        for kind in ("quiet", "planning")
    }
    for kind in ("quiet", "planning"):
        for name in sorted(rows[0][kind].keys() - {"seconds"}):
            summary[f"{kind}_{name}"] = statistics.median(row[kind][name] for row in rows)
    return {"rounds": rows, "median": summary}


def _round(spark: SparkSession, world: CycleWorld, counter: Counter, number: int) -> dict[str, Any]:
    world.wait_until_idle()
    _, base = counter.measure(lambda: _base(spark, world.folder / "base"))
    quiet, quiet_counts = counter.measure(lambda: _cycle(spark, world, f"quiet-{number}"))
    # A plan expires when the backlog drains while it is made, and the first rounds take long.
    world.skew(_COLD_BACKLOG_S if number < _WARM_UP else _BACKLOG_S)
    planned, planning_counts = counter.measure(lambda: _cycle(spark, world, f"planning-{number}"))
    if planned["published"] == 0:
        sys.exit(f"round {number}: nothing was published: {planned}")
    return {
        "base": base,
        "quiet": quiet_counts | {"plans": quiet["plans"]},
        "planning": planning_counts | {"plans": planned["plans"], "published": planned["published"]},
    }


def _cycle(spark: SparkSession, world: CycleWorld, run_id: str) -> dict[str, Any]:
    loaded, slot = load_policy(world.config), datetime.now(UTC)
    run_observe(spark, loaded, CLUSTER, slot, run_id)
    decided = run_decide(spark, loaded, CLUSTER, slot, run_id)
    return decided | publish_hints(loaded, CLUSTER, slot, run_id).summary()


def _base(spark: SparkSession, folder: Path) -> None:
    rows = [(number, f"row-{number}", number / 7) for number in range(_NUM_ROWS)]
    frame = spark.createDataFrame(rows, "number INT, name STRING, value DOUBLE").coalesce(1)
    frame.write.format("delta").mode("append").save(str(folder))
    found = spark.read.format("delta").load(str(folder)).limit(_NUM_ROWS).collect()
    if len(found) != _NUM_ROWS:
        sys.exit(f"read {len(found)} rows of {_NUM_ROWS}")


@contextmanager
def _connect_server() -> Iterator[None]:
    """Start a Spark Connect server that this process's jobs use."""
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "spark_jobs.connect_server", "--port=0", f"--ready-fd={writing}"]
    process = subprocess.Popen(command, pass_fds=(writing,))
    os.close(writing)
    try:
        with os.fdopen(reading) as ready:
            os.environ[REMOTE_VARIABLE] = ready.readline().strip()
        yield
    finally:
        os.environ.pop(REMOTE_VARIABLE, None)
        process.terminate()
        process.wait()


def measure_cold(world: CycleWorld) -> dict[str, Any]:
    """Measure ``evenlag run`` beside the least PySpark program, in turn, on a new lake."""
    rows = []
    for number in range(COMMITS_PER_CHECKPOINT + 1):
        world.wait_until_idle()
        program = [sys.executable, "-m", "tests.bench.support.least_program", str(world.folder / "least")]
        least_s = _time(program)
        world.skew(_COLD_BACKLOG_S)
        command = [sys.executable, "-m", "evenlag", "run", f"--config={world.config}", "--publish", "--json"]
        run_s = _time(command)
        row = {"least_s": least_s, "run_s": run_s, "ratio": run_s / least_s}
        sys.stdout.write(f"{number} {json.dumps(row)}\n")
        sys.stdout.flush()
        # The first fills the disk's cache and makes the tables.
        if number:
            rows.append(row)
    return {
        "rounds": rows,
        "median": {"run_by_least": statistics.median(row["ratio"] for row in rows)},
    }


def _time(command: Sequence[str]) -> float:
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command[2:5]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return time.perf_counter() - begin


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(prog="tests.bench.cycle", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="of the warm part")
    parser.add_argument("--only", choices=("warm", "cold"))
    parser.add_argument("--connect", action="store_true", help="warm: on a Spark Connect server")
    arguments = parser.parse_args(argv)
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as folder, CycleWorld(Path(folder)) as world:
        if arguments.only != "warm":
            results["cold"] = measure_cold(world)
        if arguments.only != "cold":
            name = "warm_connect" if arguments.connect else "warm"
            results[name] = measure_warm(world, arguments.rounds, by_connect=arguments.connect)
    results["machine"] = this_machine("pyspark", "delta-spark", "deltalake", "kafka-python")
    RESULTS.write_text(f"{json.dumps(results, indent=1, sort_keys=True)}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
