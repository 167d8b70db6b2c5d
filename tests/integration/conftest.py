"""What the hint client's tests on a broker share: a group, its topic, and consumers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.hints import NUM_PARTITIONS, Cluster, Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox.broker import Broker


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
