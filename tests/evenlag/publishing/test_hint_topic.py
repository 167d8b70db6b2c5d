"""The reader of the hint topic on a real broker: of transactions, what has been committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer

from evenlag.kafka.connection import admin_client
from evenlag.publishing.hint_topic import is_committed
from tests.support.brokers import settings_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.brokers import Brokers

pytestmark = pytest.mark.broker


def test_a_record_counts_when_its_transaction_is_committed(
    broker: Brokers, unique: Callable[[str], str]
) -> None:
    """The record is the last one that a reader gets: behind it is only the marker of the transaction."""
    topic = unique("hints")
    settings = settings_of(broker).model_copy(update={"hint_topic": topic})
    with admin_client(settings) as client:
        client.create_topics({topic: {"num_partitions": 1}}, wait_for_metadata=True)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic)
    try:
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            written = producer.send(topic, key=b"k", value=b"v", partition=0)
            producer.flush()
            end()
            offset = written.get(timeout=600).offset
            assert is_committed(settings, 0, offset) is (end == producer.commit_transaction)
    finally:
        producer.close()
