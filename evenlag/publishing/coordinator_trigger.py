"""Make a coordinator ask its assignor again about a group of the consumer protocol (KIP-848).

Nobody can ask a coordinator to: it asks when the group changes. So a member joins that takes the hint topic
and nothing else, and leaves as soon as it is in. evenlag's plug-in in the broker does not count such a
member: a hint that fits goes on fitting, and without a hint nothing moves because of it.

On a broker without the plug-in Kafka's own assignor sees a group with unequal subscriptions for a moment,
and may move partitions for that: ask only groups whose assignor is evenlag's.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from evenlag.enums import GroupType
from evenlag.errors import JobError, KafkaUnreachableError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MissingExtraError", "ask_coordinator"]

_LOG = logging.getLogger(__name__)
_POLL_S = 0.2


class MissingExtraError(JobError):
    """Raised when confluent-kafka is not installed: it is an extra."""

    exit_code = 2


def ask_coordinator(
    client: Mapping[str, Any], group_id: str, hint_topic: str, *, timeout_s: float = 60.0
) -> str:
    """Join a group for a moment; when it returns, the coordinator has asked its assignor.

    Parameters
    ----------
    client
        How to connect, as confluent-kafka takes it: ``bootstrap.servers``, ``security.protocol``, ….
        The principal needs Read on the group, and Describe and Read on the hint topic.
    group_id
        A group of the consumer protocol. One that does not exist would be made: the caller has seen it.
    hint_topic
        The only topic that the member takes; nothing is committed.
    timeout_s
        How long it may take.

    Returns
    -------
    str
        The member id that it had, for a log.

    Raises
    ------
    MissingExtraError
        When confluent-kafka is not installed.
    KafkaUnreachableError
        When it was not let in within the time; a repeat may help.
    JobError
        When confluent-kafka does not take the settings.
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
        # What it is given, it need not read.
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
