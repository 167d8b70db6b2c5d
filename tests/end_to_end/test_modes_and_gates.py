"""One run over groups in all four modes and one that fails each gate: real broker, Spark, Delta and GX.

The rows of ``docs/gates.md`` are these plans, word for word. What a correct planner or broker never brings
forth (a partition twice, an owner that is nobody, …) is put into the plans between planning and judging;
everything else is made for real.
"""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka.coordinator.assignors.range import RangePartitionAssignor

from assignor_core.hint import HintPayload, plan_id
from evenlag.enums import GroupState, GroupType
from evenlag.kafka.connection import admin_client
from evenlag.kafka.live_groups import read_live_groups
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import DECISIONS, GATE_RESULTS, LAG, MEMBERS, PLAN_ASSIGNMENTS, PLANS
from evenlag.lake.writer import append_once
from evenlag.planning.gate_inputs import count_rows
from evenlag.policy.gates import GATES
from evenlag.policy.loader import LoadedPolicy, parse_policy
from evenlag.publishing import publish_checks
from evenlag.publishing.event_log import append_plan_events
from evenlag.publishing.hint_topic import read_hint_topic
from evenlag.publishing.publish import publish_hints
from evenlag.publishing.sealing import verified_plans
from evenlag.queries.plan_rows import plan_rows
from spark_jobs.steps import cycle_steps
from spark_jobs.steps.cycle_steps import run_observe
from spark_jobs.steps.plan_groups import Planned, plan_groups
from tests.support.many_groups import GroupSpec, ManyGroups
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker
    from spark_jobs.steps.snapshot_rows import SnapshotRows

pytestmark = [pytest.mark.broker, pytest.mark.jvm]

CLUSTER = "c"
DOCS = Path(__file__).resolve().parents[2] / "docs" / "gates.md"
MAX_MESSAGE_BYTES = 2_800
LONG = "x" * 240
# Group → its rule. What a group's plan is to fail is its name, with "-" for "_".
RULES: dict[str, str] = {
    "goes-out": "mode: auto",
    "catches-up": "mode: auto",
    "is-approved": "mode: approve",
    "waits": "mode: approve",
    "watches": "mode: shadow",
    "watches-range": "mode: shadow",
    "observes": "mode: observe",
    "no-duplicates": "mode: auto",
    "complete": "mode: auto",
    "valid-owners": "mode: auto",
    "no-violations": "mode: auto",
    "count-slack": "mode: auto, assignor: lag-aware",
    "max-moves": "mode: auto, assignor: lag-aware, max_moves: 1",
    "min-gain": "mode: auto, assignor: lag-aware, min_gain: 0.9",
    "saves-time": "mode: auto",
    "cross-rack": "mode: auto, gates: {max_cross_rack_rise: 0.1}",
    "lag-known": "mode: auto, reset_policy: null",
    "snapshot-fresh": "mode: auto, gates: {max_snapshot_age_s: 1}",
    "group-stable": "mode: auto",
    "hint-protocol": "mode: auto",
    "hint-assignor": "mode: auto",
    "cooldown": "mode: auto",
    "payload-fits": "mode: auto",
}
POLICY = """
lake: {lake}
clusters:
  c: {{bootstrap_servers: "{servers}", hint_topic: {hint_topic}, temporary_member_after_s: null}}
groups:
"""


@dataclass
class World:
    """Groups on the broker, with the policy for them."""

    prefix: str
    topics: dict[str, str]
    groups: ManyGroups
    loaded: LoadedPolicy

    @property
    def lake(self) -> LakeReader:
        return LakeReader(self.loaded.policy.lake)

    def plan_of(self, name: str) -> dict[str, Any]:
        (plan,) = self.lake.read(PLANS, filters=[("group_id", "=", self.prefix + name)]).to_pylist()
        return dict(plan)

    def story(self, name: str) -> list[str]:
        """The group's events, in the order of a plan's life."""
        rows = self.lake.read_events(filters=[("group_id", "=", self.prefix + name)]).to_pylist()
        order = ("PROPOSED", "REJECTED", "APPROVED", "PUBLISHED", "EXPIRED")
        return sorted((row["event"] for row in rows if row["actor"] != "before"), key=order.index)

    def event(self, name: str, event: str, actor: str, plan: dict[str, Any] | None = None) -> None:
        """Write an event as a person's command does."""
        shown = plan or self.plan_of(name)
        append_plan_events(
            self.loaded.policy.lake,
            [
                {
                    "cluster": CLUSTER,
                    "day": shown["day"],
                    "snapshot_id": shown["snapshot_id"],
                    "plan_id": shown["plan_id"],
                    "group_id": self.prefix + name,
                    "event": event,
                    "reason": "a test",
                    "actor": actor,
                    "at": datetime.now(UTC),
                    "sequence": 7 if event == "PUBLISHED" else None,
                }
            ],
        )


