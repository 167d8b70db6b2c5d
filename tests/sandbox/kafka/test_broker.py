"""The sandbox's broker starts, answers on both listeners, keeps its records and leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from sandbox.kafka.broker import BrokerError
from tests.support.broker_node import BrokerNode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.broker


def test_both_listeners_reach_the_same_cluster(broker: BrokerNode) -> None:
    assert broker.sasl_ssl is not None
    ids = []
    for config in ({"bootstrap_servers": broker.bootstrap_servers}, broker.sasl_ssl.client_config()):
        admin = KafkaAdminClient(**config)
        ids.append(admin.describe_cluster()["cluster_id"])
        admin.close()
    assert ids == [broker.cluster_id] * 2


def test_a_wrong_password_is_refused(broker: BrokerNode) -> None:
    assert broker.sasl_ssl is not None
    config = broker.sasl_ssl.client_config() | {"sasl_plain_password": "wrong"}
    with pytest.raises(KafkaError):
        KafkaAdminClient(**config, bootstrap_timeout_ms=3000)


def test_the_password_shows_neither_in_repr_nor_to_other_users(broker: BrokerNode) -> None:
    assert broker.sasl_ssl is not None
    assert broker.sasl_ssl.password not in repr(broker.sasl_ssl)
    assert (broker.directory / "server.properties").stat().st_mode & 0o077 == 0


def test_topics_are_not_made_by_asking_for_them(broker: BrokerNode, unique: Callable[[str], str]) -> None:
    topic = unique("never-made")
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    assert not consumer.partitions_for_topic(topic)
    assert topic not in consumer.topics()
    consumer.close()


@pytest.mark.extended
def test_records_survive_a_restart_on_the_same_address(tmp_path: Path) -> None:
    with BrokerNode.start(tmp_path / "node") as broker:
        with pytest.raises(BrokerError, match="not empty"):
            BrokerNode.start(broker.directory)
        address = broker.bootstrap_servers
        admin = KafkaAdminClient(bootstrap_servers=address)
        admin.create_topics([NewTopic("kept", num_partitions=1, replication_factor=1)])
        admin.close()
        producer = KafkaProducer(bootstrap_servers=address, acks="all")
        producer.send("kept", b"one", partition=0).get(timeout=600)
        producer.close()
        broker.stop()
        assert not broker.is_running
        broker.restart()
        assert broker.bootstrap_servers == address
        consumer = KafkaConsumer(
            "kept", bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=600_000
        )
        assert next(consumer).value == b"one"
        consumer.close()
    assert not broker.is_running
