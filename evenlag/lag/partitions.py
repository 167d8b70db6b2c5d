"""Which partitions count for each group of a snapshot, what is known of the group, and who owns them.

A partition counts for a group that has a commit for it, if a live member subscribes to its topic, or if a
member owns it. Of each group three facts are known or not, with a reason: its commits, its subscription, its
owners. The lag needs the commits only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.enums import MEMBERLESS_STATES
from evenlag.lag.arrays import (
    UNKNOWN,
    Int64s,
    as_lists,
    codes,
    find_places,
    first_in_lists,
    flags,
    flatten_assignments,
    integers,
    is_valid,
    parents,
)
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import LAG, OFFSETS, Column, Table

if TYPE_CHECKING:
    # pydantic: executors do not have it.
    from evenlag.policy.group_settings import GroupSettings

FROM_OFFSETS: Final = ("log_start_offset", "high_watermark", "last_stable_offset", "reset_offsets", "racks")
_POINTS: Final = "ARRAY<STRUCT<at: TIMESTAMP, offset: BIGINT>>"


def _group_partitions_table() -> Table:
    types = {column.name: column.type for column in (*OFFSETS.columns, *LAG.columns)}
    columns = (
        Column("group_id", "STRING", "as in `lag`"),
        *(Column(name, types[name], "as in `offsets`") for name in ("topic_id", "topic", "partition")),
        *(Column(name, types[name], "as in `offsets`") for name in FROM_OFFSETS),
        Column("read_at", "TIMESTAMP", "when the log end was read"),
        Column("offset_error", "STRING", "why the offsets could not be read"),
        Column("committed_offset", "BIGINT", "null: none"),
        Column("leader_epoch", "INT", "stored with the commit; null or negative: none"),
        Column("commit_read_at", "TIMESTAMP", "when the commit was read"),
        Column("reported_lag_records", "BIGINT", "as in `commits`"),
        Column("is_subscribed", "BOOLEAN", "a live member subscribes to the topic; null: none does"),
        # Members are numbered by their ids: Spark aggregates numbers without sorting.
        Column("owner", "BIGINT", "number of the member that owns the partition; of several the smallest"),
        Column("last_owner", "BIGINT", "of several the largest number"),
        Column("num_owners", "BIGINT", "members that own the partition"),
        Column("target", "BIGINT", "number of the member that is to own the partition"),
        Column("end_points", _POINTS, "earlier high watermarks, oldest first; null: none"),
        Column("commit_points", _POINTS, "earlier committed offsets, oldest first; null: none"),
    )
    return Table("group_partitions", "input of lag", ("group_id", "topic", "partition"), columns)


GROUP_PARTITIONS: Final = _group_partitions_table()
"""A partition that counts for a group, with all that its lag depends on."""

GROUPS: Final = Table(
    "groups",
    "what is known of a group",
    ("group_id",),
    (
        Column("group_id", "STRING", "as in `lag`"),
        Column("group_type", "STRING", "as in `members`"),
        Column("is_empty", "BOOLEAN", "the group has no members"),
        Column("commit_problem", "STRING", "why its commits are unknown; null: they are known"),
        Column("subscription_problem", "STRING", "why its subscription is unknown"),
        Column("owner_problem", "STRING", "why its owners are unknown"),
        Column("reset_policy", "STRING", "of the policy; null: not set"),
        Column("isolation_level", "STRING", "of the policy; null: not set"),
    ),
)


def describe_groups(
    commits: pa.Table, members: pa.Table, settings_of: Callable[[str], GroupSettings]
) -> pa.Table:
    """Return what is known of each group, by :data:`GROUPS` and ordered by id."""
    both = pa.chunked_array([*commits["group_id"].chunks, *members["group_id"].chunks], pa.string())
    groups: list[str] = sorted(pc.unique(both).to_pylist())
    group = codes(members["group_id"], groups)

    def first(values: Any, of_row: Int64s = group) -> pa.Array:
        """The first value of each group that is not null."""
        place = first_in_lists(is_valid(values), of_row, len(groups))
        return values.take(pa.array(place, mask=place < 0))

    state = first(members["group_state"])
    memberless = pa.array([each.value for each in MEMBERLESS_STATES])
    is_empty = flags(pc.is_in(state, value_set=memberless))
    has_member = np.bincount(group[is_valid(members["member_id"])], minlength=len(groups)) > 0
    kind = first(members["group_type"])
    # A group that is not described, or of a type whose members are not read.
    hidden = pc.if_else(
        pa.array(has_member | is_empty),
        pa.scalar(None, pa.string()),
        pc.coalesce(
            pc.binary_join_element_wise("the members of this ", kind, " group are not known", ""),
            "the group was not described",
        ),
    )
    settings = [settings_of(name) for name in groups]
    columns = {
        "group_id": pa.array(groups, pa.string()),
        "group_type": kind,
        "is_empty": pa.array(is_empty),
        "commit_problem": first(commits["error"], codes(commits["group_id"], groups)),
        "subscription_problem": pc.coalesce(first(_problems(members, "subscription")), hidden),
        "owner_problem": pc.coalesce(first(_problems(members, "assignment")), hidden),
        "reset_policy": [one.reset_policy and str(one.reset_policy) for one in settings],
        "isolation_level": [one.isolation_level and one.isolation_level.value for one in settings],
    }
    schema = arrow_schema(GROUPS)
    return pa.table({field.name: columns[field.name] for field in schema}).cast(schema)


def _problems(members: pa.Table, fact: str) -> pa.ChunkedArray:
    """Why the subscription or the assignment of each row is unknown; null where it is known."""
    is_missing = pc.and_(pc.is_valid(members["member_id"]), pc.is_null(members[fact]))
    unsaid = pc.binary_join_element_wise(
        "the group is ", pc.fill_null(members["group_state"], "in no state"), ""
    )
    why = pc.coalesce(members["error"], members[f"{fact}_error"])
    return pc.coalesce(why, pc.if_else(is_missing, unsaid, pa.scalar(None, pa.string())))


@dataclass(frozen=True, slots=True)
class JoinedPartitions:
    """The partitions of the groups of a snapshot, by :data:`GROUP_PARTITIONS` in order, and facts of groups.

    row: int64 [K]: the row of ``offsets`` of each.
    """

    partitions: pa.Table
    groups: pa.Table
    member_ids: pa.Array
    row: Int64s


@dataclass(frozen=True, slots=True)
class _Pairs:
    """K pairs of a group and a partition, ordered by group and row of ``offsets``."""

    topics: list[str]
    places: Int64s
    groups: list[str]
    keys: Int64s

    @property
    def size(self) -> int:
        return max(len(self.places), 1)

    def rows_of(self, topic: Any, partition: Any) -> Int64s:
        """Rows of ``offsets`` of partitions; -1 for one that does not exist."""
        return _find_rows(self.places, codes(topic, self.topics), integers(partition))

    def find(self, group: Int64s, row: Int64s) -> Int64s:
        """Indexes of pairs; -1 for one that does not count."""
        found = find_places(group * self.size + row, self.keys)
        return np.where((group >= 0) & (row >= 0), found, UNKNOWN)


def join_partitions(
    offsets: pa.Table,
    commits: pa.Table,
    members: pa.Table,
    settings_of: Callable[[str], GroupSettings],
    *,
    offset_history: pa.Table | None = None,
    commit_history: pa.Table | None = None,
) -> JoinedPartitions:
    """Join the partitions of each group with their offsets, commits, owners and history.

    ``spark_jobs.transforms.lag`` joins the rows of large snapshots. Of ``offsets`` the partitions of a topic
    are together and ascending; a commit of a partition that does not exist any more has no row.
    """
    facts = describe_groups(commits, members, settings_of)
    groups: list[str] = facts["group_id"].to_pylist()
    topics: list[str] = pc.unique(offsets["topic"]).to_pylist()
    places = (codes(offsets["topic"], topics) << 32) + integers(offsets["partition"])
    none = _Pairs(topics, places, groups, np.zeros(0, dtype=np.int64))
    good = commits.filter(pc.is_null(commits["error"]))
    row = none.rows_of(good["topic"], good["partition"])
    good, row = good.filter(pa.array(row >= 0)), row[row >= 0]
    commit_key = codes(good["group_id"], groups) * none.size + row
    subscribed = _subscribed(members, none)
    # The number of a member is its place.
    member_ids = pa.array(sorted(pc.unique(members["member_id"].drop_null()).to_pylist()), pa.string())
    number = codes(members["member_id"], member_ids.to_pylist())
    owned, targeted = (
        _owned(members, number, column, none) for column in ("assignment", "target_assignment")
    )
    keys = np.unique(np.concatenate([commit_key, subscribed, owned[0]]))
    pairs = _Pairs(topics, places, groups, keys)
    group, row = np.divmod(keys, none.size)
    taken = offsets.take(pa.array(row))
    commit_at = np.full(len(keys), UNKNOWN, dtype=np.int64)
    commit_at[find_places(commit_key, keys)] = np.arange(len(commit_key))
    mine = good.take(pa.array(commit_at, mask=commit_at < 0))
    columns: dict[str, Any] = {
        "group_id": facts["group_id"].take(pa.array(group)),
        **{name: taken[name] for name in ("topic_id", "topic", "partition", *FROM_OFFSETS)},
        "read_at": taken["end_read_at"],
        "offset_error": taken["error"],
        **{name: mine[name] for name in ("committed_offset", "leader_epoch", "reported_lag_records")},
        "commit_read_at": mine["read_at"],
        "is_subscribed": pa.array(np.isin(keys, subscribed)),
        **_owners(owned, keys),
        "target": _owners(targeted, keys)["owner"],
        "end_points": _end_points(pairs, row, offsets, offset_history),
        "commit_points": _commit_points(pairs, offsets, commit_history),
    }
    schema = arrow_schema(GROUP_PARTITIONS)
    table = pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)
    return JoinedPartitions(table, facts, member_ids, row)


def _find_rows(places: Int64s, topic: Int64s, partition: Int64s) -> Int64s:
    return np.where(topic >= 0, find_places((topic << 32) + partition, places), UNKNOWN)


def _subscribed(members: pa.Table, pairs: _Pairs) -> Int64s:
    """Keys of the partitions of the topics that live members subscribe to."""
    column = members["subscription"].combine_chunks()
    group = codes(members["group_id"], pairs.groups)[parents(column)]
    topic = codes(pc.list_flatten(column), pairs.topics)
    num_topics = max(len(pairs.topics), 1)
    both = np.unique((group * num_topics + topic)[topic >= 0])
    group, topic = both // num_topics, both % num_topics
    topic_of_row = pairs.places >> 32
    first = np.searchsorted(topic_of_row, topic, side="left")
    count = np.searchsorted(topic_of_row, topic, side="right") - first
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.asarray(np.repeat(group * pairs.size + first, count) + within, dtype=np.int64)


def _owned(members: pa.Table, number: Int64s, column: str, pairs: _Pairs) -> tuple[Int64s, Int64s]:
    """Key of each partition that a member has, and the number of the member."""
    assigned = flatten_assignments(members[column])
    topic = codes(assigned.topics, pairs.topics)[assigned.topic_at]
    row = _find_rows(pairs.places, topic, integers(assigned.partition))
    kept = (row >= 0) & (number[assigned.member] >= 0)
    group = codes(members["group_id"], pairs.groups)[assigned.member]
    return (group * pairs.size + row)[kept], number[assigned.member[kept]]


def _owners(owned: tuple[Int64s, Int64s], keys: Int64s) -> dict[str, Any]:
    """Count of different owners of each pair, and their smallest and largest number."""
    size = int(owned[1].max(initial=0)) + 1
    pair = find_places(owned[0], keys)
    each = np.unique((pair * size + owned[1])[pair >= 0])
    pair, number = each // size, each % size
    smallest, largest = (np.full(len(keys), UNKNOWN, dtype=np.int64) for _ in range(2))
    # Of several assignments to one place, numpy keeps the last one.
    smallest[pair[::-1]], largest[pair] = number[::-1], number
    return {
        "owner": pa.array(smallest, mask=smallest < 0),
        "last_owner": pa.array(largest, mask=largest < 0),
        "num_owners": pa.array(np.bincount(pair, minlength=len(keys)).astype(np.int64)),
    }


def _end_points(pairs: _Pairs, row: Int64s, offsets: pa.Table, history: pa.Table | None) -> pa.Array:
    """Earlier high watermarks of each pair's partition."""
    if history is None:
        return pa.nulls(len(row), arrow_schema(GROUP_PARTITIONS).field("end_points").type)
    history, place = _same_topics(pairs, offsets, history)
    return _points(place, len(pairs.places), history["end_read_at"], history["high_watermark"]).take(
        pa.array(row)
    )


