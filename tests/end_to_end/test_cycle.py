"""The main job on the real broker over SASL_SSL: observe, decide, publish, follow, and what became of it.

Then the same slot killed (-9) after each table: a repeat puts it right, and nothing is half-visible.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import SnapshotNotFoundError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import (
    DECISIONS,
    GATE_RESULTS,
    LAG,
    MEMBERS,
    OFFSETS,
    OUTCOMES,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    PLANS,
    QUALITY_RESULTS,
    SNAPSHOTS,
    TABLES,
    Table,
)
from evenlag.policy.loader import LoadedPolicy, load_policy
from evenlag.publishing.hint_topic import read_hint_topic
from evenlag.publishing.publish import publish_hints
from sandbox.workload.workload import Workload
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.soak.probes import kept_plans
from tests.support.cycle_killer import Killer
from tests.support.lakes.older_lake import check_nothing_is_lost, write_older_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.broker_node import BrokerNode

# Whole cycles: seconds each, but minutes on a machine that has other work.
pytestmark = [pytest.mark.broker, pytest.mark.jvm]

CLUSTER = "sandbox"
POLICY = """
lake: {lake}
clusters:
  {cluster}:
    bootstrap_servers: {servers}
    hint_topic: {hint_topic}
    hint_signing_key: {{env: TEST_HINT_KEY}}
    privacy: {{hosts: hash, client_ids: drop, key: {{env: TEST_SASL_PASSWORD}}}}
    kafka:
      security_protocol: SASL_SSL
      ssl_cafile: {ca_file}
      sasl_mechanism: PLAIN
      sasl_plain_username: {username}
      sasl_plain_password: {{env: TEST_SASL_PASSWORD}}
groups:
  - {{match: {group}, mode: auto, reset_policy: earliest, gates: {{cooldown_s: 0}}}}
"""


class Setting:
    """A group with skewed lag on the session's broker, and a policy that reaches it by SASL_SSL."""

    def __init__(self, workload: Workload, config: Path, killer: Killer) -> None:
        self.workload, self.config, self._killer = workload, config, killer
        self.group = workload.group_id

    @property
    def loaded(self) -> LoadedPolicy:
        return load_policy(self.config)

    @property
    def lake(self) -> LakeReader:
        return LakeReader(self.loaded.policy.lake)

    def rows(self, table: Table) -> list[dict[str, Any]]:
        rows = self.lake.read(table).to_pylist()
        return [row for row in rows if row.get("group_id", self.group) == self.group]

    def events(self) -> list[tuple[str, str]]:
        events = self.lake.read_events(filters=[("group_id", "=", self.group)]).to_pylist()
        return [(row["plan_id"], row["event"]) for row in events]

    def skew(self) -> None:
        """Put a backlog on two partitions of one member, so that there is something to plan."""
        heavy = max(sorted(held) for held in self.workload.owners().values() if len(held) > 1)
        self.workload.fill(dict.fromkeys(heavy[:2], 9000))

    def kill_after(self, table: str, slot: datetime, *, step: str = "observe") -> None:
        """Run the cycle in a driver of its own, on the session's JVM, that is killed after a write.

        `step` is what it begins with: decide alone is enough when observe has come to its end. With
        ``publish``, the publisher is killed before it writes its event.
        """
        status = self._killer.ask([str(self.config), CLUSTER, slot.isoformat(), step, table, 1])
        assert status == -9, self._killer.log.read_text(encoding="utf-8")[-3000:]


@pytest.fixture(scope="module")
def secrets(broker: BrokerNode) -> Iterator[tuple[str, str]]:
    assert broker.sasl_ssl is not None
    held = (broker.sasl_ssl.password, "a-signing-key-of-the-test-with-enough-bytes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_SASL_PASSWORD", held[0])
        patch.setenv("TEST_HINT_KEY", held[1])
        yield held


