"""The groups that are timed: Kafka's own grid and large cases, and some that are harder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assignor_core.group import Group

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["equal", "five_buckets", "incremental", "one_odd", "overlapping"]


def _group(
    num_topics: int, num_partitions: int, takes: NDArray[np.bool_], lags: NDArray[np.int64] | None = None
) -> Group:
    members, topics = np.nonzero(takes)
    return Group.from_arrays(
        topics=[f"t{i:05}" for i in range(num_topics)],
        num_partitions=np.full(num_topics, num_partitions),
        member_ids=[f"m{i:05}" for i in range(len(takes))],
        subscriptions=(members, topics),
        lags=lags,
    )


def equal(num_members: int, num_topics: int, num_partitions: int, *, zipf_lags: bool = False) -> Group:
    """All members take all topics."""
    lags = None
    if zipf_lags:
        size = num_topics * num_partitions
        rng = np.random.default_rng(1)
        lags = rng.permutation(1e9 / np.arange(1, size + 1)).astype(np.int64)
    return _group(num_topics, num_partitions, np.ones((num_members, num_topics), dtype=np.bool_), lags)


def one_odd(num_members: int, num_topics: int, num_partitions: int) -> Group:
    """All members take all topics, but the last, which takes the first only."""
    takes = np.ones((num_members, num_topics), dtype=np.bool_)
    takes[-1, 1:] = False
    return _group(num_topics, num_partitions, takes)


def five_buckets(num_members: int, num_topics: int, num_partitions: int) -> Group:
    """Five disjoint fifths of the topics, each taken by a fifth of the members, as in Kafka's JMH grid."""
    member_bucket = np.arange(num_members) * 5 // num_members
    topic_bucket = np.arange(num_topics) * 5 // num_topics
    return _group(num_topics, num_partitions, member_bucket[:, None] == topic_bucket[None, :])


def overlapping(
    num_members: int, num_topics: int, num_partitions: int, *, density: float = 0.5, seed: int = 1
) -> Group:
    """Everybody takes each topic with a probability, independently."""
    takes = np.random.default_rng(seed).random((num_members, num_topics)) < density
    return _group(num_topics, num_partitions, takes)


def incremental(group: Group, assignment: NDArray[np.int32]) -> Group:
    """Return the group when one more member has joined, which takes what the first one takes."""
    members = np.repeat(np.arange(group.num_members), np.diff(group.subscription_start))
    first = group.subscription_topic[: group.subscription_start[1]]
    rows = np.flatnonzero(assignment >= 0)
    return Group.from_arrays(
        topics=group.topics,
        num_partitions=np.diff(group.topic_start),
        member_ids=[*group.member_ids, "m99999"],
        subscriptions=(
            np.append(members, np.full(len(first), group.num_members)),
            np.append(group.subscription_topic, first),
        ),
        claims=(rows, assignment[rows], np.ones(len(rows), dtype=np.int64)),
        lags=group.lag,
    )
