"""A cycle over a million real partitions: 10,000 consumer groups of 100 partitions on a real broker.

``python -m tests.bench.million [--groups N] [--partitions-per-group N] [--members N]`` starts a broker, lets
members join and commit, and runs one cycle as ``evenlag run --publish`` does, in one warm session on
``local[2]``; also for a hundredth and a tenth of the groups, which run once before anything is timed, too.
With the default sizes it writes ``docs/bench/million.json``.

Each size has a broker and a lake of its own. The members have joined and have no process, so nobody follows,
and the cycle does not wait for that (``temporary_member_after_s: null``). Reported are seconds, share and CPU
seconds of each step, and the peak resident memory of this process, Spark's JVM and its Python workers
together, without the broker. Each lag in the lake is compared with what was produced and committed, and each
hint on the topic with the partitions of its group.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc

from assignor_core.record import topic_id_text
from evenlag.kafka.cluster_reader import PROGRESS_STEP
from evenlag.kafka.connection import admin_client
from evenlag.lake.location import LakePaths
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.lake.tables import LAG
from evenlag.policy.loader import load_policy
from evenlag.publishing.hint_topic import read_hint_topic
from evenlag.publishing.publish import publish_hints
from sandbox.jars import OWN_KAFKA
from sandbox.kafka.broker import Broker
from spark_jobs.runtime.classic_session import MASTER_VARIABLE, build_session, jvm_process
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.bench.planning import say
from tests.bench.support.classic_groups import BROKER_PROPERTIES, NUM_TOPICS, ClassicGroups, fill, group_id
from tests.bench.support.machine import this_machine
from tests.soak.probes import cpu_seconds, taken_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from evenlag.policy.loader import LoadedPolicy
    from evenlag.publishing.publish import PublishReport

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "million.json"
FULL: Final = ClassicGroups(10_000, 100, most_members=4)
CLUSTER: Final = "bench"
_POLICY: Final = """\
lake: {lake}
audit_schedule: null
clusters:
  bench: {{bootstrap_servers: "{servers}", schedule: null, temporary_member_after_s: null}}
groups:
  - {{match: "*", mode: auto, reset_policy: earliest, hint_ttl_s: 3600}}
"""
_SAMPLE_S: Final = 0.5
_DRIVER_MEMORY: Final = "512m"
# Steps by the text of their progress. The rest of a cycle: speeds, forecasts and advice, earlier outcomes,
# records of runs, and the upkeep of tables.
_STEPS: Final = {
    "read": PROGRESS_STEP,
    "lag": "observe: computing lag",
    "check": "observe: checking the snapshot",
    "plans": "decide: planning groups",
    "gates": "decide: validating plans",
    "publish": "publish",
}


class _LargeBroker(Broker):
    """A broker with room for a million commits."""

    def _java(self, arguments: list[str]) -> list[str]:
        command = super()._java(arguments)
        # Of two sizes of the heap the later one counts.
        place = command.index("-cp")
        return [*command[:place], "-Xmx1500m", *command[place:]]


class Meter:
    """Seconds and CPU seconds of steps, by the progress that they report, and memory meanwhile.

    peak: Resident MiB of this process, of the JVM and of its Python workers, when their sum was largest.
    """

    def __init__(self, jvm_pid: int) -> None:
        self._jvm_pid = jvm_pid
        self._began: dict[str, NDArray[np.float64]] = {}
        self.used: dict[str, NDArray[np.float64]] = {}
        self.peak: dict[str, float] = {"sum": 0.0}

    def __call__(self, step: str, done: int, total: int, /) -> None:
        """Take the progress of a step."""
        now = np.array([time.perf_counter(), time.process_time() + cpu_seconds(self._jvm_pid)])
        if done == 0:
            self._began[step] = now
        if done == total:
            self.used[step] = now - self._began[step]

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Sample the memory during a block."""
        over = threading.Event()

        def sample() -> None:
            self._sample()
            while not over.wait(_SAMPLE_S):
                self._sample()

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _sample(self) -> None:
        python, jvm = taken_by(os.getpid()).rss_mib, taken_by(self._jvm_pid).rss_mib
        with_workers = taken_by(self._jvm_pid, with_children=True).rss_mib
        found = {"sum": python + with_workers, "driver_python": python, "jvm": jvm}
        if found["sum"] > self.peak["sum"]:
            self.peak = found | {"python_workers": with_workers - jvm}

    def summary(self) -> dict[str, Any]:
        """Return the figures of a cycle."""
        whole = self.used["cycle"]
        parts = {name: self.used[step] for name, step in _STEPS.items()}
        parts["rest"] = whole - sum(parts.values())
        return {
            "s": round(float(whole[0]), 2),
            "cpu_s": round(float(whole[1]), 2),
            "peak_mib": {name: round(value) for name, value in self.peak.items()},
            "steps": {
                name: {
                    "s": round(float(part[0]), 2),
                    "share": round(float(part[0] / whole[0]), 3),
                    "cpu_s": round(float(part[1]), 2),
                }
                for name, part in parts.items()
            },
        }


