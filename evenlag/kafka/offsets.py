"""Offsets of partitions from their leaders, committed offsets of groups from their coordinators.

Log starts are read before the commits, log ends after them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest
from numpy.typing import NDArray

from assignor_core.record import topic_id_text
from evenlag.enums import reset_age_ms
from evenlag.kafka.broker_requests import Answer, BrokerCalls, Call
from evenlag.kafka.coordinators import GroupRequests, ask_coordinators
from evenlag.kafka.member_protocol import TopicCommits, read_group_offsets
from evenlag.kafka.messages import DescribeShareGroupOffsetsRequest
from evenlag.kafka.topic_metadata import (
    NO_LEADER,
    NO_REPLICA,
    Partitions,
    error_name,
    leaders_of,
    read_topics,
)
from evenlag.lag.arrays import Int32s, Int64s

# Few requests, and none of them occupies a broker's thread for long.
_PARTITIONS_A_REQUEST: Final = 2_000
_EARLIEST: Final = -2
_LATEST: Final = -1
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
# Retriable errors: the leader has changed, or was just elected.
_MOVED_ERRORS: Final = (5, 6, 9, 56, 74, 75, 78)
NOT_READ: Final = -1
NO_RECORD: Final = np.iinfo(np.int64).max
"""The offset of a moment after all records."""


Errors = NDArray[np.object_]
"""Errors by row, as text; "" for none."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """One offset of each partition: int64; -1: not read. The broker answered at `read_at_us`; 0: not read."""

    offset: Int64s
    read_at_us: Int64s
    errors: Errors


def no_offsets(num_rows: int) -> Offsets:
    """Return offsets of which none has been read."""
    return Offsets(
        np.full(num_rows, NOT_READ, dtype=np.int64),
        np.zeros(num_rows, dtype=np.int64),
        np.full(num_rows, "", dtype=np.object_),
    )


def read_log_starts(calls: BrokerCalls, partitions: Partitions) -> Offsets:
    """Read log start offsets."""
    (starts,) = _read(calls, partitions, ((_EARLIEST, _READ_UNCOMMITTED),))
    return starts


def read_ends(calls: BrokerCalls, partitions: Partitions) -> tuple[Offsets, Offsets]:
    """Read last stable offsets, then high watermarks, then check that each topic is still the same."""
    stable, ends = _read(calls, partitions, ((_LATEST, _READ_COMMITTED), (_LATEST, _READ_UNCOMMITTED)))
    found, why = read_topics(calls, partitions.names)
    for which, (name, topic_id) in enumerate(zip(partitions.names, partitions.ids, strict=True)):
        seen = found.get(name)
        if seen is not None and topic_id_text(seen.topic_id) == topic_id:
            continue
        rows = np.flatnonzero(partitions.topic == which)
        if seen is not None:
            ends.errors[rows] = "the topic was deleted and created again while it was read"
        else:
            unexplained = rows[ends.errors[rows] == ""]
            ends.errors[unexplained] = why or "the topic was deleted while it was read"
    return stable, ends


def read_reset_offsets(
    calls: BrokerCalls, partitions: Partitions, policies: Collection[str], ends: Offsets
) -> dict[str, Int64s]:
    """Read where consumers start that have no commit and reset by a duration (KIP-1106).

    Returns by policy, row → offset, int64: the high watermark if no record is as young; -1: not read.
    """
    ages = [(policy, age) for policy in sorted(policies) if (age := reset_age_ms(policy)) is not None]
    now_ms = time.time_ns() // 1_000_000
    specs = tuple((max(now_ms - age, 0), _READ_UNCOMMITTED) for _, age in ages)
    found: dict[str, Int64s] = {}
    for (policy, _), read in zip(ages, _read(calls, partitions, specs) if specs else (), strict=True):
        # Kafka answers -1 without an error if no record is as young.
        start = np.where(read.offset < 0, ends.offset, read.offset)
        found[policy] = np.where(read.errors == "", start, NOT_READ)
    return found


def _read(
    calls: BrokerCalls, partitions: Partitions, specs: tuple[tuple[int, int], ...]
) -> tuple[Offsets, ...]:
    """Read offsets by (timestamp, isolation level); for each partition in the order of ``specs``."""
    results = tuple(no_offsets(len(partitions)) for _ in specs)
    leader = partitions.leader.copy()
    pending = [np.arange(len(partitions)) for _ in specs]
    for attempt in calls.rounds():
        waiting = [part[:0] for part in pending]
        if attempt:
            rows = np.unique(np.concatenate(pending))
            found, _ = read_topics(
                calls, sorted({partitions.names[n] for n in partitions.topic[rows].tolist()})
            )
            leader[rows] = leaders_of(partitions, rows, found)
            # A partition whose leader is a broken broker waits for another one, if it has another replica.
            is_broken = np.isin(leader, list(calls.broken))
            waiting = [part[is_broken[part]] for part in pending]
            pending = [part[~is_broken[part] & (leader[part] != NO_REPLICA)] for part in pending]
        moved = _read_once(calls, partitions, specs, leader, pending, results)
        pending = [np.union1d(*parts) for parts in zip(moved, waiting, strict=True)]
        if not any(map(len, pending)):
            break
        calls.failover.begin()
    return results


def _read_once(
    calls: BrokerCalls,
    partitions: Partitions,
    specs: tuple[tuple[int, int], ...],
    leader: Int32s,
    pending: list[Int64s],
    results: tuple[Offsets, ...],
) -> list[Int64s]:
    """Send each request once; return by spec the rows whose leader has changed, or may have."""
    asked: list[tuple[int, Int64s, Call]] = []
    moved: list[list[Int64s]] = []
    for which, (timestamp, level) in enumerate(specs):
        rows = pending[which]
        leaderless = rows[leader[rows] == NO_LEADER]
        results[which].errors[leaderless] = "LeaderNotAvailableError"
        moved.append([leaderless])
        at_ms = np.full(len(rows), timestamp)
        of_leaders = leader_calls(partitions, rows, leader[rows], at_ms, level)
        asked += [(which, rows[part], call) for part, call in of_leaders]
    answers = calls.run([call for *_, call in asked])
    for (which, rows, _), answer in zip(asked, answers, strict=True):
        moved[which].append(_take_answer(partitions, rows, answer, results[which]))
    return [np.sort(np.concatenate(rows)) for rows in moved]


def leader_calls(
    partitions: Partitions, rows: Int64s, leader: Int32s, at_ms: Int64s, level: int = _READ_UNCOMMITTED
) -> Iterator[tuple[Int64s, Call]]:
    """Yield requests for the first offsets at moments, each with the indexes of its partitions in `rows`.

    `leader` and `at_ms` are those of `rows`; a partition without a leader is left out.
    """
    for node in np.unique(leader[leader >= 0]).tolist():
        mine = np.flatnonzero(leader == node)
        for first in range(0, len(mine), _PARTITIONS_A_REQUEST):
            part = mine[first : first + _PARTITIONS_A_REQUEST]
            yield part, Call(node, partial(_request, partitions, rows[part], at_ms[part], level))


def _request(partitions: Partitions, rows: Int64s, at_ms: Int64s, level: int) -> Any:
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition
    moments = iter(at_ms.tolist())
    return ListOffsetsRequest(
        isolation_level=level,
        topics=[
            topic(
                name=name,
                partitions=[
                    partition(partition_index=number, timestamp=next(moments)) for number in numbers.tolist()
                ],
            )
            for name, numbers in partitions.rows_by_topic(rows)
        ],
        # The first version that answers with one offset, and the first one with isolation levels.
        min_version=1 + level,
    )


def offsets_at(
    calls: BrokerCalls, partitions: Partitions, rows: Int64s, at_ms: Int64s
) -> tuple[Int64s, Int64s]:
    """First record of each partition that is no older: its offset, and when it was written.

    The offset is -1 without an answer, and :data:`NO_RECORD` if no record is as young; the time is then -1.
    """
    found, written_at = (np.full(len(rows), NOT_READ, dtype=np.int64) for _ in range(2))
    asked = list(leader_calls(partitions, rows, partitions.leader[rows], at_ms))
    answers = calls.run([call for _, call in asked])
    for (part, _), answer in zip(asked, answers, strict=True):
        if answer.response is not None:
            place, code, offset, at = _answered(partitions, rows[part], answer.response)
            is_good, is_record = code == 0, offset >= 0
            good = part[place[is_good]]
            found[good] = np.where(is_record, offset, NO_RECORD)[is_good]
            written_at[good] = np.where(is_record, at, NOT_READ)[is_good]
    return found, written_at


def _answered(partitions: Partitions, rows: Int64s, response: Any) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return the places in `rows` of a response's partitions, their error codes, offsets and timestamps."""
    first_key = {partitions.names[which]: which << 32 for which in np.unique(partitions.topic[rows]).tolist()}
    parts = [(first_key[topic.name], part) for topic in response.topics for part in topic.partitions]
    number = np.array([first + part.partition_index for first, part in parts], dtype=np.int64)
    code = np.array([part.error_code for _, part in parts], dtype=np.int64)
    offset = np.array([part.offset for _, part in parts], dtype=np.int64)
    timestamp = np.array([part.timestamp for _, part in parts], dtype=np.int64)
    return np.searchsorted(partition_keys(partitions, rows), number), code, offset, timestamp


