"""`roundrobin`: exactly what Kafka's own gives."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from assignor_core.algorithms.kafka_order import kafka_order, subscribers_by_topic
from assignor_core.assignors.base import Assignor
from assignor_core.group import Assignment, Group


@dataclass(frozen=True, slots=True)
class RoundRobinAssignor(Assignor):
    """All partitions in turn, each to the next subscriber, to the partition as Kafka's clients assign it.

    The same as Kafka 4.x's clients, topic by topic. Not sticky, and not even with unequal subscriptions.
    O(P + S log S).
    """

    name: ClassVar[str] = "roundrobin"

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
