"""Current lag, for the check right before a hint is published.

It uses the snapshot's readers and the rules of ``spark_jobs.transforms.lag``, for the few groups that are
about to be hinted. ``tests/support/lag_rules.py`` has the cases that both implementations must pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assignor_core.hint import HintPayload
from assignor_core.objective import relative_gain
from evenlag.enums import IsolationLevel, ResetPolicy
from evenlag.kafka.broker_requests import BrokerCalls
from evenlag.kafka.committed_offsets import read_commits
from evenlag.kafka.coordinators import find_coordinators
from evenlag.kafka.log_offsets import read_ends, read_log_starts
from evenlag.kafka.topic_metadata import partitions_of, read_topics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from evenlag.kafka.committed_offsets import Commits
    from evenlag.kafka.live_groups import LiveGroup
    from evenlag.kafka.log_offsets import Offsets
    from evenlag.kafka.rate_limit import RequestLimits
    from evenlag.kafka.topic_metadata import Partitions
    from evenlag.policy.group_settings import GroupSettings

_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class LiveGain:
    """Effect of a plan on the current lag.

    Attributes
    ----------
    gain
        Relative decrease of the largest lag of a member by its capacity; negative when it increases.
    num_unknown
        Partitions whose lag is unknown; the gain is meaningless unless this is 0.
    """

    gain: float
    num_unknown: int


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
    """

    committed: Mapping[str, Mapping[str, NDArray[np.int64]]]
    start: Mapping[str, NDArray[np.int64]]
    end: Mapping[IsolationLevel, Mapping[str, NDArray[np.int64]]]


def read_live_gains(
    client: Any,
    plans: Sequence[Mapping[str, Any]],
    live: Mapping[str, LiveGroup],
    settings: Mapping[str, GroupSettings],
    limits: RequestLimits,
) -> dict[str, LiveGain]:
    """Read the current offsets of the plans' groups and measure the plans on the lag.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``.
    plans
        ``plan_id, group_id, payload``; one per group.
    live
        The groups, with the members and topics that the plans were made for (same fingerprint).
    settings
        Settings of each group.
    limits
        Request rate, timeouts and deadline; what is not read by the deadline is unknown.

    Returns
    -------
    dict
        By plan id.
    """
    if not plans:
        return {}
    sizes = {topic: size for plan in plans for topic, _, size in live[plan["group_id"]].topics}
    offsets = read_live_offsets(client, [plan["group_id"] for plan in plans], sizes, limits)
    return {
        plan["plan_id"]: measure_gain(
            HintPayload.decode(plan["payload"].encode()),
            live[plan["group_id"]],
            settings[plan["group_id"]],
            plan["group_id"],
            offsets,
        )
        for plan in plans
    }


