"""Compute the lag of an attempt at a snapshot into the table ``lag``, before the snapshot's marker."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS, SNAPSHOTS, Table
from spark_jobs.runtime.cached_frames import CachedFrames
from spark_jobs.runtime.session import is_large_snapshot, sized_session
from spark_jobs.steps.snapshot_rows import MAX_DRIVER_ROWS, SnapshotRows, to_contract
from spark_jobs.transforms.group_partitions import build_commit_history, build_offset_history
from spark_jobs.transforms.lag import build_lag
from spark_jobs.transforms.lag_here import count_lag_here
from spark_jobs.transforms.partitions_here import join_here

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from evenlag.lake.file_pruning import Filter
    from evenlag.policy.settings import Policy

_ROWS_PER_FILE: Final = 1_000_000
# Up to so many rows of lag this process counts them itself.
_MAX_ROWS_HERE: Final = 5_000
# Columns that the history needs, of few rows; Spark reads many rows from the table.
_HISTORY_COLUMNS: Final = {
    OFFSETS.name: ("topic_id", "topic", "partition", "high_watermark", "end_read_at", "error"),
    COMMITS.name: (
        "group_id",
        "topic_id",
        "topic",
        "partition",
        "committed_offset",
        "read_at",
        "error",
    ),
}


def compute_lag(rows: SnapshotRows, policy: Policy) -> None:
    """Compute and write the lag of a snapshot.

    The lag of a small snapshot is kept in memory for the following steps.

    Parameters
    ----------
    rows
        The attempt: its rows are in memory, or written already.
    policy
        The groups' reset policies and isolation levels, and the windows.

    Raises
    ------
    LakeError
        When the table cannot be written.
    """
    lake, marker = rows.lake, rows.marker
    settings = policy.clusters[rows.cluster]
    history = _earlier_snapshots(rows, settings.history_window_s)
    num_lag_rows = count_lag_rows(rows) if rows.is_kept(OFFSETS, COMMITS, MEMBERS) else None
    if num_lag_rows is not None and num_lag_rows <= _MAX_ROWS_HERE:
        counted = _count_here(rows, policy, history)
        if counted is not None:
            _write_kept(rows, counted)
            return
    lag = build_lag(
        offsets=rows.frame(OFFSETS),
        commits=rows.frame(COMMITS),
        members=rows.frame(MEMBERS),
        marker=marker,
        group_settings=_group_settings(rows, policy),
        offset_history=build_offset_history(_history(rows, OFFSETS, history)),
        commit_history=build_commit_history(_history(rows, COMMITS, history)),
        rate_window_s=settings.rate_window_s,
    )
    if num_lag_rows is not None and num_lag_rows <= MAX_DRIVER_ROWS:
        _write_kept(rows, to_contract(lag.toArrow(), LAG))
        return
    # Upper bound: every group consumes every partition. Where that may be large, count the commits.
    most_rows = marker["num_groups"] * marker["num_partitions"]
    num_rows = most_rows
    if is_large_snapshot(most_rows):
        num_rows = rows.reader.count(COMMITS, filters=rows.filters)
    with CachedFrames() as cached, sized_session(lake.spark, num_rows):
        files = 1
        if most_rows > _ROWS_PER_FILE:
            from pyspark import StorageLevel

            # Computed before the write, to count the rows; on disk, because a local master uses the driver's
            # memory.
            lag = cached.cache(lag, StorageLevel.DISK_ONLY)
            files = -(-lag.count() // _ROWS_PER_FILE) or 1
        lake.append(LAG, lag, files=files, sort_by=("group_id",))


def _write_kept(rows: SnapshotRows, lag: pa.Table) -> None:
    rows.lake.append(LAG, lag, sort_by=("group_id",))
    rows.keep(LAG, lag)


def _count_here(rows: SnapshotRows, policy: Policy, history: list[dict[str, Any]]) -> pa.Table | None:
    """The lag of a snapshot, counted in this process; None where its history has too many rows."""
    offset_history, commit_history = (_earlier_rows(rows, table, history) for table in (OFFSETS, COMMITS))
    if offset_history is None or commit_history is None:
        return None
    joined = join_here(
        offsets=rows.rows(OFFSETS),
        commits=rows.rows(COMMITS),
        members=rows.rows(MEMBERS),
        marker=rows.marker,
        settings_of=lambda group_id: policy.group_settings(rows.cluster, group_id),
        offset_history=offset_history,
        commit_history=commit_history,
    )
    return count_lag_here(joined, policy.clusters[rows.cluster].rate_window_s)


def count_lag_rows(rows: SnapshotRows) -> int:
    """Return an upper bound of a snapshot's rows of ``lag``, from rows in memory.

    Parameters
    ----------
    rows
        A snapshot whose offsets, commits and members are in memory.

    Returns
    -------
    int
        Partitions that a group subscribes to, plus commits.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets, members = rows.rows(OFFSETS), rows.rows(MEMBERS)
    topics = offsets.group_by("topic").aggregate([("partition", "count")])
    listed = members["subscription"].combine_chunks()
    subscribed = pa.table(
        {
            "group_id": members["group_id"].take(pc.list_parent_indices(listed)),
            "topic": pc.list_flatten(listed),
        }
    )
    pairs = subscribed.group_by(["group_id", "topic"]).aggregate([])
    sizes = pairs.join(topics, keys="topic", join_type="inner")["partition_count"]
    num_subscribed: int = pc.sum(sizes).as_py() or 0
    num_commits: int = rows.rows(COMMITS).num_rows
    return num_subscribed + num_commits