def measure(spark: SparkSession, groups: ClassicGroups) -> dict[str, Any]:
    """Create the groups on a new broker, run a cycle with a new lake, and check what it wrote."""
    say(f"{groups.groups:,} groups of {groups.partitions} partitions")
    with (
        tempfile.TemporaryDirectory(prefix="evenlag-bench-") as name,
        _LargeBroker.start(Path(name) / "node", properties=BROKER_PROPERTIES) as broker,
    ):
        folder, began = Path(name), time.perf_counter()
        # In a process of its own, whose memory does not count.
        filling = multiprocessing.get_context("spawn").Process(
            target=fill, args=(broker.bootstrap_servers, groups), daemon=True
        )
        filling.start()
        filling.join()
        if filling.exitcode:
            sys.exit("the groups could not be created")
        say(f"all members have joined after {time.perf_counter() - began:.0f} s")
        config = folder / "evenlag.yaml"
        text = _POLICY.format(lake=folder / "lake", servers=broker.bootstrap_servers)
        config.write_text(text, encoding="utf-8")
        loaded = load_policy(config)
        LakePaths(loaded.policy.lake).make_root()
        found, report = run_cycle(spark, loaded)
        say(json.dumps(found))
        check_lag(folder / "lake", groups)
        check_hints(loaded, groups, report)
    return {"rows": groups.rows, "groups": groups.groups} | found


def run_cycle(spark: SparkSession, loaded: LoadedPolicy) -> tuple[dict[str, Any], PublishReport]:
    """Run one cycle, and return its figures."""
    jvm = jvm_process(spark)
    if jvm is None:
        sys.exit("this needs a session with a JVM of its own, not spark-submit")
    meter, slot, run_id = Meter(jvm.pid), floor_to_ms(datetime.now(UTC)), "bench"
    with meter.sampling():
        meter("cycle", 0, 1)
        observed = run_observe(spark, loaded, CLUSTER, slot, run_id, meter)
        decided = run_decide(spark, loaded, CLUSTER, slot, run_id, meter)
        meter("publish", 0, 1)
        report = publish_hints(loaded, CLUSTER, slot, run_id, actor="command")
        meter("publish", 1, 1)
        meter("cycle", 1, 1)
    say(f"observe: {observed}")
    say(f"decide: {decided}")
    say(f"publish: {report.summary()}; {(*report.expired, *report.held)[:2]}; {report.loads.error}")
    counts = {name: decided[name] for name in ("plans", "approved", "rejected", "failed")}
    counts |= {"published": len(report.published), "loads": len(report.loads.refreshed)}
    return counts | meter.summary(), report


def check_lag(lake: Path, groups: ClassicGroups) -> None:
    """Compare the lag of each partition with what was produced and committed."""
    from deltalake import DeltaTable

    columns = ["group_id", "topic", "partition", "lag_records"]
    rows = DeltaTable(str(lake / LAG.name)).to_pyarrow_table(columns=columns)
    group = pc.utf8_slice_codeunits(rows["group_id"], len("group-")).cast("int64").to_numpy()
    topic = pc.utf8_slice_codeunits(rows["topic"], len("topic-")).cast("int64").to_numpy()
    found = np.full((groups.groups, groups.partitions), np.nan)
    found[group, rows["partition"].to_numpy()] = rows["lag_records"].to_numpy()
    wrong = np.argwhere(found != groups.lags())
    if len(rows) != groups.rows or len(wrong) or (topic != group % NUM_TOPICS).any():
        sys.exit(f"{len(rows):,} rows of {groups.rows:,}, {len(wrong):,} wrong, e.g. {wrong[:3].tolist()}")
    say(f"all {len(rows):,} lags are as produced and committed: {int(found.sum()):,} records")


def check_hints(loaded: LoadedPolicy, groups: ClassicGroups, report: PublishReport) -> None:
    """Check that each published plan has a hint, and each hint all partitions of its group once."""
    settings = loaded.policy.clusters[CLUSTER]
    with admin_client(settings) as client:
        described = client.describe_topics(groups.topics)
    ids = {row["name"]: topic_id_text(row["topic_id"]) for row in described}
    hints = read_hint_topic(settings).hints
    if not report.published or set(hints) != {name for name, *_ in report.published}:
        sys.exit(f"{len(report.published):,} plans are published, {len(hints):,} hints are on the topic")
    wanted = {
        group_id(number): [(ids[groups.topic_of(number)], part) for part in range(groups.partitions)]
        for number in range(groups.groups)
    }
    for name, hint in hints.items():
        planned = [
            (topic, part)
            for by_topic in hint.payload.assignment.values()
            for topic, parts in by_topic.items()
            for part in parts
        ]
        if sorted(planned) != wanted[name]:
            sys.exit(f"the hint of {name} does not assign each of its partitions once")
    say(f"all {len(hints):,} hints assign each partition once")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(prog="tests.bench.million", description=__doc__)
    parser.add_argument("--groups", type=int, default=FULL.groups)
    parser.add_argument("--partitions-per-group", type=int, default=FULL.partitions)
    parser.add_argument("--members", type=int, default=FULL.most_members, help="groups have 2 to so many")
    arguments = parser.parse_args(argv)
    if arguments.members < 2 or arguments.groups < 1:
        parser.error("a plan needs a group, and two members at least")
    full = ClassicGroups(arguments.groups, arguments.partitions_per_group, arguments.members)
    sizes = [replace(full, groups=max(full.groups // part, 1)) for part in (100, 10, 1)]
    os.environ.setdefault(MASTER_VARIABLE, "local[2]")
    spark = build_session("evenlag-bench-million", conf={"spark.driver.memory": _DRIVER_MEMORY})
    spark.sparkContext.setLogLevel("ERROR")
    for size in sizes[:-1]:
        say("warming up")
        measure(spark, size)
    cycles = [measure(spark, size) for size in sizes]
    spark.stop()
    machine = this_machine("pyspark", "delta-spark", "deltalake", "kafka-python") | {"kafka": OWN_KAFKA}
    results = {
        "machine": machine | {"driver_memory": _DRIVER_MEMORY},
        "partitions_per_group": full.partitions,
        "most_members": full.most_members,
        "cycles": cycles,
    }
    text = json.dumps(results, indent=1) + "\n"
    sys.stdout.write(text)
    if full == FULL:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
