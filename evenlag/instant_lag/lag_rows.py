"""Rows of ``lag`` from the rows that one snapshot of a cluster returns, counted in arrays.

The rules are those of ``spark_jobs.transforms.lag``, which counts the lag of a lake in Spark;
``tests/support/lag_rules.py`` has the cases that both must pass. Rates need earlier snapshots, so they are
null here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.enums import MEMBERLESS_STATES, GroupType, IsolationLevel, LagStatus, reset_age_ms
from evenlag.instant_lag.offset_rows import UNKNOWN, OffsetRows, codes, index_offsets, integers
from evenlag.lake.arrow_schema import arrow_type
from evenlag.lake.tables import LAG
from evenlag.publishing.live_lag import count_lag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from evenlag.policy.group_settings import GroupSettings

# Columns that identify a stored snapshot: a snapshot is not stored.
_STORED_ONLY: Final = frozenset({"cluster", "day", "snapshot_id", "slot"})
# In the order in which they apply: what invalidates a value comes before what explains it.
_STATUSES: Final = (
    LagStatus.UNKNOWN,
    LagStatus.NO_MEMBERS,
    LagStatus.NOT_SUBSCRIBED,
    LagStatus.NO_COMMIT,
    LagStatus.DATA_LOSS,
    LagStatus.NEGATIVE,
    LagStatus.OK,
)


@dataclass(frozen=True, slots=True)
class LagRows:
    """Lag of groups at one moment.

    Attributes
    ----------
    table
        The columns of ``lag`` without those of a stored snapshot, ordered by group, topic and partition.
        Rates are null.
    partition
        int64 [rows]: index of the row's partition among the rows of ``offsets``.
    """

    table: pa.Table
    partition: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _States:
    """State of each group: bool [G]."""

    is_empty: NDArray[np.bool_]
    is_unreadable: NDArray[np.bool_]
    is_not_described: NDArray[np.bool_]


def build_lag_rows(
    offsets: pa.Table, commits: pa.Table, members: pa.Table, settings_of: Callable[[str], GroupSettings]
) -> LagRows:
    """Count the lag of each group on each partition.

    Parameters
    ----------
    offsets, commits, members
        Rows of one snapshot, as :class:`~evenlag.kafka.cluster_reader.ClusterReader` returns them.
    settings_of
        Returns the settings of a group; its reset policy and isolation level are used.

    Returns
    -------
    LagRows
        A row for each partition that a live member subscribes to or that the group has a commit for.
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
    group, row = key // size, key % size

    committed_at = _placed(key, commit_key, committed)
    is_unknown = known.failed[row] | states.is_unreadable[group]
    end, lag = _count(group, row, committed_at, known, offsets, [settings_of(name) for name in groups])
    status = _status(
        is_unknown,
        states.is_empty[group],
        ~np.isin(key, subscribed_key) & ~states.is_not_described[group],
        committed_at,
        known.start[row],
        end,
    )
    lag = np.where(is_unknown, UNKNOWN, lag)
    taken = offsets.take(pa.array(row))
    columns: dict[str, Any] = {
        "group_id": pa.array(groups, pa.string()).take(pa.array(group)),
        **{name: taken[name] for name in ("topic_id", "topic", "partition", "log_start_offset")},
        "owner_member_id": _owners(members, "assignment", member_group, known, size, key),
        "target_member_id": _owners(members, "target_assignment", member_group, known, size, key),
        "status": pa.array([each.value for each in _STATUSES], pa.string()).take(pa.array(status)),
        "lag_records": pa.array(lag, mask=lag < 0),
        "raw_lag_records": pa.array(end - committed_at, mask=is_unknown | (committed_at < 0)),
        "committed_offset": pa.array(committed_at, mask=committed_at < 0),
        "end_offset": pa.array(end, mask=end < 0),
        "read_at": taken["end_read_at"],
    }
    return LagRows(as_lag_table(columns, len(key)), row)


def as_lag_table(columns: Mapping[str, Any], num_rows: int) -> pa.Table:
    """Return a table by the contract of ``lag``, without the columns of a stored snapshot.

    Parameters
    ----------
    columns
        Arrow arrays by column; a missing column is null.
    num_rows
        Number of rows.

    Returns
    -------
    pyarrow.Table
        The columns in the contract's order and types.
    """
    import pyarrow as pa

    arrays, names = [], []
    for column in LAG.columns:
        if column.name in _STORED_ONLY:
            continue
        wanted = arrow_type(column.type)
        given = columns.get(column.name)
        arrays.append(pa.nulls(num_rows, wanted) if given is None else given.cast(wanted))
        names.append(column.name)
    return pa.Table.from_arrays(arrays, names=names)


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


def _count(
    group: NDArray[np.int64],
    row: NDArray[np.int64],
    committed: NDArray[np.int64],
    known: OffsetRows,
    offsets: pa.Table,
    settings: list[GroupSettings],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """End offset and lag of each row; groups with equal client settings are counted together."""
    kinds = [(each.isolation_level, each.reset_policy) for each in settings]
    distinct = list(dict.fromkeys(kinds))
    kind = np.array([distinct.index(each) for each in kinds], dtype=np.int64)[group]
    end = np.full(len(row), UNKNOWN, dtype=np.int64)
    lag = np.full(len(row), UNKNOWN, dtype=np.int64)
    for number, (isolation, reset_policy) in enumerate(distinct):
        rows = np.flatnonzero(kind == number)
        ends = known.last_stable if isolation == IsolationLevel.READ_COMMITTED else known.high_watermark
        at = row[rows]
        end[rows] = ends[at]
        reset = _reset_offsets(offsets, reset_policy)
        lag[rows] = count_lag(
            committed[rows], known.start[at], end[rows], reset_policy, None if reset is None else reset[at]
        )
    return end, lag


def _reset_offsets(offsets: pa.Table, reset_policy: str | None) -> NDArray[np.int64] | None:
    """Where consumers start that reset by a duration; None for another reset policy."""
    if reset_age_ms(reset_policy) is None:
        return None
    found = np.full(offsets.num_rows, UNKNOWN, dtype=np.int64)
    for row, listed in enumerate(offsets["reset_offsets"].to_pylist()):
        for one in listed or ():
            if one["reset_policy"] == reset_policy and one["offset"] is not None:
                found[row] = one["offset"]
    return found


def _status(
    is_unknown: NDArray[np.bool_],
    is_empty: NDArray[np.bool_],
    is_not_subscribed: NDArray[np.bool_],
    committed: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Index of the first status that applies among all statuses."""
    conditions = (
        is_unknown,
        is_empty,
        is_not_subscribed,
        committed < 0,
        committed < start,
        committed > end,
        np.ones(len(end), dtype=np.bool_),
    )
    return np.asarray(np.argmax(np.vstack(conditions), axis=0), dtype=np.int64)


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
