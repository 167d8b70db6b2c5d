"""The partitions that count for each group of a snapshot, and what their lag depends on.

Spark joins them from the snapshot's tables; :mod:`spark_jobs.transforms.partitions_here` joins few rows in
this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import MEMBERLESS_STATES, GroupType
from evenlag.lake.tables import LAG, OFFSETS, Column, Table
from spark_jobs.transforms.member_assignments import explode_assignments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


_PARTITION: Final = ["topic_id", "topic", "partition"]
_GROUP_PARTITION: Final = ["group_id", *_PARTITION]
FROM_OFFSETS: Final = ("log_start_offset", "high_watermark", "last_stable_offset", "reset_offsets")
_POINTS: Final = "ARRAY<STRUCT<at: TIMESTAMP, offset: BIGINT>>"


def _group_partitions_table() -> Table:
    """What the lag of a group's partition depends on."""
    types = {column.name: column.type for column in (*OFFSETS.columns, *LAG.columns)}
    of_snapshot = ("cluster", "day", "snapshot_id", "slot")
    owners = ("owner_member_id", "target_member_id")
    columns = (
        *(Column(name, types[name], "as in `lag`") for name in (*of_snapshot, *_GROUP_PARTITION, *owners)),
        *(Column(name, types[name], "as in `offsets`") for name in FROM_OFFSETS),
        Column("read_at", "TIMESTAMP", "when the log end was read"),
        Column("offset_error", "STRING", "why the offsets could not be read"),
        Column("committed_offset", "BIGINT", "null: none"),
        Column("commits_read_at", "TIMESTAMP", "when commits were read"),
        Column("is_subscribed", "BOOLEAN", "a live member subscribes to the topic"),
        Column("is_unreadable", "BOOLEAN", "the group, a subscription or the commits could not be read"),
        Column("is_empty", "BOOLEAN", "the group has no members"),
        Column("is_not_described", "BOOLEAN", "the group is of a newer type, and its members are not known"),
        Column("reset_policy", "STRING", "of the policy; null: not set"),
        Column("isolation_level", "STRING", "of the policy; null: not set"),
        Column("end_points", _POINTS, "earlier high watermarks, oldest first; null: none"),
        Column("commit_points", _POINTS, "earlier committed offsets, oldest first; null: none"),
    )
    return Table("group_partitions", "input of lag", tuple(_GROUP_PARTITION), columns)


GROUP_PARTITIONS: Final = _group_partitions_table()


def join_partitions(
    *,
    offsets: DataFrame,
    commits: DataFrame,
    members: DataFrame,
    marker: Mapping[str, Any],
    group_settings: DataFrame,
    offset_history: DataFrame,
    commit_history: DataFrame,
) -> DataFrame:
    """Join the partitions of each group with its commits, owners, settings and history.

    Parameters
    ----------
    offsets, commits, members, marker, group_settings, offset_history, commit_history
        As for :func:`spark_jobs.transforms.lag.build_lag`.

    Returns
    -------
    DataFrame
        With the columns of :data:`GROUP_PARTITIONS`: a row for each partition that a live member subscribes
        to or that the group has a commit for.
    """
    from pyspark.sql import functions as sf

    return (
        _wanted_partitions(offsets, commits, members)
        .join(sf.broadcast(_group_states(commits, members)), "group_id", "left")
        .join(sf.broadcast(group_settings), "group_id", "left")
        .join(_owners(members), ["group_id", "topic", "partition"], "left")
        .join(offset_history, _PARTITION, "left")
        .join(commit_history, _GROUP_PARTITION, "left")
        .withColumns(
            {
                **{name: sf.lit(marker[name]) for name in ("slot", "commits_read_at")},
                # A group without a row of `members` was not read.
                "is_unreadable": sf.coalesce("is_unreadable", sf.lit(True)),
            }
        )
    )


