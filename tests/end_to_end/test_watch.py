"""`evenlag run --watch` on the real broker: cycles in one process and one session, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import RUNS
from sandbox.workload.workload import Workload
from tests.support.processes import processes_with, wait_until_gone
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox.kafka.broker import Broker

pytestmark = [pytest.mark.extended, pytest.mark.broker, pytest.mark.jvm, pytest.mark.timeout(3_600)]

CLUSTER = "watched"
EVERY_S = 4
# On a busy machine, a JVM takes seconds to end; the command kills it after 12 s.
PATIENCE_S = 600.0


class Watched:
    """A running command, and its cycles as they come."""

    def __init__(self, command: subprocess.Popen[str], marker: str, lake: Path) -> None:
        self.command, self.marker, self.lake = command, marker, lake

    def next_cycle(self) -> dict[str, Any]:
        """Wait for the next line of standard output."""
        assert self.command.stdout is not None
        line = self.command.stdout.readline()
        assert line, f"the command ended with {self.command.wait(PATIENCE_S)}"
        cycle: dict[str, Any] = json.loads(line)
        return cycle

    def pids(self, name: str) -> list[int]:
        """Ids of the processes of this watch whose command line contains a name.

        A child that a process has just forked has its parent's command line until it runs its own. A JVM
        starts its children by a helper, which lies in Java's folder.
        """
        lines: dict[int, bytes] = {}
        parents: dict[int, int] = {}
        for pid in processes_with(self.marker):
            # It may have ended since it was listed.
            with suppress(OSError):
                parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                lines[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
        return [
            pid
            for pid, line in lines.items()
            if name.encode() in line and lines.get(parents[pid]) != line and b"jspawnhelper" not in line
        ]


@pytest.fixture
def watched(broker: Broker, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Watched]:
    """Start a watch that publishes for a group with an uneven backlog."""
    group, marker = unique("watched"), f"watch-test={tmp_path}"
    client = {"bootstrap_servers": broker.bootstrap_servers}
    with Workload(
        client,
        tmp_path / "workload",
        topic=unique("t"),
        group_id=group,
        num_partitions=4,
        hint_topic="evenlag-hints",
        consumer={"records_per_s": 1.0, "session_timeout_ms": 120_000},
    ) as workload:
        workload.start_consumers(2)
        heavy = min(workload.wait_until_owned().values(), key=min)
        workload.fill(dict.fromkeys(heavy, 2000))
        lake = tmp_path / "lake"
        words = ["run", "-b", broker.bootstrap_servers, "--cluster", CLUSTER, "--lake", str(lake)]
        words += ["--group", group, "--reset-policy", "earliest", "--publish", "--json"]
        command = subprocess.Popen(
            [sys.executable, "-m", "evenlag", *words, "--watch", "--every", f"{EVERY_S}s"],
            stdout=subprocess.PIPE,
            env=os.environ | {"WATCH_TEST": marker},
            cwd=tmp_path,
            text=True,
        )
        try:
            yield Watched(command, marker, lake)
        finally:
            command.kill()
            command.wait()
            wait_until_gone(marker)


def test_cycles_follow_each_other_in_one_session_a_killed_jvm_costs_one_and_ctrl_c_ends_them(
    watched: Watched,
) -> None:
    first = watched.next_cycle()
    assert "error" not in first, first
    assert (first["decide"]["plans"], first["publish"]["published"]) == (1, 1)
    # Or applied: where the command is late, the next cycle has seen it.
    assert [plan["status"] in {"PUBLISHED", "APPLIED"} for plan in first["plans"]] == [True]
    assert first["lag_records"] > 1000
    jobs = [watched.pids(name) for name in ("spark_jobs.watch", "java")]
    assert [len(pids) for pids in jobs] == [1, 1]
    cycles = [first, watched.next_cycle(), watched.next_cycle()]
    slots = [datetime.fromisoformat(cycle["slot"]) for cycle in cycles]
    assert all(earlier < later for earlier, later in pairwise(slots))
    assert [slot.timestamp() % EVERY_S for slot in slots[1:]] == [0, 0]
    assert [watched.pids(name) for name in ("spark_jobs.watch", "java")] == jobs

    runs = LakeReader(str(watched.lake)).read(RUNS, columns=["run_id", "step"]).to_pylist()
    expected = {(cycle["run_id"], step) for cycle in cycles for step in ("observe", "decide")}
    assert len(expected) == 6
    assert expected <= {(row["run_id"], row["step"]) for row in runs}

    recovered = _lose_a_jvm(watched)
    _wait_until_within_a_cycle(watched, recovered)
    watched.command.send_signal(signal.SIGINT)
    assert watched.command.wait(PATIENCE_S) == 130
    wait_until_gone(watched.marker)


def _lose_a_jvm(watched: Watched) -> dict[str, Any]:
    """Kill the JVM: one cycle fails, the next one has another JVM. Return that cycle."""
    [jvm], [job] = watched.pids("java"), watched.pids("spark_jobs.watch")
    os.kill(jvm, signal.SIGKILL)
    failed = watched.next_cycle()
    if "error" not in failed:
        # It needed Spark no more.
        failed = watched.next_cycle()
    assert failed["exit_code"] == 1
    assert "Spark's session was lost" in failed["error"]
    recovered = watched.next_cycle()
    assert "error" not in recovered, recovered["error"]
    assert recovered["slot"] > failed["slot"]
    assert watched.pids("spark_jobs.watch") == [job]
    [other] = watched.pids("java")
    assert other != jvm
    return recovered


def _wait_until_within_a_cycle(watched: Watched, last: dict[str, Any]) -> None:
    """Wait until the cycle after the last one has observed: it has still to decide and to publish."""

    def runs() -> set[str]:
        return set(LakeReader(str(watched.lake)).read(RUNS, columns=["run_id"])["run_id"].to_pylist())

    known = runs() | {last["run_id"]}
    wait_until(lambda: runs() - known, what="no further cycle has begun")
