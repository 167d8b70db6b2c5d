"""A lake on S3, written by two drivers at once and by deltalake: a cycle, an approval, and what follows."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.spark_storage import lake_storage_conf
from evenlag.lake.tables import (
    COMPARISONS,
    DECISIONS,
    GATE_RESULTS,
    LAG,
    OUTCOMES,
    OWNERSHIP,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    PLANS,
    QUALITY_RESULTS,
    SNAPSHOTS,
    TABLE_HEALTH,
    TABLES,
    Table,
)
from evenlag.policy.loader import LoadedPolicy, load_policy
from evenlag.publishing import approvals
from evenlag.publishing.answers.actors import Actor
from evenlag.publishing.approvals import AlreadyDecidedError, request_approval
from evenlag.publishing.hint_topic import read_hint_topic
from evenlag.publishing.publish import publish_hints
from evenlag.spark_installation import JARS_VARIABLE
from sandbox.workload.workload import Workload
from spark_jobs.compare import Request, run_compare
from spark_jobs.maintain import maintain_lake
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.audit_ownership import audit_assignments
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.support.cycle_killer import REPOSITORY, Killer
from tests.support.s3.jars import jars_for_s3
from tests.support.s3.server import CREDENTIAL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker
    from tests.support.s3.server import S3Server

pytestmark = [pytest.mark.extended, pytest.mark.broker, pytest.mark.jvm]

BUCKET = "evenlag"
MINE, OTHER = "mine", "other"
POLICY = """
lake: s3://{bucket}/lake
clusters:
  mine: {{bootstrap_servers: "{servers}", hint_topic: {hint_topic}, temporary_member_after_s: null}}
  other: {{bootstrap_servers: "{servers}", hint_topic: {hint_topic}, temporary_member_after_s: null}}
comparison: {{policies: [range]}}
groups:
  - {{match: {group}, mode: approve, reset_policy: earliest, gates: {{cooldown_s: 0}}}}
  - {{match: "*", mode: observe}}
"""


class Setting:
    """A group with skewed lag, a lake on S3, and drivers that write to it."""

    def __init__(self, workload: Workload, config: Path, killer: Killer, server: S3Server) -> None:
        self.workload, self.config, self._killer, self._server = workload, config, killer, server
        self.group = workload.group_id

    @property
    def loaded(self) -> LoadedPolicy:
        return load_policy(self.config)

    @property
    def lake(self) -> LakeReader:
        return LakeReader(self.loaded.policy.lake)

    @property
    def beneath(self) -> LakeReader:
        """The lake as the server's own folder: what is read there did not come by S3."""
        return LakeReader(str(self._server.folder / BUCKET / "lake"))

    def rows(self, table: Table, cluster: str = MINE) -> list[dict[str, Any]]:
        rows = [row for row in self.lake.read(table).to_pylist() if row["cluster"] == cluster]
        return [row for row in rows if row.get("group_id", self.group) == self.group]

    def events(self, plan_id: str) -> Counter[str]:
        return Counter(row["event"] for row in self.rows(PLAN_EVENTS) if row["plan_id"] == plan_id)

    def num_rows(self) -> dict[str, int]:
        """Return the rows of each table but that of the maintenance itself."""
        tables = [table for table in TABLES.values() if table is not TABLE_HEALTH]
        return {table.name: self.lake.read(table).num_rows for table in tables}

    def skew(self) -> None:
        """Put a backlog on two partitions of one member, so that there is something to plan."""
        heavy = max(sorted(held) for held in self.workload.owners().values() if len(held) > 1)
        self.workload.fill(dict.fromkeys(heavy[:2], 9000))

    def start_driver(self, slot: datetime) -> subprocess.Popen[str]:
        """Start a cycle of the other cluster, in a driver of its own."""
        jars = jars_for_s3(self.config.parent / "jars")
        where = ["--config", str(self.config), "--cluster", OTHER, "--slot", slot.isoformat()]
        command = [sys.executable, "-m", "spark_jobs.cycle", "observe", "decide", *where, "--run-id", "other"]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {JARS_VARIABLE: str(jars), "PYTHONPATH": str(REPOSITORY)},
        )

    def answer(self, plan_id: str, run_id: str, *, approve: bool) -> None:
        """Give a person's answer to a plan that waits."""
        values: dict[str, Any] = {"reason": "seen", "run_id": run_id, "now": datetime.now(UTC)}
        approvals.record_answer(self.loaded, MINE, plan_id, approve=approve, actor=Actor("ann"), **values)

    def wait_until_followed(self, plan_id: str) -> None:
        """Wait until the group's members own what a plan gives them."""
        parts: dict[str, set[int]] = {}
        for row in self.rows(PLAN_ASSIGNMENTS):
            if row["plan_id"] == plan_id:
                parts.setdefault(row["owner_after"], set()).add(row["partition"])
        wanted = {frozenset(held) for held in parts.values()}
        self.workload.wait_until_owned(
            condition=lambda owners: {frozenset(held) for held in owners.values()} == wanted
        )

    def kill_after(self, table: str, slot: datetime, *, step: str) -> None:
        """Run the cycle in a driver that is killed right after it has written a table.

        With the step ``publish``, the publisher is killed before it writes its event.
        """
        status = self._killer.ask([str(self.config), MINE, slot.isoformat(), step, table, 1])
        assert status == -9, self._killer.log.read_text(encoding="utf-8")[-3000:]


