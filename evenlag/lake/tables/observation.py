"""Tables of what was seen of a cluster (bronze) and of what it means (silver)."""

from __future__ import annotations

from typing import Final

from evenlag.lake.tables.contract import Column, Table, partition_key_columns, snapshot_columns

SNAPSHOTS: Final = Table(
    name="snapshots",
    doc="one finished reading of a cluster: the marker, written last; without it the rest is invisible",
    key=("cluster", "slot"),
    columns=(
        *snapshot_columns(),
        Column("slot", "TIMESTAMP", "the moment the reading stands for", nullable=False),
        Column("kafka_cluster_id", "STRING", "id that the brokers gave", nullable=False),
        Column("run_id", "STRING", "the run that read it"),
        Column("started_at", "TIMESTAMP", "when the reading began", nullable=False),
        Column("log_start_read_at", "TIMESTAMP", "when the log start offsets had been read", nullable=False),
        Column("commits_read_at", "TIMESTAMP", "when the committed offsets had been read", nullable=False),
        Column("end_read_at", "TIMESTAMP", "when the end offsets had been read", nullable=False),
        Column("finished_at", "TIMESTAMP", "when the reading ended", nullable=False),
        Column("num_groups", "INT", "groups seen", nullable=False),
        Column("num_topics", "INT", "topics read", nullable=False),
        Column("num_partitions", "INT", "partitions that should have been read", nullable=False),
        Column("num_unread_partitions", "INT", "of these, the ones with a failed read", nullable=False),
        Column("completeness", "DOUBLE", "1 - unread / partitions; 1.0 for an empty cluster", nullable=False),
        Column(
            "problems",
            "ARRAY<STRUCT<kind: STRING, name: STRING, error: STRING>>",
            "groups, topics and partitions that could not be read, at most 1,000 of them",
        ),
        Column("hint_topic_max_bytes", "BIGINT", "max.message.bytes of the hint topic; null: not there yet"),
    ),
)

OFFSETS: Final = Table(
    name="offsets",
    doc="a partition's log start offset, high watermark and last stable offset",
    key=("snapshot_id", "topic_id", "topic", "partition"),
    columns=(
        *snapshot_columns(),
        *partition_key_columns(),
        Column("log_start_offset", "BIGINT", "first offset that can be read"),
        Column("high_watermark", "BIGINT", "end offset of a read_uncommitted reader"),
        Column("last_stable_offset", "BIGINT", "end offset of a read_committed reader"),
        Column("log_start_read_at", "TIMESTAMP", "when the log start offset was read"),
        Column("end_read_at", "TIMESTAMP", "when the end offsets were read"),
        Column("error", "STRING", "why an offset is missing"),
    ),
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
        Column("committed_offset", "BIGINT", "next offset the group will read; null when none"),
        Column("leader_epoch", "INT", "epoch stored with the commit"),
        Column("read_at", "TIMESTAMP", "when it was read", nullable=False),
        Column("error", "STRING", "why the commit could not be read"),
    ),
)

MEMBERS: Final = Table(
    name="members",
    doc="a member of a group; a group without members has one row whose member_id is null",
    key=("snapshot_id", "group_id", "member_id"),
    columns=(
        *snapshot_columns(),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("group_state", "STRING", "Stable, Empty, Dead, PreparingRebalance, Reconciling, ..."),
        Column("group_type", "STRING", "classic, consumer, ..."),
        Column("protocol_type", "STRING", "'consumer' for consumers"),
        Column("assignor", "STRING", "the assignor the group selected; null while it rebalances"),
        Column("member_id", "STRING", "member.id"),
        Column("group_instance_id", "STRING", "group.instance.id of a static member"),
        Column("client_id", "STRING", "client.id"),
        Column("client_host", "STRING", "host that the coordinator saw"),
        Column("subscription", "ARRAY<STRING>", "topics the member takes; null while it rebalances"),
        Column(
            "assignment",
            "ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>",
            "partitions the member holds; null while it rebalances",
        ),
        Column("read_at", "TIMESTAMP", "when it was read", nullable=False),
        Column("error", "STRING", "why the group could not be described"),
        # From here on null for groups of the classic protocol.
        Column("group_epoch", "INT", "rises with each change that the coordinator assigns anew for"),
        Column("assignment_epoch", "INT", "group_epoch of the coordinator's target"),
        Column("member_epoch", "INT", "epoch of the target that the member has reached"),
        Column("member_type", "STRING", "protocol of the member itself: classic while the group goes over"),
        Column("rack_id", "STRING", "client.rack"),
        Column(
            "target_assignment",
            "ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>",
            "partitions that the coordinator wants the member to hold",
        ),
    ),
)

LAG: Final = Table(
    name="lag",
    doc="how far a group is behind on a partition, and what that number is worth",
    key=("snapshot_id", "group_id", "topic_id", "topic", "partition"),
    columns=(
        *snapshot_columns(),
        Column("slot", "TIMESTAMP", "the snapshot's slot", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        *partition_key_columns(),
        Column("owner_member_id", "STRING", "member that holds the partition"),
        Column("status", "STRING", "OK, NO_COMMIT, DATA_LOSS, NEGATIVE, UNKNOWN, NOT_SUBSCRIBED, NO_MEMBERS"),
        Column("lag_records", "BIGINT", "offsets between the group and the end; null when it is not known"),
        Column("raw_lag_records", "BIGINT", "end - committed, with its sign"),
        Column("committed_offset", "BIGINT", "the commit it was counted from"),
        Column("log_start_offset", "BIGINT", "first offset that can be read"),
        Column("end_offset", "BIGINT", "the end counted to: by the isolation level of the group's clients"),
        Column("read_at", "TIMESTAMP", "when the end was read"),
        Column("arrival_rate_records_per_s", "DOUBLE", "growth of the end offset over the rate window"),
        Column("consume_rate_records_per_s", "DOUBLE", "growth of the committed offset over the rate window"),
        Column("time_lag_ms", "BIGINT", "age of the oldest record not consumed, by interpolated history"),
        Column(
            "drain_time_ms", "BIGINT", "time to no lag at the present rates; null when it does not shrink"
        ),
        Column("stalled", "BOOLEAN", "lag, records to read, and no commit moved over the rate window"),
        Column("target_member_id", "STRING", "who shall hold it by the coordinator's target; null: classic"),
    ),
)
