"""The partitions that count for each group of a snapshot, joined from its three tables in arrays.

The rules are those of ``spark_jobs.transforms.lag``, which joins the rows of a large snapshot in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evenlag.enums import MEMBERLESS_STATES, GroupType
from evenlag.planning.offset_rows import UNKNOWN, OffsetRows, codes, index_offsets, integers

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class GroupPartitions:
    """K pairs of a group and a partition, ordered by group, topic and partition.

    A group has each partition that a live member subscribes to or that it has a commit for.

    Attributes
    ----------
    known
        The partitions of the snapshot.
    groups
        Ids of all groups, in order.
    group, row
        int64 [K]: index of the group, and of the partition among the rows of ``offsets``.
    committed
        int64 [K]: committed offset; -1: none.
    is_subscribed
        bool [K]: whether a live member subscribes to the topic.
    is_unreadable
        bool [K]: whether the group, its members' subscriptions or its commits could not be read.
    is_empty
        bool [K]: whether the group has no members.
    is_not_described
        bool [K]: whether the group is of a newer type and does not report its members.
    owner, target
        string [K]: member that owns the partition, and that is to own it; null: none. Of two the smaller id.
    """

    known: OffsetRows
    groups: list[str]
    group: NDArray[np.int64]
    row: NDArray[np.int64]
    committed: NDArray[np.int64]
    is_subscribed: NDArray[np.bool_]
    is_unreadable: NDArray[np.bool_]
    is_empty: NDArray[np.bool_]
    is_not_described: NDArray[np.bool_]
    owner: pa.Array
    target: pa.Array

    @property
    def keys(self) -> NDArray[np.int64]:
        """int64 [K], ascending: the pairs as :meth:`keys_of` makes them."""
        return self.keys_of(self.group, self.row)

    def keys_of(self, group: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return pairs of a group and a row of ``offsets`` as one number each.

        Parameters
        ----------
        group, row
            int64 [N]: their indexes.
        """
        return group * max(len(self.known.keys), 1) + row


@dataclass(frozen=True, slots=True)
class _States:
    """State of each group: bool [G]."""

    is_empty: NDArray[np.bool_]
    is_unreadable: NDArray[np.bool_]
    is_not_described: NDArray[np.bool_]


