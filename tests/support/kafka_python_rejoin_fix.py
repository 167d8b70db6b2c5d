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
    A join that ends between two polls is forgotten, and the next poll joins again. Where one thread polls two
    consumers of a group on a busy machine, this need not end: the assignment is kept for the next poll.
    `evenlag.consumer.HintedConsumer` does both itself; so does Java's client (KAFKA-9815).
    """
    coordinator = consumer._coordinator  # the faults are in there
    prepare, join = coordinator._on_join_prepare_async, coordinator._do_join_and_sync_async
    complete = coordinator._on_join_complete_async
    # The generation and the assignment of a join that has ended and is not applied.
    ended: list[tuple[Any, bytes]] = []

    @wraps(prepare)
    async def prepare_and_ask(*args: Any, **kwargs: Any) -> None:
        coordinator.request_rejoin()
        await prepare(*args, **kwargs)

    @wraps(join)
    async def join_once() -> bytes:
        if not ended or ended[0][0] != coordinator._generation:
            ended.clear()
            content: bytes = await join()
            ended.append((coordinator._generation, content))
        return ended[0][1]

    @wraps(complete)
    async def complete_once(*args: Any, **kwargs: Any) -> None:
        ended.clear()
        await complete(*args, **kwargs)

    coordinator._on_join_prepare_async = prepare_and_ask
    coordinator._do_join_and_sync_async = join_once
    coordinator._on_join_complete_async = complete_once
    for topic in consumer.subscription() or ():
        consumer.partitions_for_topic(topic)
    return consumer