@pytest.fixture(scope="module")
def setting(
    broker: Broker, s3: S3Server, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setting]:
    folder = tmp_path_factory.mktemp("on-s3")
    group = f"on-s3-{os.getpid()}"
    config = folder / "evenlag.yaml"
    config.write_text(
        POLICY.format(
            bucket=BUCKET, servers=broker.bootstrap_servers, hint_topic=f"hints-{group}", group=group
        )
    )
    s3.make_bucket(BUCKET)
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in s3.environment().items():
            patch.setenv(name, value)
        for key, value in lake_storage_conf().items():
            # The session began before the server: what its start would have set.
            if key.startswith("spark.hadoop.fs.s3a."):
                spark.conf.set(key.removeprefix("spark.hadoop."), value)
                stack.callback(spark.conf.unset, key.removeprefix("spark.hadoop."))
        killer = stack.enter_context(contextlib.closing(Killer(spark, folder)))
        workload = stack.enter_context(
            Workload(
                {"bootstrap_servers": broker.bootstrap_servers},
                folder / "workload",
                topic=f"orders-{group}",
                num_partitions=6,
                group_id=group,
                hint_topic=f"hints-{group}",
                consumer={"records_per_s": 5, "session_timeout_ms": 120_000},
            )
        )
        workload.start_consumers(2)
        workload.wait_until_owned()
        yield Setting(workload, config, killer, s3)


def check_log_is_whole(setting: Setting) -> None:
    """Each table's log has each version once, and the same rows by S3 and in the server's folder."""
    beneath = setting.beneath.paths.local_root
    for table in TABLES.values():
        log = beneath / table.name / "_delta_log"
        if not log.is_dir():
            continue
        versions = sorted(int(file.stem) for file in log.glob("*.json") if file.stem.isdigit())
        assert versions == list(range(len(versions))), table.name
        assert setting.lake.read(table).num_rows == setting.beneath.read(table).num_rows, table.name


