"""`lag-aware`: KIP-169 made exact, topic by topic."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from assignor_core.algorithms.kafka_order import subscribers_by_topic
from assignor_core.assignors.base import Assignor
from assignor_core.group import Assignment, Group

# Beyond this, sorting topic by topic costs less than its calls.
_SHORT = 64


@dataclass(frozen=True, slots=True)
class LagAwareAssignor(Assignor):
    """Each topic's lag spread over its subscribers, the largest partition first (KIP-169).

    Topic by topic, partitions by (-lag, number), each to the subscribed member with the least (count in
    this topic, lag in this topic, member id). Within a topic counts differ by one at most. Nothing is
    promised over topics, and nothing is sticky: a small change of lag may move much.

    Notes
    -----
    As the count comes first, every member gets one partition before any gets a second: each round is one
    sort of the members by (lag, id). O(P log P + P log M), without a loop over partitions.

    The KIP's text leaves equal lags open; here the partition number and the member id decide.
    """

    name: ClassVar[str] = "lag-aware"
    uses_lag: ClassVar[bool] = True

    def assign(self, group: Group) -> Assignment:
        """Return the assignment; see the class for its promise."""
        assignment = np.full(group.num_partitions, -1, dtype=np.int32)
        takers = subscribers_by_topic(group, np.arange(group.num_members, dtype=np.int32))
        sizes = np.diff(group.topic_start)
        num_takers = np.fromiter(map(len, takers), dtype=np.int64, count=len(takers))
        # With no more partitions than members one round does, and one sort does all small topics.
        is_short = (num_takers >= sizes) & (sizes > 0) & (sizes <= _SHORT)
        _assign_short(group, np.flatnonzero(is_short), takers, assignment)
        for topic in np.flatnonzero(~is_short & (num_takers > 0)).tolist():
            first, last = int(group.topic_start[topic]), int(group.topic_start[topic + 1])
            assignment[first:last] = _assign_topic(group.lag[first:last], takers[topic])
        return assignment


def _assign_short(
    group: Group, topics: NDArray[np.int64], takers: list[NDArray[np.int32]], assignment: Assignment
) -> None:
    """Give each partition of these topics, the largest lag first, to the next taker."""
    if not len(topics):
        return
    sizes = np.diff(group.topic_start)[topics]
    ends = np.cumsum(sizes)
    rows = np.arange(int(ends[-1])) + np.repeat(group.topic_start[topics] - (ends - sizes), sizes)
    order = np.lexsort((-group.lag[rows], group.row_topic[rows]))
    rank = np.arange(len(rows)) - np.repeat(ends - sizes, sizes)
    if group.has_equal_subscriptions:
        assignment[rows[order]] = rank
        return
    members = np.concatenate([takers[topic] for topic in topics.tolist()])
    starts = np.cumsum([0, *(len(takers[topic]) for topic in topics.tolist())])[:-1]
    assignment[rows[order]] = members[np.repeat(starts, sizes) + rank]


def _assign_topic(lag: NDArray[np.int64], members: NDArray[np.int32]) -> NDArray[np.int32]:
    order = np.argsort(-lag, kind="stable")
    chosen = np.empty(len(lag), dtype=np.int32)
    load = np.zeros(len(members), dtype=np.int64)
    for start in range(0, len(order), len(members)):
        rows = order[start : start + len(members)]
        takers = np.argsort(load, kind="stable")[: len(rows)]
        chosen[rows] = members[takers]
        load[takers] += lag[rows]
    return chosen