@pytest.fixture(scope="module")
def setting(
    broker: BrokerNode,
    secrets: tuple[str, str],
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Setting]:
    from assignor_core.hint import derive_group_key

    assert broker.sasl_ssl is not None
    folder = tmp_path_factory.mktemp("cycle")
    group = f"billing-{os.getpid()}"
    key = derive_group_key(secrets[1].encode(), group)
    config = folder / "evenlag.yaml"
    config.write_text(
        POLICY.format(
            lake=folder / "lake",
            cluster=CLUSTER,
            servers=broker.sasl_ssl.bootstrap_servers,
            hint_topic=f"hints-{group}",
            ca_file=broker.sasl_ssl.ca_file,
            username=broker.sasl_ssl.username,
            group=group,
        )
    )
    with (
        contextlib.closing(Killer(spark, folder)) as killer,
        Workload(
            {"bootstrap_servers": broker.bootstrap_servers},
            folder / "workload",
            topic=f"orders-{group}",
            num_partitions=6,
            group_id=group,
            hint_topic=f"hints-{group}",
            # Slow enough that the backlog is there until the plan is published.
            consumer={"records_per_s": 5, "session_timeout_ms": 120_000, "hint_key_hex": key.hex()},
        ) as workload,
    ):
        workload.start_consumers(2)
        workload.wait_until_owned()
        heavy = sorted(next(iter(workload.owners().values())))
        workload.fill({heavy[0]: 3000, heavy[1]: 2500, heavy[2]: 2000})
        yield Setting(workload, config, killer)


def duplicate_keys(rows: list[dict[str, Any]], key: tuple[str, ...]) -> list[Any]:
    counts = Counter(tuple(row[name] for name in key) for row in rows)
    return [row for row, count in counts.items() if count > 1]


