"""Committed offsets of groups, and offsets of share groups, read from their coordinators in batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.kafka.coordinators import GroupRequests, ask_coordinators
from evenlag.kafka.member_protocol import read_group_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from evenlag.kafka.broker_requests import BrokerCalls
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

    With `require_stable` a coordinator answers only when what it has written or loaded is replicated; a group
    with offsets of an open transaction then has an error.
    """
    columns = _Columns(topics)
    takes_many = _takes_many(calls)

    def make(is_share: bool) -> tuple[int, Callable[[Sequence[str]], Any]]:
        if is_share:
            return _GROUPS_A_REQUEST, _share_request
        return (
            _GROUPS_A_REQUEST if takes_many else 1,
            partial(_request, is_one=not takes_many, require_stable=require_stable),
        )

    def rows_of(names: Sequence[str], response: Any) -> list[tuple[str, Any]]:
        if takes_many or names[0] in share_groups:
            return [(row.group_id, row) for row in response.groups or ()]
        return [(names[0], response)]

    def take(group_id: str, row: Any, read_at: datetime) -> tuple[str | None, int]:
        offsets, error, code = read_group_offsets(row, is_share=group_id in share_groups)
        if error is None:
            columns.add(group_id, offsets, round(read_at.timestamp() * 1_000_000))
        return error, code

    requests = GroupRequests(lambda name: name in share_groups, make, take, "not read", rows_of)
    failed = ask_coordinators(calls, coordinators, requests)
    for group_id, error in failed.items():
        if group_id in share_groups and error.startswith(_NO_SUCH_REQUEST):
            failed[group_id] = _NOT_MEASURED
    return columns.finish(failed)


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
