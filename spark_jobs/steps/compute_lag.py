"""Compute the lag of an attempt at a snapshot into the table ``lag``, before the snapshot's marker."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.kafka.arrow_rows import with_head
from evenlag.lag.formula import STORED_ONLY, count_lag
from evenlag.lag.partitions import describe_groups, join_partitions, number_members
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS, SNAPSHOTS, Table
from spark_jobs.runtime.cached_frames import CachedFrames
from spark_jobs.runtime.session import is_large_snapshot, sized_session
from spark_jobs.steps.snapshot_rows import MAX_DRIVER_ROWS, SnapshotRows, to_contract
from spark_jobs.transforms.group_partitions import build_commit_history, build_offset_history
from spark_jobs.transforms.lag import build_lag

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from evenlag.lake.file_pruning import Filter
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.settings import Policy

_ROWS_PER_FILE: Final = 1_000_000
# Up to so many rows of lag this process joins them itself.
_MAX_JOINED_ROWS: Final = 5_000
# Columns that say what is known of a group; of a large snapshot the driver reads these.
_GROUP_COLUMNS: Final = (
    "group_id",
    "group_state",
    "group_type",
    "member_id",
    "subscription",
    "subscription_error",
    "assignment",
    "assignment_error",
    "error",
)
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
    """
    lake, marker = rows.lake, rows.marker
    settings = policy.clusters[rows.cluster]
    history = _earlier_snapshots(rows, settings.history_window_s)
    num_lag_rows = count_lag_rows(rows) if rows.is_kept(OFFSETS, COMMITS, MEMBERS) else None

    def settings_of(group_id: str) -> GroupSettings:
        return policy.group_settings(rows.cluster, group_id)

    if num_lag_rows is not None and num_lag_rows <= _MAX_JOINED_ROWS:
        counted = _count_small(rows, settings_of, settings.rate_window_s, history)
        if counted is not None:
            _write_kept(rows, counted)
            return
    people = rows.rows(MEMBERS, _GROUP_COLUMNS)
    lag = build_lag(
        offsets=rows.frame(OFFSETS),
        commits=rows.frame(COMMITS),
        members=rows.frame(MEMBERS),
        groups=describe_groups(_failed_commits(rows), people, settings_of),
        member_ids=number_members(people),
        marker=marker,
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


def _count_small(
    rows: SnapshotRows,
    settings_of: Callable[[str], GroupSettings],
    rate_window_s: int,
    history: list[dict[str, Any]],
) -> pa.Table | None:
    """The lag of a snapshot, counted in this process; None where its history has too many rows."""
    offset_history, commit_history = (_earlier_rows(rows, table, history) for table in (OFFSETS, COMMITS))
    if offset_history is None or commit_history is None:
        return None
    joined = join_partitions(
        rows.rows(OFFSETS).sort_by([("topic", "ascending"), ("partition", "ascending")]),
        rows.rows(COMMITS),
        rows.rows(MEMBERS),
        settings_of,
        offset_history=offset_history,
        commit_history=commit_history,
    )
    counted = count_lag(joined.partitions, joined.groups, joined.member_ids, rate_window_s)
    return with_head(counted, LAG, {name: rows.marker[name] for name in STORED_ONLY})


def _failed_commits(rows: SnapshotRows) -> pa.Table:
    """The groups whose commits could not be read, and why."""
    import pyarrow.compute as pc

    columns = ["group_id", "error"]
    if rows.is_kept(COMMITS):
        kept = rows.rows(COMMITS, columns)
        return kept.filter(pc.is_valid(kept["error"]))
    # Null matches no comparison.
    return rows.reader.read(COMMITS, columns=columns, filters=[*rows.filters, ("error", ">=", "")])


def count_lag_rows(rows: SnapshotRows) -> int:
    """Return about how many rows of ``lag`` a snapshot has at most, from rows in memory."""
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
    unknown = members.filter(pc.is_null(members["subscription"]))
    assigned = pc.list_flatten(unknown["assignment"].combine_chunks())
    num_owned: int = pc.sum(pc.list_value_length(pc.struct_field(assigned, "partitions"))).as_py() or 0
    return num_subscribed + num_commits + num_owned


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
