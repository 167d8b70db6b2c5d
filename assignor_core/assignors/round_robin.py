"""`roundrobin`: exactly what Kafka's own gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from assignor_core.algorithms.kafka_order import kafka_order, subscribers_by_topic
from assignor_core.assignors.base import EAGER

if TYPE_CHECKING:
    from assignor_core.group import Assignment, Group

__all__ = ["RoundRobinAssignor"]


@dataclass(frozen=True, slots=True)
class RoundRobinAssignor:
    """Deal all partitions in turn, topic by topic, to the next member that takes the topic.

    Exactly what Kafka 4.x's clients give, to the partition. Not sticky, and with unequal subscriptions not
    even. O(P + S log S).
    """

    name: ClassVar[str] = "roundrobin"
    protocols: ClassVar[tuple[str, ...]] = (EAGER,)

    def assign(self, group: Group) -> Assignment:
        """Return the assignment; see the class for its promise."""
        assignment = np.full(group.num_partitions, -1, dtype=np.int32)
        order = kafka_order(group)
        place = np.empty(group.num_members, dtype=np.int64)
        place[order] = np.arange(group.num_members)
        turn = 0
        for topic, takers in enumerate(subscribers_by_topic(group, order)):
            first, last = int(group.topic_start[topic]), int(group.topic_start[topic + 1])
            if first == last or not len(takers):
                continue
            start = int(np.searchsorted(place[takers], turn))
            chosen = takers[(start + np.arange(last - first)) % len(takers)]
            assignment[first:last] = chosen
            turn = (int(place[chosen[-1]]) + 1) % group.num_members
        return assignment
