"""What the age of a lake costs: a warm cycle and the commands on lakes of three days, one and three years.

``python -m tests.bench.aged [--rounds N] [--quick]`` makes the lakes (``tests.support.lakes.old_lake``),
starts a broker and two groups, and runs cycles on the lakes in turn in one session. Each cycle observes,
plans in shadow mode, looks for plans to publish and for alerts. For each lake a process of its own tells the
most memory that its driver took. At the end the commands run in turn. All is compared to the fresh lake of
three days: as old as what is kept by age for repeats. It writes ``docs/bench/aged.json``, and ends with 1
if a limit is exceeded. ``--quick`` makes small lakes and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from typer.testing import CliRunner

from evenlag.cli.app import app
from evenlag.kafka.connection import admin_client
from evenlag.lake.location import LOG_FOLDER
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, TABLES
from evenlag.monitoring.alerts import find_changes, record_changes
from evenlag.overview.metrics import read_metrics
from evenlag.policy.loader import load_policy
from evenlag.publishing.publish import publish_hints
from spark_jobs.runtime.session import open_session
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.bench.support.cycle_world import CLUSTER, CycleWorld
from tests.support.lakes.old_lake import OldLake
from tests.support.lakes.old_shape import Shape
from tests.truth.oracle.delta_files import live_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "aged.json"
FRESH: Final = "three_days"
DAYS: Final = {FRESH: 3, "one_year": 365, "three_years": 3 * 365}
QUICK_DAYS: Final = {FRESH: 3, "seventy_days": 70}
# How many times the fresh lake's figure is allowed.
LIMITS: Final = {"counts": 1.5, "seconds": 1.3, "commands": 1.5, "memory": 1.1}
_WARM_UP: Final = 2
# The groups are so far behind, and plans only in shadow, that every cycle makes plans.
_BACKLOG_S, _QUICK_BACKLOG_S = 1_200.0, 120.0
_POLICY: Final = """\
lake: {lake}
audit_schedule: null
clusters:
  bench: {{bootstrap_servers: "{servers}", hint_topic: hints, schedule: null, temporary_member_after_s: null}}
groups:
  - {{match: "group-*", mode: auto, reset_policy: earliest}}
  - {{match: "*", mode: shadow, reset_policy: earliest, min_gain: 0.01}}
"""
_COMMANDS: Final = {
    "plans": ["plans"],
    "lag": ["lag"],
    "report": ["report", "group-0001", "--file", "{folder}/report.html"],
    "audit owner": ["audit", "owner", "group-0001"],
}


class Reads:
    """Counts the data files that are read without a JVM, while it is in force."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.num_bytes = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what the product's reader selects."""
        made = LakeReader._dataset  # what a read touches is nowhere to be seen from outside

        def counting(reader: LakeReader, table: Table, files: Any, *rest: Any) -> Any:
            self.files[table.name] = self.files.get(table.name, 0) + files.num_rows
            self.num_bytes += sum(files["size_bytes"].to_pylist())
            return made(reader, table, files, *rest)

        with patch.object(LakeReader, "_dataset", counting):
            yield


def read_bytes(pids: list[int]) -> int:
    """Bytes that processes have read by system calls: files, and what the JVM sends by its socket."""
    total = 0
    for pid in pids:
        fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text("utf-8").splitlines())
        total += int(fields["rchar"])
    return total


