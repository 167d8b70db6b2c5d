"""Tables of the audit: members of groups and owners of partitions over time, computed from snapshots.

Each (cluster, day) is computed only from the snapshots that started on that UTC day, so a late snapshot
changes its own day only. Intervals never cross midnight: readers merge them.
"""

from typing import Final

from evenlag.lake.tables.contract import CLIENT_COLUMNS, Column, table

_DAY_COLUMNS: Final = (
    Column("cluster", "STRING", "the cluster's name in the policy", nullable=False),
    Column("day", "DATE", "UTC day on which the snapshots started", nullable=False),
)

_INTERVAL_COLUMNS: Final = (
    Column("first_snapshot_id", "STRING", "first snapshot with this state", nullable=False),
    Column("first_seen_at", "TIMESTAMP", "when it read the group", nullable=False),
    Column("last_snapshot_id", "STRING", "last snapshot of the day with this state", nullable=False),
    Column("last_seen_at", "TIMESTAMP", "when it read the group", nullable=False),
    Column("previous_snapshot_id", "STRING", "the snapshot before; null: the interval begins the day"),
    Column("previous_seen_at", "TIMESTAMP", "when it read the group"),
    Column("next_snapshot_id", "STRING", "the snapshot after; null: the interval ends the day"),
    Column("next_seen_at", "TIMESTAMP", "when it read the group"),
    Column("num_snapshots", "INT", "consecutive snapshots", nullable=False),
    Column("longest_gap_ms", "BIGINT", "longest time between two of them", nullable=False),
    Column("input_hash", "STRING", "as in `audited_snapshots`", nullable=False),
)

MEMBERSHIPS: Final = table(
    "memberships",
    "an interval of one day in which a group did not change",
    *_DAY_COLUMNS,
    Column("group_id", "STRING", "group.id", nullable=False),
    Column("group_state", "STRING", "Stable, PreparingRebalance, CompletingRebalance, Empty, Dead"),
    Column("group_type", "STRING", "classic, consumer, ..."),
    Column("assignor", "STRING", "selected assignor; null during a rebalance"),
    Column("error", "STRING", "why the group could not be described"),
    Column("is_known", "BOOLEAN", "false during a rebalance and after a failed read", nullable=False),
    Column("num_members", "INT", "live members", nullable=False),
    Column(
        "members",
        "ARRAY<STRUCT<member_id: STRING, group_instance_id: STRING, client_id: STRING, "
        "client_host: STRING, subscription: ARRAY<STRING>, "
        "assignment: ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>>>",
        "by id; subscription and assignment are null during a rebalance",
        nullable=False,
    ),
    Column(
        "topics",
        "ARRAY<STRUCT<topic: STRING, topic_id: STRING, num_partitions: INT>>",
        "topics subscribed or owned, without those that could not be read",
        nullable=False,
    ),
    *_INTERVAL_COLUMNS,
    Column(
        "returned",
        "ARRAY<STRUCT<member_id: STRING, next_member_id: STRING>>",
        "clients with another member id in the next known interval, kept when names are removed; "
        "null: compare the names",
    ),
    key=("cluster", "group_id", "first_snapshot_id"),
    writer="spark",
)

OWNERSHIP: Final = table(
    "ownership",
    "an interval of one day in which a partition had the same owner, or none (SCD2)",
    *_DAY_COLUMNS,
    Column("group_id", "STRING", "group.id", nullable=False),
    Column(
        "topic_id",
        "STRING",
        "Kafka's topic id; of an unreadable topic, that of the nearest snapshot of the day; null: none",
    ),
    Column("topic", "STRING", "name of the topic", nullable=False),
    Column("partition", "INT", "number of the partition", nullable=False),
    Column("state", "STRING", "OWNED, NOBODY (subscribed and not owned) or UNKNOWN", nullable=False),
    Column("reason", "STRING", "for NOBODY and UNKNOWN"),
    Column("member_id", "STRING", "member.id; null: not OWNED"),
    Column("owner_key", "STRING", "its key in a hint: i:INSTANCE or m:MEMBER"),
    *CLIENT_COLUMNS,
    Column("num_owners", "INT", "owners at the same time", nullable=False),
    *_INTERVAL_COLUMNS,
    key=("cluster", "group_id", "topic_id", "topic", "partition", "member_id", "first_snapshot_id"),
    writer="spark",
)

AUDITED_SNAPSHOTS: Final = table(
    "audited_snapshots",
    "a snapshot that the audit of its day includes, written last",
    *_DAY_COLUMNS,
    Column("snapshot_id", "STRING", "the snapshot", nullable=False),
    Column("slot", "TIMESTAMP", "scheduled time of the snapshot", nullable=False),
    Column("started_at", "TIMESTAMP", "when it started: the order of snapshots", nullable=False),
    Column("finished_at", "TIMESTAMP", "end of the snapshot", nullable=False),
    Column("input_hash", "STRING", "hash of the ids of all snapshots of the day", nullable=False),
    key=("cluster", "snapshot_id"),
    writer="spark",
)