def _earlier_snapshots(rows: SnapshotRows, window_s: int) -> list[dict[str, Any]]:
    """Day and id of the finished snapshots in the window before this one: at most a few hundred."""
    before = rows.marker["end_read_at"]
    since = before - timedelta(seconds=window_s)
    filters: list[Filter] = [
        ("cluster", "=", rows.cluster),
        # A day more: a snapshot is stored under the day of its slot, which is before its reads.
        ("day", ">=", (since - timedelta(days=1)).date()),
        ("end_read_at", "<", before),
        ("end_read_at", ">=", since),
    ]
    found: list[dict[str, Any]] = rows.reader.read(
        SNAPSHOTS, columns=["day", "snapshot_id"], filters=filters
    ).to_pylist()
    return found


def _history(rows: SnapshotRows, table: Table, snapshots: list[dict[str, Any]]) -> DataFrame:
    """Rows of these snapshots only: rows of unfinished snapshots are not history."""
    from pyspark.sql import functions as sf

    if (earlier := _earlier_rows(rows, table, snapshots)) is not None:
        return rows.lake.spark.createDataFrame(earlier, _ddl(table, _HISTORY_COLUMNS[table.name]))
    # Ids as literals let Delta skip files; a join would not.
    return rows.lake.read(table).where(
        (sf.col("cluster") == rows.cluster)
        & sf.col("day").isin({row["day"] for row in snapshots} or {None})
        & sf.col("snapshot_id").isin([row["snapshot_id"] for row in snapshots])
    )


def _earlier_rows(rows: SnapshotRows, table: Table, snapshots: list[dict[str, Any]]) -> pa.Table | None:
    """The same rows in memory; None where they are too many."""
    if not rows.is_kept(table) or len(snapshots) * rows.rows(table).num_rows > MAX_DRIVER_ROWS:
        return None
    filters: list[Filter] = [
        ("cluster", "=", rows.cluster),
        ("day", "in", {row["day"] for row in snapshots}),
        ("snapshot_id", "in", [row["snapshot_id"] for row in snapshots]),
    ]
    return rows.reader.read(table, columns=_HISTORY_COLUMNS[table.name], filters=filters)


def _ddl(table: Table, columns: tuple[str, ...]) -> str:
    types = {column.name: column.type for column in table.columns}
    return ", ".join(f"{name} {types[name]}" for name in columns)


def _group_settings(rows: SnapshotRows, policy: Policy) -> DataFrame:
    """The policy's settings for the consumers of each group."""
    import pyarrow as pa

    group_ids = rows.rows(MEMBERS, ["group_id"])["group_id"].unique().to_pylist()
    settings = [policy.group_settings(rows.cluster, group_id) for group_id in group_ids]
    table = pa.table(
        {
            "group_id": pa.array(group_ids, pa.string()),
            "reset_policy": pa.array(
                [one.reset_policy and str(one.reset_policy) for one in settings], pa.string()
            ),
            "isolation_level": pa.array(
                [one.isolation_level and one.isolation_level.value for one in settings], pa.string()
            ),
        }
    )
    ddl = "group_id STRING, reset_policy STRING, isolation_level STRING"
    return rows.lake.spark.createDataFrame(table, ddl)
