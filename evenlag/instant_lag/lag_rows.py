"""Rows of ``lag`` from the rows that one snapshot of a cluster returns, counted in arrays.

Rates need earlier snapshots, so they are null here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.enums import IsolationLevel, reset_age_ms
from evenlag.lake.arrow_schema import arrow_type
from evenlag.lake.tables import LAG
from evenlag.planning.group_partitions import join_partitions
from evenlag.planning.lag_formula import count_lag, find_status
from evenlag.planning.offset_rows import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from evenlag.planning.offset_rows import OffsetRows
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
    end, lag = _count(pairs.group, row, committed, known, offsets, settings)
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
    taken = offsets.take(pa.array(row))
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