def children_of(pid: int) -> list[int]:
    """Processes that a process has started, and theirs."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()
    return [child for name in found for child in (int(name), *children_of(int(name)))]


def cycle(spark: SparkSession, config: Path, run_id: str) -> dict[str, Any]:
    """Run a cycle as the DAG does."""
    loaded, slot = load_policy(config), datetime.now(UTC)
    run_observe(spark, loaded, CLUSTER, slot, run_id)
    decided = run_decide(spark, loaded, CLUSTER, slot, run_id)
    published = publish_hints(loaded, CLUSTER, slot, run_id).summary()
    changes = find_changes(loaded, CLUSTER, datetime.now(UTC))
    record_changes(loaded, CLUSTER, changes, run_id=run_id, now=datetime.now(UTC))
    read_metrics(loaded.policy.lake, CLUSTER, datetime.now(UTC))
    return decided | published


def measure_cycles(configs: Mapping[str, Path], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Run cycles on the lakes in turn, in one session."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in configs}
    with open_session("evenlag-bench") as spark:
        for number in range(_WARM_UP + rounds):
            # Each lake is as often the first one.
            names = list(configs)[number % len(configs) :] + list(configs)[: number % len(configs)]
            for name in names:
                pids, reads = [os.getpid(), *children_of(os.getpid())], Reads()
                before, begin = read_bytes(pids), time.perf_counter()
                with reads.counted():
                    done = cycle(spark, configs[name], f"{name}-{number}")
                seconds = time.perf_counter() - begin
                row = {
                    "seconds": seconds,
                    "bytes_read": read_bytes(pids) - before,
                    "files_selected": sum(reads.files.values()),
                    "bytes_of_selected_files": reads.num_bytes,
                    "plans": done["plans"],
                }
                sys.stdout.write(f"{number} {name} {json.dumps(row)} {json.dumps(reads.files)}\n")
                sys.stdout.flush()
                if number >= _WARM_UP:
                    rows[name].append(row)
    return rows


def measure_commands(configs: Mapping[str, Path], rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds of each command on each lake, in turn, in this process."""
    seconds: dict[str, dict[str, list[float]]] = {
        command: {name: [] for name in configs} for command in _COMMANDS
    }
    for number in range(_WARM_UP + rounds):
        for command, words in _COMMANDS.items():
            for name, config in configs.items():
                arguments = [word.format(folder=config.parent) for word in words]
                begin = time.perf_counter()
                done = CliRunner().invoke(app, [*arguments, "--config", str(config), "--cluster", CLUSTER])
                took = time.perf_counter() - begin
                if done.exit_code:
                    sys.exit(f"{command} on {name} ended with {done.exit_code}: {done.output}")
                if number >= _WARM_UP:
                    seconds[command][name].append(took)
    return {
        command: {name: statistics.median(taken) for name, taken in of_command.items()}
        for command, of_command in seconds.items()
    }


def count_lake(lake: Path) -> dict[str, int]:
    """Live files, those of lag among them, files in the logs, and transaction ids of all tables."""
    import deltalake

    counts = {"live_files": 0, "live_files_of_lag": 0, "log_files": 0, "transaction_ids": 0}
    for table in TABLES.values():
        folder = lake / table.name
        if not (folder / LOG_FOLDER).is_dir():
            continue
        num_files = len(live_files(folder))
        counts["live_files"] += num_files
        counts["live_files_of_lag"] += num_files if table is LAG else 0
        counts["log_files"] += len(list((folder / LOG_FOLDER).iterdir()))
        counts["transaction_ids"] += len(_transactions(deltalake.DeltaTable(str(folder)), folder))
    return counts


def _transactions(delta: Any, folder: Path) -> set[str]:
    """Transaction ids in the newest checkpoint and the commits after it."""
    import pyarrow.parquet as pq

    log, found = folder / LOG_FOLDER, set[str]()
    pointer = log / "_last_checkpoint"
    last = json.loads(pointer.read_text("utf-8"))["version"] if pointer.exists() else -1
    for path in log.glob(f"{last:020d}.checkpoint*.parquet"):
        rows = pq.read_table(path, columns=["txn"])["txn"].drop_null().to_pylist()
        found |= {row["appId"] for row in rows}
    for version in range(last + 1, delta.version() + 1):
        path = log / f"{version:020d}.json"
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            if (transaction := json.loads(line).get("txn")) is not None:
                found.add(transaction["appId"])
    return found


def most_memory(config: Path, rounds: int) -> int:
    """Most memory in bytes that a process of its own takes for some cycles, without its JVM."""
    command = [sys.executable, "-m", "tests.bench.aged", "--memory", str(config), f"--rounds={rounds}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[-1])


def _tell_memory(config: Path, rounds: int) -> None:
    with open_session("evenlag-bench") as spark:
        for number in range(rounds):
            cycle(spark, config, f"memory-{os.getpid()}-{number}")
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text("utf-8").splitlines()
        )
    sys.stdout.write(f"{1024 * int(status['VmHWM'].split()[0])}\n")


