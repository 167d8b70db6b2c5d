"""Memberships: the history of each group's members as intervals, built from the snapshots of whole days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.enums import MEMBERLESS_STATES, REBALANCING_STATES, GroupType
from evenlag.lake.tables import MEMBERSHIPS
from spark_jobs.runtime.contract_columns import conform
from spark_jobs.transforms.intervals import merge_intervals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEY: Final = ("cluster", "day", "input_hash", "group_id")
_CONTENT: Final = (
    "group_state",
    "group_type",
    "assignor",
    "error",
    "is_known",
    "num_members",
    "members",
    "topics",
)


def build_memberships(snapshots: DataFrame, members: DataFrame, offsets: DataFrame) -> DataFrame:
    """Build the ``memberships`` rows of whole days.

    Returns rows of ``memberships``. A group has no interval at snapshots that do not list it.
    """
    from pyspark.sql import functions as sf

    groups = _groups(snapshots, members)
    topics = _topics(groups, offsets)
    none = sf.array().cast("array<struct<topic: string, topic_id: string, num_partitions: int>>")
    seen = groups.join(topics, ["snapshot_id", "group_id"], "left").withColumn(
        "topics", sf.coalesce("topics", none)
    )
    merged = merge_intervals(_single_snapshots(seen), key=_KEY, content=_CONTENT)
    return conform(merged.withColumn("returned", sf.lit(None)), MEMBERSHIPS)


def _groups(snapshots: DataFrame, members: DataFrame) -> DataFrame:
    """One row per group and snapshot, with its members by id."""
    from pyspark.sql import functions as sf

    is_member = sf.col("member_id").isNotNull()
    member = sf.struct(
        "member_id", "group_instance_id", "client_id", "client_host", "subscription", "assignment"
    )
    is_classic = sf.coalesce("group_type", sf.lit(GroupType.CLASSIC)) == GroupType.CLASSIC
    groups = (
        members.drop("cluster", "day")
        .join(sf.broadcast(snapshots), "snapshot_id")
        .groupBy(*_KEY, "number", "snapshot_id", "before_id", "before_at", "after_id", "after_at")
        .agg(
            sf.max("read_at").alias("seen_at"),
            *(sf.max(name).alias(name) for name in ("group_state", "group_type", "assignor", "error")),
            # While a classic group rebalances, its members show neither; a malformed one may show either.
            sf.bool_or(
                is_member & (sf.col("assignment").isNull() | (is_classic & sf.col("subscription").isNull()))
            ).alias("is_hidden"),
            sf.sort_array(sf.collect_set(sf.when(is_member, member))).alias("members"),
        )
        .withColumn("num_members", sf.size("members"))
    )
    return groups.withColumn("is_known", _is_known())


def _is_known() -> Column:
    from pyspark.sql import functions as sf

    state = sf.coalesce("group_state", sf.lit(""))
    # Group types whose members cannot be read have none here, although they are not empty.
    shows_members = (sf.col("num_members") > 0) | state.isin(*MEMBERLESS_STATES)
    # Several members of a share group read one partition: it has no owner.
    has_owners = sf.coalesce("group_type", sf.lit("")) != GroupType.SHARE
    is_read = sf.col("error").isNull() & ~sf.col("is_hidden") & ~state.isin(*REBALANCING_STATES)
    return is_read & shows_members & has_owners


def _topics(groups: DataFrame, offsets: DataFrame) -> DataFrame:
    """Topics that the members of a group subscribe to or own in a snapshot, with their ids and sizes.

    An owned topic that could not be read in a snapshot gets the id that it has in the snapshots before, else
    in those after; its number of partitions is null.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    none = sf.array().cast("array<string>")
    taken = sf.transform("members", lambda member: sf.coalesce(member["subscription"], none))
    held = sf.transform("members", lambda member: sf.coalesce(member["assignment"]["topic"], none))
    names = groups.select(
        *_KEY, "number", "snapshot_id", sf.flatten(taken).alias("taken"), sf.flatten(held).alias("held")
    ).select(
        *_KEY, "number", "snapshot_id", "held", sf.explode(sf.array_union("taken", "held")).alias("topic")
    )
    sizes = offsets.groupBy("snapshot_id", "topic", "topic_id").agg(
        (sf.max("partition") + 1).cast("int").alias("num_partitions")
    )
    in_order = Window.partitionBy(*_KEY, "topic").orderBy("number")
    before = sf.last("topic_id", ignorenulls=True).over(
        in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    after = sf.first("topic_id", ignorenulls=True).over(
        in_order.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    )
    is_held = sf.array_contains("held", sf.col("topic"))
    return (
        names.join(sizes, ["snapshot_id", "topic"], "left")
        .withColumns({"is_there": sf.col("topic_id").isNotNull(), "topic_id": sf.coalesce(before, after)})
        .where(sf.col("is_there") | is_held)
        .groupBy("snapshot_id", "group_id")
        .agg(sf.sort_array(sf.collect_set(sf.struct("topic", "topic_id", "num_partitions"))).alias("topics"))
    )


def _single_snapshots(seen: DataFrame) -> DataFrame:
    """Each group and snapshot as an interval of length one, with the snapshots before and after it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    in_order = Window.partitionBy(*_KEY).orderBy("number")

    def beside(step: int, elsewhere: str) -> Column:
        # A snapshot that does not list the group has no read time for it: use its start or end.
        is_next_to = sf.lag("number", step).over(in_order) == sf.col("number") - step
        return sf.when(is_next_to, sf.lag("seen_at", step).over(in_order)).otherwise(sf.col(elsewhere))

    return seen.select(
        *_KEY,
        *_CONTENT,
        sf.col("number").alias("first_number"),
        sf.col("number").alias("last_number"),
        sf.col("snapshot_id").alias("first_snapshot_id"),
        sf.col("seen_at").alias("first_seen_at"),
        sf.col("snapshot_id").alias("last_snapshot_id"),
        sf.col("seen_at").alias("last_seen_at"),
        sf.col("before_id").alias("previous_snapshot_id"),
        beside(1, "before_at").alias("previous_seen_at"),
        sf.col("after_id").alias("next_snapshot_id"),
        beside(-1, "after_at").alias("next_seen_at"),
        sf.lit(1).alias("num_snapshots"),
        sf.lit(0).cast("bigint").alias("longest_gap_ms"),
    )
