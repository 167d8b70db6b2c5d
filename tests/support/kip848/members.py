"""Members of groups of the consumer, share and streams protocols, as far as a test needs them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import kafka.errors
from kafka.protocol.api_message import ApiMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=__package__):  # type: ignore[misc,call-arg]  # kafka-python: no types
    """Joins, and stays."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=__package__):  # type: ignore[misc,call-arg]  # as above
    """What the member is to hold."""


class ShareGroupHeartbeatRequest(ApiMessage, load_json=__package__):  # type: ignore[misc,call-arg]  # as above
    """Joins a share group, stays, and leaves with epoch -1."""


class ShareGroupHeartbeatResponse(ApiMessage, load_json=__package__):  # type: ignore[misc,call-arg]  # as above
    """What the member is to read."""


class AlterShareGroupOffsetsRequest(ApiMessage, load_json=__package__):  # type: ignore[misc,call-arg]  # as above
    """Sets start offsets of an empty share group."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json=__package__):  # type: ignore[misc,call-arg]  # as above
    """What could not be set."""


class StreamsGroupHeartbeatRequest(ApiMessage, load_json=__package__):  # type: ignore[misc,call-arg]  # as above
    """Joins a streams group with its topology, and stays."""


class StreamsGroupHeartbeatResponse(ApiMessage, load_json=__package__):  # type: ignore[misc,call-arg]  # as above
    """What tasks the member is to run."""


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
        response = _ask(self._client, self._group_id, request)
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._held = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(
                    topic_id=topic.topic_id, partitions=list(topic.partitions)
                )
                for topic in response.assignment.topic_partitions
            ]
        return {str(topic.topic_id): topic.partitions for topic in self._held}


class ShareMember:
    """A member of a share group."""

    def __init__(self, client: Any, group_id: str, topics: Sequence[str]) -> None:
        self._client, self._group_id, self._topics = client, group_id, list(topics)
        self.member_id = str(uuid.uuid4())
        self._epoch = 0
        self._held: list[int] = []

    def beat(self, *, leaves: bool = False) -> list[int]:
        """Beat once; returns the partitions that the member is to read."""
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=-1 if leaves else self._epoch,
            subscribed_topic_names=self._topics if self._epoch == 0 else None,
        )
        response = _ask(self._client, self._group_id, request)
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._held = [
                number for topic in response.assignment.topic_partitions for number in topic.partitions
            ]
        return sorted(self._held)


def set_share_offsets(client: Any, group_id: str, topic: str, starts: Mapping[int, int]) -> bool:
    """Set start offsets of an empty share group; returns whether all are set."""
    of = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    parts = [
        of.AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
        for number, offset in starts.items()
    ]
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id, topics=[of(topic_name=topic, partitions=parts)]
    )
    response = _ask(client, group_id, request)
    return not any(part.error_code for row in response.responses for part in row.partitions)


class StreamsMember:
    """A member of a streams group with one subtopology, which reads one topic."""

    def __init__(self, client: Any, group_id: str, topic: str) -> None:
        self._client, self._group_id, self._topic = client, group_id, topic
        self.member_id = str(uuid.uuid4())
        self._epoch = 0
        self._tasks: list[Any] = []

    def beat(self) -> list[int]:
        """Beat once; returns the partitions of the member's tasks."""
        of = StreamsGroupHeartbeatRequest
        subtopology = of.Topology.Subtopology(
            subtopology_id="0",
            source_topics=[self._topic],
            source_topic_regex=[],
            state_changelog_topics=[],
            repartition_sink_topics=[],
            repartition_source_topics=[],
            copartition_groups=[],
        )
        joins = self._epoch == 0
        request = of(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=self._epoch,
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=60_000 if joins else -1,
            topology=of.Topology(epoch=0, subtopologies=[subtopology]) if joins else None,
            process_id=self.member_id if joins else None,
            client_tags=[] if joins else None,
            active_tasks=self._tasks,
            standby_tasks=[],
            warmup_tasks=[],
        )
        response = _ask(self._client, self._group_id, request)
        self._epoch = response.member_epoch
        if response.active_tasks is not None:
            self._tasks = [
                of.TaskIds(subtopology_id=task.subtopology_id, partitions=list(task.partitions))
                for task in response.active_tasks
            ]
        return sorted(number for task in self._tasks for number in task.partitions)


def _ask(client: Any, group_id: str, request: Any) -> Any:
    response = client._manager.run(_send, client, group_id, request)
    if response.error_code:
        raise kafka.errors.for_code(response.error_code)(response.error_message)
    return response


async def _send(client: Any, group_id: str, request: Any) -> Any:
    nodes = await client._find_coordinator_ids([group_id])
    return await client._manager.send(request, node_id=nodes[group_id])
