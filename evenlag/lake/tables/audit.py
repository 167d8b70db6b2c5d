"""Tables of the audit: members of groups and owners of partitions over time, computed from snapshots.

Each (cluster, day) is computed only from the snapshots that started on that UTC day, so a late snapshot
changes its own day only. Intervals never cross midnight: readers merge them.
"""

from __future__ import annotations

from typing import Final

from evenlag.lake.tables.contract import Column, Table

_DAY_COLUMNS: Final = (
    Column("cluster", "STRING", "the cluster's name in the policy", nullable=False),
    Column("day", "DATE", "UTC day on which the snapshots started", nullable=False),
)

_INTERVAL_COLUMNS: Final = (
    Column("first_snapshot_id", "STRING", "first snapshot that shows this state", nullable=False),
    Column("first_seen_at", "TIMESTAMP", "when the first snapshot read the group", nullable=False),
    Column("last_snapshot_id", "STRING", "last snapshot of the day that shows this state", nullable=False),
    Column("last_seen_at", "TIMESTAMP", "when the last snapshot read the group", nullable=False),
    Column(
        "previous_snapshot_id", "STRING", "snapshot before the interval; null: the interval begins the day"
    ),
    Column("previous_seen_at", "TIMESTAMP", "when that snapshot read the group: the interval began later"),
    Column("next_snapshot_id", "STRING", "snapshot after the interval; null: the interval ends the day"),
    Column("next_seen_at", "TIMESTAMP", "when that snapshot read the group: the interval ended earlier"),
    Column("num_snapshots", "INT", "consecutive snapshots in the interval", nullable=False),
    Column("longest_gap_ms", "BIGINT", "longest time between two of these snapshots", nullable=False),
    Column("input_hash", "STRING", "hash of the day's snapshots, as in audited_snapshots", nullable=False),
)

MEMBERSHIPS: Final = Table(
    name="memberships",
    doc="an interval of one day in which a group did not change: its state and members",
    key=("cluster", "group_id", "first_snapshot_id"),
    columns=(
        *_DAY_COLUMNS,
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("group_state", "STRING", "Stable, PreparingRebalance, CompletingRebalance, Empty, Dead"),
        Column("group_type", "STRING", "classic, consumer, ..."),
        Column("assignor", "STRING", "the assignor the group selected; null while it rebalances"),
        Column("error", "STRING", "why the group could not be described"),
        Column(
            "is_known",
            "BOOLEAN",
            "whether the group shows its assignment: not during a rebalance, nor after a failed read",
            nullable=False,
        ),
        Column("num_members", "INT", "live members", nullable=False),
        Column(
            "members",
            "ARRAY<STRUCT<member_id: STRING, group_instance_id: STRING, client_id: STRING, "
            "client_host: STRING, subscription: ARRAY<STRING>, "
            "assignment: ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>>>",
            "the members by id; subscription and assignment are null during a rebalance",
            nullable=False,
        ),
        Column(
            "topics",
            "ARRAY<STRUCT<topic: STRING, topic_id: STRING, num_partitions: INT>>",
            "topics that members subscribe to or own; topics that could not be read are left out",
            nullable=False,
        ),
        *_INTERVAL_COLUMNS,
        Column(
            "returned",
            "ARRAY<STRUCT<member_id: STRING, next_member_id: STRING>>",
            "clients that have another member id in the group's next known interval; null: compare the "
            "clients' names (kept here when these are removed)",
        ),
    ),
)

OWNERSHIP: Final = Table(
    name="ownership",
    doc="an interval of one day in which a partition had the same owner, or none (SCD2)",
    key=("cluster", "group_id", "topic_id", "topic", "partition", "member_id", "first_snapshot_id"),
    columns=(
        *_DAY_COLUMNS,
        Column("group_id", "STRING", "group.id", nullable=False),
        Column(
            "topic_id",
            "STRING",
            "Kafka's topic id; of an owned topic that could not be read the id in the group's snapshots of "
            "that day before, else after; null: none of them has it",
        ),
        Column("topic", "STRING", "name of the topic", nullable=False),
        Column("partition", "INT", "number of the partition", nullable=False),
        Column(
            "state",
            "STRING",
            "OWNED; NOBODY: subscribed by the group and owned by no member; UNKNOWN: not shown by the group",
            nullable=False,
        ),
        Column("reason", "STRING", "reason for NOBODY and UNKNOWN"),
        Column("member_id", "STRING", "member.id of the owner; null when not OWNED"),
        Column("owner_key", "STRING", "the owner's key in a hint: i:<instance id> or m:<member id>"),
        Column("group_instance_id", "STRING", "group.instance.id of a static member"),
        Column("client_id", "STRING", "client.id"),
        Column("client_host", "STRING", "host as the coordinator sees it"),
        Column(
            "num_owners",
            "INT",
            "members that owned it at the same time: 0, 1, or more (an error)",
            nullable=False,
        ),
        *_INTERVAL_COLUMNS,
    ),
)

AUDITED_SNAPSHOTS: Final = Table(
    name="audited_snapshots",
    doc="a snapshot that the audit of its day includes; written last: without it the day is not audited",
    key=("cluster", "snapshot_id"),
    columns=(
        *_DAY_COLUMNS,
        Column("snapshot_id", "STRING", "the snapshot", nullable=False),
        Column("slot", "TIMESTAMP", "the moment that the snapshot represents", nullable=False),
        Column(
            "started_at",
            "TIMESTAMP",
            "when the snapshot started: snapshots are ordered by it",
            nullable=False,
        ),
        Column("finished_at", "TIMESTAMP", "when the snapshot ended", nullable=False),
        Column("input_hash", "STRING", "hash of the ids of all snapshots of the day", nullable=False),
    ),
)
