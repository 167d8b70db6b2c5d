"""Tables of the audit: who was in a group and who held what, from when to when, told from the readings.

Every (cluster, day) of them is made from the readings begun on that UTC day and from nothing else, so that a
reading that comes late changes its own day only. Stretches never cross midnight: readers join them.
"""

from __future__ import annotations

from typing import Final

from evenlag.lake.tables.contract import Column, Table

_DAY_COLUMNS: Final = (
    Column("cluster", "STRING", "the cluster's name in the policy", nullable=False),
    Column("day", "DATE", "UTC day on which the readings began", nullable=False),
)

_STRETCH_COLUMNS: Final = (
    Column("first_snapshot_id", "STRING", "the first reading that shows it so", nullable=False),
    Column("first_seen_at", "TIMESTAMP", "when that one read the group", nullable=False),
    Column("last_snapshot_id", "STRING", "the last reading of the day that shows it so", nullable=False),
    Column("last_seen_at", "TIMESTAMP", "when that one read the group", nullable=False),
    Column("previous_snapshot_id", "STRING", "the reading before: not so yet; null: the first of the day"),
    Column("previous_seen_at", "TIMESTAMP", "when that one read the group; it began after this"),
    Column("next_snapshot_id", "STRING", "the reading after: no longer so; null: the last of the day"),
    Column("next_seen_at", "TIMESTAMP", "when that one read the group; it ended before this"),
    Column("num_snapshots", "INT", "readings that show it so, one after another", nullable=False),
    Column(
        "longest_gap_ms", "BIGINT", "longest time between two of these: nobody looked then", nullable=False
    ),
    Column("input_hash", "STRING", "hash of the day's readings, as in audited_snapshots", nullable=False),
)

MEMBERSHIPS: Final = Table(
    name="memberships",
    doc="a stretch of readings of one day in which a group looked the same: members as changes",
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
            "whether it shows who holds what: not while it rebalances, nor when the reading failed",
            nullable=False,
        ),
        Column("num_members", "INT", "live members", nullable=False),
        Column(
            "members",
            "ARRAY<STRUCT<member_id: STRING, group_instance_id: STRING, client_id: STRING, "
            "client_host: STRING, subscription: ARRAY<STRING>, "
            "assignment: ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>>>",
            "the members by id; what they take and hold is null while the group rebalances",
            nullable=False,
        ),
        Column(
            "topics",
            "ARRAY<STRUCT<topic: STRING, topic_id: STRING, num_partitions: INT>>",
            "the topics that members take or hold, as they were; without what could not be read",
            nullable=False,
        ),
        *_STRETCH_COLUMNS,
    ),
    removed_columns=("basis",),
)

OWNERSHIP: Final = Table(
    name="ownership",
    doc="a stretch of readings of one day in which a member, or nobody, held a partition (SCD2)",
    key=("cluster", "group_id", "topic_id", "topic", "partition", "member_id", "first_snapshot_id"),
    columns=(
        *_DAY_COLUMNS,
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("topic_id", "STRING", "Kafka's topic id; null: held, but the topic could not be read"),
        Column("topic", "STRING", "name of the topic", nullable=False),
        Column("partition", "INT", "number of the partition", nullable=False),
        Column(
            "state",
            "STRING",
            "OWNED; NOBODY: taken by the group and held by no member; UNKNOWN: the group did not show it",
            nullable=False,
        ),
        Column("reason", "STRING", "for NOBODY and UNKNOWN: why, in plain words"),
        Column("member_id", "STRING", "member.id of the holder; null when not OWNED"),
        Column("owner_key", "STRING", "the same as a hint names it: i:<instance id> or m:<member id>"),
        Column("group_instance_id", "STRING", "group.instance.id of a static member"),
        Column("client_id", "STRING", "client.id"),
        Column("client_host", "STRING", "host that the coordinator saw"),
        Column("num_owners", "INT", "members that held it at once: 0, 1, or more (a fault)", nullable=False),
        *_STRETCH_COLUMNS,
    ),
    removed_columns=("basis",),
)

AUDITED_SNAPSHOTS: Final = Table(
    name="audited_snapshots",
    doc="a reading that the audit of its day rests on; written last, so without it the day is not audited",
    key=("cluster", "snapshot_id"),
    columns=(
        *_DAY_COLUMNS,
        Column("snapshot_id", "STRING", "the reading", nullable=False),
        Column("slot", "TIMESTAMP", "the moment the reading stands for", nullable=False),
        Column(
            "started_at", "TIMESTAMP", "when the reading began: readings are ordered by it", nullable=False
        ),
        Column("finished_at", "TIMESTAMP", "when the reading ended", nullable=False),
        Column("input_hash", "STRING", "hash of the ids of all the day's readings", nullable=False),
    ),
    removed_columns=("basis",),
)