@pytest.fixture(scope="module")
def world(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    from kafka import KafkaProducer

    prefix = f"g{time.time_ns() % 10**9}-"
    topics = {"t": f"{prefix}t", "u": f"{prefix}u", "v": f"{prefix}v"}
    hint_topic = f"{prefix}hints"
    folder = tmp_path_factory.mktemp("modes")
    text = POLICY.format(lake=folder / "lake", servers=broker.bootstrap_servers, hint_topic=hint_topic)
    for name, rule in RULES.items():
        reset = "" if "reset_policy" in rule else ", reset_policy: earliest"
        text += f"  - {{match: {prefix}{name}, {rule}{reset}}}\n"
    text += '  - {match: "*", mode: observe}\n'
    loaded = parse_policy(text, environ={})
    with admin_client(loaded.policy.clusters[CLUSTER]) as client:
        client.create_topics(
            {
                topics["t"]: {"num_partitions": 4},
                topics["u"]: {"num_partitions": 3},
                topics["v"]: {"num_partitions": 3},
                hint_topic: {
                    "num_partitions": 1,
                    "configs": {
                        "cleanup.policy": "compact",
                        "compression.type": "uncompressed",
                        "max.message.bytes": str(MAX_MESSAGE_BYTES),
                    },
                },
            },
            wait_for_metadata=True,
        )
    specs = {prefix + name: GroupSpec([topics["t"]]) for name in RULES}
    specs[prefix + "count-slack"] = GroupSpec(list(topics.values()))
    specs[prefix + "hint-assignor"] = GroupSpec([topics["t"]], assignor=RangePartitionAssignor)
    specs[prefix + "watches-range"] = GroupSpec([topics["t"]], assignor=RangePartitionAssignor)
    specs[prefix + "payload-fits"] = GroupSpec([topics["t"]], instances=(f"a{LONG}", f"b{LONG}"))
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number, count in enumerate((900, 800, 10, 10)):
        for _ in range(count):
            producer.send(topics["t"], b"x", partition=number)
    producer.close()
    with ManyGroups(broker.bootstrap_servers, specs) as groups:
        groups.wait_until_owned()
        yield World(prefix, topics, groups, loaded)


def spoil(planned: Planned, rows: SnapshotRows, prefix: str) -> Planned:
    """Put into plans what a correct planner and a well-read group never bring forth, and count it."""
    import pyarrow as pa

    faulty = {prefix + name for name in ("no-duplicates", "complete", "valid-owners")}
    lag = rows.rows_of_groups(LAG, ("group_id", "topic"), faulty)
    members = rows.rows_of_groups(MEMBERS, ("group_id", "member_id", "subscription"), faulty)
    good = rows.rows_of_groups(PLAN_ASSIGNMENTS, PLAN_ASSIGNMENTS.column_names, faulty)
    # What executors counted is what the written rows say.
    assert count_rows(good, lag, members).items() <= planned.counts.items()

    spoiled = []
    for row in good.to_pylist():
        name = row["group_id"].removeprefix(prefix)
        if row["partition"] == 0:
            owners = {"complete": None, "valid-owners": "a-stranger"}
            row["owner_after"] = owners.get(name, row["owner_after"])
            spoiled += [row] if name == "no-duplicates" else []
        spoiled.append(row)
    counts = count_rows(pa.Table.from_pylist(spoiled, schema=good.schema), lag, members)

    changes: dict[str, dict[str, Any]] = {
        "no-violations": {"violations": ["UNASSIGNED: t0-1 is with nobody"]},
        "saves-time": {"record_s_saved": 100.0, "record_s_cost": 220.0},
        "cross-rack": {"across_racks_before": 0.0, "across_racks_after": 0.5},
        "group-stable": {"group_state": "PreparingRebalance"},
        "hint-protocol": {"group_type": "share"},
    }
    heads = [head | changes.get(head["group_id"].removeprefix(prefix), {}) for head in planned.heads]
    return dataclasses.replace(planned, heads=heads, counts=planned.counts | counts)


@pytest.fixture(scope="module")
def run(world: World, spark: SparkSession) -> dict[str, Any]:
    """Observe and decide once, for all tests of this module; returns decide's summary."""
    # On a busy machine a member may rejoin late, and a group that rebalances has no plan.
    with admin_client(world.loaded.policy.clusters[CLUSTER]) as client:
        types = {world.prefix + name: GroupType.CLASSIC for name in RULES}
        wait_until(
            lambda: (
                {group.state for group in read_live_groups(client, types).values()} == {GroupState.STABLE}
            ),
            what="a group is never Stable",
        )
    topic = world.topics["t"]
    world.groups.commit(world.prefix + "lag-known", {(topic, number): 0 for number in range(3)})
    slot = datetime.now(UTC)
    before = {"day": slot.date(), "snapshot_id": f"{slot - timedelta(days=1):%Y%m%d}", "plan_id": "before"}
    world.event("cooldown", "PUBLISHED", "before", before)
    run_observe(spark, world.loaded, CLUSTER, slot, "r1")
    # The plan of `snapshot-fresh` may be a second old when it is judged.
    time.sleep(1.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            cycle_steps,
            "plan_groups",
            lambda rows, context, sealer: spoil(plan_groups(rows, context, sealer), rows, world.prefix),
        )
        return {"slot": slot, **cycle_steps.run_decide(spark, world.loaded, CLUSTER, slot, "r1")}


def test_each_gate_sets_its_plan_aside_with_its_reason_and_the_others_go_on(
    world: World, run: dict[str, Any]
) -> None:
    failing = {gate.name.replace("_", "-") for gate in GATES}
    assert failing < set(RULES)
    assert (run["approved"], run["rejected"], run["waiting"]) == (2, len(GATES), 4)
    verdicts = world.lake.read(GATE_RESULTS).to_pylist()
    assert len(verdicts) == len(GATES) * run["plans"] == len(GATES) * (len(GATES) + 6)
    failed = defaultdict(set)
    for row in verdicts:
        if not row["passed"]:
            failed[row["group_id"].removeprefix(world.prefix)].add(row["gate"])
    # In shadow, its verdict is on record and rejects nothing.
    assert failed.pop("watches-range") == {"hint_assignor"}
    assert failed == {name: {name.replace("-", "_")} for name in failing}
    for name in failing:
        assert world.story(name) == ["PROPOSED", "REJECTED"], name
    assert world.story("observes") == []


def test_the_page_of_gates_says_what_an_operator_sees(world: World, run: dict[str, Any]) -> None:
    found = {}
    examples = DOCS.read_text(encoding="utf-8").partition("\n## A failing plan for each gate\n")[2]
    for line in examples.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `"):
            found[cells[0].strip("`")] = (cells[1], cells[2], cells[3].strip("`"))
    assert list(found) == [gate.name for gate in GATES]
    assert run["rejected"] == len(GATES)
    rows = {row["gate"]: row for row in world.lake.read(GATE_RESULTS).to_pylist() if not row["passed"]}
    for gate, (_, message, observed_and_allowed) in found.items():
        row = rows[gate]
        age = row["observed"].split(".")[0] if gate in {"cooldown", "snapshot_fresh"} else None
        seen, values = row["message"], f"{row['observed']}, {row['allowed']}"
        if age is not None:
            seen, values = (
                seen.replace(f"{float(row['observed']):.0f} s old", "… s old"),
                f"…, {row['allowed']}",
            )
        if gate == "payload_fits":
            seen, values = seen.replace(row["observed"], "…"), f"…, {row['allowed']}"
        if gate == "min_gain":
            values = f"{float(row['observed']):.4f}, {row['allowed']}"
        assert (seen, values) == (message, observed_and_allowed), gate


def test_a_group_that_cannot_be_hinted_is_planned_in_shadow_and_says_why(
    world: World, run: dict[str, Any]
) -> None:
    assert run["plans"] > 0
    plan = world.plan_of("hint-assignor")
    assert plan["mode"] == "shadow"
    assert plan["mode_reason"] == "cannot be hinted: the group has selected range, not evenlag"
    (decision,) = world.lake.read(
        DECISIONS, filters=[("group_id", "=", world.prefix + "hint-assignor")]
    ).to_pylist()
    assert (decision["policy_mode"], decision["mode"], decision["decision"]) == ("auto", "shadow", "PROPOSED")
    moved = world.lake.read(PLAN_ASSIGNMENTS, filters=[("plan_id", "=", plan["plan_id"])]).to_pylist()
    assert moved
    assert all(row["moved"] for row in moved)


def test_a_plan_of_shadow_is_not_rejected_because_its_group_could_not_follow(
    world: World, run: dict[str, Any]
) -> None:
    assert run["plans"] > 0
    assert world.story("watches-range") == ["PROPOSED"]
    plans = plan_rows(world.lake, CLUSTER, group=world.prefix + "watches-range")
    assert [(plan["status"], plan["reason"]) for plan in plans] == [
        ("PROPOSED", "cannot be hinted: the group has selected range, not evenlag")
    ]
    filters = [("group_id", "=", world.prefix + "watches-range"), ("passed", "=", False)]
    assert world.lake.read(GATE_RESULTS, filters=filters)["gate"].to_pylist() == ["hint_assignor"]


def test_only_what_policy_or_a_person_approved_is_published_and_forged_approvals_are_not(
    world: World, run: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As many parts as there are plans.
    monkeypatch.setattr(verified_plans, "_PLANS_PER_PART", 1)
    monkeypatch.setattr(publish_checks, "_PLANS_PER_READ", 1)
    forge_approvals(world)
    world.event("is-approved", "APPROVED", "alice")
    ends = {(world.topics["t"], number): count for number, count in enumerate((900, 800, 10, 10))}
    world.groups.commit(world.prefix + "catches-up", ends)
    report = publish_hints(world.loaded, CLUSTER, run["slot"], "r1")
    published = {group.removeprefix(world.prefix) for group, _, _ in report.published}
    assert published == {"goes-out", "is-approved"}
    state = read_hint_topic(world.loaded.policy.clusters[CLUSTER])
    assert {group.removeprefix(world.prefix) for group in state.hints} == published
    for group, identity, sequence in report.published:
        assert (state.hints[group].plan_id, state.hints[group].sequence) == (identity, sequence)
    expired = {group.removeprefix(world.prefix): reason for group, _, reason in report.expired}
    assert expired == {
        "watches": "a plan of mode shadow is never published, whoever approved it",
        "observes": "a plan of mode comparison is never published, whoever approved it",
        "waits": "a plan of mode approve is for a person to approve, not for policy",
        "catches-up": "on the current lag it lowers the largest load of a member by 0.0% "
        "(46.5% when planned), min_gain is 5.0%",
    }
    assert world.story("goes-out") == ["PROPOSED", "APPROVED", "PUBLISHED"]
    assert world.story("catches-up") == ["PROPOSED", "APPROVED", "EXPIRED"]
    assert world.story("max-moves") == ["PROPOSED", "REJECTED", "APPROVED"]
    assert publish_hints(world.loaded, CLUSTER, run["slot"], "r1").published == []


def forge_approvals(world: World) -> None:
    """Approve what must not go out: a shadow plan, a rejected one, a comparison, one by the wrong actor."""
    world.event("watches", "APPROVED", "alice")
    world.event("max-moves", "APPROVED", "alice")
    world.event("waits", "APPROVED", "policy")
    good = world.plan_of("goes-out")
    group_id = world.prefix + "observes"
    payload = dataclasses.replace(HintPayload.decode(good["payload"].encode()), group_id=group_id).encode()
    changed = {"group_id": group_id, "plan_id": plan_id(payload)}
    for table, more in (
        (PLANS, {"mode": "comparison", "payload": payload.decode()}),
        (GATE_RESULTS, {}),
    ):
        rows = world.lake.read(table, filters=[("plan_id", "=", good["plan_id"])]).to_pylist()
        assert rows
        append_once(world.loaded.policy.lake, table, [row | changed | more for row in rows], None)
    world.event("observes", "APPROVED", "alice")
