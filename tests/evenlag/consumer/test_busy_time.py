"""The busy time that a consumer reports with its commits, beside its journal and as others read it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from evenlag.consumer import busy_clock, hinted_consumer
from evenlag.kafka.cluster_reader import ClusterReader
from evenlag.kafka.connection import admin_client
from evenlag.lag.speeds import BusyReports, reported_seconds
from tests.support.brokers import settings_of
from tests.support.commits import commit_offsets
from tests.support.each import for_each
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox.kafka.broker import Broker

pytestmark = pytest.mark.broker

NUM_PARTITIONS = 3
RECORD_S = 0.01


class Scene:
    """A topic, a group of one consumer, its journal, and the clock of its thread, which work moves on."""

    def __init__(self, broker: Broker, admin: Any, unique: Callable[[str], str]) -> None:
        self.broker, self.admin = broker, admin
        self.topic, self.group = unique("busy"), unique("group")
        admin.create_topics({self.topic: {"num_partitions": NUM_PARTITIONS}}, wait_for_metadata=True)
        self.consumer: Any = None
        self.records, self.busy_s, self.now_s = 0, 0.0, 0.0

    def start(self, **configs: Any) -> None:
        """Start the consumer."""
        self.consumer = hinted_consumer(
            self.topic,
            group_id=self.group,
            bootstrap_servers=self.broker.bootstrap_servers,
            auto_offset_reset="earliest",
            max_poll_records=20,
            **configs,
        )
        wait_until(lambda: self.consumer.poll(200) or self.consumer.assignment(), what="no assignment")

    def process(self, count: int, work: Callable[[int], None]) -> None:
        """Send records, process them, wait a while between polls that return none, and commit."""
        producer = KafkaProducer(bootstrap_servers=self.broker.bootstrap_servers)
        for number in range(count):
            producer.send(self.topic, b"x", partition=number % NUM_PARTITIONS)
        producer.flush()
        producer.close()
        until = self.records + count
        wait_until(lambda: self._drain(work) >= until, progress=lambda: self.records)
        self._drain(work)
        self.consumer.commit()

    def _drain(self, work: Callable[[int], None]) -> int:
        """Process until a poll returns nothing; return how many records there were since the start."""
        while self._step(work):
            pass
        return self.records

    def _step(self, work: Callable[[int], None]) -> int:
        batches = self.consumer.poll(100)
        began_s = self.now_s
        size = sum(map(len, batches.values()))
        work(size)
        if size:
            self.records, self.busy_s = self.records + size, self.busy_s + self.now_s - began_s
        return size

    def commits(self) -> list[dict[str, Any]]:
        """What a snapshot reads of the group, by partition."""
        rows = ClusterReader(self.admin).read().commits.to_pylist()
        return sorted(
            (row for row in rows if row["group_id"] == self.group), key=lambda row: row["partition"]
        )

    def metadata(self) -> list[str]:
        """The text of the commits, as a plain consumer reads it."""
        reader = KafkaConsumer(group_id=self.group, bootstrap_servers=self.broker.bootstrap_servers)
        wanted = [TopicPartition(self.topic, number) for number in range(NUM_PARTITIONS)]
        found = [reader.committed(each, metadata=True).metadata for each in wanted]
        reader.close()
        return found


@pytest.fixture
def scene(broker: Broker, unique: Callable[[str], str]) -> Iterator[Scene]:
    with admin_client(settings_of(broker)) as admin:
        made = Scene(broker, admin, unique)
        yield made
        if made.consumer is not None:
            made.consumer.close()


def reports_of(rows: list[dict[str, Any]]) -> BusyReports:
    busy_ms, since_ms = (
        np.array([row["busy_ms"] for row in rows]),
        np.array([round(1000 * row["busy_since"].timestamp()) for row in rows]),
    )
    return BusyReports(busy_ms, since_ms)


def test_a_snapshot_has_the_busy_time_of_the_consumers_journal(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that keeps up needs time for each record, and after each empty poll, which is no work."""
    clock = SimpleNamespace(monotonic=lambda: scene.now_s, time_ns=time.time_ns)
    monkeypatch.setattr(busy_clock, "time", clock)
    scene.start(report_busy_time=True)

    def work(size: int) -> None:
        scene.now_s += RECORD_S * size if size else 0.3

    scene.process(60, work)
    before, first = scene.commits(), (scene.records, scene.busy_s)
    scene.process(90, work)
    after = scene.commits()
    assert [row["committed_offset"] for row in after] == [50] * NUM_PARTITIONS
    assert len({row["busy_since"] for row in after}) == 1
    assert after[0]["busy_ms"] / 1000 == pytest.approx(scene.busy_s, rel=0.05)
    processed = np.array([50.0 - row["committed_offset"] for row in before])
    owner = np.zeros(NUM_PARTITIONS, dtype=np.int64)
    (seconds,) = reported_seconds(owner, processed, reports_of(before), reports_of(after), num_members=1)
    records, busy_s = scene.records - first[0], scene.busy_s - first[1]
    assert processed.sum() / seconds == pytest.approx(records / busy_s, rel=0.05)


def test_an_applications_own_metadata_stay_and_are_no_report(scene: Scene) -> None:
    scene.start(report_busy_time=True)
    scene.process(6, lambda _: None)
    own = {TopicPartition(scene.topic, 0): OffsetAndMetadata(1, "mine", -1)}
    scene.consumer.commit(own)
    texts = scene.metadata()
    assert texts[0] == "mine"
    rows = scene.commits()
    assert [row["busy_ms"] is None for row in rows] == [True, False, False]
    since_ms = round(1000 * rows[1]["busy_since"].timestamp())
    assert texts[1:] == [f"evenlag:busy_ms={row['busy_ms']} since_ms={since_ms}" for row in rows[1:]]


def test_nothing_is_reported_that_nobody_asked_for(scene: Scene) -> None:
    scene.start()
    scene.process(6, lambda _: None)
    assert scene.metadata() == [""] * NUM_PARTITIONS
    assert [row["busy_ms"] for row in scene.commits()] == [None] * NUM_PARTITIONS


@for_each(
    [
        "evenlag:busy_ms=1 since_ms=-1",
        "evenlag:busy_ms=1e3 since_ms=1",
        "evenlag:busy_ms=10000000000000 since_ms=1",
        "evenlag:busy_ms=1 since_ms=1\n",
        "evenlag:busy_ms=\u0661 since_ms=1",
        "evenlag:busy_ms=1 since_ms=1" * 100,
    ],
    name=lambda text: text[:40],
)
def test_another_text_is_no_report_and_no_problem(text: str, scene: Scene) -> None:
    commits = {TopicPartition(scene.topic, 0): OffsetAndMetadata(0, text, -1)}
    commit_offsets(scene.admin, scene.group, commits)
    (row,) = scene.commits()
    assert (row["committed_offset"], row["busy_ms"], row["busy_since"], row["error"]) == (0, None, None, None)
