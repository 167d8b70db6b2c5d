"""Rows of ``lag`` from the rows that one snapshot of a cluster returns, counted in arrays.

Rates need earlier snapshots, so they are null here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.enums import IsolationLevel
from evenlag.lake.arrow_schema import arrow_type
from evenlag.lake.tables import LAG
from evenlag.planning.group_partitions import join_partitions
from evenlag.planning.lag_formula import count_lag_by_policy, find_status
from evenlag.planning.offset_rows import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from evenlag.policy.group_settings import GroupSettings

# Columns that identify a stored snapshot: a snapshot is not stored.
_STORED_ONLY: Final = frozenset({"cluster", "day", "snapshot_id", "slot"})


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

    pairs = join_partitions(offsets, commits, members)
    known, row, committed = pairs.known, pairs.row, pairs.committed
    settings = [settings_of(name) for name in pairs.groups]
    is_stable = np.array([one.isolation_level == IsolationLevel.READ_COMMITTED for one in settings], np.bool_)
    end = np.where(is_stable[pairs.group], known.last_stable[row], known.high_watermark[row])
    taken = offsets.take(pa.array(row))
    policies = pa.array([one.reset_policy for one in settings], pa.string()).take(pa.array(pairs.group))
    lag = count_lag_by_policy(
        committed, known.start[row], end, policies, taken["reset_offsets"].combine_chunks()
    )
    is_unknown = known.failed[row] | pairs.is_unreadable | (known.start[row] < 0) | (end < 0)
    status = find_status(
        committed,
        known.start[row],
        end,
        is_unknown=is_unknown,
        is_empty=pairs.is_empty,
        is_not_subscribed=~pairs.is_subscribed & ~pairs.is_not_described,
    )
    lag = np.where(is_unknown, UNKNOWN, lag)
    columns: dict[str, Any] = {
        "group_id": pa.array(pairs.groups, pa.string()).take(pa.array(pairs.group)),
        **{name: taken[name] for name in ("topic_id", "topic", "partition", "log_start_offset")},
        "owner_member_id": pairs.owner,
        "target_member_id": pairs.target,
        "status": status,
        "lag_records": pa.array(lag, mask=lag < 0),
        "raw_lag_records": pa.array(end - committed, mask=is_unknown | (committed < 0)),
        "committed_offset": pa.array(committed, mask=committed < 0),
        "end_offset": pa.array(end, mask=end < 0),
        "read_at": taken["end_read_at"],
    }
    return LagRows(as_lag_table(columns, len(row)), row)


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
