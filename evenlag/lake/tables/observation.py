"""Tables of a cluster's snapshots (bronze), and of the lag computed from them (silver)."""

from __future__ import annotations

from typing import Final

from evenlag.lake.tables.contract import (
    CLUSTER_AND_DAY,
    Column,
    Table,
    partition_key_columns,
    snapshot_columns,
)

SNAPSHOTS: Final = Table(
    name="snapshots",
    doc="a finished snapshot of a cluster: the marker, written last; readers ignore rows without it",
    key=("cluster", "slot"),
    columns=(
        *snapshot_columns(),
        Column("slot", "TIMESTAMP", "the moment that the snapshot represents", nullable=False),
        Column("kafka_cluster_id", "STRING", "the brokers' cluster id", nullable=False),
        Column("run_id", "STRING", "the run that took it"),
        Column("started_at", "TIMESTAMP", "when the snapshot started", nullable=False),
        Column("log_start_read_at", "TIMESTAMP", "when all log start offsets were read", nullable=False),
        Column("commits_read_at", "TIMESTAMP", "when all committed offsets were read", nullable=False),
        Column("end_read_at", "TIMESTAMP", "when all end offsets were read", nullable=False),
        Column("finished_at", "TIMESTAMP", "when the snapshot ended", nullable=False),
        Column("num_groups", "INT", "groups in the snapshot", nullable=False),
        Column("num_topics", "INT", "topics read", nullable=False),
        Column("num_partitions", "INT", "partitions to read", nullable=False),
        Column("num_unread_partitions", "INT", "of these, partitions with a failed read", nullable=False),
        Column("completeness", "DOUBLE", "1 - unread / partitions; 1.0 for an empty cluster", nullable=False),
        Column(
            "problems",
            "ARRAY<STRUCT<kind: STRING, name: STRING, error: STRING>>",
            "groups, topics and partitions that could not be read, at most 1,000 of them",
        ),
        Column(
            "hint_topic_max_bytes",
            "BIGINT",
            "max.message.bytes of the hint topic; null: the topic does not exist",
        ),
        Column("num_problems", "BIGINT", "groups, topics and partitions that could not be read, all of them"),
        Column("num_unread_groups", "INT", "groups of which something could not be read"),
    ),
    writer="direct",
)

OFFSETS: Final = Table(
    name="offsets",
    doc="a partition's log start offset, high watermark and last stable offset",
    key=("snapshot_id", "topic_id", "topic", "partition"),
    columns=(
        *snapshot_columns(),
        *partition_key_columns(),
        Column("log_start_offset", "BIGINT", "first readable offset"),
        Column("high_watermark", "BIGINT", "end offset of a read_uncommitted reader"),
        Column("last_stable_offset", "BIGINT", "end offset of a read_committed reader"),
        Column("log_start_read_at", "TIMESTAMP", "when the log start offset was read"),
        Column("end_read_at", "TIMESTAMP", "when the end offsets were read"),
        Column("error", "STRING", "why an offset is missing"),
        Column(
            "reset_offsets",
            "ARRAY<STRUCT<reset_policy: STRING, offset: BIGINT>>",
            "where consumers without a commit start, by each `by_duration:…` of the policy: the first record "
            "that is no older, else the high watermark; null offset: not read",
        ),
    ),
    partition_by=CLUSTER_AND_DAY,
)

COMMITS: Final = Table(
    name="commits",
    doc="a group's committed offset",
    key=("snapshot_id", "group_id", "topic_id", "topic", "partition"),
    columns=(
        *snapshot_columns(),
        Column("group_id", "STRING", "group.id", nullable=False),
        # A group whose commits could not be read has one row without a partition, and the error.
        Column("topic_id", "STRING", "Kafka's topic id; null where the read failed"),
        Column("topic", "STRING", "name of the topic; null where the read failed"),
        Column("partition", "INT", "number of the partition; null where the read failed"),
        Column("committed_offset", "BIGINT", "next offset the group will consume; null: none committed"),
        Column("leader_epoch", "INT", "epoch stored with the commit"),
        Column("read_at", "TIMESTAMP", "when it was read", nullable=False),
        Column("error", "STRING", "why the commit could not be read"),
        Column(
            "reported_lag_records",
            "BIGINT",
            "lag that the broker reports for a share group, whose `committed_offset` is the start offset of "
            "the share partition; null: other groups, and brokers before 4.2",
        ),
    ),
    partition_by=CLUSTER_AND_DAY,
)

