"""From a burst of records to the last consumer on its new partitions.

``python -m tests.bench.burst [--every SECONDS] [--only CLIENT ...] [--bursts N] [--groups N]`` runs cycles by
``evenlag run --watch --publish`` beside real consumers of each client, at Kafka's default timings. Each group
gets a burst at a random time of the interval, again and again, and ``docs/bench/burst.json`` gets the time
until its consumers own what the hint says, and its parts: until the hint is published, and following.
Owners come from the consumers' own journals, plans from the lake. The groups have no cooldown. Members of
``java-asks`` request rebalances for hints themselves, evenlag's temporary member does it for ``java``. Before
the bursts, it measures the CPU of the cycles, and of the broker with and without them.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import PlanEvent
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import PLAN_ASSIGNMENTS
from sandbox.kafka.jvm_jars import ASSIGNOR_CLASS, build_plugin
from tests.bench.support.cycle_world import HINT_TOPIC, CycleWorld
from tests.bench.support.machine import this_machine
from tests.soak.probes import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "burst.json"
_PARTITIONS_AND_CONSUMERS: Final = (12, 3)
# A burst outlasts a slot's wait, a cycle and following, or there is nothing left to balance.
_BACKLOG_INTERVALS: Final = 3.0
_LEAST_BACKLOG_S: Final = 60.0
_TIMEOUT_S: Final = 240.0
_QUIET_S: Final = 40.0
# The first ones compile, and create the tables.
_FIRST_CYCLES: Final = 3
CLIENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "kafka-python": {},
    "java": {"language": "java", "asks": False},
    "java-asks": {"language": "java", "asks": True},
    "kip848": {"protocol": "consumer"},
}


class Burst:
    """One burst on one group: from its records to the last consumer on its new partitions.

    world, group: The cluster, and the group that gets the burst.
    """

    def __init__(self, world: CycleWorld, group: str, backlog_s: float) -> None:
        self._world, self._group = world, group
        self.at = time.time()
        world.skew(backlog_s, [group])
        self.followed_at: float | None = None
        self.published_at: float | None = None
        self.run_id: str | None = None
        self._plan: dict[int, str] | None = None

    def poll(self) -> bool:
        """Look at the lake and the journals; return whether the consumers have followed."""
        if self._plan is None:
            self._find_plan()
        if self._plan is None:
            return False
        workload = self._world.workloads[self._group]
        owners = {part: name for name, parts in workload.owners().items() for part in parts}
        if set(owners) == set(self._plan) and _same_division(owners, self._plan):
            self.followed_at = time.time()
        return self.followed_at is not None

    def _find_plan(self) -> None:
        reader = LakeReader(str(self._world.lake))
        events = reader.read_events(
            filters=[("group_id", "=", self._group), ("event", "=", PlanEvent.PUBLISHED)]
        ).to_pylist()
        new = [row for row in events if _seconds(row["at"]) > self.at]
        if not new:
            return
        filters = [("plan_id", "=", new[0]["plan_id"])]
        rows = reader.read(
            PLAN_ASSIGNMENTS, columns=["partition", "owner_after"], filters=filters
        ).to_pylist()
        self._plan = {row["partition"]: row["owner_after"] for row in rows}
        self.published_at, self.run_id = _seconds(new[0]["at"]), new[0]["run_id"]


def _same_division(owners: Mapping[int, str], plan: Mapping[int, str]) -> bool:
    """Whether two maps divide the partitions alike: journals name processes, plans name member ids."""
    pairs = {(owners[part], plan[part]) for part in plan}
    return len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs})


def _seconds(moment: datetime) -> float:
    return moment.timestamp()


@contextmanager
def _watching(world: CycleWorld, every_s: float) -> Iterator[tuple[int, Path]]:
    """Run the cycles in a process of their own; yields its id and the file with a JSON object per cycle."""
    output = world.folder / "cycles.jsonl"
    command = [sys.executable, "-m", "evenlag", "run", f"--config={world.config}", "--publish", "--json"]
    command += ["--watch", f"--every={every_s:g}"]
    with output.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file)
        try:
            yield process.pid, output
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _cycles(output: Path) -> list[dict[str, Any]]:
    lines = output.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def measure(client: str, num_bursts: int, num_groups: int, every_s: float) -> dict[str, Any]:
    """Measure the bursts; a group gets its next one when it has followed and its backlog is processed."""
    rng = random.Random(7)  # noqa: S311  # the same bursts in each run
    groups = {f"group-{number}": _PARTITIONS_AND_CONSUMERS for number in range(num_groups)}
    backlog_s = max(_LEAST_BACKLOG_S, _BACKLOG_INTERVALS * every_s)
    consumer = {"heartbeat_interval_ms": 3_000, "session_timeout_ms": 45_000, **CLIENTS[client]}
    followed: list[Burst] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = {
            "properties": {
                "group.consumer.assignors": f"uniform,range,{ASSIGNOR_CLASS}",
                "evenlag.hint.topic": HINT_TOPIC,
            },
            "class_path": [build_plugin(folder)],
        }
        world = stack.enter_context(CycleWorld(folder, groups, consumer=consumer, broker=broker))
        assert world.broker.pid is not None
        [without] = _busy_cores(world.broker.pid)
        watcher, output = stack.enter_context(_watching(world, every_s))
        while len(_cycles(output)) < _FIRST_CYCLES:
            time.sleep(0.5)
        with_cycles, cycles = _busy_cores(world.broker.pid, watcher)
        waits = {group: time.time() + rng.uniform(0, every_s) for group in groups}
        active: dict[str, Burst] = {}
        while len(followed) < num_bursts:
            time.sleep(0.05)
            for group in groups:
                if group in active:
                    burst = active[group]
                    if burst.poll():
                        followed.append(burst)
                        sys.stdout.write(f"{client} {len(followed)}: {time.time() - burst.at:.1f} s\n")
                        sys.stdout.flush()
                        del active[group]
                        waits[group] = time.time() + backlog_s + rng.uniform(0, every_s)
                    elif time.time() > burst.at + max(_TIMEOUT_S, _BACKLOG_INTERVALS * every_s):
                        sys.exit(f"{group} has not followed: {_cycles(output)[-3:]}")
                elif time.time() >= waits[group]:
                    active[group] = Burst(world, group, backlog_s)
        while {burst.run_id for burst in followed} - {cycle["run_id"] for cycle in _cycles(output)}:
            time.sleep(0.5)
        ended = _cycles(output)
        rows = [_row(burst, ended) for burst in followed]
    names = sorted(rows[0])
    return {
        "busy_cores": {"cycles": cycles, "broker": with_cycles, "broker_without_cycles": without},
        "bursts": rows[:num_bursts],
        "median": {name: statistics.median(row[name] for row in rows) for name in names},
        "p95": {name: statistics.quantiles([row[name] for row in rows], n=20)[-1] for name in names},
    }


def _busy_cores(*pids: int) -> list[float]:
    """Return the CPU seconds per second of processes over a while."""
    before, began = [cpu_seconds(pid) for pid in pids], time.monotonic()
    time.sleep(_QUIET_S)
    took_s = time.monotonic() - began
    return [round((cpu_seconds(pid) - used) / took_s, 3) for pid, used in zip(pids, before, strict=True)]


def _row(burst: Burst, cycles: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    assert burst.followed_at is not None  # poll() has set both
    assert burst.published_at is not None
    (cycle,) = (cycle for cycle in cycles if cycle["run_id"] == burst.run_id)
    began = _seconds(datetime.fromisoformat(cycle["started_at"]))
    return {
        "total_s": round(burst.followed_at - burst.at, 3),
        "until_published_s": round(burst.published_at - burst.at, 3),
        "cycle_until_published_s": round(burst.published_at - began, 3),
        "following_s": round(burst.followed_at - burst.published_at, 3),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(prog="tests.bench.burst", description=__doc__)
    parser.add_argument("--bursts", type=int, default=20)
    parser.add_argument("--groups", type=int, default=5)
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--only", choices=CLIENTS, nargs="+", default=list(CLIENTS))
    arguments = parser.parse_args(argv)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for client in arguments.only:
        found = measure(client, arguments.bursts, arguments.groups, arguments.every)
        results[f"{client} every {arguments.every:g} s"] = found
    results["groups"] = arguments.groups
    results["machine"] = this_machine("pyspark", "delta-spark", "deltalake", "kafka-python")
    RESULTS.write_text(f"{json.dumps(results, indent=1, sort_keys=True)}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
