"""Compute the lag of an attempt at a snapshot into the table ``lag``, before the snapshot's marker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.lake.arrow_schema import with_head
from evenlag.lake.filters import matching
from evenlag.lake.snapshot_reader import MAX_DRIVER_ROWS
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS, Table
from evenlag.policy.group_settings import GroupSettings
from evenlag.policy.settings import Policy
from spark_jobs.runtime.session import num_task_slots, sized_session, temporary_conf
from spark_jobs.runtime.session_conf import UNMEASURED_BATCHES
from spark_jobs.steps.snapshot_rows import SnapshotRows
from spark_jobs.transforms.batch_packing import pack_groups
from spark_jobs.transforms.lag import COMMIT_HISTORY, OFFSET_HISTORY, build_lag, count_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_ROWS_PER_FILE: Final = 1_000_000
# Rows of the history of one table that the driver joins itself: some hundred megabytes.
_MAX_HISTORY_ROWS: Final = 1_000_000
# Columns that say what is known of a group, and who owns its partitions.
_MEMBER_COLUMNS: Final = (
    *("group_id", "group_state", "group_type", "member_id", "subscription", "subscription_error"),
    *("assignment", "assignment_error", "target_assignment", "error"),
)


def compute_lag(rows: SnapshotRows, policy: Policy) -> None:
    """Compute and write the lag of a snapshot; that of a small one is kept in memory for later steps."""
    cluster, settings = rows.cluster, policy.clusters[rows.cluster]

    def settings_of(group_id: str) -> GroupSettings:
        # Travels to executors with the policy, of which another class is left there.
        return policy.group_settings(cluster, group_id)

    topics = count_partitions(rows)
    num_rows = int(np.sum(topics["num_partitions"].to_numpy()))
    read_at = rows.marker["end_read_at"]
    earlier = rows.markers_since(read_at - timedelta(seconds=settings.history_window_s))
    earlier = [snapshot for snapshot in earlier if snapshot["end_read_at"] < read_at]
    # Earlier commits are needed for rates only.
    recent = rows.marker["started_at"] - timedelta(seconds=settings.rate_window_s)
    history = {
        OFFSETS.name: earlier,
        COMMITS.name: [snapshot for snapshot in earlier if snapshot["end_read_at"] >= recent],
    }
    if rows.is_kept(OFFSETS, COMMITS, MEMBERS) and num_rows <= MAX_DRIVER_ROWS:
        most_rows = max(len(history[table.name]) * rows.rows(table).num_rows for table in (OFFSETS, COMMITS))
        if most_rows <= _MAX_HISTORY_ROWS:
            lag = _count_in_driver(rows, settings_of, settings.rate_window_s, history)
            # Sorted here: a session's first sort costs Spark more than to write the rows.
            rows.keep(LAG, lag.sort_by("group_id"))
            rows.lake.append(LAG, rows.frame(LAG))
            return
    num_snapshots = 1 + len(earlier)
    spark = rows.lake.spark
    with sized_session(spark, num_snapshots * num_rows), temporary_conf(spark, UNMEASURED_BATCHES):
        counted = build_lag(
            offsets=rows.frame(OFFSETS),
            commits=rows.frame(COMMITS),
            offset_history=_history_frame(rows, OFFSETS, history[OFFSETS.name]),
            commit_history=_history_frame(rows, COMMITS, history[COMMITS.name]),
            members=rows.rows(MEMBERS, _MEMBER_COLUMNS),
            batches=_with_batches(topics, num_snapshots, num_task_slots(spark)),
            settings_of=settings_of,
            marker=rows.marker,
            rate_window_s=settings.rate_window_s,
        )
        files = -(-num_rows // _ROWS_PER_FILE) or 1
        # If it were coalesced, only as many tasks as files would count.
        rows.lake.append(LAG, counted.repartition(files), files=files, sort_by=("group_id",))


def _count_in_driver(
    rows: SnapshotRows,
    settings_of: Callable[[str], GroupSettings],
    rate_window_s: int,
    history: dict[str, list[dict[str, Any]]],
) -> pa.Table:
    """Count the lag of a small snapshot in this process."""

    def history_of(table: Table, columns: tuple[str, ...]) -> pa.Table:
        snapshots = history[table.name]
        days, ids = {row["day"] for row in snapshots}, [row["snapshot_id"] for row in snapshots]
        filters = matching(cluster=rows.cluster, day=days, snapshot_id=ids)
        return rows.reader.read(table, columns=columns, filters=filters)

    kinds = {
        "offsets": rows.rows(OFFSETS),
        "commits": rows.rows(COMMITS),
        "offset_history": history_of(OFFSETS, OFFSET_HISTORY),
        "commit_history": history_of(COMMITS, COMMIT_HISTORY),
    }
    counted = count_rows(kinds.__getitem__, rows.rows(MEMBERS), settings_of, rate_window_s)
    return with_head(counted, LAG, rows.marker)


def count_partitions(rows: SnapshotRows) -> pa.Table:
    """Return ``group_id, topic, num_partitions``: of a topic subscribed to or owned, all; else commits."""
    pair = ["group_id", "topic"]
    members = rows.rows(MEMBERS, _MEMBER_COLUMNS)

    def named(lists: pa.ListArray, topics: pa.Array) -> pa.Table:
        return pa.table([members["group_id"].take(pc.list_parent_indices(lists)), topics], names=pair)

    subscription = members["subscription"].combine_chunks()
    parts = [named(subscription, pc.list_flatten(subscription))]
    for column in ("assignment", "target_assignment"):
        assigned = members[column].combine_chunks()
        parts.append(named(assigned, pc.struct_field(pc.list_flatten(assigned), "topic")))
    sizes = rows.rows(OFFSETS, ["topic"]).group_by("topic").aggregate([([], "count_all")])
    listed = pa.concat_tables(parts).group_by(pair).aggregate([]).join(sizes, "topic", join_type="inner")
    commits = rows.rows(COMMITS, pair)
    commits = commits.filter(pc.is_valid(commits["topic"])).group_by(pair).aggregate([([], "count_all")])
    both = pa.concat_tables([listed.select([*pair, "count_all"]), commits.select([*pair, "count_all"])])
    return both.group_by(pair).aggregate([("count_all", "max")]).rename_columns([*pair, "num_partitions"])


def _with_batches(topics: pa.Table, num_snapshots: int, cores: int) -> pa.Table:
    """Return ``group_id, topic, batch`` of groups in batches of about equal size."""
    sizes = topics.group_by("group_id").aggregate([("num_partitions", "sum")])
    batch = pack_groups(num_snapshots * sizes["num_partitions_sum"].to_numpy(), cores)
    return topics.join(pa.table({"group_id": sizes["group_id"], "batch": pa.array(batch)}), "group_id")


def _history_frame(rows: SnapshotRows, table: Table, snapshots: list[dict[str, Any]]) -> DataFrame:
    days = {row["day"] for row in snapshots}
    return rows.lake.read_days(table, rows.cluster, days, [row["snapshot_id"] for row in snapshots])