def test_the_main_job_from_a_skewed_group_to_an_applied_hint(
    setting: Setting, spark: SparkSession, secrets: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    loaded, slot, kept = setting.loaded, datetime.now(UTC), kept_plans(spark)
    # The lake of an older evenlag: today's reads it and writes on, and nothing of it is lost.
    write_older_lake(Lake(spark, loaded.policy.lake))
    with pytest.raises(SnapshotNotFoundError, match="run observe for it first"):
        run_decide(spark, loaded, CLUSTER, slot, "r1")
    run_observe(spark, loaded, CLUSTER, slot, "r1")
    decided = run_decide(spark, loaded, CLUSTER, slot, "r1")
    assert (decided["plans"], decided["approved"]) >= (1, 1), setting.rows(GATE_RESULTS)
    first = publish_hints(loaded, CLUSTER, slot, "r1")
    ((group, plan_id, sequence),) = first.published
    assert (group, sequence) == (setting.group, 1)
    assert publish_hints(loaded, CLUSTER, slot, "r1").published == []
    (plan,) = setting.rows(PLANS)
    assert plan["plan_id"] == plan_id
    before, after = plan["metrics_before"], plan["metrics_after"]
    assert after["max_member_lag_records"] < 0.8 * before["max_member_lag_records"]
    hinted = wait_for_hint(setting, plan_id)
    later = datetime.now(UTC)
    observed = run_observe(spark, loaded, CLUSTER, later, "r2")
    assert observed["outcomes"] == {"APPLIED": 1}
    (outcome,) = setting.rows(OUTCOMES)
    assert (outcome["outcome"], outcome["adherence"]) == ("APPLIED", 1.0)
    assert outcome["max_member_lag_actual_records"] < outcome["max_member_lag_before_records"]
    story = [event for found, event in setting.events() if found == plan_id]
    assert Counter(story) == Counter(["PROPOSED", "APPROVED", "PUBLISHED", "APPLIED"])
    assert sum(map(len, hinted.values())) == 6
    written = (SNAPSHOTS, LAG, PLANS, PLAN_ASSIGNMENTS, PLAN_EVENTS, GATE_RESULTS, OUTCOMES)
    check_nothing_is_lost(loaded.policy.lake, *written)
    assert_offsets_have_the_times_of_their_answers(setting)
    assert_no_secret(setting, secrets, capfd.readouterr())
    assert kept_plans(spark) == kept


def assert_offsets_have_the_times_of_their_answers(setting: Setting) -> None:
    """A partition's offsets were read when its broker answered: before all offsets of the snapshot were."""
    of_cycles = [row for row in setting.rows(SNAPSHOTS) if row["run_id"] in {"r1", "r2"}]
    markers = {row["snapshot_id"]: row for row in of_cycles}
    in_cycles = [row for row in setting.rows(OFFSETS) if row["snapshot_id"] in markers]
    read = [row for row in in_cycles if row["error"] is None]
    assert {row["snapshot_id"] for row in read} == set(markers)
    for row in read:
        marker = markers[row["snapshot_id"]]
        assert marker["started_at"] < row["log_start_read_at"] < marker["log_start_read_at"]
        assert marker["commits_read_at"] < row["end_read_at"] < marker["end_read_at"]


def wait_for_hint(setting: Setting, plan_id: str) -> dict[str, set[int]]:
    """Wait until the consumers hold what the plan says."""
    rows = setting.lake.read(PLAN_ASSIGNMENTS, filters=[("plan_id", "=", plan_id)]).to_pylist()
    wanted: dict[str, set[int]] = {}
    for row in rows:
        wanted.setdefault(row["owner_after"], set()).add(row["partition"])
    parts = {frozenset(held) for held in wanted.values()}
    setting.workload.wait_until_owned(
        condition=lambda owners: {frozenset(held) for held in owners.values()} == parts
    )
    owners: dict[str, set[int]] = setting.workload.owners()
    return owners


def assert_no_secret(setting: Setting, secrets: tuple[str, str], output: Any) -> None:
    """Neither tables nor output hold a secret; the policy kept in the lake holds its reference."""
    texts = [
        output.out,
        output.err,
        *(str(setting.lake.read(table).to_pylist()) for table in TABLES.values()),
        *(path.read_text() for path in Path(setting.loaded.policy.lake).rglob("*.json")),
    ]
    for secret in secrets:
        assert not any(secret in text for text in texts)
    assert any("TEST_SASL_PASSWORD" in text for text in texts)
    members = [row for row in setting.rows(MEMBERS) if row["member_id"] is not None]
    assert {row["client_id"] for row in members} == {None}
    assert all(row["client_host"].startswith("~") for row in members)


@pytest.mark.extended
def test_killed_after_each_table_a_repeat_puts_the_slot_right(setting: Setting, spark: SparkSession) -> None:
    setting.skew()
    slot, lake = datetime.now(UTC).replace(microsecond=0), setting.lake
    known = set(lake.read(SNAPSHOTS)["snapshot_id"].to_pylist())
    for table in ("offsets", "commits", "members", "lag"):
        setting.kill_after(table, slot)
        assert set(lake.read(SNAPSHOTS)["snapshot_id"].to_pylist()) == known, table
        latest = lake.latest_snapshot(CLUSTER)
        assert latest is None or latest["slot"] < slot
    # A policy that the lake does not have yet is written once more.
    setting.config.write_text(setting.config.read_text(encoding="utf-8") + "# the same\n", encoding="utf-8")
    policy = setting.config.read_text(encoding="utf-8")
    edits = itertools.cycle(
        [
            policy + "# another comment\n",
            policy.replace("mode: auto", "mode: shadow"),
            policy.replace("mode: auto", "mode: auto, min_gain: 0.99, max_moves: 1"),
        ]
    )
    # Every write from the marker on, in their order, with the number of plans that are there after it, and of
    # plans that have partitions. Once it is decided, each attempt has another policy.
    for table, step, num_heads, num_plans in (
        ("snapshots", "observe", 0, 0),
        ("quality_results", "observe", 0, 0),
        ("runs", "observe", 0, 0),
        ("policies", "decide", 0, 0),
        ("decisions", "decide", 0, 0),
        ("plan_assignments", "decide", 0, 1),
        ("plans", "decide", 1, 1),
        # PROPOSED, and then what the gates decided.
        ("plan_events", "decide", 1, 1),
        ("gate_results", "decide", 1, 1),
        ("plan_events", "decide", 1, 1),
        ("runs", "decide", 1, 1),
    ):
        setting.kill_after(table, slot, step=step)
        (snapshot,) = set(lake.read(SNAPSHOTS)["snapshot_id"].to_pylist()) - known
        heads = [row for row in setting.rows(PLANS) if row["snapshot_id"] == snapshot]
        written = lake.read(PLAN_ASSIGNMENTS, filters=[("snapshot_id", "=", snapshot)])
        partitions = Counter(written["plan_id"].to_pylist())
        assert len(heads) == num_heads, table
        # No head without its rows, and no row twice.
        assert list(partitions.values()) == [6] * num_plans, table
        assert {row["plan_id"] for row in heads} <= partitions.keys(), table
        assert len([row for row in setting.rows(LAG) if row["snapshot_id"] == snapshot]) == 6, table
        if step == "decide" and table != "policies":
            setting.config.write_text(next(edits), encoding="utf-8")
    loaded = setting.loaded
    assert run_observe(spark, loaded, CLUSTER, slot, "repeat")["is_new"] is False
    decided = run_decide(spark, loaded, CLUSTER, slot, "repeat")
    setting.config.write_text(policy, encoding="utf-8")
    assert decided["snapshot_id"] == snapshot
    first_hash = hashlib.sha256(policy.encode()).hexdigest()
    assert decided["kept"] == f"the decision of run killed under policy {first_hash[:12]}"
    written = (LAG, DECISIONS, PLANS, PLAN_ASSIGNMENTS, PLAN_EVENTS, GATE_RESULTS, SNAPSHOTS, QUALITY_RESULTS)
    for table_of in written:
        rows = [row for row in setting.rows(table_of) if row["snapshot_id"] == snapshot]
        assert duplicate_keys(rows, table_of.key) == [], table_of.name
    assert len([row for row in setting.rows(LAG) if row["snapshot_id"] == snapshot]) == 6
    assert [(row["mode"], row["policy_hash"]) for row in heads] == [("auto", first_hash)]
    decisions = [event for plan, event in setting.events() if plan == heads[0]["plan_id"]]
    assert len(decisions) == 2
    assert set(decisions) <= {"PROPOSED", "APPROVED", "REJECTED"}


@pytest.mark.extended
def test_killed_between_hint_and_event_the_repeat_tells_of_the_same_hint(
    setting: Setting, spark: SparkSession
) -> None:
    setting.skew()
    slot, loaded = datetime.now(UTC), setting.loaded
    run_observe(spark, loaded, CLUSTER, slot, "r3")
    decided = run_decide(spark, loaded, CLUSTER, slot, "r3")
    assert decided["approved"] == 1, setting.rows(GATE_RESULTS)[-14:]
    setting.kill_after("plan_events", slot, step="publish")
    cluster = loaded.policy.clusters[CLUSTER]
    standing = read_hint_topic(cluster).hints[setting.group]
    assert (standing.plan_id, "PUBLISHED") not in setting.events()
    repeat = publish_hints(loaded, CLUSTER, slot, "r3")
    # The plan that an earlier, killed slot left approved is not put over the newer one.
    assert {reason for _, _, reason in repeat.expired} <= {
        "a newer plan of the group is approved or published"
    }
    assert repeat.published == [(setting.group, standing.plan_id, standing.sequence)]
    assert setting.events().count((standing.plan_id, "PUBLISHED")) == 1
    again = read_hint_topic(cluster).hints[setting.group]
    assert (again.sequence, again.plan_id) == (standing.sequence, standing.plan_id)
    wait_for_hint(setting, standing.plan_id)
    later = datetime.now(UTC)
    setting.kill_after("outcomes", later)
    assert (standing.plan_id, "APPLIED") not in setting.events()
    run_observe(spark, loaded, CLUSTER, later, "r3-repeat")
    outcomes = [row["outcome"] for row in setting.rows(OUTCOMES) if row["plan_id"] == standing.plan_id]
    assert outcomes == ["APPLIED"]
    assert setting.events().count((standing.plan_id, "APPLIED")) == 1


def test_a_group_that_changed_after_its_approval_is_not_hinted(setting: Setting, spark: SparkSession) -> None:
    setting.skew()
    slot, loaded = datetime.now(UTC), setting.loaded
    run_observe(spark, loaded, CLUSTER, slot, "r4")
    assert run_decide(spark, loaded, CLUSTER, slot, "r4")["approved"] == 1
    standing = read_hint_topic(loaded.policy.clusters[CLUSTER]).hints[setting.group]
    setting.workload.start_consumers(1)
    setting.workload.wait_until_owned(
        condition=lambda held: len([1 for parts in held.values() if parts]) == 3
    )
    report = publish_hints(loaded, CLUSTER, slot, "r4")
    assert report.published == []
    ((_, plan_id, reason),) = report.expired
    assert reason == "the group's members, topics or partitions have changed"
    assert (plan_id, "EXPIRED") in setting.events()
    assert read_hint_topic(loaded.policy.clusters[CLUSTER]).hints[setting.group].sequence == standing.sequence
