"""Rows of many groups as columns: sorted and looked up once for all groups, then sliced by group.

The cost of a small group is not its rows but the calls per group. So everything that can be computed for many
groups at once (the order of topics and partitions, owners, subscriptions) is computed here over all rows of a
batch, and a group is a few slices of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from assignor_core.members import utf16_key
from evenlag.enums import LagStatus

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class GroupBatch:
    """Groups and their rows: G groups, P partitions, T (group, topic) pairs, M members.

    Attributes
    ----------
    group_ids
        [G], ascending.
    num_lag_rows
        int64 [G]: number of rows of ``lag`` of each group, including partitions that no member subscribes
        to.
    lag
        [P] rows without those, ordered by group, topic (as UTF-16) and partition.
    row_start
        int64 [G + 1]: group g has the rows from ``row_start[g]`` up to ``row_start[g + 1]``.
    owner, holder
        int64 [P], as an index among its group's members; -1 for none: the owner that a plan changes, and the
        current one. They differ while a group of the consumer protocol is in reconciliation: its coordinator
        completes its target assignment, so a plan changes the target.
    lag_records, is_unknown, arrival_rate, stalled
        [P], without nulls: an unknown lag is 0 records, an unknown rate (records per second) is NaN.
    topic_start, topics, topic_rows, topic_ids
        Group g has the topics from ``topic_start[g]`` up to ``topic_start[g + 1]`` of the [T] others: name,
        number of rows, id.
    members
        [M] rows ordered by group.
    member_start
        int64 [G + 1].
    member_ids, instance_ids
        [M].
    subscription_start, subscription_topic
        Member m subscribes to ``subscription_topic[subscription_start[m]:subscription_start[m + 1]]``:
        indexes of topics among those of its group.
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
    stalled: NDArray[np.bool_]
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


def build_batch(lag: pa.Table, members: pa.Table) -> GroupBatch:
    """Sort the rows of many groups, and look up owners and subscriptions.

    Parameters
    ----------
    lag
        ``group_id, topic_id, topic, partition, owner_member_id, target_member_id, status, lag_records,
        arrival_rate_records_per_s, stalled``; all rows of each group.
    members
        ``group_id, member_id, group_instance_id, subscription`` and further columns.

    Returns
    -------
    GroupBatch
        All groups of either table.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    both = pa.chunked_array([*lag["group_id"].chunks, *members["group_id"].chunks], pa.string())
    group_ids: list[str] = sorted(pc.unique(both).to_pylist())
    members, member_group = _by_group(members, group_ids)
    num_lag_rows = np.bincount(_indexes(lag["group_id"], group_ids), minlength=len(group_ids))
    lag = lag.filter(pc.not_equal(lag["status"], LagStatus.NOT_SUBSCRIBED))
    names: list[str] = sorted(pc.unique(lag["topic"]).to_pylist(), key=utf16_key)
    group, topic = _indexes(lag["group_id"], group_ids), _indexes(lag["topic"], names)
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
    known = lag["lag_records"].is_valid().to_numpy()
    owner, holder = (
        _owners(member_ids, group, members, member_group, member_start)
        for member_ids in (
            pc.coalesce(lag["target_member_id"], lag["owner_member_id"]),
            lag["owner_member_id"],
        )
    )
    return GroupBatch(
        group_ids=group_ids,
        num_lag_rows=num_lag_rows,
        lag=lag,
        row_start=_starts(group, len(group_ids)),
        owner=owner,
        holder=holder,
        lag_records=pc.fill_null(lag["lag_records"], 0).to_numpy(),
        is_unknown=~known,
        arrival_rate=pc.fill_null(lag["arrival_rate_records_per_s"], np.nan).to_numpy(),
        stalled=pc.fill_null(lag["stalled"], False).to_numpy(),
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
    )


def _by_group(rows: pa.Table, group_ids: list[str]) -> tuple[pa.Table, NDArray[np.int64]]:
    import pyarrow as pa

    group = _indexes(rows["group_id"], group_ids)
    order = np.argsort(group, kind="stable")
    return rows.take(pa.array(order)).combine_chunks(), group[order]


def _indexes(values: pa.ChunkedArray, known: list[str]) -> NDArray[np.int64]:
    """Index of each value among the known values; -1 for an unknown value and for null: int64."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(values, value_set=pa.array(known, pa.string()), skip_nulls=True)
    return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)


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
    import pyarrow.compute as pc

    known = [name for name in pc.unique(members["member_id"]).to_pylist() if name is not None]
    owner = np.full(len(group), -1, dtype=np.int64)
    if not known:
        return owner
    place, code = _indexes(member_ids, known), _indexes(members["member_id"], known)
    shown = np.flatnonzero(code >= 0)
    keys = member_group[shown] * len(known) + code[shown]
    by_key = np.argsort(keys, kind="stable")
    keys, shown = keys[by_key], shown[by_key]
    owned = np.flatnonzero(place >= 0)
    wanted = group[owned] * len(known) + place[owned]
    found = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    hit = keys[found] == wanted
    owned, found = owned[hit], found[hit]
    owner[owned] = shown[found] - member_start[group[owned]]
    return owner


def _subscriptions(
    members: pa.Table,
    member_group: NDArray[np.int64],
    names: list[str],
    topic_keys: NDArray[np.int64],
    topic_start: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Subscription of each member among its group's topics; a topic without rows is left out."""
    import pyarrow.compute as pc

    start = np.zeros(members.num_rows + 1, dtype=np.int64)
    column = members["subscription"].combine_chunks()
    if not members.num_rows or not len(topic_keys):
        return start, np.zeros(0, dtype=np.int64)
    member = pc.list_parent_indices(column).to_numpy().astype(np.int64)
    topic = _indexes(pc.list_flatten(column), names)
    member, topic = member[topic >= 0], topic[topic >= 0]
    wanted = member_group[member] * len(names) + topic
    found = np.searchsorted(topic_keys, wanted).clip(max=len(topic_keys) - 1)
    hit = topic_keys[found] == wanted
    member, found = member[hit], found[hit]
    np.cumsum(np.bincount(member, minlength=members.num_rows), out=start[1:])
    return start, found - topic_start[member_group[member]]
