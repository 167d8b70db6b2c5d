"""`range`: exactly what Kafka's own gives, by racks too."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from assignor_core.algorithms.kafka_order import kafka_order, subscribers_by_topic
from assignor_core.assignors.base import Assignor
from assignor_core.group import Assignment, Group


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
            return _assign_by_racks(group, subscribers)
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


class _Topic:
    """One topic while its partitions are being given out."""

    def __init__(self, group: Group, topic: int, takers: NDArray[np.int32]) -> None:
        self.first, self.last = int(group.topic_start[topic]), int(group.topic_start[topic + 1])
        self.takers = takers.tolist()
        self.share, self.extra_left = divmod(self.last - self.first, len(takers))
        self.given = dict.fromkeys(self.takers, 0)
        self.free = list(range(self.first, self.last))
        racks = group.row_racks
        assert racks is not None  # noqa: S101 - the caller has looked
        assert group.member_rack is not None  # noqa: S101 - the two come together
        self._rack = group.member_rack.tolist()
        self._held = racks
        ours = {self._rack[member] for member in self.takers} - {-1}
        rows = racks[self.first : self.last]
        everywhere = bool((rows == rows.any(axis=0)).all())
        self.needs_racks = any(rows[:, rack].any() for rack in ours) and not everywhere

    def is_near(self, member: int, row: int) -> bool:
        return self._rack[member] < 0 or bool(self._held[row, self._rack[member]])

    def room(self, member: int) -> int:
        return max(0, self.share + (self.extra_left > 0) - self.given[member])

    def give(self, member: int, rows: list[int], assignment: Assignment) -> None:
        assignment[rows] = member
        self.given[member] += len(rows)
        if self.given[member] > self.share:
            self.extra_left -= 1
        gone = set(rows)
        self.free = [row for row in self.free if row not in gone]

    def give_ranges(self, may_take: Callable[[int, int], bool], assignment: Assignment) -> None:
        for member in self.takers:
            room = self.room(member)
            rows = [row for row in self.free if may_take(member, row)][:room] if room else []
            if rows:
                self.give(member, rows, assignment)


def _assign_by_racks(group: Group, takers_by_topic: list[NDArray[np.int32]]) -> Assignment:
    """Return the assignment as Kafka's `range` with racks gives it."""
    assignment = np.full(group.num_partitions, -1, dtype=np.int32)
    sizes = np.diff(group.topic_start)
    topics = [
        _Topic(group, topic, takers)
        for topic, takers in enumerate(takers_by_topic)
        if len(takers) and sizes[topic]
    ]
    if any(topic.needs_racks for topic in topics):
        alike: dict[tuple[tuple[int, ...], int], list[_Topic]] = {}
        for topic in topics:
            alike.setdefault((tuple(topic.takers), topic.last - topic.first), []).append(topic)
        for together in alike.values():
            if len(together) > 1:
                _give_together(together, assignment)
            elif together[0].needs_racks:
                together[0].give_ranges(together[0].is_near, assignment)
    for topic in topics:
        topic.give_ranges(lambda _member, _row: True, assignment)
    return assignment


def _give_together(topics: list[_Topic], assignment: Assignment) -> None:
    """Give a partition of all topics to one member, the first that is near to each and has room."""
    remaining = list(topics[0].takers)
    for number in range(topics[0].last - topics[0].first):
        for member in remaining:
            if all(t.is_near(member, t.first + number) and t.room(member) for t in topics):
                for topic in topics:
                    topic.give(member, [topic.first + number], assignment)
                if not any(topic.room(member) for topic in topics):
                    remaining.remove(member)
                break