MEMBERS: Final = Table(
    name="members",
    doc="a member of a group; a group without members has one row whose member_id is null",
    key=("snapshot_id", "group_id", "member_id"),
    columns=(
        *snapshot_columns(),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("group_state", "STRING", "Stable, Empty, Dead, PreparingRebalance, Reconciling, ..."),
        Column("group_type", "STRING", "classic, consumer, share, streams"),
        Column("protocol_type", "STRING", "'consumer' for consumers; '' for a classic group without members"),
        Column("assignor", "STRING", "the assignor that the group selected; null during a rebalance"),
        Column("member_id", "STRING", "member.id"),
        Column("group_instance_id", "STRING", "group.instance.id of a static member"),
        Column("client_id", "STRING", "client.id"),
        Column("client_host", "STRING", "host as the coordinator sees it"),
        Column("subscription", "ARRAY<STRING>", "topics the member subscribes to; null: unknown"),
        Column(
            "assignment",
            "ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>",
            "partitions the member owns; null: unknown",
        ),
        Column("read_at", "TIMESTAMP", "when it was read", nullable=False),
        Column("error", "STRING", "why the group could not be described"),
        # The following columns are null for groups of the classic protocol.
        Column("group_epoch", "INT", "increases with each change that makes the coordinator reassign"),
        Column("assignment_epoch", "INT", "group_epoch of the coordinator's target"),
        Column("member_epoch", "INT", "epoch of the member's current assignment"),
        Column("member_type", "STRING", "the member's own protocol: classic during the group's migration"),
        Column("rack_id", "STRING", "client.rack"),
        Column(
            "target_assignment",
            "ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>",
            "the member's partitions in the coordinator's target assignment",
        ),
        Column(
            "subscription_pattern",
            "STRING",
            "expression by which the member subscribes; the topics that it matches are in `subscription`",
        ),
        # A group that could not be described at all has `error`, and these two are null.
        Column("subscription_error", "STRING", "why the subscription is unknown; null: it is known"),
        Column("assignment_error", "STRING", "why the assignment is unknown; null: it is known"),
    ),
    partition_by=CLUSTER_AND_DAY,
)

LAG: Final = Table(
    name="lag",
    doc="consumer lag of a group on a partition, with a status that qualifies the value",
    key=("snapshot_id", "group_id", "topic_id", "topic", "partition"),
    columns=(
        *snapshot_columns(),
        Column("slot", "TIMESTAMP", "the snapshot's slot", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        *partition_key_columns(),
        Column("owner_member_id", "STRING", "member that owns the partition"),
        Column(
            "status", "STRING", "OK, NO_COMMIT, DATA_LOSS, OUT_OF_RANGE, UNKNOWN, NOT_SUBSCRIBED, NO_MEMBERS"
        ),
        Column("lag_records", "BIGINT", "lag in records; null: unknown"),
        Column("raw_lag_records", "BIGINT", "end offset - committed offset; may be negative"),
        Column("committed_offset", "BIGINT", "the committed offset used"),
        Column("log_start_offset", "BIGINT", "first readable offset"),
        Column("end_offset", "BIGINT", "the end offset used: by the isolation level of the group's clients"),
        Column("read_at", "TIMESTAMP", "when the end was read"),
        Column("arrival_rate_records_per_s", "DOUBLE", "growth of the end offset over the rate window"),
        Column("consume_rate_records_per_s", "DOUBLE", "growth of the committed offset over the rate window"),
        Column(
            "time_lag_ms",
            "BIGINT",
            "age of the record where the group continues, interpolated from earlier snapshots",
        ),
        Column(
            "drain_time_ms",
            "BIGINT",
            "time until the lag is zero at the current rates; 0: it is, or the partition is at most a minute "
            "behind; null: lag does not shrink",
        ),
        Column("stalled", "BOOLEAN", "lag without a commit over the rate window"),
        Column(
            "target_member_id", "STRING", "owner in the coordinator's target assignment; null: classic group"
        ),
        Column("commit_problem", "STRING", "why the group's commits are unknown; null: they are known"),
        Column(
            "subscription_problem", "STRING", "why the group's subscription is unknown; null: it is known"
        ),
        Column(
            "owner_problem", "STRING", "why the owner is unknown, or which members own the partition together"
        ),
        Column("lag_bound", "STRING", "LOWER or UPPER: `lag_records` is a bound; null: it is exact"),
        Column(
            "time_lag_at_least_ms",
            "BIGINT",
            "lower bound of the time behind where `time_lag_ms` is unknown; null: none",
        ),
    ),
    partition_by=CLUSTER_AND_DAY,
)
