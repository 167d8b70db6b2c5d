"""Compute the lag of a finished snapshot into the table ``lag``. Idempotent: a repeat writes no row twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS, SNAPSHOTS, Table
from spark_jobs.runtime.cached_frames import CachedFrames
from spark_jobs.runtime.session import is_large_snapshot, sized_session
from spark_jobs.transforms.lag import build_commit_history, build_lag, build_offset_history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from evenlag.policy.settings import Policy
    from spark_jobs.runtime.delta_lake import Lake

_ROWS_PER_FILE = 1_000_000


def compute_lag(lake: Lake, policy: Policy, cluster: str, snapshot_id: str) -> None:
    """Compute and write the lag of a snapshot.

    Parameters
    ----------
    lake
        The tables.
    policy
        The groups' reset policies and isolation levels, and the windows.
    cluster, snapshot_id
        The finished snapshot.

    Raises
    ------
    LakeError
        When the table cannot be written.
    """
    with CachedFrames() as cached:
        _compute_lag(lake, policy, cluster, snapshot_id, cached)


def _compute_lag(lake: Lake, policy: Policy, cluster: str, snapshot_id: str, cached: CachedFrames) -> None:
    from pyspark import StorageLevel
    from pyspark.sql import functions as sf

    settings = policy.clusters[cluster]
    marker = cached.cache(lake.read_snapshot(SNAPSHOTS, cluster, snapshot_id))
    members = cached.cache(lake.read_snapshot(MEMBERS, cluster, snapshot_id))
    counts = ("num_groups", "num_partitions")
    seen = marker.select(*counts, sf.unix_micros("end_read_at").alias("end_read_at_us")).take(1)[0]
    history = _earlier_snapshots(lake, cluster, seen.end_read_at_us, settings.history_window_s)
    # Upper bound: every group consumes every partition. Where that may be large, count the commits.
    most_rows = seen.num_groups * seen.num_partitions
    offsets = lake.read_snapshot(OFFSETS, cluster, snapshot_id)
    commits = lake.read_snapshot(COMMITS, cluster, snapshot_id)
    if is_large_snapshot(most_rows):
        num_rows = commits.count()
    else:
        num_rows = most_rows
        # Few rows that are used several times: each query of a Delta table costs more than the rows.
        offsets, commits = cached.cache(offsets), cached.cache(commits)
    lag = build_lag(
        offsets=offsets,
        commits=commits,
        members=members,
        snapshot=marker,
        group_settings=_group_settings(lake, policy, cluster, members),
        offset_history=build_offset_history(_rows_of(lake, OFFSETS, cluster, history)),
        commit_history=build_commit_history(_rows_of(lake, COMMITS, cluster, history)),
        rate_window_s=settings.rate_window_s,
    )
    is_counted = most_rows > _ROWS_PER_FILE
    if is_counted:
        # Computed before the write, to count the rows; on disk, because a local master uses the driver's
        # memory.
        lag = cached.cache(lag, StorageLevel.DISK_ONLY)
    with sized_session(lake.spark, num_rows):
        files = -(-lag.count() // _ROWS_PER_FILE) or 1 if is_counted else 1
        lake.append(LAG, lag, f"lag/{cluster}/{snapshot_id}", files=files, sort_by=("group_id",))


def _earlier_snapshots(lake: Lake, cluster: str, before_us: int, window_s: int) -> list[Row]:
    """Day and id of the finished snapshots in the window before a time: at most a few hundred."""
    from pyspark.sql import functions as sf

    since_us = before_us - 1_000_000 * window_s
    return (
        lake.read(SNAPSHOTS)
        .where(
            (sf.col("cluster") == cluster)
            & (sf.col("end_read_at") < sf.timestamp_micros(sf.lit(before_us)))
            & (sf.col("end_read_at") >= sf.timestamp_micros(sf.lit(since_us)))
        )
        .select("day", "snapshot_id")
        .collect()
    )


def _rows_of(lake: Lake, table: Table, cluster: str, snapshots: list[Row]) -> DataFrame:
    """Rows of these snapshots only: rows of unfinished snapshots are not history."""
    from pyspark.sql import functions as sf

    # Ids as literals let Delta skip files; a join would not.
    return lake.read(table).where(
        (sf.col("cluster") == cluster)
        & sf.col("day").isin({row.day for row in snapshots} or {None})
        & sf.col("snapshot_id").isin([row.snapshot_id for row in snapshots])
    )


def _group_settings(lake: Lake, policy: Policy, cluster: str, members: DataFrame) -> DataFrame:
    """The policy's settings for the consumers of each group."""
    rows = []
    for row in members.select("group_id").distinct().collect():
        settings = policy.group_settings(cluster, row.group_id)
        rows.append(
            (
                row.group_id,
                settings.reset_policy.value if settings.reset_policy else None,
                settings.isolation_level.value if settings.isolation_level else None,
            )
        )
    return lake.spark.createDataFrame(rows, "group_id STRING, reset_policy STRING, isolation_level STRING")