# What the races of writers on S3 and the repeats below hold one by one, together: minutes.
@pytest.mark.soak
def test_two_drivers_a_person_and_the_upkeep_share_a_lake(setting: Setting, spark: SparkSession) -> None:
    setting.skew()
    loaded, slot = setting.loaded, datetime.now(UTC).replace(microsecond=0)
    other = setting.start_driver(slot)
    run_observe(spark, loaded, MINE, slot, "r1")
    assert run_decide(spark, loaded, MINE, slot, "r1")["plans"] == 1, setting.rows(GATE_RESULTS)
    output, _ = other.communicate(timeout=1_200)
    assert other.returncode == 0, output[-3000:]
    # Both have the access key from their environment, and tell it nowhere.
    assert CREDENTIAL not in f"{output} {spark.sparkContext.getConf().getAll()}"
    # Each wrote its own snapshot, of the same groups.
    for cluster in (MINE, OTHER):
        assert [row["slot"] for row in setting.rows(SNAPSHOTS, cluster)] == [slot]
        assert len(setting.rows(LAG, cluster)) == 6

    # A person says yes; nothing is published before.
    (plan,) = setting.rows(PLANS)
    assert publish_hints(loaded, MINE, slot, "r1").published == []
    request_approval(loaded, MINE, plan["plan_id"], run_id="ask", now=datetime.now(UTC))

    setting.answer(plan["plan_id"], "ask", approve=True)
    with pytest.raises(AlreadyDecidedError):
        setting.answer(plan["plan_id"], "late", approve=False)
    ((group, published, _),) = publish_hints(loaded, MINE, slot, "r1").published
    assert (group, published) == (setting.group, plan["plan_id"])

    setting.wait_until_followed(plan["plan_id"])
    later = datetime.now(UTC)
    assert run_observe(spark, loaded, MINE, later, "r2")["outcomes"] == {"APPLIED": 1}
    assert [row["outcome"] for row in setting.rows(OUTCOMES)] == ["APPLIED"]
    expected = Counter(["PROPOSED", "APPROVED", "PUBLISHED", "APPLIED"])
    assert setting.events(plan["plan_id"]) == expected

    lake = Lake(spark, loaded.policy.lake)
    assert audit_assignments(lake, MINE).summary()["days"]
    assert {row["partition"] for row in setting.rows(OWNERSHIP)} == set(range(6))
    compared = run_compare(lake, loaded, Request(MINE, slot.date(), later.date(), (), False, False))
    assert compared["compared"]
    assert setting.rows(COMPARISONS)
    before = setting.num_rows()
    assert not maintain_lake(lake, loaded.policy, later + timedelta(days=2)).failures
    # Days are compacted, and nothing is old enough to go. The verdicts on the tables are new.
    assert setting.num_rows() == before
    health = setting.lake.read(TABLE_HEALTH).to_pylist()
    # Two days later, no new snapshot is there.
    assert {row["check_name"] for row in health if not row["is_ok"]} <= {"FRESHNESS", "MISSING_DAYS"}
    assert {row["check_name"] for row in health if row["is_ok"]} >= {"SCHEMA", "PROTOCOL", "PROPERTIES"}
    check_log_is_whole(setting)


# In the order of the writes, as on a disk. Each repeat of the slot goes on where the last one was killed.
KILLS = [
    ("offsets", "observe"),
    ("commits", "observe"),
    ("members", "observe"),
    ("lag", "observe"),
    ("snapshots", "observe"),
    ("quality_results", "observe"),
    ("runs", "observe"),
    ("policies", "decide"),
    ("decisions", "decide"),
    ("plan_assignments", "decide"),
    ("plans", "decide"),
    ("plan_events", "decide"),
    ("gate_results", "decide"),
    ("runs", "decide"),
]


