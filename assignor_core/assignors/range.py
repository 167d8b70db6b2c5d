"""`range`: exactly what Kafka's own gives, by racks too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from assignor_core.algorithms.kafka_order import kafka_order, subscribers_by_topic
from assignor_core.algorithms.rack_ranges import assign_by_racks
from assignor_core.assignors.base import Assignor

if TYPE_CHECKING:
    from assignor_core.group import Assignment, Group

__all__ = ["RangeAssignor"]


@dataclass(frozen=True, slots=True)
class RangeAssignor(Assignor):
    """One range of every topic for each subscriber, to the partition as Kafka's clients assign it.

    The first members get one partition more where the numbers do not divide evenly. The same as Kafka
    4.x's clients, with racks too (KIP-881). Topics with equal
    numbers of partitions and the same members are co-partitioned. Not sticky, and uneven with many small
    topics. O(P + S log S) without racks.
    """

    name: ClassVar[str] = "range"

    def assign(self, group: Group) -> Assignment:
        """Return the assignment; see the class for its promise."""
        subscribers = subscribers_by_topic(group, kafka_order(group))
        if group.row_racks is not None:
            return assign_by_racks(group, subscribers)
        assignment = np.full(group.num_partitions, -1, dtype=np.int32)
        for topic, members in enumerate(subscribers):
            first, last = int(group.topic_start[topic]), int(group.topic_start[topic + 1])
            if first == last or not len(members):
                continue
            share, extra = divmod(last - first, len(members))
            sizes = np.full(len(members), share)
            sizes[:extra] += 1
            assignment[first:last] = np.repeat(members, sizes)
        return assignment
