"""Trigger a coordinator to compute the assignment of a group again (consumer protocol, KIP-848).

Kafka has no request for this: a coordinator calls its assignor only when the group changes. So a member joins
that subscribes only to the hint topic, and leaves as soon as it has joined. evenlag's plug-in in the broker
ignores such a member: a valid hint stays valid, and without a hint no partition moves because of it.

On a broker without the plug-in, Kafka's own assignor briefly sees a group with different subscriptions and
may move partitions: trigger only groups whose assignor is evenlag's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from evenlag.enums import GroupType
from evenlag.errors import JobError, KafkaUnreachableError
from evenlag.logging_setup import named_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MissingExtraError", "ask_coordinator"]

_LOG = named_logger(__name__)
_POLL_S = 0.2


class MissingExtraError(JobError):
    """Raised when confluent-kafka, an optional dependency, is not installed."""

    exit_code = 2


def ask_coordinator(
    client: Mapping[str, Any], group_id: str, hint_topic: str, *, timeout_s: float = 60.0
) -> str:
    """Join a group briefly; on return, its coordinator has called its assignor.

    hint_topic: The only topic that the member subscribes to; it commits nothing.
    timeout_s: Time limit in seconds.
    """
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as error:
        raise MissingExtraError("confluent-kafka is not installed: install evenlag[kip848]") from error
    joined: list[int] = []
    config = {
        **client,
        "group.id": group_id,
        "group.protocol": GroupType.CONSUMER.value,
        "client.id": "evenlag-trigger",
        "enable.auto.commit": False,
        # It does not need the records of the partitions that are assigned to it.
        "auto.offset.reset": "latest",
    }
    try:
        consumer = Consumer(config, logger=_LOG)
    except KafkaException as error:
        raise JobError(f"confluent-kafka does not take these settings: {error}") from error
    try:
        consumer.subscribe([hint_topic], on_assign=lambda _, partitions: joined.append(len(partitions)))
        deadline = time.monotonic() + timeout_s
        while not joined:
            if time.monotonic() > deadline:
                raise KafkaUnreachableError(f"group {group_id!r} let nobody in within {timeout_s:.0f} s")
            message = consumer.poll(_POLL_S)
            trouble = None if message is None else message.error()
            if trouble is not None and trouble.fatal():
                raise KafkaUnreachableError(f"group {group_id!r} cannot be joined: {trouble}")
        member_id = str(consumer.memberid())
    finally:
        consumer.close()
    _LOG.info("the coordinator of group %s was made to ask again, by member %s", group_id, member_id)
    return member_id
