"""The workload's consumer, with a fault of kafka-python that cannot be caused on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer
from kafka.errors import UnknownBrokerIdError

from sandbox.workload.consumer import ConsumerSpec, Worker
from sandbox.workload.journal import read_journal
from tests.support.hints import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sandbox.kafka.broker import Broker

pytestmark = pytest.mark.broker


def test_a_leader_that_left_the_metadata_is_fetched_from_by_a_new_client(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group, hints, path = unique("orders"), unique("group"), unique("hints"), tmp_path / "journal.jsonl"
    client = {"bootstrap_servers": broker.bootstrap_servers}

    class Flaky(Worker):
        clients: list[Any] = []  # noqa: RUF012  # of one test

        def connect(self) -> Any:
            consumer = super().connect()
            self.clients.append(consumer)
            if len(self.clients) == 1:
                consumer.poll = self.fail
            return consumer

        def fail(self, **_: Any) -> None:
            raise UnknownBrokerIdError(2)

        def log_processed(self, *args: Any, **fields: Any) -> None:
            super().log_processed(*args, **fields)
            self.stopping.set()

    with Cluster(broker, group_id=group, topics={topic: 1}, hint_topic=hints):
        producer = KafkaProducer(**client)
        producer.send(topic, b"record").get(timeout=600)
        producer.close()
        Flaky(ConsumerSpec("consumer-0", client, (topic,), group, str(path), hint_topic=hints)).run()
    events = [event["event"] for event in read_journal(path)[0] if event["event"] != "hint"]
    assert events == ["started", "error", "assigned", "processed", "committed", "revoked", "closed"]
    assert len(Flaky.clients) == 2