def read_live_offsets(
    client: Any, group_ids: Sequence[str], sizes: Mapping[str, int], limits: RequestLimits
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

    Returns
    -------
    LiveOffsets
        The offsets; -1 where they are unknown.
    """
    calls = BrokerCalls.within(client, limits)
    found, _ = read_topics(calls, sorted(sizes))
    partitions = partitions_of([found[name] for name in sorted(found)])
    starts = read_log_starts(calls, partitions)
    commits = read_commits(calls, find_coordinators(calls, sorted(group_ids)), sorted(sizes))
    # Log ends after commits: for a busy consumer the lag is slightly too large rather than negative.
    stable, ends = read_ends(calls, partitions)
    # A topic that was deleted meanwhile has an error in `ends` only.
    stable.errors.merge(ends.errors)
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
    )


def measure_gain(
    payload: HintPayload, group: LiveGroup, settings: GroupSettings, group_id: str, offsets: LiveOffsets
) -> LiveGain:
    """Measure a plan on the current lag of its group.

    Parameters
    ----------
    payload
        The plan's assignment.
    group, group_id
        The live group, with the members and topics of the plan.
    settings
        Settings of the group.
    offsets
        Current offsets of the group and its topics.

    Returns
    -------
    LiveGain
        The gain, and how many partitions' lag is unknown.
    """
    sizes = [size for _, _, size in group.topics]
    lag = group_lag(group, settings, group_id, offsets)
    first_row = dict(
        zip((topic_id for _, topic_id, _ in group.topics), np.cumsum([0, *sizes]).tolist(), strict=False)
    )
    keys = sorted(group.held)
    gain = relative_gain(
        lag.astype(np.float64).clip(min=0.0),
        np.array([settings.capacity_of(_instance_of(key)) for key in keys]),
        _owners(group.held, keys, first_row, len(lag)),
        _owners(payload.assignment, keys, first_row, len(lag)),
    )
    return LiveGain(gain=gain, num_unknown=int((lag < 0).sum()))


def group_lag(
    group: LiveGroup, settings: GroupSettings, group_id: str, offsets: LiveOffsets
) -> NDArray[np.int64]:
    """Compute the current lag of a group.

    Parameters
    ----------
    group, group_id
        The live group; its topics give the order of the rows.
    settings
        Its isolation level and reset policy.
    offsets
        Current offsets of the group and its topics.

    Returns
    -------
    ndarray
        Lag in records by (topic, partition number), int64; -1: unknown.
    """
    committed = offsets.committed.get(group_id)
    if committed is None:
        return np.full(sum(size for _, _, size in group.topics), _UNKNOWN, dtype=np.int64)
    end = offsets.end[settings.isolation_level or IsolationLevel.READ_UNCOMMITTED]
    return count_lag(
        _concatenate(committed, group),
        _concatenate(offsets.start, group),
        _concatenate(end, group),
        settings.reset_policy,
    )


def count_lag(
    committed: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    reset_policy: ResetPolicy | None,
) -> NDArray[np.int64]:
    """Compute lag by the rules of ``spark_jobs.transforms.lag``.

    Parameters
    ----------
    committed, start, end
        Offsets, int64 of the same shape; -1: no commit, or unknown.
    reset_policy
        Where the group's consumers start without a valid commit; None: unknown.

    Returns
    -------
    ndarray
        Lag in records, int64; -1: unknown.
    """
    lag = np.maximum(end - committed, 0)
    after_reset = {
        ResetPolicy.LATEST: np.zeros_like(end),
        ResetPolicy.EARLIEST: end - start,
        None: np.full_like(end, _UNKNOWN),
    }[reset_policy]
    lag = np.where(committed < start, after_reset, lag)
    return np.where((start < 0) | (end < 0), _UNKNOWN, lag)


def _by_topic(
    partitions: Partitions, offsets: Offsets, sizes: Mapping[str, int]
) -> dict[str, NDArray[np.int64]]:
    """Offsets by topic and partition number, -1 where they could not be read."""
    values = np.where(offsets.errors.code == 0, offsets.offset, _UNKNOWN)
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


def _concatenate(by_topic: Mapping[str, NDArray[np.int64]], group: LiveGroup) -> NDArray[np.int64]:
    """One row per partition, in the order of the group's topics."""
    parts = [by_topic[topic][:size] for topic, _, size in group.topics]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _owners(
    owned: Mapping[str, Mapping[str, Sequence[int]]],
    keys: Sequence[str],
    first_row: Mapping[str, int],
    num_rows: int,
) -> NDArray[np.int32]:
    """Row → index of its owner in ``keys``; loops over (member, topic) pairs, not over partitions."""
    owners = np.full(num_rows, _UNKNOWN, dtype=np.int32)
    for member, key in enumerate(keys):
        for topic_id, numbers in owned.get(key, {}).items():
            if topic_id in first_row:
                owners[first_row[topic_id] + np.asarray(numbers, dtype=np.int64)] = member
    return owners


def _instance_of(key: str) -> str | None:
    return key.removeprefix("i:") if key.startswith("i:") else None
