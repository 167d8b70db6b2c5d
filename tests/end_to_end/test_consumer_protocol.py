"""The main job on a group that the broker assigns (KIP-848): read, planned, approved, followed, scored.

Its consumers are processes of confluent-kafka that know nothing of hints; the broker has the plug-in.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.enums import GroupType
from evenlag.kafka.broker_requests import RequestLimits
from evenlag.kafka.connection import admin_client
from evenlag.kafka.groups import describe_named_groups
from evenlag.kafka.live_groups import LiveGroup, read_live_groups
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import GATE_RESULTS, LAG, MEMBERS, OUTCOMES, PLAN_ASSIGNMENTS, PLANS
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.policy.gates import GATES
from evenlag.policy.loader import load_policy
from evenlag.publishing import approvals
from evenlag.publishing.answers.actors import Actor
from evenlag.publishing.approval_page import build_page
from evenlag.publishing.approvals import read_plan
from evenlag.publishing.hint_topic import read_hint_topic
from evenlag.publishing.publish import publish_hints
from sandbox.workload.workload import Workload
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.support.broker_plugin.node import HINTS, MASTER
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table
    from evenlag.policy.loader import LoadedPolicy
    from tests.support.broker_plugin.node import Node

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: it is the extra kip848")
pytestmark = [pytest.mark.extended, pytest.mark.broker, pytest.mark.jvm]

CLUSTER = "sandbox"
POLICY = """
lake: {lake}
clusters:
  {cluster}: {{bootstrap_servers: "{servers}", hint_topic: {hints}, hint_signing_key: {{env: TEST_MASTER}}}}
groups:
  - {{match: {group}, mode: approve, reset_policy: earliest}}
