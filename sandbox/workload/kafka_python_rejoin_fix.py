"""A mend of kafka-python's own consumers, for what stands beside hinted ones in the sandbox and in tests."""

from __future__ import annotations

from functools import wraps
from typing import Any


def finish_joins(consumer: Any) -> Any:
    """Have a plain `KafkaConsumer` take every join that it begins to its end; returns the consumer.

    kafka-python 3.0.12 begins a join for changed metadata without raising the flag that asks for one. When
    the poll that began it runs out of time before the answer is there, and the assignment that it computes
    itself as the leader settles what it was begun for, no later poll sees a reason to take the answer: the
    member stands in ``rebalancing`` without heartbeats, is thrown out after its session timeout, and never
    comes back. A first join that comes before the topic's metadata leads there on a busy machine.
    `evenlag.consumer.HintedConsumer` raises the flag itself; Java's client does too (KAFKA-9815).
    """
    coordinator = consumer._coordinator  # noqa: SLF001  # the fault is in there
    prepare = coordinator._on_join_prepare_async  # noqa: SLF001

    @wraps(prepare)
    async def prepare_and_ask(*args: Any, **kwargs: Any) -> None:
        coordinator.request_rejoin()
        await prepare(*args, **kwargs)

    coordinator._on_join_prepare_async = prepare_and_ask  # noqa: SLF001
    return consumer
