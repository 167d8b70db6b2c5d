"""`lag-aware`: KIP-169's own example, and an independent heap implementation."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings

from assignor_core.assignors import assignor_names, get_assignor
from assignor_core.errors import UnknownAssignorError
from assignor_core.group import Group
from assignor_core.members import Member
from assignor_core.metrics import member_lags
from assignor_core.verify import check_assignment
from tests.support.strategies import groups


def by_heap(group: Group) -> list[int]:
    chosen = [-1] * group.num_partitions
    for topic, _ in enumerate(group.topics):
        rows = range(int(group.topic_start[topic]), int(group.topic_start[topic + 1]))
        heap = [(0, 0, m) for m in range(group.num_members) if group.subscribed[m, topic]]
        for row in sorted(rows, key=lambda r: (-int(group.lag[r]), r)):
            if heap:
                count, lag, member = heap[0]
                heapq.heapreplace(heap, (count + 1, lag + int(group.lag[row]), member))
                chosen[row] = member
    return chosen


@given(groups(lags=True, max_partitions=12))
@settings(max_examples=80)
def test_agrees_with_a_heap(group: Group) -> None:
    assignment = get_assignor("lag-aware").assign(group)
    check_assignment(group, assignment)
    assert assignment.tolist() == by_heap(group)


def test_example_of_kip_169() -> None:
    members = [Member("C0", ("t0",)), Member("C1", ("t0",))]
    group = Group.from_members({"t0": 3}, members, lags={"t0": [100_000, 50_000, 60_000]})
    assignment = get_assignor("lag-aware").assign(group)
    assert group.to_mapping(assignment) == {"C0": [("t0", 0)], "C1": [("t0", 1), ("t0", 2)]}
    assert member_lags(group, assignment).tolist() == [100_000, 110_000]


def test_unknown_name_gets_the_nearest() -> None:
    assert {"lag-aware", "cooperative-sticky", "sticky"} <= set(assignor_names())
    with pytest.raises(UnknownAssignorError, match="did you mean 'lag-aware'"):
        get_assignor("lagaware")
