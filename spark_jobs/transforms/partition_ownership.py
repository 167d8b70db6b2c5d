"""Ownership: the owner of each partition over time, from the memberships of whole days.

A membership is an interval in which a group did not change, so partitions are expanded once per change of
their group, not once per snapshot. All windows are within a group: its rows are shuffled once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.enums import OwnershipState
from evenlag.lake.tables import OWNERSHIP
from spark_jobs.runtime.contract_columns import conform
from spark_jobs.transforms.intervals import INTERVAL_COLUMNS, merge_intervals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_GROUP: Final = ("cluster", "day", "input_hash", "group_id")
_PARTITION: Final = ("topic_id", "topic", "partition")
_KEY: Final = (*_GROUP, *_PARTITION, "member_id")
_CONTENT: Final = (
    "state",
    "reason",
    "owner_key",
    "group_instance_id",
    "client_id",
    "client_host",
    "num_owners",
)
_HOLDERS: Final = (
    "array<struct<topic_id: string, topic: string, partition: int, state: string, member_id: string, "
    "group_instance_id: string, client_id: string, client_host: string, num_owners: int>>"
)


def build_ownership(memberships: DataFrame, snapshots: DataFrame) -> DataFrame:
    """Build the ``ownership`` rows of whole days.

    Returns rows of ``ownership``. While a group is empty or its assignment is not known, the partitions
    that it consumed before or after have rows with the state NOBODY or UNKNOWN.
    """
    from pyspark.sql import functions as sf

    intervals = _numbered(memberships, snapshots).repartition(*_GROUP)
    cells = _shown_or_around(intervals).select(
        *_GROUP, *INTERVAL_COLUMNS, "error", "group_state", "num_members", sf.inline("cells")
    )
    instance = sf.col("group_instance_id")
    in_state = sf.concat(sf.lit("the group is "), sf.coalesce("group_state", sf.lit("in no state")))
    seen = cells.withColumns(
        {
            "owner_key": sf.when(instance.isNotNull(), sf.concat(sf.lit("i:"), instance)).otherwise(
                sf.concat(sf.lit("m:"), "member_id")
            ),
            "reason": sf.when(sf.col("state") == OwnershipState.UNKNOWN, sf.coalesce("error", in_state))
            .when((sf.col("state") == OwnershipState.NOBODY) & (sf.col("num_members") == 0), in_state)
            .when(sf.col("state") == OwnershipState.NOBODY, sf.lit("no member holds it")),
        }
    )
    return conform(merge_intervals(seen, key=_KEY, content=_CONTENT), OWNERSHIP)


def _numbered(memberships: DataFrame, snapshots: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sf

    for edge in ("first", "last"):
        numbers = snapshots.select(
            sf.col("snapshot_id").alias(f"{edge}_snapshot_id"), sf.col("number").alias(f"{edge}_number")
        )
        memberships = memberships.join(sf.broadcast(numbers), f"{edge}_snapshot_id")
    return memberships


def _shown_or_around(intervals: DataFrame) -> DataFrame:
    """Add ``cells``: the partitions of an interval, or those of the nearest intervals that have any."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    in_order = Window.partitionBy(*_GROUP).orderBy("first_number")
    shows = sf.col("is_known") & (sf.col("num_members") > 0)
    shown = intervals.withColumn("cells", sf.when(shows, sf.flatten(_cells_by_topic())))
    before = sf.last("cells", ignorenulls=True).over(
        in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    after = sf.first("cells", ignorenulls=True).over(
        in_order.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    )
    none = sf.array().cast(_HOLDERS)
    nearest = sf.concat(sf.coalesce(before, none), sf.coalesce(after, none))
    state = sf.when(sf.col("is_known"), sf.lit(OwnershipState.NOBODY)).otherwise(
        sf.lit(OwnershipState.UNKNOWN)
    )
    blank = sf.array_distinct(
        sf.transform(
            nearest,
            lambda cell: _cell(cell["topic_id"], cell["topic"], cell["partition"], state=state),
        )
    )
    return shown.withColumn("nearest", sf.when(~shows, blank)).withColumn(
        "cells", sf.coalesce("cells", "nearest")
    )


def _cells_by_topic() -> Column:
    """Cells of each topic: one per owner, and one per subscribed partition without an owner."""
    from pyspark.sql import functions as sf

    members = sf.col("members")
    taken = sf.flatten(
        sf.transform(members, lambda member: sf.coalesce(member["subscription"], _none("string")))
    )

    def of_topic(topic: Column) -> Column:
        held = sf.transform(members, lambda member: _held(member, topic["topic"]))
        all_held = sf.array_sort(sf.flatten(held))
        # Two owners of a partition are a rare fault: only then are they counted.
        twice = sf.filter(all_held, lambda number, at: (at > 0) & (number == sf.get(all_held, at - 1)))
        cells = sf.transform(
            members,
            lambda member: sf.transform(
                _held(member, topic["topic"]),
                lambda number: _cell(
                    topic["topic_id"],
                    topic["topic"],
                    number,
                    state=sf.lit(OwnershipState.OWNED),
                    member=member,
                    num_owners=sf.lit(1) + sf.size(sf.filter(twice, lambda other: other == number)),
                ),
            ),
        )
        numbers = sf.when(
            (topic["num_partitions"] > 0) & sf.array_contains(taken, topic["topic"]),
            sf.sequence(sf.lit(0), topic["num_partitions"] - 1),
        ).otherwise(_none("int"))
        free = sf.transform(
            sf.array_except(numbers, all_held),
            lambda number: _cell(
                topic["topic_id"], topic["topic"], number, state=sf.lit(OwnershipState.NOBODY)
            ),
        )
        return sf.concat(sf.flatten(cells), free)

    return sf.transform("topics", of_topic)


def _held(member: Column, topic: Column) -> Column:
    from pyspark.sql import functions as sf

    none = sf.array().cast("array<struct<topic: string, partitions: array<int>>>")
    of_topic = sf.filter(sf.coalesce(member["assignment"], none), lambda held: held["topic"] == topic)
    return sf.array_distinct(sf.flatten(sf.transform(of_topic, lambda held: held["partitions"])))


def _cell(
    topic_id: Column,
    topic: Column,
    partition: Column,
    *,
    state: Column,
    member: Column | None = None,
    num_owners: Column | None = None,
) -> Column:
    from pyspark.sql import functions as sf

    names = ("member_id", "group_instance_id", "client_id", "client_host")
    nothing = sf.lit(None).cast("string")
    return sf.struct(
        topic_id.alias("topic_id"),
        topic.alias("topic"),
        partition.alias("partition"),
        state.alias("state"),
        *((nothing if member is None else member[name]).alias(name) for name in names),
        (sf.lit(0) if num_owners is None else num_owners).alias("num_owners"),
    )


def _none(kind: str) -> Column:
    from pyspark.sql import functions as sf

    return sf.array().cast(f"array<{kind}>")
