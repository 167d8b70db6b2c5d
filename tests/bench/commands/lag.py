"""`evenlag lag -b` beside Kafka's own ``kafka-consumer-groups --all-groups --describe``, whole processes.

``python -m tests.bench.commands.lag [--groups N] [--partitions N] [--runs N] [--evenlag PATH]`` fills a
broker of its own as ``tests.bench.reading`` does, and writes ``docs/bench/live_lag.json``. ``--evenlag``
names the command of another environment, e.g. one with the extra ``cli`` alone: pyarrow imports pandas if it
is installed.

The two alternate. Both are processes from start to end. What ours takes besides the snapshot is the time of
the process without that of the same snapshot in a process that already runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenlag.cli.cluster_target import find_target
from evenlag.kafka.connection import admin_client
from evenlag.live_lag.snapshot import LiveReader, policy_target
from sandbox.kafka.broker import Broker
from tests.bench.reading import fill, time_tool
from tests.bench.support.machine import this_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "bench" / "live_lag.json"
# The limits that the command has to keep.
_LEAST_RATIO, _MOST_BESIDES_S = 8.0, 0.5


def time_command(command: Sequence[str], bootstrap_servers: str, num_groups: int) -> float:
    """Run our command; returns its seconds."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENLAG_")}
    arguments = [*command, "lag", "-b", bootstrap_servers, "--limit", "40"]
    begin = time.perf_counter()
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    seconds = time.perf_counter() - begin
    if f"--limit {num_groups}" not in done.stdout:
        sys.exit(f"not all groups were read:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return seconds


def time_snapshot(bootstrap_servers: str, num_rows: int) -> float:
    """Take a snapshot in this process, connecting included; returns the seconds."""
    found = find_target(bootstrap_servers, None, None)
    target = policy_target(found.loaded.policy, found.name)
    begin = time.perf_counter()
    with admin_client(target.settings, target.client) as client:
        snapshot = LiveReader(client, target).read()
    seconds = time.perf_counter() - begin
    if snapshot.lag.num_rows != num_rows or snapshot.problems:
        sys.exit(f"{snapshot.lag.num_rows} rows of {num_rows}, problems: {snapshot.problems[:3]}")
    return seconds


def run(command: Sequence[str], num_groups: int, num_partitions: int, num_runs: int) -> dict[str, Any]:
    """Time both in turn; returns the results."""
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "node") as broker:
        servers = broker.bootstrap_servers
        fill(servers, num_groups, num_partitions)
        # Each once before anything is timed: the broker's code and the disk's cache are warm for both.
        time_tool(servers, "--all-groups")
        time_command(command, servers, num_groups)
        for _ in range(num_runs):
            kafka_s, _ = time_tool(servers, "--all-groups")
            ours_s = time_command(command, servers, num_groups)
            snapshot_s = time_snapshot(servers, num_groups * num_partitions)
            rows.append({"kafka_s": kafka_s, "ours_s": ours_s, "besides_snapshot_s": ours_s - snapshot_s})
            sys.stdout.write(f"{ {name: round(value, 3) for name, value in rows[-1].items()} }\n")
            sys.stdout.flush()
    return {
        "groups": num_groups,
        "partitions_a_group": num_partitions,
        "runs": rows,
        "median": {name: statistics.median(row[name] for row in rows) for name in rows[0]},
        "kafka_by_ours": statistics.median(row["kafka_s"] / row["ours_s"] for row in rows),
        "machine": this_machine() | {"kafka_tools": "4.3.0"},
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write; status 1 when a limit is not kept."""
    parser = argparse.ArgumentParser(prog="tests.bench.commands.lag", description=__doc__)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--evenlag", default=shlex.join([sys.executable, "-m", "evenlag"]))
    arguments = parser.parse_args(argv)
    results = run(shlex.split(arguments.evenlag), arguments.groups, arguments.partitions, arguments.runs)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    ratio, besides_s = results["kafka_by_ours"], results["median"]["besides_snapshot_s"]
    sys.stdout.write(
        f"Kafka's tool takes {ratio:.1f} times as long; ours takes {besides_s:.2f} s besides the snapshot\n"
    )
    return 0 if ratio >= _LEAST_RATIO and besides_s <= _MOST_BESIDES_S else 1


if __name__ == "__main__":
    sys.exit(main())
