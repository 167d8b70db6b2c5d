"""Ten clusters, a cycle a minute of each, for two hours, with the lake on S3 and faults of every part.

``make soak``. One broker is ten clusters of the policy. Each has a hint topic of its own, and plans one group
of hinted consumers, whose load changes sides; ``evenlag run --watch --publish`` runs the cycles of all.
Meanwhile S3 refuses requests, loses answers and is away for a minute, the broker is stopped, and the command,
its JVM and consumers are killed. ``EVENLAG_SOAK_MINUTES`` sets how long; in full, the result is written to
``docs/bench/soak.json``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import SNAPSHOTS
from evenlag.policy.loader import load_policy
from evenlag.publishing.hint_topic import read_hint_topic
from evenlag.spark_installation import JARS_VARIABLE
from sandbox.kafka.broker import Broker
from sandbox.processes import kill_process, start_process, stop_process
from tests.chaos.lake_invariants import find_violations
from tests.soak.results import keep, tell
from tests.support.cycle_killer import REPOSITORY
from tests.support.faulty_workload import FaultyWorkload
from tests.support.many_clusters import write_policy
from tests.support.processes import jvms, tree
from tests.support.s3.jars import jars_for_s3
from tests.support.s3.lost_answers import serving
from tests.support.s3.server import s3_server
from tests.support.s3.unreliable import UnreliableProxy
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.soak,
    pytest.mark.broker,
    pytest.mark.jvm,
    # Hours on a machine with other work.
    pytest.mark.timeout(6 * 3600),
]

MINUTES: Final = 120
NUM_CLUSTERS: Final = 10
EVERY: Final = timedelta(minutes=1)
RECORDS_PER_S: Final = 20
NUM_PARTITIONS: Final = 6
BUCKET: Final = "soak"
SEED: Final = 20261127
# At the end, without faults.
QUIET: Final = timedelta(minutes=4)
# How long each fault lasts, in seconds, and how often it comes, in minutes.
FAULTS: Final = {
    "command": (0, 20),
    "jvm": (0, 23),
    "broker": (30, 13),
    "consumer": (0, 5),
    "s3": (60, 31),
}
# A restarted command starts a JVM, and has a first cycle of each cluster: measured from there on.
_RESTART_S: Final = 60


@dataclass
class Fault:
    """A fault that concerns all clusters, from its begin until what it stopped goes on."""

    began: datetime
    ended: datetime


@dataclass
class World:
    """Ten clusters, the command that runs their cycles, and faults."""

    folder: Path
    broker: Broker
    proxy: UnreliableProxy
    groups: dict[str, FaultyWorkload]
    policy: Path
    environ: dict[str, str]
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))  # noqa: S311  # no secret
    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    command: subprocess.Popen[bytes] | None = None
    upkeep: subprocess.Popen[bytes] | None = None

    def start_command(self) -> None:
        """Start the command; its standard output is the cycles, by a shell that keeps them apart."""
        words = [sys.executable, "-m", "evenlag", "run", f"--config={self.policy}", "--publish", "--json"]
        words += ["--watch", f"--every={EVERY.seconds}"]
        # First the end of a line that a killed one has half written.
        shell = 'echo >>"$CYCLES"; exec "$@" >>"$CYCLES"'
        with (self.folder / "command.log").open("ab") as log:
            self.command = start_process(["bash", "-c", shell, "run", *words], log=log, env=self.environ)

    def cycles(self) -> list[dict[str, Any]]:
        """Return what the command has printed, without empty and half-written lines."""
        found = []
        for line in (self.folder / "cycles.jsonl").read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def load_one_side(self, cluster: str) -> None:
        """Let one member of a cluster's group fall behind on two of its partitions."""
        group = self.groups[cluster]
        held = [sorted(numbers) for numbers in group.owners().values() if len(numbers) > 1]
        if held:
            group.fill(dict.fromkeys(max(held)[:2], 90 * RECORDS_PER_S))

    def cause(self, kind: str) -> None:
        """Cause a fault, and wait until it is over."""
        began = datetime.now(UTC)
        lasts_s = FAULTS[kind][0]
        if kind == "consumer":
            self._replace_a_consumer()
        elif kind == "broker":
            assert self.broker.pid is not None
            os.kill(self.broker.pid, signal.SIGSTOP)
            time.sleep(lasts_s)
            os.kill(self.broker.pid, signal.SIGCONT)
        elif kind == "s3":
            self.proxy.is_out = True
            time.sleep(lasts_s)
            self.proxy.is_out = False
        else:
            self._kill(kind)
            lasts_s = _RESTART_S
        self.counts[kind] += 1
        if kind != "consumer":
            self.faults.append(Fault(began, began + timedelta(seconds=lasts_s)))

    def _kill(self, kind: str) -> None:
        assert self.command is not None
        if kind == "command":
            kill_process(self.command)
            self.start_command()
            return
        for pid in jvms(tree(self.command.pid)):
            # It may end meanwhile.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _replace_a_consumer(self) -> None:
        group = self.groups[self.chance.choice(sorted(self.groups))]
        name = self.chance.choice(group.consumers)
        group.kill(name)
        group.start_consumer(name)

    def check(self) -> None:
        """Fail when the command has ended by itself, or the maintenance with an error."""
        assert self.command is not None
        assert self.command.poll() is None, self._tail("command")
        if self.upkeep is not None and (status := self.upkeep.poll()) is not None:
            assert status == 0, self._tail("upkeep")
            self.upkeep = None
            self.counts["maintenance"] += 1

    def maintain(self) -> None:
        """Maintain the lake, as its daily job does, beside the cycles."""
        words = [sys.executable, "-m", "evenlag", "lake", "maintain", "--config", str(self.policy)]
        with (self.folder / "upkeep.log").open("ab") as log:
            self.upkeep = start_process(words, log=log, env=self.environ)

    def _tail(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")[-3000:]


def rules_of(groups: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rules of a policy by which each cluster plans one group."""
    rules: list[dict[str, Any]] = [
        {
            "match": group, "clusters": [cluster], "mode": "auto", "reset_policy": "earliest",
            "gates": {"cooldown_s": 0},
        }
        for cluster, group in groups.items()
    ]  # fmt: skip
    return [*rules, {"match": "*", "mode": "observe"}]


def test_two_hours_of_ten_clusters_lose_double_and_delay_nothing(
    tmp_path: Path, unique: Callable[[str], str], capfd: pytest.CaptureFixture[str]
) -> None:
    minutes = int(os.environ.get("EVENLAG_SOAK_MINUTES", MINUTES))
    groups = {f"c{number}": unique(f"billing{number}") for number in range(NUM_CLUSTERS)}
    jars = jars_for_s3(tmp_path / "jars")
    (tmp_path / "cycles.jsonl").touch()
    with ExitStack() as stack:
        server = stack.enter_context(s3_server(tmp_path / "s3"))
        proxy = stack.enter_context(serving(UnreliableProxy(server.endpoint, SEED)))
        broker = stack.enter_context(Broker.start(tmp_path / "broker"))
        server.make_bucket(BUCKET)
        policy = tmp_path / "evenlag.yaml"
        write_policy(policy, f"s3://{BUCKET}/lake", broker.bootstrap_servers, groups, rules_of(groups))
        workloads = {
            cluster: stack.enter_context(
                FaultyWorkload(
                    {"bootstrap_servers": broker.bootstrap_servers},
                    tmp_path / cluster,
                    topic=f"orders-{cluster}",
                    num_partitions=NUM_PARTITIONS,
                    group_id=group,
                    hint_topic=f"hints-{cluster}",
                    consumer={"records_per_s": RECORDS_PER_S},
                )
            )
            for cluster, group in groups.items()
        }
        for workload in workloads.values():
            workload.start_consumers(2)
        for workload in workloads.values():
            workload.wait_until_owned()
        environ = os.environ | server.environment() | {
            "AWS_ENDPOINT_URL": proxy.endpoint, JARS_VARIABLE: str(jars), "PYTHONPATH": str(REPOSITORY),
            "CYCLES": str(tmp_path / "cycles.jsonl"),
        }  # fmt: skip
        world = World(tmp_path, broker, proxy, workloads, policy, environ)
        world.start_command()
        stack.callback(lambda: world.command and kill_process(world.command))
        began = run(world, timedelta(minutes=minutes), capfd)
        ended = datetime.now(UTC)
        assert world.command is not None
        stop_process(world.command, timeout_s=120)
        found = judge(world, LakeReader(str(server.folder / BUCKET / "lake")), began, ended)
        found |= {"minutes": minutes, "clusters": NUM_CLUSTERS, "seed": SEED}
    tell(capfd, json.dumps(found, indent=1))
    keep("clusters_on_s3", found, is_full=minutes >= MINUTES)
    assert found["violations"] == []
    assert found["late"] == []
    assert found["lost_records"] == 0
    assert min(found["published_by_cluster"].values()) >= max(1, minutes // 30)


def run(world: World, lasts: timedelta, capfd: pytest.CaptureFixture[str]) -> datetime:
    """Let the cycles run, with loads that change sides and with faults, the last minutes without.

    Returns when the first cycle of each cluster was over: the time counts from there.
    """

    def has_begun() -> bool:
        world.check()
        return {cycle["cluster"] for cycle in world.cycles()} == set(world.groups)

    wait_until(has_begun, timeout_s=300, what=lambda: f"only {len(world.cycles())} first cycles")
    began, minute = datetime.now(UTC), 0
    due = [
        (began + timedelta(minutes=every * number), kind)
        for kind, (_, every) in FAULTS.items()
        for number in range(1, 1 + int(lasts / timedelta(minutes=every)))
    ]
    due = sorted(each for each in due if each[0] < began + lasts - QUIET)
    while (now := datetime.now(UTC)) < began + lasts:
        world.check()
        if now >= began + minute * EVERY:
            # Each cluster's load changes sides every five minutes, two clusters a minute.
            for number in range(minute % 5, NUM_CLUSTERS, 5):
                world.load_one_side(f"c{number}")
            if minute % 60 == 40:
                world.maintain()
            minute += 1
            tell(capfd, f"minute {minute}: {len(world.cycles())} cycles, {dict(world.counts)}")
        if due and now >= due[0][0]:
            world.cause(due.pop(0)[1])
        time.sleep(1)
    return began


def judge(world: World, lake: LakeReader, began: datetime, ended: datetime) -> dict[str, Any]:
    """Return what was lost, doubled or late; the lake is read beneath the S3 server."""
    loaded = load_policy(world.policy)
    hints = {
        group: (hint.plan_id, hint.sequence)
        for cluster in loaded.policy.clusters.values()
        for group, hint in read_hint_topic(cluster).hints.items()
    }
    cycles = world.cycles()
    errors = Counter(cycle["error"][:60] for cycle in cycles if "error" in cycle)
    rows = lake.read_events().to_pylist()
    published = Counter(row["cluster"] for row in rows if row["event"] == "PUBLISHED")
    evidence = [group.evidence() for group in world.groups.values()]
    late_s = [
        (datetime.fromisoformat(each["started_at"]) - datetime.fromisoformat(each["slot"])).total_seconds()
        for each in cycles
    ]
    return {
        "faults": dict(sorted(world.counts.items())),
        "s3": {"refused": world.proxy.num_refused, "answers_lost": world.proxy.num_lost},
        "cycles": len(cycles),
        "failed_cycles": dict(errors),
        "began_late_s": {
            f"p{share}": round(float(np.percentile(late_s, share)), 1) for share in (50, 95, 100)
        },
        "snapshots": len(lake.read(SNAPSHOTS, columns=["snapshot_id"])),
        "expected_snapshots": int((ended - began) / EVERY) * NUM_CLUSTERS,
        "published_by_cluster": {name: published[name] for name in world.groups},
        "events": dict(Counter(row["event"] for row in rows)),
        "late": late_snapshots(lake, world.faults, began, ended),
        "violations": find_violations(lake, hints),
        "lost_records": sum(
            last - first + 1 for each in evidence for spans in each.lost.values() for first, last in spans
        ),
    }


def late_snapshots(lake: LakeReader, faults: list[Fault], began: datetime, ended: datetime) -> list[str]:
    """Return the gaps of more than one lost cycle between a cluster's snapshots, and after faults."""
    slots: dict[str, list[datetime]] = {}
    for row in lake.read(SNAPSHOTS, columns=["cluster", "slot"]).to_pylist():
        slots.setdefault(row["cluster"], []).append(row["slot"])
    found = []
    for cluster, of_cluster in sorted(slots.items()):
        for earlier, later in pairwise([began, *sorted(slot for slot in of_cluster if slot > began), ended]):
            # Faults may follow each other: counted from the end of the last one that this gap contains.
            since = max(
                (fault.ended for fault in faults if earlier - EVERY < fault.began < later), default=earlier
            )
            if later - max(since, earlier) > 2 * EVERY:
                found.append(f"{cluster}: {earlier:%H:%M:%S} to {later:%H:%M:%S}, from {since:%H:%M:%S}")
    return found
