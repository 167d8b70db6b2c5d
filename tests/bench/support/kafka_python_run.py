"""Time kafka-python's own cooperative sticky assignor on one case, in a process that can be stopped."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from tests.bench.plan import find_case

if TYPE_CHECKING:
    from assignor_core.group import Group


class _Joined(NamedTuple):
    member_id: str
    metadata: Any


class _Cluster:
    """As much of a cluster's metadata as the assignor looks at."""

    def __init__(self, group: Group) -> None:
        sizes = np.diff(group.topic_start).tolist()
        self._partitions = {name: set(range(n)) for name, n in zip(group.topics, sizes, strict=True)}

    def topics(self) -> set[str]:
        return set(self._partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._partitions.get(topic)


def _members(group: Group) -> list[_Joined]:
    joined = []
    held = group.to_mapping(group.owner)
    for index, name in enumerate(group.member_ids):
        first, last = group.subscription_start[index : index + 2]
        by_topic: dict[str, list[int]] = {}
        for topic, partition in held[name]:
            by_topic.setdefault(topic, []).append(partition)
        metadata = ConsumerProtocolSubscription(
            version=2,
            topics=[group.topics[topic] for topic in group.subscription_topic[first:last]],
            user_data=b"",
            owned_partitions=[
                ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
            generation_id=1 if held[name] else -1,
        )
        joined.append(_Joined(name, metadata))
    return joined


def main(name: str) -> None:
    """Write the seconds of one run as JSON."""
    group = find_case(name).build()
    cluster, members = _Cluster(group), _members(group)
    start = time.perf_counter()
    CooperativeStickyAssignor().assign(cluster, members)
    sys.stdout.write(json.dumps([time.perf_counter() - start]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