def build_offset_history(offsets: DataFrame) -> DataFrame:
    """Collect the past (time, end offset) points of each partition.

    Parameters
    ----------
    offsets
        Rows of ``offsets`` from earlier snapshots, within the history window.

    Returns
    -------
    DataFrame
        ``topic_id, topic, partition, end_points``: an array of (at, high_watermark), oldest first.
    """
    from pyspark.sql import functions as sf

    points = sf.struct(sf.col("end_read_at").alias("at"), sf.col("high_watermark").alias("offset"))
    return (
        offsets.where(sf.col("error").isNull())
        .groupBy(*_PARTITION)
        .agg(sf.sort_array(sf.collect_list(points)).alias("end_points"))
    )


def build_commit_history(commits: DataFrame) -> DataFrame:
    """Collect the past (time, committed offset) points of each group's partitions.

    Parameters
    ----------
    commits
        Rows of ``commits`` from earlier snapshots, within the history window.

    Returns
    -------
    DataFrame
        ``group_id, topic_id, topic, partition, commit_points``: an array of (at, committed_offset), oldest
        first.
    """
    from pyspark.sql import functions as sf

    points = sf.struct(sf.col("read_at").alias("at"), sf.col("committed_offset").alias("offset"))
    return (
        commits.where(sf.col("error").isNull())
        .groupBy(*_GROUP_PARTITION)
        .agg(sf.sort_array(sf.collect_list(points)).alias("commit_points"))
    )


def _wanted_partitions(offsets: DataFrame, commits: DataFrame, members: DataFrame) -> DataFrame:
    """Partitions that a live member subscribes to or that have a commit, with their offsets and commit.

    The inner join with the offsets drops commits of partitions that no longer exist: they have no lag.
    """
    from pyspark.sql import functions as sf

    subscribed = (
        members.select("group_id", sf.explode("subscription").alias("topic"))
        .distinct()
        .join(offsets.select(*_PARTITION), "topic")
        .select(*_GROUP_PARTITION, sf.lit(True).alias("is_subscribed"))
    )
    committed = commits.where(sf.col("error").isNull()).select(*_GROUP_PARTITION, "committed_offset")
    both = subscribed.join(committed, _GROUP_PARTITION, "full").withColumn(
        "is_subscribed", sf.coalesce("is_subscribed", sf.lit(False))
    )
    ends = offsets.select(
        "cluster",
        "day",
        "snapshot_id",
        *_PARTITION,
        *FROM_OFFSETS,
        sf.col("end_read_at").alias("read_at"),
        sf.col("error").alias("offset_error"),
    )
    return both.join(ends, _PARTITION)


def _group_states(commits: DataFrame, members: DataFrame) -> DataFrame:
    """One row per group: whether it is empty, reports its subscriptions, and could be read."""
    from pyspark.sql import functions as sf

    is_member = sf.col("member_id").isNotNull()
    states = members.groupBy("group_id").agg(
        sf.bool_and(sf.col("group_state").isin(*MEMBERLESS_STATES)).alias("is_empty"),
        # While a classic group rebalances, the coordinator reports its members without metadata.
        sf.bool_or(sf.col("error").isNotNull() | (is_member & sf.col("subscription").isNull())).alias(
            "is_unreadable"
        ),
        # A group of a newer type that does not report its members: its commits are all there is.
        sf.bool_and((sf.col("group_type") != GroupType.CLASSIC) & ~is_member).alias("is_not_described"),
    )
    failed = commits.where(sf.col("error").isNotNull()).select("group_id").distinct()
    failed = failed.withColumn("commits_failed", sf.lit(True))
    return states.join(failed, "group_id", "left").withColumn(
        "is_unreadable", sf.coalesce("commits_failed", "is_unreadable")
    )


def _owners(members: DataFrame) -> DataFrame:
    """Owner and target owner by partition, of partitions that have either."""
    from pyspark.sql import functions as sf

    def rows(column: str, owner: str) -> DataFrame:
        return explode_assignments(members, column, sf.col("member_id").alias(owner))

    owners = ("owner_member_id", "target_member_id")
    return (
        rows("assignment", owners[0])
        .unionByName(rows("target_assignment", owners[1]), allowMissingColumns=True)
        .groupBy("group_id", "topic", "partition")
        # Two owners are an anomaly that the audit reports; the smaller id makes a repeat deterministic.
        .agg(*(sf.min(name).alias(name) for name in owners))
    )
