"""After publishing: wait until coordinators of consumer-protocol groups have adopted their hints as targets.

A coordinator calls evenlag's plug-in only when its group changes, and Kafka has no request for that. So a
temporary member joins that subscribes only to the hint topic, and leaves as soon as it has joined. The
plug-in ignores it: a valid hint stays valid, and without a hint no partition moves because of it. On a broker
without the plug-in, Kafka's own may move partitions: trigger only groups whose assignor is evenlag's.

The plug-in may not have read the hint by then, and Kafka does not report whether a hint was followed: the
group's target assignment is compared with the hint, and the coordinator triggered again, at most three times
per plan.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from assignor_core.hint import HintPayload
from evenlag.enums import GroupType
from evenlag.errors import JobError, KafkaUnreachableError
from evenlag.kafka.connection import kafka_client_settings, to_librdkafka
from evenlag.kafka.live_groups import LiveGroup
from evenlag.logging_setup import named_logger
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.rebalance_trigger.follow_wait import FollowCost, FollowWait

_LOG = named_logger(__name__)
_POLL_S: Final = 0.2
# By it, the plug-in knows the temporary member where it does not know the hint topic.
TRIGGER_RACK: Final = "evenlag-trigger"


def await_target_assignment(
    client: Any,
    cluster: ClusterSettings,
    payloads: Mapping[str, HintPayload],
    *,
    timeout_s: float = 60.0,
    costs: dict[str, FollowCost] | None = None,
) -> dict[str, str]:
    """Trigger the coordinators of groups until their target assignments match the hints.

    Returns by group id, why its target does not match its hint yet; errors are reasons, and never raised.
    costs: Receives what was seen of each group.
    """
    if not payloads:
        return {}
    return _TargetWait(client, cluster, payloads, time.monotonic() + timeout_s).finish(costs)


class _TargetWait(FollowWait):
    """Groups whose coordinators assign: their target assignments are compared with the hints."""

    group_type = GroupType.CONSUMER
    first_reason = "its coordinator was not asked in time"
    asked_reason = last_reason = "its coordinator was asked, and its target is not as hinted"
    # As for members of the classic protocol: at most three times per plan.
    max_asks = 3
    # Time for a coordinator to compute a target, its pause between two of them (one second) included.
    settle_s = 5.0

    def ask(self, group_id: str, timeout_s: float) -> None:
        """Trigger a coordinator."""
        settings = to_librdkafka(kafka_client_settings(self.cluster))
        ask_coordinator(settings, group_id, self.cluster.hint_topic, timeout_s=timeout_s)

    def why_never(self, _payload: HintPayload, group: LiveGroup) -> str | None:
        """Return that a group is gone."""
        return None if group.held else f"the group is {group.state} by now, or does not show its members"


class MissingExtraError(JobError, exit_code=2):
    """Raised when confluent-kafka, an optional dependency, is not installed."""


def ask_coordinator(
    client: Mapping[str, Any], group_id: str, hint_topic: str, *, timeout_s: float = 60.0
) -> str:
    """Join a group briefly, subscribed to the hint topic only: its coordinator then calls its assignor."""
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
        "client.rack": TRIGGER_RACK,
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
                raise KafkaUnreachableError(f"joining group {group_id!r} timed out after {timeout_s:.0f} s")
            message = consumer.poll(_POLL_S)
            trouble = None if message is None else message.error()
            if trouble is not None and trouble.fatal():
                raise KafkaUnreachableError(f"group {group_id!r} cannot be joined: {trouble}")
        member_id = str(consumer.memberid())
    finally:
        consumer.close()
    _LOG.info("the coordinator of group %s was made to ask again, by member %s", group_id, member_id)
    return member_id
