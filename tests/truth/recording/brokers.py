"""The lake ``brokers``: two brokers of one cluster, of which the second says nothing now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafka import KafkaAdminClient, TopicPartition

from evenlag.kafka.broker_requests import BrokerCalls, RequestBudget, RequestLimits
from evenlag.kafka.coordinators import find_coordinators
from tests.support.two_brokers import SecondBroker, StallingProxy
from tests.support.waiting import wait_until
from tests.truth.recording.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker
    from tests.support.faulty_workload import FaultyWorkload

NAME: Final = "brokers"
CLUSTER: Final = "two-brokers"
POLICY: Final = """\
lake: lake
clusters:
  two-brokers:
    bootstrap_servers: "{servers}"
    temporary_member_after_s: null
    schedule: null
    request_timeout_ms: 4000
    rate_window_s: 30
    snapshot: {{max_broker_failures: 1}}
groups:
  - match: billing
    mode: auto
    reset_policy: earliest
    min_gain: 0.1
    hint_ttl_s: 600
    gates: {{cooldown_s: 5}}
    back_off: {{horizon_s: 20}}
  - match: ranges
    mode: shadow
    reset_policy: earliest
  - match: "far-*"
    mode: auto
    reset_policy: earliest
"""
_NUM_PARTITIONS: Final = 24
# Of the 24, what the first broker leads: the rest is not known while the second stalls.
_NUM_KNOWN: Final = 14
# After so many steps of a snapshot, it does not see members that join or leave.
_MEMBERS_ARE_READ: Final = 2
_NEAR: Final = ("billing", "ranges", "edge")


def record(spark: SparkSession, broker: Broker, folder: Path) -> Stage:
    """Record it; the stage says what happened."""
    second = SecondBroker(folder / "second", broker)
    with StallingProxy(second.bootstrap_servers) as proxy:
        try:
            second.start_behind(proxy)
            stage = Stage(spark, folder, broker.bootstrap_servers, POLICY, CLUSTER)
            with stage:
                _set_up(stage)
                stage.warm_up()
                _play(stage, proxy)
                stage.finish()
        finally:
            # It holds nothing that is looked at again, and a clean end waits for its peer.
            second.kill()
    return stage


def _set_up(stage: Stage) -> None:
    admin = KafkaAdminClient(**stage.client)
    halves = {number: [1 if number < _NUM_KNOWN else 2] for number in range(_NUM_PARTITIONS)}
    topics: Any = {
        "orders": {"assignments": halves},
        "edge": {"assignments": {number: [2] for number in range(4)}},
        "evenlag-hints": {
            "assignments": {number: [1] for number in range(3)},
            "configs": {"cleanup.policy": "compact", "compression.type": "uncompressed"},
        },
    }
    admin.create_topics(topics, wait_for_metadata=True)
    far = _coordinate_by_the_second(admin)
    admin.close()
    billing = stage.workload("billing", "orders", _NUM_PARTITIONS, records_per_s=60.0)
    billing.start_consumers(3)
    ranges = stage.workload("ranges", "orders", _NUM_PARTITIONS, assignor="range", records_per_s=200.0)
    ranges.start_consumers(3)
    stage.workload("edge", "edge", 4, assignor="range").start_consumers(1)
    stage.workload("far", "edge", 4, group_id=far).start_consumers(1)
    for group in stage.workloads.values():
        group.wait_until_owned()
    billing.start_traffic(records_per_s=150, skew=0.6)
    stage.workloads["edge"].start_traffic(records_per_s=10, skew=0.6)
    stage.note("all groups consume")


def _coordinate_by_the_second(admin: KafkaAdminClient) -> str:
    """Give the second broker the coordination of a group of its own; returns the group's id."""
    taken = {_offsets_partition(name) for name in _NEAR}
    names = [f"far-{number}" for number in range(100)]
    far = next(name for name in names if _offsets_partition(name) not in taken)
    admin.alter_partition_reassignments({TopicPartition("__consumer_offsets", _offsets_partition(far)): [2]})
    budget = RequestBudget(1_000)
    calls = BrokerCalls(admin, RequestLimits(1_000, 10, 90, deadline_s=90, failover_s=0), budget=budget)
    wait_until(
        lambda: find_coordinators(calls, [far]).get(far) == 2,
        what="the second broker does not coordinate the group",
    )
    return far


def _offsets_partition(group_id: str) -> int:
    """Kafka's own choice: Java's hash of the text, of 4 partitions."""
    found = 0
    for letter in group_id:
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    return (found & 0x7FFFFFFF) % 4


def _play(stage: Stage, proxy: StallingProxy) -> None:
    ranges = stage.workloads["ranges"]
    stage.collect(3.0)
    stage.hot_spot("billing", counts=(5000, 4000, 3000, 1000, 800, 500))
    stage.collect(1.0)
    with stage.moves("billing"):
        stage.whole_cycle()
    _stall(stage, proxy)
    stage.observe()
    stage.collect(5.0)
    stage.collect(25.0)
    stage.while_read(lambda: _leave(stage, ranges), step=_MEMBERS_ARE_READ)
    stage.collect()
    ranges.start_consumer("consumer-1")
    ranges.wait_until_owned()
    stage.note("joined", group="ranges", member="consumer-1")
    stage.collect(1.0)
    stage.hot_spot("billing", counts=(6000, 3000, 2000))
    _stall(stage, proxy)
    stage.decide()
    stage.collect(10.0)
    _stall(stage, proxy)
    stage.collect()
    stage.hot_spot("billing", counts=(4000, 3000, 3000))
    with stage.moves("billing"):
        stage.whole_cycle()
    stage.observe()


def _leave(stage: Stage, group: FaultyWorkload) -> None:
    group.stop_process("consumer-1")
    group.wait_until_owned()
    stage.note("left while the snapshot was taken", group="ranges", member="consumer-1")


def _stall(stage: Stage, proxy: StallingProxy) -> None:
    """Let the second broker say nothing while the next snapshot is read."""
    stage.note("the second broker says nothing")
    proxy.stall()
    stage.while_read(proxy.flow)
    stage.while_read(lambda: stage.note("the second broker answers again"))
