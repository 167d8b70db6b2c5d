"""What a fault of Spark is tried on: a broker with groups that need a plan, a cluster, a lake, its cycles."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from kafka.errors import KafkaError

from evenlag.enums import GroupType
from evenlag.errors import JobError
from evenlag.kafka.connection import admin_client
from evenlag.kafka.live_groups import read_live_groups
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import TABLES
from evenlag.policy.loader import LoadedPolicy, load_policy
from evenlag.publishing.hint_topic import read_hint_topic
from evenlag.publishing.publish import publish_hints
from evenlag.spark_installation import delta_jars
from sandbox.kafka.broker import Broker
from sandbox.kafka.topic_admin import create_topic
from sandbox.processes import kill_process, start_process
from spark_jobs.runtime.classic_session import build_session
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.chaos.lake_invariants import find_violations
from tests.support.many_groups import GroupSpec, ManyGroups
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_cluster_runs import ROOT, driver_environment
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.brokers import Brokers

CLUSTER = "faults"
NUM_GROUPS = 8
TOPIC = "orders"
_PARTITIONS = 6
# Members hold the first and the second half of the partitions: one has all of the backlog.
_BACKLOG = (900, 700, 500)
_STEP_TIMEOUT_S = 420.0
_SETTLE_TIMEOUT_S = 240.0
POLICY = """
lake: {lake}
clusters:
  {cluster}:
    bootstrap_servers: {servers}
    hint_topic: hints
    hint_topic_partitions: 3
    schedule: null
    request_timeout_ms: 4000
    temporary_member_after_s: null
groups:
  - {{match: "g*", mode: auto, reset_policy: earliest, gates: {{cooldown_s: 0}}, back_off: {{after: 0}}}}
"""


class World:
    """All that a fault needs, started and stopped as a whole.

    broker, cluster: What faults are done to; without workers there is no cluster, with other brokers there
        is no broker.
    servers: The brokers' addresses.
    """

    def __init__(self, directory: Path, *, num_workers: int = 2, brokers: Brokers | None = None) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._stack = ExitStack()
        if brokers is None:
            self.broker = self._stack.enter_context(Broker.start(directory / "broker"))
        self.servers = (brokers or self.broker).bootstrap_servers
        self.policy = directory / "evenlag.yaml"
        text = POLICY.format(lake=directory / "lake", cluster=CLUSTER, servers=self.servers)
        self.policy.write_text(text, encoding="utf-8")
        try:
            if num_workers:
                started = SparkCluster.start(directory / "spark", num_workers=num_workers)
                self.cluster = self._stack.enter_context(started)
            self._fill()
            specs = {f"g{number}": GroupSpec((TOPIC,)) for number in range(NUM_GROUPS)}
            groups = self._stack.enter_context(ManyGroups(self.servers, specs))
            groups.wait_until_owned()
            for name in specs:
                groups.commit(name, {(TOPIC, number): 0 for number in range(_PARTITIONS)})
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    @cached_property
    def spark(self) -> SparkSession:
        """Where the cycles beside the faults run: on one machine, as another evenlag on the same lake."""
        session = build_session("evenlag faults")
        self._stack.callback(session.stop)
        return session

    @property
    def loaded(self) -> LoadedPolicy:
        """The policy."""
        return load_policy(self.policy)

    @property
    def lake(self) -> LakeReader:
        """The lake, without a JVM."""
        return LakeReader(self.loaded.policy.lake)

    def wait_until_stable(self) -> None:
        """Wait until every group has settled again, after the broker was away."""
        types = {f"g{number}": GroupType.CLASSIC for number in range(NUM_GROUPS)}

        def states() -> dict[str, str]:
            # What a broker that has just come back answers is an error now and then.
            with suppress(JobError, KafkaError), admin_client(self.loaded.policy.clusters[CLUSTER]) as client:
                return {name: group.state for name, group in read_live_groups(client, types).items()}
            return {}

        wait_until(
            lambda: set(states().values()) == {"Stable"},
            timeout_s=_SETTLE_TIMEOUT_S,
            what=lambda: f"the groups did not settle: {states()}",
        )

    def observe(self, slot: datetime) -> None:
        """Observe a slot, undisturbed."""
        run_observe(self.spark, self.loaded, CLUSTER, slot, "beside")

    def cycle(self) -> dict[str, Any]:
        """Run the next cycle, publishing included, and tell what came of it."""
        slot, loaded, started = new_slot(), self.loaded, time.monotonic()
        run_observe(self.spark, loaded, CLUSTER, slot, "next")
        decided = run_decide(self.spark, loaded, CLUSTER, slot, "next")
        report = publish_hints(loaded, CLUSTER, slot, "next")
        return {
            "plans": decided["plans"],
            "approved": decided["approved"],
            "published": len(report.published),
            "held": len(report.held),
            "seconds": round(time.monotonic() - started, 1),
        }

    def submit(self, step: str, slot: datetime) -> subprocess.Popen[bytes]:
        """Submit a step to the cluster, as the operator does; the whole driver is one process group."""
        arguments = ["--config", str(self.policy), "--cluster", CLUSTER]
        arguments += ["--slot", slot.isoformat(), "--run-id", f"fault-{step}"]
        submit = ["spark-submit", "--master", self.cluster.master_url, "--jars", ",".join(delta_jars())]
        command = [*submit, str(ROOT / "spark_jobs" / "cycle.py"), step, *arguments]
        with (self.directory / "drivers.log").open("ab") as log:
            environ = os.environ | driver_environment(self.cluster)
            return start_process(command, log=log, env=environ)

    def finish(self, driver: subprocess.Popen[bytes]) -> int:
        """Wait for a driver's own end: its exit code."""
        try:
            return driver.wait(_STEP_TIMEOUT_S)
        finally:
            kill_process(driver)

    def violations(self) -> list[str]:
        """What is half-visible now."""
        state = read_hint_topic(self.loaded.policy.clusters[CLUSTER])
        hints = {group: (hint.plan_id, hint.sequence) for group, hint in state.hints.items()}
        return find_violations(self.lake, hints)

    def tables_with(self, slot: datetime) -> list[str]:
        """The tables with rows of a slot, finished or not: where a step was when it died."""
        start = f"{slot.astimezone(UTC):%Y%m%dT%H%M%S}"
        return [
            table.name
            for table in TABLES.values()
            if any(column.name == "snapshot_id" for column in table.columns)
            and any(str(name).startswith(start) for name in self._snapshot_ids(table.name))
        ]

    def _snapshot_ids(self, name: str) -> list[Any]:
        ids: list[Any] = self.lake.read(TABLES[name], columns=["snapshot_id"])["snapshot_id"].to_pylist()
        return ids

    def _fill(self) -> None:
        from kafka import KafkaProducer

        create_topic({"bootstrap_servers": self.servers}, TOPIC, _PARTITIONS)
        producer = KafkaProducer(bootstrap_servers=self.servers)
        for partition, count in enumerate(_BACKLOG):
            for _ in range(count):
                producer.send(TOPIC, b"x", partition=partition)
        producer.close()


def new_slot() -> datetime:
    """A unique slot: at most one per second, because ids depend on it."""
    time.sleep(1.1)
    return datetime.now(UTC).replace(microsecond=0)


def say(text: str) -> None:
    """Tell how it goes on."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
