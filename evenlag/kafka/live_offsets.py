"""Current offsets of a few groups and their topics, for the check right before a hint is published."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.enums import IsolationLevel
from evenlag.kafka.broker_requests import BrokerCalls
from evenlag.kafka.committed_offsets import read_commits
from evenlag.kafka.coordinators import find_coordinators
from evenlag.kafka.log_offsets import read_ends, read_log_starts, read_reset_offsets
from evenlag.kafka.topic_metadata import partitions_of, read_topics

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from evenlag.kafka.committed_offsets import Commits
    from evenlag.kafka.log_offsets import Offsets
    from evenlag.kafka.rate_limit import RequestLimits
    from evenlag.kafka.topic_metadata import Partitions

_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class LiveOffsets:
    """Current offsets of groups and their topics.

    Attributes
    ----------
    committed
        Group id → topic → int64 by partition number, -1: no commit. Without the groups whose commits could
        not be read.
    start
        Topic → log start offset, int64 by partition number; -1: unknown.
    end
        Isolation level → topic → end of the log for a consumer of that level, as ``start``.
    reset
        Reset policy ``by_duration:…`` → topic → where consumers without a commit start, as ``start``.
    unread_groups, unread_topics
        By group id and by topic: why commits, or log offsets, could not be read.
    """

    committed: Mapping[str, Mapping[str, NDArray[np.int64]]]
    start: Mapping[str, NDArray[np.int64]]
    end: Mapping[IsolationLevel, Mapping[str, NDArray[np.int64]]]
    reset: Mapping[str, Mapping[str, NDArray[np.int64]]] = field(default_factory=dict)
    unread_groups: Mapping[str, str] = field(default_factory=dict)
    unread_topics: Mapping[str, str] = field(default_factory=dict)


def read_live_offsets(
    client: Any,
    group_ids: Sequence[str],
    sizes: Mapping[str, int],
    limits: RequestLimits,
    reset_policies: Collection[str] = (),
) -> LiveOffsets:
    """Read committed offsets, log starts and log ends.

    An error of one group, partition or broker leaves its own offsets unknown.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``.
    group_ids
        Groups whose commits are read.
    sizes
        Number of partitions of each topic.
    limits
        Request rate, timeouts and deadline.
    reset_policies
        Reset policies of the groups.

    Returns
    -------
    LiveOffsets
        The offsets; -1 where they are unknown.
    """
    calls = BrokerCalls.within(client, limits)
    found, topic_error = read_topics(calls, sorted(sizes))
    partitions = partitions_of([found[name] for name in sorted(found)])
    starts = read_log_starts(calls, partitions)
    commits = read_commits(calls, find_coordinators(calls, sorted(group_ids)), sorted(sizes))
    # Log ends after commits: for a busy consumer the lag is slightly too large rather than negative.
    stable, ends = read_ends(calls, partitions)
    resets = read_reset_offsets(calls, partitions, reset_policies, ends)
    # A topic that was deleted meanwhile has an error in `ends` only.
    stable.errors.merge(ends.errors)
    unread_topics = dict.fromkeys(set(sizes) - set(found), topic_error or "it does not exist")
    unread_topics |= _errors_by_topic(partitions, starts) | _errors_by_topic(partitions, stable)
    return LiveOffsets(
        committed={
            group_id: _commits_by_topic(commits, group_id, sizes)
            for group_id in group_ids
            if group_id not in commits.failed
        },
        start=_by_topic(partitions, starts, sizes),
        end={
            IsolationLevel.READ_UNCOMMITTED: _by_topic(partitions, ends, sizes),
            IsolationLevel.READ_COMMITTED: _by_topic(partitions, stable, sizes),
        },
        reset={policy: _values_by_topic(partitions, offsets, sizes) for policy, offsets in resets.items()},
        unread_groups=commits.failed,
        unread_topics=unread_topics,
    )


def _errors_by_topic(partitions: Partitions, offsets: Offsets) -> dict[str, str]:
    """One error of each topic that has any."""
    rows = np.flatnonzero(offsets.errors.code)
    texts = offsets.errors.texts
    return {
        partitions.names[topic]: texts[code - 1]
        for topic, code in zip(
            partitions.topic[rows].tolist(), offsets.errors.code[rows].tolist(), strict=True
        )
    }


def _by_topic(
    partitions: Partitions, offsets: Offsets, sizes: Mapping[str, int]
) -> dict[str, NDArray[np.int64]]:
    """Offsets by topic and partition number, -1 where they could not be read."""
    return _values_by_topic(partitions, np.where(offsets.errors.code == 0, offsets.offset, _UNKNOWN), sizes)


def _values_by_topic(
    partitions: Partitions, values: NDArray[np.int64], sizes: Mapping[str, int]
) -> dict[str, NDArray[np.int64]]:
    found = {topic: np.full(size, _UNKNOWN, dtype=np.int64) for topic, size in sizes.items()}
    for which, name in enumerate(partitions.names):
        rows = np.flatnonzero(partitions.topic == which)
        rows = rows[partitions.number[rows] < sizes[name]]
        found[name][partitions.number[rows]] = values[rows]
    return found


def _commits_by_topic(
    commits: Commits, group_id: str, sizes: Mapping[str, int]
) -> dict[str, NDArray[np.int64]]:
    found = {topic: np.full(size, _UNKNOWN, dtype=np.int64) for topic, size in sizes.items()}
    if group_id not in commits.groups:
        return found
    rows = np.flatnonzero(commits.group == commits.groups.index(group_id))
    for which in np.unique(commits.topic[rows]).tolist():
        name = commits.topics[which]
        mine = rows[(commits.topic[rows] == which) & (commits.partition[rows] < sizes[name])]
        found[name][commits.partition[mine]] = commits.offset[mine]
    return found
