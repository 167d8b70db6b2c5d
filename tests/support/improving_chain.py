"""Whether counts could be more even: looked for from each member, without the flow that the assignors use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assignor_core.metrics import member_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.group import Assignment, Group


def has_improving_chain(group: Group, assignment: Assignment) -> bool:
    """Return whether partitions could be passed on along a chain of members to make counts more even.

    No such chain is the certificate that the sum of squared counts is minimal. A chain leads from a
    member to one with at least two partitions fewer. O(M * T + P).
    """
    counts = member_counts(group, assignment)
    holds = np.zeros((group.num_topics, group.num_members), dtype=np.bool_)
    placed = np.flatnonzero(assignment >= 0)
    holds[group.row_topic[placed], assignment[placed]] = True
    takes = group.subscribed.T
    seen_member = np.zeros(group.num_members, dtype=np.bool_)
    seen_topic = np.zeros(group.num_topics, dtype=np.bool_)
    # From the least loaded on, everybody who can pass something on to it, once: the first that reaches
    # a member is the smallest that it can reach.
    for start in np.argsort(counts, kind="stable"):
        if seen_member[start]:
            continue
        reached = _reaches(int(start), holds, takes, seen_member, seen_topic)
        if int(counts[reached].max()) - int(counts[start]) >= 2:
            return True
    return False


def _reaches(
    start: int,
    holds: NDArray[np.bool_],
    takes: NDArray[np.bool_],
    seen_member: NDArray[np.bool_],
    seen_topic: NDArray[np.bool_],
) -> NDArray[np.int64]:
    front = np.array([start], dtype=np.int64)
    reached = [front]
    seen_member[start] = True
    while len(front):
        topics = np.flatnonzero(takes[:, front].any(axis=1) & ~seen_topic)
        seen_topic[topics] = True
        front = np.flatnonzero(holds[topics].any(axis=0) & ~seen_member)
        seen_member[front] = True
        reached.append(front)
    return np.concatenate(reached)
