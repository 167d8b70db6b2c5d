"""The lake ``foreign``: groups as other people's clients make them, and a group that is behind in bursts."""

from __future__ import annotations

import struct
import time
from contextlib import ExitStack
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from sandbox.kafka.topic_admin import create_topic
from tests.support.commits import commit_offsets
from tests.support.raw_member import RawMember
from tests.support.waiting import wait_until
from tests.truth.recording.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker

NAME: Final = "foreign"
CLUSTER: Final = "foreign"
POLICY: Final = """\
lake: lake
clusters:
  foreign:
    bootstrap_servers: "{servers}"
    temporary_member_after_s: null
    schedule: null
    rate_window_s: 20
groups:
  - match: "without-policy-*"
    mode: observe
  - match: "*"
    mode: shadow
    reset_policy: earliest
"""
# Longer than the recording.
_SESSION_MS: Final = 900_000
# Two members process 150 records/s each.
_DRAINED_S: Final = 12.0
# One topic whose array of partitions is null.
_NULL_ARRAY: Final = bytes.fromhex("0000ffffffffffffffff")
_COUNTS: Final = {"shared": (40, 40, 40, 10), "left": (90, 0), "rx-orders": (30, 0, 30), "emptied": (100,)}
# Committed offsets by group and topic, before any of the groups has a member.
_COMMITS: Final[Mapping[str, Mapping[str, Mapping[int, int]]]] = {
    "malformed": {"shared": {0: 10, 1: 40}},
    "short-subscription": {"shared": {0: 10, 1: 15, 2: 40, 3: 10}, "left": {0: 0}},
    "by-expression": {"rx-orders": {0: 10, 1: 0, 2: 5}},
    "no-members": {"shared": {0: 0}, "left": {0: 20}},
    "after-retention": {"emptied": {0: 30}},
    "beyond-the-end": {"shared": {3: 100}},
    "without-policy-beyond": {"shared": {3: 100}},
    "rebalancing": {"shared": {0: 7, 1: 8, 2: 9}},
}


def record(spark: SparkSession, broker: Broker, folder: Path) -> Stage:
    """Record it; the stage says what happened."""
    stage = Stage(spark, folder, broker.bootstrap_servers, POLICY, CLUSTER)
    with stage, ExitStack() as members:
        _set_up(stage, members)
        stage.warm_up()
        _play(stage, members)
        stage.finish()
    return stage


def _set_up(stage: Stage, members: ExitStack) -> None:
    admin = KafkaAdminClient(**stage.client)
    producer = KafkaProducer(**stage.client)
    for topic, counts in _COUNTS.items():
        create_topic(stage.client, topic, len(counts))
        for partition, count in enumerate(counts):
            for _ in range(count):
                producer.send(topic, b"x", partition=partition)
    producer.close()
    admin.delete_records({TopicPartition("emptied", 0): 100})
    for group_id, topics in _COMMITS.items():
        for topic, offsets in topics.items():
            commits = {TopicPartition(topic, n): OffsetAndMetadata(at, "", -1) for n, at in offsets.items()}
            commit_offsets(admin, group_id, commits)
    admin.close()
    _join(stage, members, "malformed").sync_bytes(_NULL_ARRAY)
    # Version 1, which ends before the partitions that it owns.
    name = b"shared"
    short = struct.pack(">hih", 1, 1, len(name)) + name + struct.pack(">i", -1)
    raw = _join(stage, members, "short-subscription", subscription=short)
    raw.sync([("shared", [0, 1, 2, 3])])
    _subscribe_by_expression(stage, members)
    burst = stage.workload("burst", "bursts", 6, assignor="cooperative-sticky", records_per_s=150.0)
    burst.start_consumers(2)
    burst.wait_until_owned()
    stage.note("all groups are there")


def _join(stage: Stage, members: ExitStack, group_id: str, **fields: Any) -> RawMember:
    servers = stage.client["bootstrap_servers"]
    member = RawMember(servers, group_id, topics=["shared"], session_timeout_ms=_SESSION_MS, **fields)
    members.enter_context(member).join()
    return member


def _subscribe_by_expression(stage: Stage, members: ExitStack) -> None:
    """A member of the consumer protocol that subscribes by an expression; the client beats by itself."""
    settings = {
        "bootstrap.servers": stage.client["bootstrap_servers"],
        "group.id": "by-expression",
        "group.protocol": "consumer",
        "enable.auto.commit": False,
        "max.poll.interval.ms": _SESSION_MS,
    }
    consumer = Consumer(settings)
    members.callback(consumer.close)
    consumer.subscribe(["^rx-.*"])

    def is_assigned() -> list[ConfluentPartition]:
        consumer.poll(0.1)
        return consumer.assignment()

    wait_until(is_assigned)


def _play(stage: Stage, members: ExitStack) -> None:
    for _ in range(2):
        for _ in range(3):
            stage.collect(5.0)
        # Behind for two snapshots, and idle again.
        stage.hot_spot("burst", counts=(1500, 1000, 500))
        stage.collect(5.0)
        stage.collect(5.0)
        time.sleep(_DRAINED_S)
    _while_it_rebalances(stage, members)
    stage.observe()


def _while_it_rebalances(stage: Stage, members: ExitStack) -> None:
    """Take a snapshot while a group waits for a member that does not join again."""
    _join(stage, members, "rebalancing").sync([("shared", [0, 1, 2, 3])])
    second = members.enter_context(
        RawMember(stage.client["bootstrap_servers"], "rebalancing", topics=["shared"])
    )
    waiting = Thread(target=second.join, daemon=True)
    waiting.start()
    stage.collect(1.0)
    waiting.join(60)