@pytest.mark.parametrize(
    "kills",
    [
        # The moments in which most is half done: a marker without its run, a plan's rows without its head.
        pytest.param([("snapshots", "observe"), ("plan_assignments", "decide")], id="some"),
        pytest.param(KILLS, id="each", marks=pytest.mark.soak),
    ],
)
def test_killed_after_a_write_a_repeat_puts_the_slot_right(
    setting: Setting, spark: SparkSession, kills: list[tuple[str, str]]
) -> None:
    setting.skew()
    # A policy that the lake does not have yet is written once more.
    setting.config.write_text(setting.config.read_text(encoding="utf-8") + "# the same\n", encoding="utf-8")
    slot, loaded = datetime.now(UTC).replace(microsecond=0), setting.loaded
    known = {row["snapshot_id"] for row in setting.rows(SNAPSHOTS)}
    for table, step in kills:
        setting.kill_after(table, slot, step=step)
        new = {row["snapshot_id"] for row in setting.rows(SNAPSHOTS)} - known
        # The marker is what makes a snapshot visible.
        assert len(new) == (1 if KILLS.index((table, step)) >= KILLS.index(("snapshots", "observe")) else 0)
        heads = [row["plan_id"] for row in setting.rows(PLANS) if row["snapshot_id"] in new]
        assert len(heads) == (1 if KILLS.index((table, step)) >= KILLS.index(("plans", "decide")) else 0)
        parts = Counter(row["plan_id"] for row in setting.rows(PLAN_ASSIGNMENTS))
        assert all(parts[plan_id] == 6 for plan_id in heads)
    run_observe(spark, loaded, MINE, slot, "repeat")
    run_decide(spark, loaded, MINE, slot, "repeat")
    (snapshot,) = {row["snapshot_id"] for row in setting.rows(SNAPSHOTS)} - known
    written = (LAG, DECISIONS, PLANS, PLAN_ASSIGNMENTS, PLAN_EVENTS, GATE_RESULTS, SNAPSHOTS, QUALITY_RESULTS)
    for table_of in written:
        rows = [row for row in setting.rows(table_of) if row["snapshot_id"] == snapshot]
        assert rows, table_of.name
        counts = Counter(tuple(row[name] for name in table_of.key) for row in rows)
        assert set(counts.values()) == {1}, table_of.name
    check_log_is_whole(setting)


def test_killed_between_hint_and_event_and_after_an_outcome_a_repeat_writes_the_events(
    setting: Setting, spark: SparkSession
) -> None:
    setting.skew()
    slot, loaded = datetime.now(UTC).replace(microsecond=0), setting.loaded
    snapshot = run_observe(spark, loaded, MINE, slot, "r1")["snapshot_id"]
    assert run_decide(spark, loaded, MINE, slot, "r1")["waiting"] == 1, setting.rows(GATE_RESULTS)
    # Decided again under edited policies, the plan stays the only one, and is published once.
    text = setting.config.read_text(encoding="utf-8")
    edits = (
        text + "# a comment\n",
        text.replace("mode: approve", "mode: approve, max_moves: 1"),
        text.replace("mode: approve", "mode: shadow"),
    )
    for edited in edits:
        setting.config.write_text(edited, encoding="utf-8")
        assert "kept" in run_decide(spark, setting.loaded, MINE, slot, "again")
    setting.config.write_text(text, encoding="utf-8")
    (plan,) = (row["plan_id"] for row in setting.rows(PLANS) if row["snapshot_id"] == snapshot)
    setting.answer(plan, "person", approve=True)
    setting.kill_after(PLAN_EVENTS.name, slot, step="publish")
    cluster = loaded.policy.clusters[MINE]
    standing = read_hint_topic(cluster).hints[setting.group]
    assert (standing.plan_id, setting.events(plan)) == (plan, Counter(["PROPOSED", "APPROVED"]))
    repeat = publish_hints(loaded, MINE, slot, "r2")
    assert repeat.published == [(setting.group, plan, standing.sequence)]
    assert read_hint_topic(cluster).hints[setting.group].sequence == standing.sequence
    setting.wait_until_followed(plan)
    later = datetime.now(UTC)
    setting.kill_after(OUTCOMES.name, later, step="observe")
    assert setting.events(plan) == Counter(["PROPOSED", "APPROVED", "PUBLISHED"])
    run_observe(spark, loaded, MINE, later, "r3")
    assert [row["outcome"] for row in setting.rows(OUTCOMES) if row["plan_id"] == plan] == ["APPLIED"]
    assert setting.events(plan) == Counter(["PROPOSED", "APPROVED", "PUBLISHED", "APPLIED"])
    check_log_is_whole(setting)
