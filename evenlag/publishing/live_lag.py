"""Lag of this moment, for the last look before a hint: bulk reads of Kafka, then arrays.

The same rules as in ``transforms.lag``, for the few groups that are about to be hinted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assignor_core.hint import HintPayload
from assignor_core.objective import relative_gain
from evenlag.enums import IsolationLevel, ResetPolicy
from evenlag.kafka.bulk_reads import read_halving
from evenlag.kafka.rate_limit import Deadline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from evenlag.kafka.live_groups import LiveGroup
    from evenlag.policy.group_settings import GroupSettings

_NONE = -1


@dataclass(frozen=True, slots=True)
class LiveGain:
    """What a plan would bring on the lag of this moment.

    Attributes
    ----------
    gain
        Relative fall of the largest lag by capacity; below 0 when it grows.
    num_unknown
        Partitions whose lag is not known; the gain says nothing then.
    """

    gain: float
    num_unknown: int


@dataclass(frozen=True, slots=True)
class _Ends:
    """Offsets of topics: int64 by partition number, -1 where not known."""

    start: Mapping[str, NDArray[np.int64]]
    end: Mapping[IsolationLevel, Mapping[str, NDArray[np.int64]]]


def read_live_gains(
    client: Any,
    plans: Sequence[Mapping[str, Any]],
    live: Mapping[str, LiveGroup],
    settings: Mapping[str, GroupSettings],
    *,
    timeout_s: float,
) -> dict[str, LiveGain]:
    """Measure plans on the lag of this moment.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``.
    plans
        ``plan_id, group_id, payload``; one a group.
    live
        The groups as they are, with the very members and topics of the plans (same fingerprint).
    settings
        What holds for each group.
    timeout_s
        What is not read by then is not known.

    Returns
    -------
    dict
        By plan id.
    """
    if not plans:
        return {}
    deadline = Deadline(timeout_s)
    group_ids = [plan["group_id"] for plan in plans]
    commits, _ = read_halving(
        lambda names: client.list_group_offsets(dict.fromkeys(names)), group_ids, deadline
    )
    # Ends after commits: a busy consumer shows a little lag too much rather than less than none.
    ends = _read_ends(client, live, {settings[group_id].isolation_level for group_id in group_ids}, deadline)
    return {
        plan["plan_id"]: _measure(
            plan, live[plan["group_id"]], settings[plan["group_id"]], commits.get(plan["group_id"]), ends
        )
        for plan in plans
    }


def count_lag(
    committed: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    reset_policy: ResetPolicy | None,
) -> NDArray[np.int64]:
    """Lag by the rules of ``transforms.lag``: int64, -1 where it is not known.

    Parameters
    ----------
    committed, start, end
        Offsets, -1 where there is none; alike in shape.
    reset_policy
        What a group without a valid commit does.
    """
    lag = np.maximum(end - np.maximum(committed, start), 0)
    without = committed < start
    reset = {
        ResetPolicy.LATEST: np.zeros_like(end),
        ResetPolicy.EARLIEST: end - start,
        None: np.full_like(end, _NONE),
    }[reset_policy]
    lag = np.where(without, reset, lag)
    return np.where((start < 0) | (end < 0), _NONE, lag)


def _read_ends(
    client: Any, live: Mapping[str, LiveGroup], levels: set[IsolationLevel | None], deadline: Deadline
) -> _Ends:
    from kafka import TopicPartition
    from kafka.admin import OffsetSpec
    from kafka.protocol.consumer import IsolationLevel as KafkaLevel

    sizes = {topic: size for group in live.values() for topic, _, size in group.topics}
    partitions = [TopicPartition(topic, number) for topic, size in sizes.items() for number in range(size)]

    def read(spec: Any, level: str) -> dict[str, NDArray[np.int64]]:
        kafka_level = KafkaLevel.build_from(level)
        found, _ = read_halving(
            lambda wanted: client.list_partition_offsets(
                dict.fromkeys(wanted, spec), isolation_level=kafka_level
            ),
            partitions,
            deadline,
        )
        offsets = {topic: np.full(size, _NONE, dtype=np.int64) for topic, size in sizes.items()}
        for partition, value in found.items():
            offsets[partition.topic][partition.partition] = value.offset
        return offsets

    wanted = {level or IsolationLevel.READ_UNCOMMITTED for level in levels}
    return _Ends(
        start=read(OffsetSpec.EARLIEST, IsolationLevel.READ_UNCOMMITTED.value),
        end={level: read(OffsetSpec.LATEST, level.value) for level in sorted(wanted)},
    )


def _measure(
    plan: Mapping[str, Any],
    group: LiveGroup,
    settings: GroupSettings,
    commits: Mapping[Any, Any] | None,
    ends: _Ends,
) -> LiveGain:
    first_row = dict(
        zip((topic_id for _, topic_id, _ in group.topics), _offsets_of_topics(group), strict=True)
    )
    num_rows = sum(size for _, _, size in group.topics)
    if commits is None:
        return LiveGain(gain=0.0, num_unknown=num_rows)
    keys = sorted(group.held)
    payload = HintPayload.decode(plan["payload"].encode())
    end = ends.end[settings.isolation_level or IsolationLevel.READ_UNCOMMITTED]
    lag = count_lag(
        _committed(group, commits),
        np.concatenate([ends.start[topic] for topic, _, _ in group.topics]),
        np.concatenate([end[topic] for topic, _, _ in group.topics]),
        settings.reset_policy,
    )
    capacity = np.array([settings.capacity_of(_instance_of(key)) for key in keys])
    return LiveGain(
        gain=relative_gain(
            lag.astype(np.float64).clip(min=0.0),
            capacity,
            _owners(group.held, keys, first_row, num_rows),
            _owners(payload.assignment, keys, first_row, num_rows),
        ),
        num_unknown=int((lag < 0).sum()),
    )


def _offsets_of_topics(group: LiveGroup) -> list[int]:
    sizes = [size for _, _, size in group.topics]
    return [0, *np.cumsum(sizes)[:-1].tolist()] if sizes else []


def _committed(group: LiveGroup, commits: Mapping[Any, Any]) -> NDArray[np.int64]:
    by_topic = {topic: np.full(size, _NONE, dtype=np.int64) for topic, _, size in group.topics}
    for partition, commit in commits.items():
        numbers = by_topic.get(partition.topic)
        if numbers is not None and partition.partition < len(numbers):
            numbers[partition.partition] = max(commit.offset, _NONE)
    return np.concatenate([by_topic[topic] for topic, _, _ in group.topics])


def _owners(
    held: Mapping[str, Mapping[str, Sequence[int]]],
    keys: Sequence[str],
    first_row: Mapping[str, int],
    num_rows: int,
) -> NDArray[np.int32]:
    """Row → member by key: a loop over (member, topic) pairs, not over partitions."""
    owners = np.full(num_rows, _NONE, dtype=np.int32)
    for member, key in enumerate(keys):
        for topic_id, numbers in held.get(key, {}).items():
            if topic_id in first_row:
                owners[first_row[topic_id] + np.asarray(numbers, dtype=np.int64)] = member
    return owners


def _instance_of(key: str) -> str | None:
    return key.removeprefix("i:") if key.startswith("i:") else None
