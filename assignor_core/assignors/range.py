"""`range`: exactly what Kafka's own gives, by racks too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from assignor_core.algorithms.kafka_order import kafka_order, subscribers_by_topic
from assignor_core.algorithms.rack_ranges import assign_by_racks
from assignor_core.assignors.base import EAGER

if TYPE_CHECKING:
    from assignor_core.group import Assignment, Group

__all__ = ["RangeAssignor"]


@dataclass(frozen=True, slots=True)
class RangeAssignor:
    """Give each member one stretch of every topic it takes; the first ones one more if it does not come out.

    Exactly what Kafka 4.x's clients give, to the partition, with racks too (KIP-881). Topics with equal
    numbers of partitions and the same members are co-partitioned. Not sticky, and uneven with many small
    topics. O(P + S log S) without racks.
    """

    name: ClassVar[str] = "range"
    protocols: ClassVar[tuple[str, ...]] = (EAGER,)

    def assign(self, group: Group) -> Assignment:
        """Return the assignment; see the class for its promise."""
        takers_by_topic = subscribers_by_topic(group, kafka_order(group))
        if group.row_racks is not None:
            return assign_by_racks(group, takers_by_topic)
        assignment = np.full(group.num_partitions, -1, dtype=np.int32)
        for topic, takers in enumerate(takers_by_topic):
            first, last = int(group.topic_start[topic]), int(group.topic_start[topic + 1])
            if first == last or not len(takers):
                continue
            share, extra = divmod(last - first, len(takers))
            sizes = np.full(len(takers), share)
            sizes[:extra] += 1
            assignment[first:last] = np.repeat(takers, sizes)
        return assignment
