"""The partitions that count for each group of a small snapshot, joined in this process.

A query of several joins costs a cold JVM three seconds of processor time, whatever the number of rows. The
rows are those of :func:`spark_jobs.transforms.group_partitions.join_partitions`, and Spark counts the lag of
both by the same formula.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.planning.group_partitions import join_partitions
from evenlag.planning.offset_rows import UNKNOWN, codes, integers
from spark_jobs.transforms.group_partitions import FROM_OFFSETS, GROUP_PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from evenlag.planning.group_partitions import GroupPartitions
    from evenlag.policy.group_settings import GroupSettings


def join_here(
    *,
    offsets: pa.Table,
    commits: pa.Table,
    members: pa.Table,
    marker: Mapping[str, Any],
    settings_of: Callable[[str], GroupSettings],
    offset_history: pa.Table,
    commit_history: pa.Table,
) -> pa.Table:
    """Join the partitions of each group with its commits, owners, settings and history.

    Parameters
    ----------
    offsets, commits, members
        The snapshot's rows of these tables.
    marker
        Its row of ``snapshots``.
    settings_of
        Returns the settings of a group; its reset policy and isolation level are used.
    offset_history, commit_history
        Rows of ``offsets`` and of ``commits`` from earlier snapshots, within the history window.

    Returns
    -------
    pyarrow.Table
        By :data:`~spark_jobs.transforms.group_partitions.GROUP_PARTITIONS`, ordered by group, topic and
        partition.
    """
    import pyarrow as pa

    offsets = offsets.sort_by([("topic", "ascending"), ("partition", "ascending")])
    pairs = join_partitions(offsets, commits, members)
    taken = offsets.take(pa.array(pairs.row))
    settings = [settings_of(name) for name in pairs.groups]
    group = pa.array(pairs.group)

    def of_groups(values: list[str | None]) -> pa.Array:
        return pa.array(values, pa.string()).take(group)

    columns: dict[str, Any] = {
        name: taken[name] for name in ("cluster", "day", "snapshot_id", "topic_id", "topic", "partition")
    }
    columns |= {name: taken[name] for name in FROM_OFFSETS}
    columns |= {
        "group_id": of_groups([*pairs.groups]),
        "owner_member_id": pairs.owner,
        "target_member_id": pairs.target,
        "read_at": taken["end_read_at"],
        "offset_error": taken["error"],
        "committed_offset": pa.array(pairs.committed, mask=pairs.committed < 0),
        "is_subscribed": pa.array(pairs.is_subscribed),
        "is_unreadable": pa.array(pairs.is_unreadable),
        "is_empty": pa.array(pairs.is_empty),
        "is_not_described": pa.array(pairs.is_not_described),
        "reset_policy": of_groups([one.reset_policy and str(one.reset_policy) for one in settings]),
        "isolation_level": of_groups([one.isolation_level and one.isolation_level.value for one in settings]),
        "end_points": _end_points(pairs, offsets, offset_history),
        "commit_points": _commit_points(pairs, offsets, commit_history),
    }
    schema = arrow_schema(GROUP_PARTITIONS)
    for name in ("slot", "commits_read_at"):
        columns[name] = pa.repeat(pa.scalar(marker[name], schema.field(name).type), len(group))
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


def _end_points(pairs: GroupPartitions, offsets: pa.Table, history: pa.Table) -> pa.Array:
    """Earlier high watermarks of each pair's partition."""
    import pyarrow as pa

    history, row = _of_partitions(pairs, offsets, history)
    return _points(row, len(pairs.known.keys), history["end_read_at"], history["high_watermark"]).take(
        pa.array(pairs.row)
    )


def _commit_points(pairs: GroupPartitions, offsets: pa.Table, history: pa.Table) -> pa.Array:
    """Earlier committed offsets of each pair."""
    history, row = _of_partitions(pairs, offsets, history)
    group = codes(history["group_id"], pairs.groups)
    keys, wanted = pairs.keys, pairs.keys_of(group, row)
    place = np.searchsorted(keys, wanted).clip(max=max(len(keys) - 1, 0))
    is_pair = (group >= 0) & (row >= 0) & (keys[place] == wanted if len(keys) else False)
    place = np.where(is_pair, place, UNKNOWN)
    return _points(place, len(keys), history["read_at"], history["committed_offset"])


def _of_partitions(
    pairs: GroupPartitions, offsets: pa.Table, history: pa.Table
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Rows of the history without those that could not be read; of each, the row of ``offsets`` or -1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    history = history.filter(pc.is_null(history["error"]))
    row = pairs.known.find(codes(history["topic"], pairs.known.topics), integers(history["partition"]))
    # A topic that was deleted and created again begins a new history.
    now = offsets["topic_id"].take(pa.array(row, mask=row < 0))
    is_same = pc.fill_null(pc.equal(now, history["topic_id"]), False).to_numpy()
    return history, np.where(is_same, row, UNKNOWN)


def _points(place: NDArray[np.int64], num_places: int, at: pa.ChunkedArray, offset: pa.ChunkedArray) -> Any:
    """Points as a list for each place, oldest first; those at the place -1 are left out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    moments, offsets = at.cast(pa.timestamp("us", "UTC")), offset.cast(pa.int64())
    order = np.lexsort((integers(offsets), integers(pc.cast(moments, pa.int64())), place))
    order = order[np.searchsorted(place[order], 0) :]
    counts = np.bincount(place[order], minlength=num_places)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    chosen = pa.array(order)
    values = [column.take(chosen).combine_chunks() for column in (moments, offsets)]
    points = pa.StructArray.from_arrays(values, names=["at", "offset"])
    return pa.ListArray.from_arrays(pa.array(starts), points)
