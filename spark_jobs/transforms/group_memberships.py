"""Memberships: the history of each group's members as changes, out of the readings of whole days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.lake.tables import MEMBERSHIPS
from spark_jobs.runtime.contract_columns import conform
from spark_jobs.transforms.intervals import join_stretches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EMPTY_STATES: Final = ("Empty", "Dead")
_REBALANCING_STATES: Final = ("PreparingRebalance", "CompletingRebalance")
_CLASSIC: Final = "classic"

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


def build_memberships(readings: DataFrame, members: DataFrame, offsets: DataFrame) -> DataFrame:
    """Build the ``memberships`` rows of whole days.

    Parameters
    ----------
    readings
        All readings of the days: ``cluster, day, input_hash, snapshot_id`` and what
        :func:`~spark_jobs.transforms.intervals.number_readings` adds.
    members, offsets
        Rows of these tables; what no reading of ``readings`` stands behind has no part.

    Returns
    -------
    DataFrame
        By the contract of ``memberships``. A group that a reading does not list has no row for it.
    """
    from pyspark.sql import functions as sf

    groups = _groups(readings, members)
    topics = _topics(groups, offsets)
    none = sf.array().cast("array<struct<topic: string, topic_id: string, num_partitions: int>>")
    seen = groups.join(topics, ["snapshot_id", "group_id"], "left").withColumn(
        "topics", sf.coalesce("topics", none)
    )
    return conform(join_stretches(_single_readings(seen), key=_KEY, content=_CONTENT), MEMBERSHIPS)


def _groups(readings: DataFrame, members: DataFrame) -> DataFrame:
    """A row a group and reading, with its members by id."""
    from pyspark.sql import functions as sf

    is_member = sf.col("member_id").isNotNull()
    member = sf.struct(
        "member_id", "group_instance_id", "client_id", "client_host", "subscription", "assignment"
    )
    is_classic = sf.coalesce("group_type", sf.lit(_CLASSIC)) == _CLASSIC
    groups = (
        members.drop("cluster", "day")
        .join(sf.broadcast(readings), "snapshot_id")
        .groupBy(*_KEY, "number", "snapshot_id", "before_id", "before_at", "after_id", "after_at")
        .agg(
            sf.max("read_at").alias("seen_at"),
            *(sf.max(name).alias(name) for name in ("group_state", "group_type", "assignor", "error")),
            # While a classic group rebalances, the coordinator shows its members without metadata.
            sf.bool_or(is_member & is_classic & sf.col("subscription").isNull()).alias("is_hidden"),
            sf.sort_array(sf.collect_set(sf.when(is_member, member))).alias("members"),
        )
        .withColumn("num_members", sf.size("members"))
    )
    return groups.withColumn("is_known", _is_known())


def _is_known() -> Column:
    from pyspark.sql import functions as sf

    state = sf.coalesce("group_state", sf.lit(""))
    # A group of a type that does not show its members has none here, and is not empty.
    shows_members = (sf.col("num_members") > 0) | state.isin(*EMPTY_STATES)
    return sf.col("error").isNull() & ~sf.col("is_hidden") & ~state.isin(*_REBALANCING_STATES) & shows_members


def _topics(groups: DataFrame, offsets: DataFrame) -> DataFrame:
    """The topics that the members of a group take or hold in a reading, with their ids and sizes.

    A topic that a reading missed and that members hold keeps the id that it had before, else after; how many
    partitions it has is null then.
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


def _single_readings(seen: DataFrame) -> DataFrame:
    """Each group and reading as a stretch of its own, with what is known of the moments around it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    in_order = Window.partitionBy(*_KEY).orderBy("number")

    def beside(step: int, elsewhere: str) -> Column:
        # A reading that does not list the group tells no moment of its own: its begin and end are safe.
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
