"""Rows of many groups as columns: sorted and looked up once for all groups, then sliced by group.

The cost of a small group is not its rows but the calls per group. So everything that can be computed for many
groups at once (the order of topics and partitions, owners, subscriptions) is computed here over all rows of a
batch, and a group is a few slices of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from assignor_core.members import utf16_key
from evenlag.enums import LagStatus
from evenlag.lag.arrays import codes, find_places, flags, is_valid, parents
from evenlag.lag.forecast import STEPS

_FORECAST: Final = "forecast_records_per_s"


@dataclass(frozen=True, slots=True, eq=False)
class BatchRacks:
    """Racks of a batch with R different ones.

    names: [R - 1]; the last rack is that of members in racks without any partition.
    of_member: int32 [M], -1: unknown.
    of_row: bool [P, R]: the racks in which a partition can be read; none if they are unknown.
    """

    names: list[str]
    of_member: NDArray[np.int32]
    of_row: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class GroupBatch:
    """Groups and their rows: G groups, P partitions, T (group, topic) pairs, M members.

    num_lag_rows: int64 [G]: number of rows of ``lag`` of each group, including partitions that no member
        subscribes to.
    lag: [P] rows of the other partitions, ordered by group, topic (as UTF-16) and partition.
    row_start: int64 [G + 1]: group g has the rows from ``row_start[g]`` up to ``row_start[g + 1]``.
    owner, holder: int64 [P], as an index among its group's members; -1 for none: the owner that a plan
        changes, and the current one. They differ while a group of the consumer protocol is in
        reconciliation: its coordinator completes its target assignment, so a plan changes the target.
    lag_records, is_unknown, arrival_rate, consume_rate, stalled: [P], without nulls: an unknown lag is 0
        records, an unknown rate (records per second) is NaN. A lag that is known as a bound only is unknown,
        too.
    cost: float64 [P], work of a record; 1 if unknown.
    forecast: float64 [P, K], rates in the steps of the horizon; a row that is unknown has its arrival rate.
    speed, is_bound: [M], units of work per second, NaN if unknown, and whether it is a lower bound.
    commit_problem, owner_problem: Group → why its commits, or the owner of one of its partitions, are
        unknown; others are known.
    topic_start, topics, topic_rows, topic_ids: Group g has the topics from ``topic_start[g]`` up to
        ``topic_start[g + 1]`` of the [T] others: name, number of rows, id.
    member_start: int64 [G + 1].
    subscription_start, subscription_topic: Member m subscribes to
        ``subscription_topic[subscription_start[m]:subscription_start[m + 1]]``: indexes of topics among
        those of its group.
    racks: None if no partition or no member has a known one.
    """

    group_ids: list[str]
    num_lag_rows: NDArray[np.int64]
    lag: pa.Table
    row_start: NDArray[np.int64]
    owner: NDArray[np.int64]
    holder: NDArray[np.int64]
    lag_records: NDArray[np.int64]
    is_unknown: NDArray[np.bool_]
    arrival_rate: NDArray[np.float64]
    consume_rate: NDArray[np.float64]
    stalled: NDArray[np.bool_]
    cost: NDArray[np.float64]
    forecast: NDArray[np.float64]
    speed: NDArray[np.float64]
    is_bound: NDArray[np.bool_]
    commit_problem: Mapping[int, str]
    owner_problem: Mapping[int, str]
    topic_start: NDArray[np.int64]
    topics: list[str]
    topic_rows: NDArray[np.int64]
    topic_ids: list[str]
    members: pa.Table
    member_start: NDArray[np.int64]
    member_ids: list[str]
    instance_ids: list[str | None]
    subscription_start: NDArray[np.int64]
    subscription_topic: NDArray[np.int64]
    racks: BatchRacks | None


def build_batch(lag: pa.Table, members: pa.Table) -> GroupBatch:
    """Sort the rows of many groups, and look up owners and subscriptions."""
    both = pa.chunked_array([*lag["group_id"].chunks, *members["group_id"].chunks], pa.string())
    group_ids: list[str] = sorted(pc.unique(both).to_pylist())
    members, member_group = _by_group(members, group_ids)
    num_lag_rows = np.bincount(codes(lag["group_id"], group_ids), minlength=len(group_ids))
    lag = lag.filter(pc.not_equal(lag["status"], LagStatus.NOT_SUBSCRIBED))
    names: list[str] = sorted(pc.unique(lag["topic"]).to_pylist(), key=utf16_key)
    group, topic = codes(lag["group_id"], group_ids), codes(lag["topic"], names)
    key = group * max(len(names), 1) + topic
    order = np.lexsort((lag["partition"].to_numpy(), key))
    lag, group, key = lag.take(pa.array(order)).combine_chunks(), group[order], key[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    topic_group, topic_name = np.divmod(key[first], max(len(names), 1))
    topic_start = _starts(topic_group, len(group_ids))
    member_start = _starts(member_group, len(group_ids))
    subscription_start, subscription_topic = _subscriptions(
        members, member_group, names, key[first], topic_start
    )
    subscribed = subscription_topic + np.repeat(topic_start[member_group], np.diff(subscription_start))
    is_left = _not_subscribed(members, member_group, topic_group, subscribed)
    if is_left.any():
        # A member still owns what no member subscribes to any more: it counts, and is not planned.
        kept = lag.filter(pa.array(~np.repeat(is_left, np.diff(np.append(first, len(key))))))
        return replace(build_batch(kept, members), num_lag_rows=num_lag_rows)
    is_unknown = flags(pc.or_(pc.is_null(lag["lag_records"]), pc.is_valid(lag["lag_bound"])))
    owner, holder = (
        _owners(member_ids, group, members, member_group, member_start)
        for member_ids in (
            pc.coalesce(lag["target_member_id"], lag["owner_member_id"]),
            lag["owner_member_id"],
        )
    )
    rate = pc.fill_null(lag["arrival_rate_records_per_s"], np.nan).to_numpy()
    speed = numbers(members, "speed_records_per_s", np.nan)
    return GroupBatch(
        group_ids=group_ids,
        num_lag_rows=num_lag_rows,
        lag=lag,
        row_start=_starts(group, len(group_ids)),
        owner=owner,
        holder=holder,
        lag_records=pc.fill_null(lag["lag_records"], 0).to_numpy(),
        is_unknown=is_unknown,
        arrival_rate=rate,
        consume_rate=numbers(lag, "consume_rate_records_per_s", np.nan),
        stalled=pc.fill_null(lag["stalled"], False).to_numpy(),
        cost=numbers(lag, "cost", 1.0),
        forecast=horizon_rates(lag, rate),
        speed=np.where(speed > 0, speed, np.nan),
        is_bound=numbers(members, "speed_is_bound", 0.0) > 0,
        commit_problem=_problems(lag, group, "commit_problem"),
        owner_problem=_problems(lag, group, "owner_problem", "{topic}-{partition}: "),
        topic_start=topic_start,
        topics=[names[number] for number in topic_name.tolist()],
        topic_rows=np.diff(np.append(first, len(key))),
        topic_ids=lag["topic_id"].take(pa.array(first)).to_pylist(),
        members=members,
        member_start=member_start,
        member_ids=members["member_id"].to_pylist(),
        instance_ids=members["group_instance_id"].to_pylist(),
        subscription_start=subscription_start,
        subscription_topic=subscription_topic,
        racks=_racks(lag, members),
    )


def numbers(rows: pa.Table, column: str, unknown: float) -> NDArray[np.float64]:
    """Return a column as numbers; rows of earlier versions do not have it."""
    if column not in rows.column_names:
        return np.full(rows.num_rows, unknown)
    numbers = pc.fill_null(rows[column].cast(pa.float64()), unknown).to_numpy()
    return np.where(np.isfinite(numbers), numbers, unknown)


def horizon_rates(lag: pa.Table, last: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rates in the steps of the horizon; the last one without a forecast of the usual length."""
    found = np.repeat(last[:, None], STEPS, axis=1)
    if _FORECAST not in lag.column_names:
        return found
    lists = lag[_FORECAST].combine_chunks()
    is_whole = np.asarray(pc.fill_null(pc.equal(pc.list_value_length(lists), STEPS), False))
    values = pc.list_flatten(lists.filter(pa.array(is_whole))).cast(pa.float64())
    forecast = pc.fill_null(values, np.nan).to_numpy(zero_copy_only=False).reshape(-1, STEPS)
    found[is_whole] = np.where(np.isfinite(forecast), forecast, found[is_whole])
    return found