def _take_answer(partitions: Partitions, rows: Int64s, answer: Answer, result: Offsets) -> Int64s:
    """Store the offsets of a response; return the rows whose leader has changed, or may have."""
    if answer.response is None:
        result.errors[rows] = str(answer.error)
        return rows[:0] if answer.failed_node is None else rows
    place, code, offset, _ = _answered(partitions, rows, answer.response)
    at = rows[place]
    result.errors[rows] = "not read"
    good = at[code == 0]
    result.errors[good] = ""
    result.offset[good] = offset[code == 0]
    result.read_at_us[good] = round(answer.at.timestamp() * 1_000_000)
    for kind in np.unique(code[code != 0]).tolist():
        result.errors[at[code == kind]] = error_name(kind)
    return np.sort(at[np.isin(code, _MOVED_ERRORS)])


def partition_keys(partitions: Partitions, rows: Int64s) -> Int64s:
    """Return the ascending keys of rows: topic, then partition number."""
    return (partitions.topic[rows].astype(np.int64) << 32) + partitions.number[rows]


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
    """Committed offsets as columns, one row per partition and group; of share groups start offsets.

    group, topic: Indices into the names.
    reported_lag: Lag that the broker reports for a share group (KIP-1226); -1: not reported.
    busy_ms, busy_since_ms: What a commit reports (:class:`assignor_core.busy_time.BusyTime`); -1: nothing.
    failed: By group id, why its commits could not be read.
    """

    groups: tuple[str, ...]
    topics: tuple[str, ...]
    group: Int32s
    topic: Int32s
    partition: Int32s
    offset: Int64s
    leader_epoch: Int32s
    read_at_us: Int64s
    reported_lag: Int64s
    busy_ms: Int64s
    busy_since_ms: Int64s
    failed: dict[str, str]