"""
NUM_PARTITIONS = 6


class Setting:
    """A group of three consumers on the broker, one of them static, and a policy for it."""

    def __init__(self, workload: Workload, config: Path) -> None:
        self.workload, self.group, self._config = workload, workload.group_id, config

    @property
    def loaded(self) -> LoadedPolicy:
        return load_policy(self._config)

    def rows(self, table: Table) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = LakeReader(self.loaded.policy.lake).read(table).to_pylist()
        return [row for row in rows if row["group_id"] == self.group]

    def live(self, *others: str) -> dict[str, LiveGroup]:
        with admin_client(self.loaded.policy.clusters[CLUSTER]) as client:
            return read_live_groups(client, dict.fromkeys((self.group, *others), GroupType.CONSUMER))


@pytest.fixture
def setting(
    node: Node, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Setting]:
    monkeypatch.setenv("TEST_MASTER", MASTER.decode())
    group, config = unique("billing"), tmp_path / "evenlag.yaml"
    servers = node.broker.bootstrap_servers
    config.write_text(
        POLICY.format(lake=tmp_path / "lake", cluster=CLUSTER, servers=servers, hints=HINTS, group=group)
    )
    with Workload(
        {"bootstrap_servers": servers},
        tmp_path / "workload",
        topic=unique("orders"),
        num_partitions=NUM_PARTITIONS,
        group_id=group,
        hint_topic=HINTS,
        consumer={"protocol": "consumer", "records_per_s": 5, "extra": {"client.rack": "rack-1"}},
    ) as workload:
        workload.start_consumer("consumer-static", is_static=True)
        workload.start_consumers(2)
        owners = workload.wait_until_owned(condition=lambda held: {len(held[n]) for n in held} == {2})
        heavy = sorted(owners["consumer-static"])
        workload.fill({**dict.fromkeys(range(NUM_PARTITIONS), 50), heavy[0]: 3000, heavy[1]: 2000})
        yield Setting(workload, config)


def test_from_a_skewed_group_to_an_applied_hint_and_no_record_is_lost(
    setting: Setting, spark: SparkSession
) -> None:
    loaded, slot = setting.loaded, datetime.now(UTC)
    run_observe(spark, loaded, CLUSTER, slot, "r1")
    assert_seen_whole(setting)
    run_decide(spark, loaded, CLUSTER, slot, "r1")
    (plan,) = setting.rows(PLANS)
    verdicts = setting.rows(GATE_RESULTS)
    assert [row["message"] for row in verdicts if not row["passed"]] == []
    assert len(verdicts) == len(GATES)
    assert (plan["group_type"], plan["group_assignor"], plan["mode"]) == ("consumer", "evenlag", "approve")
    values: dict[str, Any] = {"actor": Actor("A. Person"), "reason": "looks right", "run_id": "r1"}
    shown = read_plan(loaded, CLUSTER, plan["plan_id"], datetime.now(UTC))
    page = build_page(shown, answer_by=slot + timedelta(hours=1))
    assert "the brokers assign this group" in page.body
    approvals.record_answer(loaded, CLUSTER, plan["plan_id"], approve=True, now=datetime.now(UTC), **values)
    report = publish_hints(loaded, CLUSTER, slot, "r1")
    assert (report.published, report.not_taken_up) == ([(setting.group, plan["plan_id"], 1)], [])
    hint = read_hint_topic(loaded.policy.clusters[CLUSTER]).hints[setting.group]
    assert (hint.signed, set(hint.payload.member_ids or ())) == (True, {"i:consumer-static"})
    wait_for_plan(setting, plan["plan_id"])
    # Members own their partitions a heartbeat before the coordinator counts the group as Stable.
    wait_until(lambda: setting.live()[setting.group].state == "Stable", what="the group is never Stable")
    live = setting.live("nobody-s-group")
    assert live[setting.group].fingerprint == plan["fingerprint"]
    assert live["nobody-s-group"].state == "Dead"
    run_observe(spark, loaded, CLUSTER, datetime.now(UTC), "r2")
    (outcome,) = setting.rows(OUTCOMES)
    shares = outcome["adherence"], outcome["target_adherence"]
    assert (outcome["outcome"], *shares) == ("APPLIED", 1.0, 1.0), outcome
    setting.workload.stop()
    evidence = setting.workload.evidence()
    assert (evidence.lost, evidence.repeated, evidence.overlaps) == ({}, {}, ())
    assert len(evidence.num_processed) == 3


def test_a_group_goes_over_online_one_consumer_after_another(
    node: Node, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """From evenlag's classic client to confluent-kafka's, with records coming in all the time."""
    group, servers = unique("moving"), node.broker.bootstrap_servers
    with Workload(
        {"bootstrap_servers": servers},
        tmp_path / "workload",
        topic=unique("orders"),
        num_partitions=NUM_PARTITIONS,
        group_id=group,
        hint_topic=HINTS,
        consumer={"records_per_s": 100, "session_timeout_ms": 120_000},
    ) as workload:
        names = workload.start_consumers(3)
        workload.wait_until_owned()
        workload.start_traffic(records_per_s=60)
        with admin_client(ClusterSettings(bootstrap_servers=tuple(servers.split(",")))) as client:
            for number, name in enumerate(names, start=1):
                workload.stop_process(name)
                workload.start_consumer(name, protocol="consumer")
                wait_until(partial(is_mixed, client, group, number), what=f"{name} never went over")
                workload.wait_until_owned()
        workload.stop()
        evidence = workload.evidence()
    # A commit that is refused in between would repeat a record; none may be lost, nor be with two at once.
    assert (evidence.lost, evidence.overlaps) == ({}, ())
    assert all(evidence.num_processed[name] for name in names)


def is_mixed(client: Any, group: str, num_newer: int) -> bool:
    """Whether the plug-in assigns the group, and so many of its three members speak the broker's protocol."""
    rows = describe_named_groups(client, {group: GroupType.CONSUMER}, RequestLimits())
    kinds = sorted(str(row.get("member_type")) for row in rows)
    wanted = ["classic"] * (3 - num_newer) + ["consumer"] * num_newer
    return kinds == wanted and {(row["group_state"], row["assignor"]) for row in rows} == {
        ("Stable", "evenlag")
    }


def assert_seen_whole(setting: Setting) -> None:
    """Type, epochs, assignor, racks, current and target assignment."""
    rows = setting.rows(MEMBERS)
    assert len(rows) == 3
    head = ("group_state", "group_type", "assignor", "member_type", "rack_id")
    assert {tuple(row[name] for name in head) for row in rows} == {
        ("Stable", "consumer", "evenlag", "consumer", "rack-1")
    }
    # Stable: everybody has come to the target, and the target is that of the newest epoch.
    for row in rows:
        assert row["group_epoch"] == row["assignment_epoch"] == row["member_epoch"] > 0
        assert row["assignment"] == row["target_assignment"]
    names = {row["member_id"]: row["client_id"] for row in rows}
    owners = {(names[row["owner_member_id"]], row["partition"]) for row in setting.rows(LAG)}
    assert owners == {(name, n) for name, held in setting.workload.owners().items() for n in held}
    assert all(row["target_member_id"] == row["owner_member_id"] for row in setting.rows(LAG))


def wait_for_plan(setting: Setting, plan_id: str) -> None:
    """Wait until each consumer holds what the plan gives it."""
    names = {row["member_id"]: row["client_id"] for row in setting.rows(MEMBERS)}
    wanted: dict[str, set[int]] = {name: set() for name in names.values()}
    for row in setting.rows(PLAN_ASSIGNMENTS):
        if row["plan_id"] == plan_id:
            wanted[names[row["owner_after"]]].add(row["partition"])
    setting.workload.wait_until_owned(condition=lambda held: held == wanted)
