"""A fix for kafka-python's own consumers, for those next to hinted ones."""

from __future__ import annotations

from functools import wraps
from typing import Any


def finish_joins(consumer: Any) -> Any:
    """Make a plain `KafkaConsumer` complete every join that it begins, and return the consumer.

    kafka-python 3.0.12 begins a join for changed metadata without setting the flag that requests one. The
    poll that began it may time out before the response arrives. If the assignment that the member computes as
    the leader then satisfies what the join was begun for, no later poll handles the response: the member
    stays in ``rebalancing`` without heartbeats, is removed after its session timeout, and never rejoins. On a
    busy machine, a first join before the topic's metadata arrives leads there, or to one join after another:
    the metadata are fetched first.
    `evenlag.consumer.HintedConsumer` sets the flag itself; so does Java's client (KAFKA-9815).
    """
    coordinator = consumer._coordinator  # the fault is in there
    prepare = coordinator._on_join_prepare_async

    @wraps(prepare)
    async def prepare_and_ask(*args: Any, **kwargs: Any) -> None:
        coordinator.request_rejoin()
        await prepare(*args, **kwargs)

    coordinator._on_join_prepare_async = prepare_and_ask
    for topic in consumer.subscription() or ():
        consumer.partitions_for_topic(topic)
    return consumer