def _commit_points(pairs: _Pairs, offsets: pa.Table, history: pa.Table | None) -> pa.Array:
    """Earlier committed offsets of each pair."""
    if history is None:
        return pa.nulls(len(pairs.keys), arrow_schema(GROUP_PARTITIONS).field("commit_points").type)
    history, row = _same_topics(pairs, offsets, history)
    place = pairs.find(codes(history["group_id"], pairs.groups), row)
    return _points(place, len(pairs.keys), history["read_at"], history["committed_offset"])


def _same_topics(pairs: _Pairs, offsets: pa.Table, history: pa.Table) -> tuple[pa.Table, Int64s]:
    """Rows of the history without those that could not be read; of each, the row of ``offsets`` or -1."""
    history = history.filter(pc.is_null(history["error"]))
    row = pairs.rows_of(history["topic"], history["partition"])
    # A topic that was deleted and created again begins a new history.
    now = offsets["topic_id"].take(pa.array(row, mask=row < 0))
    return history, np.where(flags(pc.equal(now, history["topic_id"])), row, UNKNOWN)


def _points(place: Int64s, num_places: int, at: pa.ChunkedArray, offset: pa.ChunkedArray) -> Any:
    """Points as a list for each place, oldest first; those at the place -1 are left out."""
    moments, offsets = at.cast(pa.timestamp("us", "UTC")), offset.cast(pa.int64())
    order = np.lexsort((integers(offsets), integers(pc.cast(moments, pa.int64())), place))
    order = order[np.searchsorted(place[order], 0) :]
    chosen = pa.array(order)
    values = [column.take(chosen).combine_chunks() for column in (moments, offsets)]
    points = pa.StructArray.from_arrays(values, names=["at", "offset"])
    return as_lists(points, np.bincount(place[order], minlength=num_places))
