"""The lake ``hints``: every ending that a plan can have, on one broker that two clusters' names mean."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kafka import KafkaAdminClient, TopicPartition
from kafka.structs import OffsetAndMetadata

from sandbox.kafka.topic_admin import create_hint_topic, create_topic
from tests.truth.recording.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker

NAME: Final = "hints"
CLUSTER, MIRROR = "north", "Mirror.2_b"
POLICY: Final = """\
lake: lake
clusters:
  north:
    bootstrap_servers: "{servers}"
    temporary_member_after_s: null
    schedule: null
    rate_window_s: 20
    history_window_s: 600
  Mirror.2_b:
    bootstrap_servers: "{servers}"
    temporary_member_after_s: null
    schedule: null
    rate_window_s: 60
groups:
  - match: "*"
    clusters: Mirror.2_b
    mode: shadow
  - match: billing
    mode: auto
    reset_policy: earliest
    min_gain: 0.1
    hint_ttl_s: 600
    gates: {{cooldown_s: 5}}
    back_off: {{horizon_s: 40}}
  - match: deaf
    mode: auto
    reset_policy: earliest
    hint_ttl_s: {ttl_s}
    gates: {{cooldown_s: 5}}
    back_off: {{horizon_s: 30}}
  - match: strict
    mode: auto
    reset_policy: earliest
    gates: {{cooldown_s: 3600}}
  - match: review
    mode: approve
    reset_policy: earliest
    gates: {{cooldown_s: 5}}
  - match: brief
    mode: auto
    reset_policy: earliest
    hint_ttl_s: 10
  - match: observed
    mode: observe
"""
# Longer than a cycle takes on a busy machine; it is waited for.
_DEAF_TTL_S: Final = 120
_EMPTY: Final = "left-behind"


def record(spark: SparkSession, broker: Broker, folder: Path) -> Stage:
    """Record it; the stage says what happened."""
    policy = POLICY.replace("{ttl_s}", str(_DEAF_TTL_S))
    stage = Stage(spark, folder, broker.bootstrap_servers, policy, CLUSTER)
    with stage:
        _set_up(stage)
        stage.warm_up()
        _first_hints(stage)
        _refusals(stage)
        _last_move(stage)
        stage.finish()
    return stage


def _set_up(stage: Stage) -> None:
    create_topic(stage.client, "archive", 3)
    create_hint_topic(stage.client, "hints-of-nobody")
    admin = KafkaAdminClient(**stage.client)
    commits = {TopicPartition("archive", number): OffsetAndMetadata(0, "", -1) for number in range(3)}
    admin.alter_group_offsets(_EMPTY, commits)
    # One that its members do not take, once they are there.
    admin.alter_group_offsets("shipping", {TopicPartition("archive", 1): OffsetAndMetadata(0, "", -1)})
    admin.close()
    billing = stage.workload("billing", "orders", 12, records_per_s=60.0)
    stage.workload("deaf", "refunds", 6, hint_topic="hints-of-nobody").start_consumers(2)
    stage.workload("strict", "claims", 6, hint_topic="hints-of-nobody").start_consumers(2)
    stage.workload("review", "returns", 6).start_consumers(2)
    shipping = stage.workload("shipping", "parcels", 4, assignor="cooperative-sticky")
    shipping.start_consumers(2)
    for number in range(4):
        billing.start_consumer(f"consumer-{number}", is_static=number < 2)
    # It commits nothing: it starts at the end of a topic that nobody writes to.
    bare = stage.workload("bare", "archive", 3, assignor="range", extra={"auto_offset_reset": "latest"})
    bare.fill({0: 40, 2: 7})
    bare.start_consumers(1)
    for group in stage.workloads.values():
        group.wait_until_owned()
    billing.start_traffic(records_per_s=120, skew=0.8)
    shipping.start_traffic(records_per_s=30, skew=0.5)
    stage.workloads["deaf"].fill({0: 900})
    stage.note("all groups consume")


def _first_hints(stage: Stage) -> None:
    billing = stage.workloads["billing"]
    stage.collect(4.0)
    stage.hot_spot("billing", "deaf", "strict", "review")
    stage.collect(2.0)
    with stage.moves("billing"):
        slot = stage.whole_cycle()
    (plan,) = stage.ask(slot)
    stage.answer(plan, approve=False, reason="the day's <last> batch runs, 'not' now")
    stage.withdraw("strict", 'a "maintenance" window begins')
    stage.observe(2.0)
    stage.collect(cluster=MIRROR)
    billing.pause("consumer-1")
    stage.note("froze", group="billing", member="consumer-1")
    stage.collect()
    stage.collect()
    billing.resume("consumer-1")
    stage.note("resumed", group="billing", member="consumer-1")
    billing.stop_process("consumer-0")
    billing.start_consumer("consumer-0", is_static=True)
    stage.note("bounced", group="billing", member="consumer-0")
    billing.wait_until_owned()
    stage.collect(3.0)


def _refusals(stage: Stage) -> None:
    billing = stage.workloads["billing"]
    stage.hot_spot("billing", "deaf", "strict", "review")
    slot, run_id = stage.decide()
    billing.start_consumer("consumer-4")
    billing.wait_until_owned(condition=lambda owners: len(owners) == 5)
    stage.note("joined", group="billing", member="consumer-4")
    stage.publish(slot, run_id)
    published = time.monotonic()
    (plan,) = stage.ask(slot)
    stage.answer(plan, approve=True, reason="fine")
    with stage.moves("review"):
        stage.publish(slot, run_id, only=[plan])
    stage.alert()
    stage.observe(1.0)
    stage.collect(cluster=MIRROR)
    billing.stop_process("consumer-3")
    billing.wait_until_owned()
    stage.note("left", group="billing", member="consumer-3")
    stage.collect(25.0)
    stage.collect()
    time.sleep(max(0.0, published + _DEAF_TTL_S - time.monotonic()))


def _last_move(stage: Stage) -> None:
    stage.hot_spot("billing", "review", "deaf")
    with stage.moves("billing"):
        slot = stage.whole_cycle()
    stage.ask(slot)
    for name in stage.workloads["deaf"].consumers:
        stage.workloads["deaf"].stop_process(name)
    stage.note("all left", group="deaf")
    stage.observe()
    stage.alert()
