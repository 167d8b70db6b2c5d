"""Joins the partitions of each group of a large snapshot with what their lag depends on.

Only the joins by key are here. The rules are in :mod:`evenlag.lag`, which joins few rows itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.lag.partitions import FROM_OFFSETS, GROUP_PARTITIONS
from spark_jobs.runtime.contract_columns import conform
from spark_jobs.transforms.member_assignments import explode_assignments

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


_PARTITION: Final = ["topic_id", "topic", "partition"]
_GROUP_PARTITION: Final = ["group_id", *_PARTITION]
_PAIR: Final = ["group_id", "topic", "partition"]
_FROM_COMMITS: Final = ("committed_offset", "leader_epoch", "reported_lag_records")


def join_partitions(
    offsets: DataFrame,
    commits: DataFrame,
    members: DataFrame,
    member_ids: pa.Array,
    *,
    offset_history: DataFrame,
    commit_history: DataFrame,
) -> DataFrame:
    """Join the partitions that count for each group with their offsets, commits, owners and history.

    Returns by :data:`~evenlag.lag.partitions.GROUP_PARTITIONS`; a commit of a partition that does not exist
    any more has no row.
    """
    from pyspark.sql import functions as sf

    ends = offsets.select(
        *_PARTITION,
        *FROM_OFFSETS,
        sf.col("end_read_at").alias("read_at"),
        sf.col("error").alias("offset_error"),
    )
    joined = (
        _pairs(offsets, commits, _numbered(members, member_ids))
        .join(ends, ["topic", "partition"])
        .join(offset_history, _PARTITION, "left")
        .join(commit_history, _GROUP_PARTITION, "left")
    )
    return conform(joined, GROUP_PARTITIONS)


def build_offset_history(offsets: DataFrame) -> DataFrame:
    """Collect the past (time, end offset) points of each partition.

    Returns ``topic_id, topic, partition, end_points``: an array of (at, high_watermark), oldest first.
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

    Returns ``group_id, topic_id, topic, partition, commit_points``: an array of (at, committed_offset),
    oldest first.
    """
    from pyspark.sql import functions as sf

    points = sf.struct(sf.col("read_at").alias("at"), sf.col("committed_offset").alias("offset"))
    return (
        commits.where(sf.col("error").isNull())
        .groupBy(*_GROUP_PARTITION)
        .agg(sf.sort_array(sf.collect_list(points)).alias("commit_points"))
    )


def _pairs(offsets: DataFrame, commits: DataFrame, members: DataFrame) -> DataFrame:
    """A row for each partition that has a commit, a subscriber or an owner, with all three."""
    from pyspark.sql import functions as sf

    committed = commits.where(sf.col("error").isNull()).select(
        *_PAIR, *_FROM_COMMITS, sf.col("read_at").alias("commit_read_at")
    )
    subscribed = (
        members.select("group_id", sf.explode("subscription").alias("topic"))
        .distinct()
        .join(offsets.select("topic", "partition"), "topic")
        .select(*_PAIR, sf.lit(True).alias("is_subscribed"))
    )
    owned, targeted = (
        explode_assignments(members, column, sf.col("number").alias(owner))
        for column, owner in (("assignment", "owner"), ("target_assignment", "target"))
    )
    rows = committed
    for more in (subscribed, owned, targeted):
        rows = rows.unionByName(more, allowMissingColumns=True)
    kept = [*_FROM_COMMITS, "commit_read_at", "is_subscribed"]
    return (
        rows.groupBy(*_PAIR)
        .agg(
            *(sf.max(name).alias(name) for name in kept),
            sf.min("owner").alias("owner"),
            sf.max("owner").alias("last_owner"),
            sf.count("owner").alias("num_owners"),
            sf.min("target").alias("target"),
        )
        .where(_counts())
    )


def _numbered(members: DataFrame, member_ids: pa.Array) -> DataFrame:
    """Add the number of each member: numbers are aggregated by hash, texts by sorting all rows twice."""
    import pyarrow as pa
    from pyspark.sql import functions as sf

    numbers = pa.table({"member_id": member_ids, "number": pa.array(range(len(member_ids)), pa.int64())})
    frame = members.sparkSession.createDataFrame(numbers, "member_id STRING, number BIGINT")
    return members.join(sf.broadcast(frame), "member_id", "left")


def _counts() -> Column:
    """A partition that a member is only to own does not count yet."""
    from pyspark.sql import functions as sf

    return sf.col("commit_read_at").isNotNull() | sf.col("is_subscribed") | sf.col("owner").isNotNull()