def join_partitions(offsets: pa.Table, commits: pa.Table, members: pa.Table) -> GroupPartitions:
    """Find the partitions of each group, with its commits and owners.

    Parameters
    ----------
    offsets, commits, members
        Rows of one snapshot, as :class:`~evenlag.kafka.cluster_reader.ClusterReader` returns them: the
        partitions of a topic together and ascending.

    Returns
    -------
    GroupPartitions
        The pairs. A commit of a partition that does not exist any more has none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    both = pa.chunked_array([*commits["group_id"].chunks, *members["group_id"].chunks], pa.string())
    groups: list[str] = sorted(pc.unique(both).to_pylist())
    known = index_offsets(offsets)
    size = max(len(known.keys), 1)
    member_group = codes(members["group_id"], groups)
    states = _states_of(commits, members, member_group, groups)

    good = commits.filter(pc.is_null(commits["error"]))
    row = known.find(codes(good["topic"], known.topics), integers(good["partition"]))
    commit_key = (codes(good["group_id"], groups) * size + row)[row >= 0]
    committed = integers(good["committed_offset"])[row >= 0]
    subscribed_key = _subscribed(members, member_group, known, size)
    key = np.union1d(commit_key, subscribed_key)
    group = key // size
    return GroupPartitions(
        known=known,
        groups=groups,
        group=group,
        row=key % size,
        committed=_placed(key, commit_key, committed),
        is_subscribed=np.isin(key, subscribed_key),
        is_unreadable=states.is_unreadable[group],
        is_empty=states.is_empty[group],
        is_not_described=states.is_not_described[group],
        owner=_owners(members, "assignment", member_group, known, size, key),
        target=_owners(members, "target_assignment", member_group, known, size, key),
    )


def _states_of(
    commits: pa.Table, members: pa.Table, member_group: NDArray[np.int64], groups: list[str]
) -> _States:
    import pyarrow as pa
    import pyarrow.compute as pc

    def of_any(rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.bincount(member_group[rows], minlength=len(groups)) > 0

    def holds(mask: pa.ChunkedArray) -> NDArray[np.bool_]:
        return np.asarray(pc.fill_null(mask, False).to_numpy(), dtype=np.bool_)

    is_member = holds(pc.is_valid(members["member_id"]))
    memberless = pa.array([state.value for state in MEMBERLESS_STATES])
    is_empty_row = holds(pc.is_in(members["group_state"], value_set=memberless))
    is_state_known = holds(pc.is_valid(members["group_state"]))
    is_classic = holds(pc.equal(members["group_type"], GroupType.CLASSIC.value))
    # While a classic group rebalances, the coordinator reports its members without metadata.
    is_hidden = is_member & ~holds(pc.is_valid(members["subscription"]))
    failed = np.unique(codes(commits.filter(pc.is_valid(commits["error"]))["group_id"], groups))
    is_read = np.bincount(member_group, minlength=len(groups)) > 0
    is_unreadable = ~is_read | of_any(holds(pc.is_valid(members["error"]))) | of_any(is_hidden)
    is_unreadable[failed] = True
    return _States(
        is_empty=of_any(is_empty_row) & ~of_any(~is_empty_row & is_state_known),
        is_unreadable=is_unreadable,
        # A group of a newer type that does not report its members: its commits are all there is.
        is_not_described=is_read & ~of_any(is_member | is_classic),
    )


def _subscribed(
    members: pa.Table, member_group: NDArray[np.int64], known: OffsetRows, size: int
) -> NDArray[np.int64]:
    """Keys (group, row of offsets) of the partitions of the topics that live members subscribe to."""
    import pyarrow.compute as pc

    column = members["subscription"].combine_chunks()
    owner = np.asarray(pc.list_parent_indices(column).to_numpy(), dtype=np.int64)
    topic = codes(pc.list_flatten(members["subscription"]), known.topics)
    num_topics = max(len(known.topics), 1)
    pairs = np.unique((member_group[owner] * num_topics + topic)[topic >= 0])
    group, topic = pairs // num_topics, pairs % num_topics
    topic_of_row = known.keys >> 32
    first = np.searchsorted(topic_of_row, topic, side="left")
    count = np.searchsorted(topic_of_row, topic, side="right") - first
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.asarray(np.repeat(group * size + first, count) + within, dtype=np.int64)


def _placed(
    key: NDArray[np.int64], known_key: NDArray[np.int64], values: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Values of the known keys at their places among all keys; -1 elsewhere."""
    placed = np.full(len(key), UNKNOWN, dtype=np.int64)
    placed[np.searchsorted(key, known_key)] = values
    return placed


def _owners(
    members: pa.Table,
    column: str,
    member_group: NDArray[np.int64],
    known: OffsetRows,
    size: int,
    key: NDArray[np.int64],
) -> pa.Array:
    """Owner of each row; of two owners the one with the smaller id, as in the lake."""
    import pyarrow as pa
    import pyarrow.compute as pc

    listed = members[column].combine_chunks()
    topics = pc.list_flatten(listed)
    partitions = pc.struct_field(topics, "partitions")
    topic_at = np.asarray(pc.list_parent_indices(partitions).to_numpy(), dtype=np.int64)
    member = np.asarray(pc.list_parent_indices(listed).to_numpy(), dtype=np.int64)[topic_at]
    topic = codes(pa.chunked_array([pc.struct_field(topics, "topic")]), known.topics)[topic_at]
    row = known.find(topic, np.asarray(pc.list_flatten(partitions).to_numpy(), dtype=np.int64))
    owned = member_group[member] * size + row
    names: list[str] = sorted(
        name for name in pc.unique(members["member_id"]).to_pylist() if name is not None
    )
    code = codes(members["member_id"], names)[member]
    found = np.searchsorted(key, owned).clip(max=max(len(key) - 1, 0))
    is_row = (row >= 0) & (code >= 0) & (key[found] == owned if len(key) else False)
    owner = np.full(len(key), len(names), dtype=np.int64)
    np.minimum.at(owner, found[is_row], code[is_row])
    return pa.array(names, pa.string()).take(pa.array(owner, mask=owner == len(names)))