def judge(measured: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Ratios of each lake to the fresh one, and whether all are within their limits."""
    ratios: dict[str, dict[str, float]] = {}
    for name in measured["cycles"]:
        if name == FRESH:
            continue
        own: dict[str, float] = {}
        for figure in ("seconds", "bytes_read", "files_selected"):
            medians = [
                statistics.median(row[figure] for row in measured["cycles"][one]) for one in (name, FRESH)
            ]
            own[f"cycle {figure}"] = medians[0] / medians[1]
        for figure in ("live_files", "log_files", "transaction_ids"):
            own[figure] = measured["lakes"][name][figure] / measured["lakes"][FRESH][figure]
        for command, seconds in measured["commands"].items():
            own[f"evenlag {command}"] = seconds[name] / seconds[FRESH]
        if measured["memory_bytes"]:
            own["driver memory"] = measured["memory_bytes"][name] / measured["memory_bytes"][FRESH]
        ratios[name] = own
    return ratios


def limit_of(figure: str) -> float:
    """Return the largest allowed ratio of a figure."""
    if figure == "cycle seconds":
        return LIMITS["seconds"]
    if figure == "driver memory":
        return LIMITS["memory"]
    return LIMITS["commands" if figure.startswith("evenlag ") else "counts"]


def main(argv: list[str] | None = None) -> int:
    """Make the lakes, measure and write the results."""
    parser = argparse.ArgumentParser(prog="tests.bench.aged", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--memory", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.memory is not None:
        _tell_memory(arguments.memory, arguments.rounds)
        return 0
    days = QUICK_DAYS if arguments.quick else DAYS
    shape = Shape(groups=5, step_s=1_800) if arguments.quick else Shape()
    with tempfile.TemporaryDirectory() as place, CycleWorld(Path(place)) as world:
        measured = _measure(world, days, shape, rounds=arguments.rounds, is_quick=arguments.quick)
    measured["ratios"] = judge(measured)
    exceeded = [
        f"{figure} of {name}: {ratio:.2f}, {limit_of(figure)} is allowed"
        for name, own in measured["ratios"].items()
        for figure, ratio in own.items()
        if ratio > limit_of(figure)
    ]
    measured["exceeded"] = exceeded
    sys.stdout.write(json.dumps(measured["ratios"], indent=1) + "\n" + "\n".join(exceeded) + "\n")
    if not arguments.quick:
        RESULTS.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    return 1 if exceeded else 0


def _measure(
    world: CycleWorld, days: Mapping[str, int], shape: Shape, *, rounds: int, is_quick: bool
) -> dict[str, Any]:
    loaded = load_policy(world.config).policy.clusters[CLUSTER]
    with admin_client(loaded) as client:
        kafka_cluster_id = client.describe_cluster()["cluster_id"]
    configs, made_s = {}, {}
    for name, num_days in days.items():
        folder = world.folder / name
        folder.mkdir()
        begin = time.perf_counter()
        OldLake(
            folder / "lake", num_days, datetime.now(UTC),
            cluster=CLUSTER, kafka_cluster_id=kafka_cluster_id, shape=shape,
        ).write()  # fmt: skip
        made_s[name] = time.perf_counter() - begin
        sys.stdout.write(f"{name}: made in {made_s[name]:.0f} s\n")
        configs[name] = folder / "evenlag.yaml"
        text = _POLICY.format(lake=folder / "lake", servers=world.broker.bootstrap_servers)
        configs[name].write_text(text, encoding="utf-8")
    # Each cycle of the open day has files of its own, so the counts depend on the hour.
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    lakes = {name: count_lake(config.parent / "lake") for name, config in configs.items()}
    world.skew(_QUICK_BACKLOG_S if is_quick else _BACKLOG_S)
    cycles = measure_cycles(configs, rounds)
    memory: dict[str, int] = {}
    if not is_quick:
        memory = {name: most_memory(config, 3) for name, config in configs.items()}
    # At the end: the runner of the commands leaves a log behind that is closed.
    commands = measure_commands(configs, rounds)
    return {
        "days": dict(days),
        "shape": {"groups": shape.groups, "partitions": shape.partitions, "plans_per_snapshot": shape.plans},
        "made_s": made_s,
        "made_at": made_at,
        "lakes": lakes,
        "commands": commands,
        "cycles": cycles,
        "memory_bytes": memory,
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
    }


if __name__ == "__main__":
    sys.exit(main())