def _racks(lag: pa.Table, members: pa.Table) -> BatchRacks | None:
    of_rows = lag["racks"].combine_chunks()
    names = sorted(pc.unique(pc.list_flatten(of_rows)).drop_null().to_pylist())
    if not names or members["rack_id"].null_count == len(members):
        return None
    racks = np.zeros((len(of_rows), len(names)), dtype=np.bool_)
    rack = codes(pc.list_flatten(of_rows), names)
    racks[parents(of_rows)[rack >= 0], rack[rack >= 0]] = True
    # A member in a rack without any partition reads all of them across racks: one column more.
    of_member = codes(members["rack_id"], names)
    of_member[(of_member < 0) & is_valid(members["rack_id"])] = len(names)
    return BatchRacks(names, of_member.astype(np.int32), np.pad(racks, ((0, 0), (0, 1))))


def _not_subscribed(
    members: pa.Table,
    member_group: NDArray[np.int64],
    topic_group: NDArray[np.int64],
    subscribed: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which (group, topic) pairs no member subscribes to, where all subscriptions of the group are known."""
    is_hidden = np.zeros(int(topic_group.max(initial=-1)) + 1, dtype=np.bool_)
    hidden = member_group[~is_valid(members["subscription"])]
    is_hidden[hidden[hidden < len(is_hidden)]] = True
    is_left = np.ones(len(topic_group), dtype=np.bool_)
    is_left[subscribed] = False
    return is_left & ~is_hidden[topic_group]


def _problems(lag: pa.Table, group: NDArray[np.int64], column: str, place: str = "") -> dict[int, str]:
    """The first problem of each group that has one, after its place."""
    rows = np.flatnonzero(is_valid(lag[column]))
    groups, first = np.unique(group[rows], return_index=True)
    partitions = lag.take(pa.array(rows[first])).select(["topic", "partition", column]).to_pylist()
    return {
        number: place.format_map(row) + row[column]
        for number, row in zip(groups.tolist(), partitions, strict=True)
    }


def _by_group(rows: pa.Table, group_ids: list[str]) -> tuple[pa.Table, NDArray[np.int64]]:
    group = codes(rows["group_id"], group_ids)
    order = np.argsort(group, kind="stable")
    return rows.take(pa.array(order)).combine_chunks(), group[order]


def _starts(group: NDArray[np.int64], num_groups: int) -> NDArray[np.int64]:
    """Start of each group in rows ordered by group: int64 [G + 1]."""
    return np.searchsorted(group, np.arange(num_groups + 1)).astype(np.int64)


def _owners(
    member_ids: pa.ChunkedArray,
    group: NDArray[np.int64],
    members: pa.Table,
    member_group: NDArray[np.int64],
    member_start: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Member of each row among its group's members: looks up all (group, member id) pairs at once."""
    known = pc.unique(members["member_id"]).drop_null().to_pylist()
    owner, member = codes(member_ids, known), codes(members["member_id"], known)
    # -1 has a place, too: a group may have a row without a member.
    size = len(known) + 1
    found = find_places(group * size + owner + 1, member_group * size + member + 1)
    return np.where((owner >= 0) & (found >= 0), found - member_start[group], -1)


def _subscriptions(
    members: pa.Table,
    member_group: NDArray[np.int64],
    names: list[str],
    topic_keys: NDArray[np.int64],
    topic_start: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Subscription of each member among its group's topics; a topic without rows is left out."""
    start = np.zeros(members.num_rows + 1, dtype=np.int64)
    column = members["subscription"].combine_chunks()
    member, topic = parents(column), codes(pc.list_flatten(column), names)
    member, topic = member[topic >= 0], topic[topic >= 0]
    found = find_places(member_group[member] * len(names) + topic, topic_keys)
    member, found = member[found >= 0], found[found >= 0]
    np.cumsum(np.bincount(member, minlength=members.num_rows), out=start[1:])
    return start, found - topic_start[member_group[member]]
