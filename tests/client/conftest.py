"""Consumers that never reach a broker, to look at and to call in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def offline_consumer() -> Iterator[Callable[..., Any]]:
    """Make consumers of kafka-python, subscribed to the topic t, that no broker answers."""
    made: list[Any] = []

    def make(listener: Any = None, **configs: Any) -> Any:
        settings = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g", "api_version": (4, 0)}
        consumer = KafkaConsumer(**{**settings, "enable_auto_commit": False, **configs})
        consumer.subscribe(["t"], listener=listener)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer._closed = True  # there is no broker to take leave of
        consumer._client.close()
