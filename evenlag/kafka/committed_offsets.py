"""Committed offsets of groups, and offsets of share groups, read from their coordinators in batches."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.kafka.broker_requests import Batch
from evenlag.kafka.coordinators import COORDINATOR_ERRORS, refresh_coordinators
from evenlag.kafka.member_protocol import read_group_offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from evenlag.kafka.broker_requests import Answer, BrokerCalls
    from evenlag.kafka.member_protocol import TopicCommits

# A response for 50 groups of 100 partitions has 100 kB.
_GROUPS_A_REQUEST: Final = 50
# The first version of OffsetFetch that accepts several groups (KIP-709); later ones name topics by id.
_MANY_GROUPS: Final = 8
_NO_SUCH_REQUEST: Final = "IncompatibleBrokerVersion"
_NOT_MEASURED: Final = (
    "not measured: the brokers do not report offsets of share groups (Kafka 4.1 and newer do)"
)


@dataclass(frozen=True, slots=True)
class Commits:
    """Committed offsets: one row per partition and group.

    groups, topics: Names; ``group`` and ``topic`` are indices into them.
    group, topic, partition, offset, leader_epoch, read_at_us: Columns: int32, int32, int32, int64, int32,
        and int64 in microseconds since the epoch. The offset of a share group is the start offset of the
        share partition.
    reported_lag: int64: lag that the broker reports for a share group (KIP-1226); -1: not reported.
    failed: By group id, why its commits could not be read.
    """

    groups: tuple[str, ...]
    topics: tuple[str, ...]
    group: NDArray[np.int32]
    topic: NDArray[np.int32]
    partition: NDArray[np.int32]
    offset: NDArray[np.int64]
    leader_epoch: NDArray[np.int32]
    read_at_us: NDArray[np.int64]
    reported_lag: NDArray[np.int64]
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
        self._lag: list[int] = []

    def add(self, group_id: str, topics: Sequence[TopicCommits], read_at_us: int) -> None:
        group = self._groups.setdefault(group_id, len(self._groups))
        for topic in topics:
            # A topic that is deleted or ignored has no log end to compute a lag with.
            if (number := self._topics.get(topic.topic)) is None:
                continue
            self._heads.append((group, number, read_at_us))
            self._sizes.append(len(topic.partitions))
            self._partition += topic.partitions
            self._offset += topic.offsets
            self._epoch += topic.leader_epochs
            self._lag += topic.reported_lags

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
            reported_lag=np.array(self._lag, dtype=np.int64)[kept],
            failed=failed,
        )


def read_commits(
    calls: BrokerCalls,
    coordinators: Mapping[str, int | str],
    topics: Sequence[str],
    *,
    share_groups: Collection[str] = frozenset(),
    require_stable: bool = False,
) -> Commits:
    """Read the committed offsets of groups.

    Returns the commits, and the errors of groups that could not be read.
    require_stable: Whether a coordinator answers only when what it has written or loaded is replicated. A
        group with offsets of an open transaction then has an error.
    """
    columns = _Columns(topics)
    failed: dict[str, str] = {}
    pending, again = dict(coordinators), list[str]()
    for attempt in calls.rounds():
        waiting: list[str] = []
        if attempt:
            pending, waiting = refresh_coordinators(calls, again)
        again = _read_once(calls, pending, columns, failed, share_groups, require_stable=require_stable)
        again += waiting
        if not again:
            break
        calls.failover.begin()
    return columns.finish(failed)


def _read_once(
    calls: BrokerCalls,
    coordinators: Mapping[str, int | str],
    columns: _Columns,
    failed: dict[str, str],
    share_groups: Collection[str],
    *,
    require_stable: bool,
) -> list[str]:
    """Send each request once; return the groups whose coordinator has changed, or may have."""
    by_node: dict[tuple[int, bool], list[str]] = defaultdict(list)
    for group_id, node in sorted(coordinators.items()):
        if isinstance(node, str):
            failed[group_id] = node
        else:
            by_node[node, group_id in share_groups].append(group_id)
    takes_many = _takes_many(calls)
    batches = []
    for (node, is_share), names in sorted(by_node.items()):
        size = _GROUPS_A_REQUEST if takes_many or is_share else 1
        make = (
            _share_request if is_share else partial(_request, is_one=size == 1, require_stable=require_stable)
        )
        batches += [Batch(node, names[first : first + size], make) for first in range(0, len(names), size)]
    again: list[str] = []
    for batch, answer in calls.run_batches(batches):
        again += _take_answer(
            batch.names,
            answer,
            columns,
            failed,
            is_share=batch.names[0] in share_groups,
            takes_many=takes_many,
        )
    return again


def _takes_many(calls: BrokerCalls) -> bool:
    from kafka.protocol.consumer import OffsetFetchRequest

    return calls.api_version(OffsetFetchRequest) >= _MANY_GROUPS


def _request(names: Sequence[str], *, is_one: bool, require_stable: bool) -> Any:
    from kafka.protocol.consumer import OffsetFetchRequest

    if is_one:
        # Brokers before 3.0 accept one group per request.
        return OffsetFetchRequest(
            group_id=names[0],
            topics=None,
            # Ignored by brokers before 2.5 (KIP-447).
            require_stable=require_stable,
            min_version=2,
            max_version=_MANY_GROUPS - 1,
        )
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(
        groups=[group(group_id=name, topics=None) for name in names],
        require_stable=require_stable,
        min_version=_MANY_GROUPS,
        max_version=_MANY_GROUPS,
    )


def _share_request(names: Sequence[str]) -> Any:
    from evenlag.kafka.messages import DescribeShareGroupOffsetsRequest

    group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    return DescribeShareGroupOffsetsRequest(groups=[group(group_id=name, topics=None) for name in names])


def _take_answer(
    names: Sequence[str],
    answer: Answer,
    columns: _Columns,
    failed: dict[str, str],
    *,
    is_share: bool,
    takes_many: bool,
) -> list[str]:
    if answer.response is None:
        reason = str(answer.error)
        is_unknown = is_share and reason.startswith(_NO_SUCH_REQUEST)
        failed.update(dict.fromkeys(names, _NOT_MEASURED if is_unknown else reason))
        return [] if answer.failed_node is None else list(names)
    read_at_us = round(answer.at.timestamp() * 1_000_000)
    again = []
    rows = (
        [(row.group_id, row) for row in answer.response.groups or ()]
        if takes_many or is_share
        else [(names[0], answer.response)]
    )
    left = set(names)
    for group_id, row in rows:
        if group_id not in left:
            continue
        left.remove(group_id)
        failed.pop(group_id, None)
        offsets, error, code = read_group_offsets(row, is_share=is_share)
        if error is None:
            columns.add(group_id, offsets, read_at_us)
            continue
        failed[group_id] = error
        if code in COORDINATOR_ERRORS:
            again.append(group_id)
    failed.update(dict.fromkeys(left, "not read"))
    return again
