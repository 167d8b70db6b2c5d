"""The audit's intervals: the members of each group, and the owner of each partition, over whole days.

An interval is consecutive snapshots with the same content, identified by the first and the last one.
Memberships are built from the snapshots, ownership from the memberships: a membership is an interval in which
a group did not change, so partitions are expanded once per change of their group, not once per snapshot. All
windows of ownership are within a group: its rows are shuffled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as sf

from evenlag.enums import MEMBERLESS_STATES, REBALANCING_STATES, GroupType, OwnershipState
from evenlag.lake.tables import MEMBERSHIPS, OWNERSHIP, Table
from spark_jobs.runtime.frames import conform

# Columns from the first and the last snapshot of an interval, and from the snapshots next to it.
_OF_THE_FIRST: Final = ("first_snapshot_id", "first_seen_at", "previous_snapshot_id", "previous_seen_at")
_OF_THE_LAST: Final = ("last_snapshot_id", "last_seen_at", "next_snapshot_id", "next_seen_at")
INTERVAL_COLUMNS: Final = (
    "first_number",
    "last_number",
    *_OF_THE_FIRST,
    *_OF_THE_LAST,
    "num_snapshots",
    "longest_gap_ms",
)


def number_snapshots(snapshots: DataFrame) -> DataFrame:
    """Number the snapshots of each day by start time, and add their neighbors; null where there is none."""
    in_order = Window.partitionBy("day").orderBy("started_at", "snapshot_id")
    return snapshots.withColumns(
        {
            "number": sf.row_number().over(in_order),
            "before_id": sf.lag("snapshot_id").over(in_order),
            "before_at": sf.lag("started_at").over(in_order),
            "after_id": sf.lead("snapshot_id").over(in_order),
            "after_at": sf.lead("finished_at").over(in_order),
        }
    )


def merge_intervals(rows: DataFrame, *, key: Sequence[str], content: Sequence[str]) -> DataFrame:
    """Merge adjacent intervals of a key that have the same content.

    A snapshot without a row of the key ends its interval. Two nulls of the content are equal.

    rows: ``key``, ``content`` and ``INTERVAL_COLUMNS``. Intervals of one key do not overlap. A single
        snapshot is an interval of length one.
    """
    in_order = Window.partitionBy(*key).orderBy("first_number")
    is_same = reduce(and_, (sf.col(name).eqNullSafe(sf.lag(name).over(in_order)) for name in content))
    follows = sf.col("first_number") == sf.lag("last_number").over(in_order) + 1
    since_last_ms = sf.unix_millis("first_seen_at") - sf.unix_millis(sf.lag("last_seen_at").over(in_order))
    marked = rows.withColumns(
        {"_goes_on": sf.coalesce(is_same & follows, sf.lit(False)), "_since_last_ms": since_last_ms}
    ).withColumn("_interval", sf.sum((~sf.col("_goes_on")).cast("int")).over(in_order))
    gap_ms = sf.when(sf.col("_goes_on"), sf.col("_since_last_ms"))
    return (
        marked.groupBy(*key, "_interval")
        .agg(
            *(sf.first(name).alias(name) for name in content),
            *(sf.min_by(name, "first_number").alias(name) for name in _OF_THE_FIRST),
            *(sf.max_by(name, "last_number").alias(name) for name in _OF_THE_LAST),
            sf.min("first_number").alias("first_number"),
            sf.max("last_number").alias("last_number"),
            sf.sum("num_snapshots").cast("int").alias("num_snapshots"),
            sf.max(sf.greatest("longest_gap_ms", sf.coalesce(gap_ms, sf.lit(0)))).alias("longest_gap_ms"),
        )
        .drop("_interval")
    )


_GROUP: Final = ("cluster", "day", "input_hash", "group_id")


def _content(table: Table, key: Sequence[str]) -> tuple[str, ...]:
    """Columns that are equal in all snapshots of an interval, beside its key."""
    return tuple(name for name in table.column_names if name not in {*key, *INTERVAL_COLUMNS})


# Maintenance alone fills `returned`.
_MEMBERSHIP: Final = _content(MEMBERSHIPS, (*_GROUP, "returned"))


def build_memberships(snapshots: DataFrame, members: DataFrame, offsets: DataFrame) -> DataFrame:
    """Build ``memberships`` of whole days. A group has no interval at snapshots that do not list it."""
    groups = _groups(snapshots, members)
    topics = _topics(groups, offsets)
    none = sf.array().cast("array<struct<topic: string, topic_id: string, num_partitions: int>>")
    seen = groups.join(topics, ["snapshot_id", "group_id"], "left").withColumn(
        "topics", sf.coalesce("topics", none)
    )
    merged = merge_intervals(_single_snapshots(seen), key=_GROUP, content=_MEMBERSHIP)
    return conform(merged.withColumn("returned", sf.lit(None)), MEMBERSHIPS)


def _groups(snapshots: DataFrame, members: DataFrame) -> DataFrame:
    """One row per group and snapshot, with its members by id."""
    is_member = sf.col("member_id").isNotNull()
    member = sf.struct(
        "member_id", "group_instance_id", "client_id", "client_host", "subscription", "assignment"
    )
    is_classic = sf.coalesce("group_type", sf.lit(GroupType.CLASSIC)) == GroupType.CLASSIC
    groups = (
        members.drop("cluster", "day")
        .join(sf.broadcast(snapshots), "snapshot_id")
        .groupBy(*_GROUP, "number", "snapshot_id", "before_id", "before_at", "after_id", "after_at")
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
    none = sf.array().cast("array<string>")
    taken = sf.transform("members", lambda member: sf.coalesce(member["subscription"], none))
    held = sf.transform("members", lambda member: sf.coalesce(member["assignment"]["topic"], none))
    names = groups.select(
        *_GROUP, "number", "snapshot_id", sf.flatten(taken).alias("taken"), sf.flatten(held).alias("held")
    ).select(
        *_GROUP, "number", "snapshot_id", "held", sf.explode(sf.array_union("taken", "held")).alias("topic")
    )
    sizes = offsets.groupBy("snapshot_id", "topic", "topic_id").agg(
        (sf.max("partition") + 1).cast("int").alias("num_partitions")
    )
    in_order = Window.partitionBy(*_GROUP, "topic").orderBy("number")
    before, after = _around("topic_id", in_order)
    is_held = sf.array_contains("held", sf.col("topic"))
    return (
        names.join(sizes, ["snapshot_id", "topic"], "left")
        .withColumns({"is_there": sf.col("topic_id").isNotNull(), "topic_id": sf.coalesce(before, after)})
        .where(sf.col("is_there") | is_held)
        .groupBy("snapshot_id", "group_id")
        .agg(sf.sort_array(sf.collect_set(sf.struct("topic", "topic_id", "num_partitions"))).alias("topics"))
    )


def _around(name: str, in_order: WindowSpec) -> tuple[Column, Column]:
    """Return the last value of a column up to each row, and the first one from it on, without nulls."""
    until = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    since = in_order.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    return sf.last(name, ignorenulls=True).over(until), sf.first(name, ignorenulls=True).over(since)


def _single_snapshots(seen: DataFrame) -> DataFrame:
    """Each group and snapshot as an interval of length one, with the snapshots before and after it."""
    in_order = Window.partitionBy(*_GROUP).orderBy("number")

    def beside(step: int, elsewhere: str) -> Column:
        # A snapshot that does not list the group has no read time for it: use its start or end.
        is_next_to = sf.lag("number", step).over(in_order) == sf.col("number") - step
        return sf.when(is_next_to, sf.lag("seen_at", step).over(in_order)).otherwise(sf.col(elsewhere))

    return seen.select(
        *_GROUP,
        *_MEMBERSHIP,
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


_PARTITION: Final = ("topic_id", "topic", "partition")
_OWNED: Final = (*_GROUP, *_PARTITION, "member_id")
_OWNERSHIP: Final = _content(OWNERSHIP, _OWNED)
_HOLDERS: Final = (
    "array<struct<topic_id: string, topic: string, partition: int, state: string, member_id: string, "
    "group_instance_id: string, client_id: string, client_host: string, num_owners: int>>"
)


def build_ownership(memberships: DataFrame, snapshots: DataFrame) -> DataFrame:
    """Build ``ownership`` of whole days.

    While a group is empty or its assignment is not known, the partitions that it consumed before or after
    have rows with the state NOBODY or UNKNOWN.
    """
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
    return conform(merge_intervals(seen, key=_OWNED, content=_OWNERSHIP), OWNERSHIP)


def _numbered(memberships: DataFrame, snapshots: DataFrame) -> DataFrame:
    for edge in ("first", "last"):
        numbers = snapshots.select(
            sf.col("snapshot_id").alias(f"{edge}_snapshot_id"), sf.col("number").alias(f"{edge}_number")
        )
        memberships = memberships.join(sf.broadcast(numbers), f"{edge}_snapshot_id")
    return memberships


def _shown_or_around(intervals: DataFrame) -> DataFrame:
    """Add ``cells``: the partitions of an interval, or those of the nearest intervals that have any."""
    in_order = Window.partitionBy(*_GROUP).orderBy("first_number")
    shows = sf.col("is_known") & (sf.col("num_members") > 0)
    shown = intervals.withColumn("cells", sf.when(shows, sf.flatten(_cells_by_topic())))
    before, after = _around("cells", in_order)
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
    return sf.array().cast(f"array<{kind}>")