# Numbers of the group and of the topic, when the coordinator answered, and what it answered.
_Part = tuple[int, int, int, TopicCommits]


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
    groups: dict[str, int] = {}
    topic_numbers = {name: number for number, name in enumerate(topics)}
    parts: list[_Part] = []
    takes_many = calls.api_version(OffsetFetchRequest) >= _MANY_GROUPS

    def make(is_share: bool) -> tuple[int, Callable[[Sequence[str]], Any]]:
        if is_share:
            return _GROUPS_A_REQUEST, _share_request
        return (
            _GROUPS_A_REQUEST if takes_many else 1,
            partial(_commits_request, is_one=not takes_many, require_stable=require_stable),
        )

    def rows_of(names: Sequence[str], response: Any) -> list[tuple[str, Any]]:
        if takes_many or names[0] in share_groups:
            return [(row.group_id, row) for row in response.groups or ()]
        return [(names[0], response)]

    def take(group_id: str, row: Any, read_at: datetime) -> tuple[str | None, int]:
        offsets, error, code = read_group_offsets(row, is_share=group_id in share_groups)
        if error is None:
            group, at_us = groups.setdefault(group_id, len(groups)), round(read_at.timestamp() * 1_000_000)
            # A topic that is deleted or ignored has no log end to compute a lag with.
            known = [each for each in offsets if each.topic in topic_numbers]
            parts.extend((group, topic_numbers[each.topic], at_us, each) for each in known)
        return error, code

    requests = GroupRequests(lambda name: name in share_groups, make, take, "not read", rows_of)
    failed = ask_coordinators(calls, coordinators, requests)
    for group_id, error in failed.items():
        if group_id in share_groups and error.startswith(_NO_SUCH_REQUEST):
            failed[group_id] = _NOT_MEASURED
    return _commits(tuple(groups), tuple(topics), parts, failed)


def _commits(
    groups: tuple[str, ...], topics: tuple[str, ...], parts: Sequence[_Part], failed: dict[str, str]
) -> Commits:
    def column(name: str) -> Int64s:
        values = chain.from_iterable(getattr(read, name) for *_, read in parts)
        return np.fromiter(values, dtype=np.int64)

    sizes = [len(read.partitions) for *_, read in parts]
    heads = np.array([part[:3] for part in parts], dtype=np.int64).reshape(-1, 3).repeat(sizes, axis=0)
    offset = column("offsets")
    busy = np.full((len(offset), 2), -1, dtype=np.int64)
    first = 0
    for (*_, read), size in zip(parts, sizes, strict=True):
        if read.busy:
            busy[[first + place for place in read.busy]] = list(read.busy.values())
        first += size
    # A negative offset means no commit.
    kept = np.flatnonzero(offset >= 0)
    return Commits(
        groups=groups,
        topics=topics,
        group=heads[kept, 0].astype(np.int32),
        topic=heads[kept, 1].astype(np.int32),
        partition=column("partitions")[kept].astype(np.int32),
        offset=offset[kept],
        leader_epoch=column("leader_epochs")[kept].astype(np.int32),
        read_at_us=heads[kept, 2],
        reported_lag=column("reported_lags")[kept],
        busy_ms=busy[kept, 0],
        busy_since_ms=busy[kept, 1],
        failed=failed,
    )


def _commits_request(names: Sequence[str], *, is_one: bool, require_stable: bool) -> Any:
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
    group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    return DescribeShareGroupOffsetsRequest(groups=[group(group_id=name, topics=None) for name in names])
