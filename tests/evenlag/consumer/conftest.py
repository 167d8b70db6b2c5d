"""Consumers that never reach a broker, to call in steps; a group, its topic and consumers on a real one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaConsumer

from tests.support.hints import NUM_PARTITIONS, Cluster, Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox.kafka.broker import Broker


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


@pytest.fixture
def cluster(broker: Broker, unique: Callable[[str], str]) -> Iterator[Cluster]:
    topic = unique("orders")
    with Cluster(
        broker, group_id=unique("group"), topics={topic: NUM_PARTITIONS}, hint_topic=unique("hints")
    ) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return next(iter(cluster.topics))


@pytest.fixture
def start(cluster: Cluster) -> Iterator[Callable[..., Runner]]:
    with ExitStack() as stack:

        def start_one(**configs: Any) -> Runner:
            runner = Runner(cluster, **configs)
            stack.callback(runner.close)
            return runner

        yield start_one
