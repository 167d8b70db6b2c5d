"""A member of a group that speaks the protocol of KIP-848, as far as a test needs it: it beats and holds."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import kafka.errors
from kafka.protocol.api_message import ApiMessage

if TYPE_CHECKING:
    from collections.abc import Sequence


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=__package__):  # type: ignore[misc,call-arg]  # kafka-python: no types
    """Joins, and stays."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=__package__):  # type: ignore[misc,call-arg]  # as above
    """What the member is to hold."""


class NewerMember:
    """A member of a group of the newer protocol."""

    def __init__(
        self, client: Any, group_id: str, topics: Sequence[str], *, instance: str | None = None
    ) -> None:
        self._client, self._group_id, self._topics = client, group_id, list(topics)
        self.member_id, self.instance = str(uuid.uuid4()), instance
        self._epoch = 0
        self._held: list[Any] = []

    def beat(self) -> dict[str, list[int]]:
        """Beat once; returns what the member holds, by topic id."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=self._epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=self._topics,
            topic_partitions=self._held,
        )
        response = self._client._manager.run(self._send, request)
        if response.error_code:
            raise kafka.errors.for_code(response.error_code)(response.error_message)
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._held = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(
                    topic_id=topic.topic_id, partitions=list(topic.partitions)
                )
                for topic in response.assignment.topic_partitions
            ]
        return {str(topic.topic_id): topic.partitions for topic in self._held}

    async def _send(self, request: Any) -> Any:
        nodes = await self._client._find_coordinator_ids([self._group_id])
        return await self._client._manager.send(request, node_id=nodes[self._group_id])
