"""Committed offsets of groups, read from their coordinators in batches of groups."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.kafka.broker_requests import Call
from evenlag.kafka.coordinators import COORDINATOR_ERRORS, refresh_coordinators
from evenlag.kafka.topic_metadata import error_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from evenlag.kafka.broker_requests import Answer, BrokerCalls

# A response for 50 groups of 100 partitions has 100 kB.
_GROUPS_A_REQUEST: Final = 50
# The first version of OffsetFetch that accepts several groups (KIP-709); later ones name topics by id.
_MANY_GROUPS: Final = 8


@dataclass(frozen=True, slots=True)
class Commits:
    """Committed offsets: one row per partition and group.

    Attributes
    ----------
    groups, topics
        Names; ``group`` and ``topic`` are indices into them.
    group, topic, partition, offset, leader_epoch, read_at_us
        Columns: int32, int32, int32, int64, int32, and int64 in microseconds since the epoch.
    failed
        By group id, why its commits could not be read.
    """

    groups: tuple[str, ...]
    topics: tuple[str, ...]
    group: NDArray[np.int32]
    topic: NDArray[np.int32]
    partition: NDArray[np.int32]
    offset: NDArray[np.int64]
    leader_epoch: NDArray[np.int32]
    read_at_us: NDArray[np.int64]
    failed: dict[str, str]


class _Columns:
    """Collects columns from responses, one part for each topic of a group."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = {name: number for number, name in enumerate(topics)}
        self._names = tuple(topics)
        self._groups: dict[str, int] = {}
        self._sizes: list[int] = []
        self._heads: list[tuple[int, int, int]] = []
        self._partition: list[int] = []
        self._offset: list[int] = []
        self._epoch: list[int] = []

    def add(self, group_id: str, topics: Sequence[Any], read_at_us: int) -> None:
        group = self._groups.setdefault(group_id, len(self._groups))
        for topic in topics:
            # A topic that is deleted or ignored has no log end to compute a lag with.
            if (number := self._topics.get(topic.name)) is None:
                continue
            self._heads.append((group, number, read_at_us))
            self._sizes.append(len(topic.partitions))
            self._partition += [part.partition_index for part in topic.partitions]
            self._offset += [part.committed_offset for part in topic.partitions]
            self._epoch += [part.committed_leader_epoch for part in topic.partitions]

    def finish(self, failed: dict[str, str]) -> Commits:
        heads = np.array(self._heads, dtype=np.int64).reshape(-1, 3).repeat(self._sizes, axis=0)
        offset = np.array(self._offset, dtype=np.int64)
        # A negative offset means no commit.
        kept = np.flatnonzero(offset >= 0)
        return Commits(
            groups=tuple(self._groups),
            topics=self._names,
            group=heads[kept, 0].astype(np.int32),
            topic=heads[kept, 1].astype(np.int32),
            partition=np.array(self._partition, dtype=np.int32)[kept],
            offset=offset[kept],
            leader_epoch=np.array(self._epoch, dtype=np.int32)[kept],
            read_at_us=heads[kept, 2],
            failed=failed,
        )


def read_commits(
    calls: BrokerCalls,
    coordinators: Mapping[str, int | str],
    topics: Sequence[str],
    *,
    require_stable: bool = False,
) -> Commits:
    """Read the committed offsets of groups.

    Parameters
    ----------
    calls
        Requests to the cluster's brokers.
    coordinators
        By group id: the coordinator's broker id, or why it is unknown.
    topics
        Topics whose commits are returned.
    require_stable
        Whether a coordinator answers only when what it has written or loaded is replicated. A group with
        offsets of an open transaction then has an error.

    Returns
    -------
    Commits
        The commits, and the errors of groups that could not be read.
    """
    columns = _Columns(topics)
    failed: dict[str, str] = {}
    pending, again = dict(coordinators), list[str]()
    for attempt in calls.rounds():
        waiting: list[str] = []
        if attempt:
            pending, waiting = refresh_coordinators(calls, again)
        again = [*_read_once(calls, pending, columns, failed, require_stable=require_stable), *waiting]
        if not again:
            break
        calls.failover.begin()
    return columns.finish(failed)


def _read_once(
    calls: BrokerCalls,
    coordinators: Mapping[str, int | str],
    columns: _Columns,
    failed: dict[str, str],
    *,
    require_stable: bool,
) -> list[str]:
    """Send each request once; return the groups whose coordinator has changed, or may have."""
    by_node: dict[int, list[str]] = defaultdict(list)
    for group_id, node in sorted(coordinators.items()):
        if isinstance(node, str):
            failed[group_id] = node
        else:
            by_node[node].append(group_id)
    size = _GROUPS_A_REQUEST if _takes_many(calls) else 1
    parts = [
        (node, names[first : first + size])
        for node, names in sorted(by_node.items())
        for first in range(0, len(names), size)
    ]
    answers = calls.run(
        [
            Call(node, _request(names, is_one=size == 1, require_stable=require_stable))
            for node, names in parts
        ]
    )
    again: list[str] = []
    for (_, names), answer in zip(parts, answers, strict=True):
        again += _take_answer(names, answer, columns, failed, is_one=size == 1)
    return again


def _takes_many(calls: BrokerCalls) -> bool:
    from kafka.protocol.consumer import OffsetFetchRequest

    return calls.api_version(OffsetFetchRequest) >= _MANY_GROUPS


def _request(names: Sequence[str], *, is_one: bool, require_stable: bool) -> Callable[[], Any]:
    from kafka.protocol.consumer import OffsetFetchRequest

    if is_one:
        # Brokers before 3.0 accept one group per request.
        return lambda: OffsetFetchRequest(
            group_id=names[0],
            topics=None,
            # Ignored by brokers before 2.5 (KIP-447).
            require_stable=require_stable,
            min_version=2,
            max_version=_MANY_GROUPS - 1,
        )
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return lambda: OffsetFetchRequest(
        groups=[group(group_id=name, topics=None) for name in names],
        require_stable=require_stable,
        min_version=_MANY_GROUPS,
        max_version=_MANY_GROUPS,
    )


def _take_answer(
    names: Sequence[str], answer: Answer, columns: _Columns, failed: dict[str, str], *, is_one: bool
) -> list[str]:
    if answer.response is None:
        failed.update(dict.fromkeys(names, str(answer.error)))
        return [] if answer.failed_node is None else list(names)
    read_at_us = round(answer.at.timestamp() * 1_000_000)
    again = []
    groups = (
        [(names[0], answer.response)] if is_one else [(row.group_id, row) for row in answer.response.groups]
    )
    for group_id, row in groups:
        code = row.error_code or next(
            (part.error_code for topic in row.topics for part in topic.partitions if part.error_code), 0
        )
        failed.pop(group_id, None)
        if not code:
            columns.add(group_id, row.topics, read_at_us)
            continue
        failed[group_id] = error_name(code)
        if code in COORDINATOR_ERRORS:
            again.append(group_id)
    missing = set(names) - {group_id for group_id, _ in groups}
    failed.update(dict.fromkeys(missing, "not read"))
    return again
