"""Tables of a cluster's snapshots (bronze), and of what is computed from them (silver)."""

from typing import Final

from evenlag.lake.tables.contract import (
    CLIENT_COLUMNS,
    CLUSTER_AND_DAY,
    GROUP_COLUMNS,
    PARTITION_COLUMNS,
    SNAPSHOT_COLUMNS,
    TOPIC_PARTITION_COLUMNS,
    Column,
    table,
)

SNAPSHOTS: Final = table(
    "snapshots",
    "a finished snapshot of a cluster: the marker, written last",
    *SNAPSHOT_COLUMNS,
    Column("slot", "TIMESTAMP", "scheduled time of the snapshot", nullable=False),
    Column("kafka_cluster_id", "STRING", "the brokers' cluster id", nullable=False),
    Column("run_id", "STRING", "the run that took it"),
    Column("started_at", "TIMESTAMP", "start of the snapshot", nullable=False),
    Column("log_start_read_at", "TIMESTAMP", "when all log start offsets were read", nullable=False),
    Column("commits_read_at", "TIMESTAMP", "when all committed offsets were read", nullable=False),
    Column("end_read_at", "TIMESTAMP", "when all end offsets were read", nullable=False),
    Column("finished_at", "TIMESTAMP", "end of the snapshot", nullable=False),
    Column("num_groups", "INT", "groups in the snapshot", nullable=False),
    Column("num_topics", "INT", "topics read", nullable=False),
    Column("num_partitions", "INT", "partitions to read", nullable=False),
    Column("num_unread_partitions", "INT", "of these, with a failed read", nullable=False),
    Column("completeness", "DOUBLE", "1 - unread / partitions; 1.0 for an empty cluster", nullable=False),
    Column(
        "problems",
        "ARRAY<STRUCT<kind: STRING, name: STRING, error: STRING>>",
        "what could not be read, at most 1,000 items",
    ),
    Column("hint_topic_max_bytes", "BIGINT", "max.message.bytes of the hint topic; null: no topic"),
    Column("num_problems", "BIGINT", "number of all items that could not be read"),
    Column("num_unread_groups", "INT", "groups with a failed read"),
    key=("cluster", "slot"),
)

OFFSETS: Final = table(
    "offsets",
    "a partition's log start offset, high watermark and last stable offset",
    *SNAPSHOT_COLUMNS,
    *TOPIC_PARTITION_COLUMNS,
    Column("log_start_offset", "BIGINT", "first readable offset"),
    Column("high_watermark", "BIGINT", "end offset of a read_uncommitted reader"),
    Column("last_stable_offset", "BIGINT", "end offset of a read_committed reader"),
    Column("log_start_read_at", "TIMESTAMP", "when the log start offset was read"),
    Column("end_read_at", "TIMESTAMP", "when the end offsets were read"),
    Column("error", "STRING", "why an offset is missing"),
    Column(
        "reset_offsets",
        "ARRAY<STRUCT<reset_policy: STRING, offset: BIGINT>>",
        "start offset by each `by_duration:…` of the policy; null offset: not read",
    ),
    Column(
        "racks",
        "ARRAY<STRING>",
        "racks in which consumers can read it: the leader's, or those of all replicas; null: unknown",
    ),
    Column(
        "interval_points",
        "ARRAY<STRUCT<at: TIMESTAMP, offset: BIGINT>>",
        "first records of moments since the previous snapshot, where the rate has changed; else null",
    ),
    key=("snapshot_id", "topic_id", "topic", "partition"),
    partition_by=CLUSTER_AND_DAY,
)

COMMITS: Final = table(
    "commits",
    "a group's committed offset",
    *SNAPSHOT_COLUMNS,
    Column("group_id", "STRING", "group.id", nullable=False),
    # A group whose commits could not be read has one row without a partition, and the error.
    Column("topic_id", "STRING", "Kafka's topic id; null: read failed"),
    Column("topic", "STRING", "name of the topic; null: read failed"),
    Column("partition", "INT", "null: read failed"),
    Column("committed_offset", "BIGINT", "next offset to consume; null: none committed"),
    Column("leader_epoch", "INT", "epoch stored with the commit"),
    Column("read_at", "TIMESTAMP", "when it was read", nullable=False),
    Column("error", "STRING", "why the commit could not be read"),
    Column(
        "reported_lag_records",
        "BIGINT",
        "lag of a share group by the broker (from 4.2); its `committed_offset` is the start offset",
    ),
    Column(
        "busy_ms",
        "BIGINT",
        "how long the committing member has processed records since `busy_since`; null: not reported",
    ),
    Column("busy_since", "TIMESTAMP", "when it began to count"),
    key=("snapshot_id", "group_id", "topic_id", "topic", "partition"),
    partition_by=CLUSTER_AND_DAY,
)

MEMBERS: Final = table(
    "members",
    "a member of a group; a group without members has one row with a null `member_id`",
    *SNAPSHOT_COLUMNS,
    Column("group_id", "STRING", "group.id", nullable=False),
    Column("group_state", "STRING", "Stable, Empty, Dead, PreparingRebalance, Reconciling, ..."),
    Column("group_type", "STRING", "classic, consumer, share, streams"),
    Column("protocol_type", "STRING", "'consumer'; '' for a classic group without members"),
    Column("assignor", "STRING", "selected assignor; null during a rebalance"),
    Column("member_id", "STRING", "member.id"),
    *CLIENT_COLUMNS,
    Column("subscription", "ARRAY<STRING>", "topics; null: unknown"),
    Column(
        "assignment",
        "ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>",
        "owned partitions; null: unknown",
    ),
    Column("read_at", "TIMESTAMP", "when it was read", nullable=False),
    Column("error", "STRING", "why the group could not be described"),
    # The following columns are null for groups of the classic protocol.
    Column("group_epoch", "INT", "KIP-848 epoch of the group"),
    Column("assignment_epoch", "INT", "`group_epoch` of the target assignment"),
    Column("member_epoch", "INT", "epoch of the current assignment"),
    Column("member_type", "STRING", "classic during a migration"),
    Column("rack_id", "STRING", "client.rack, of classic members too"),
    Column(
        "target_assignment",
        "ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>",
        "target assignment of the coordinator",
    ),
    Column("subscription_pattern", "STRING", "regular expression; its topics are in `subscription`"),
    # A group that could not be described at all has `error`, and these two are null.
    Column("subscription_error", "STRING", "why it is unknown; null: known"),
    Column("assignment_error", "STRING", "why it is unknown; null: known"),
    key=("snapshot_id", "group_id", "member_id"),
    partition_by=CLUSTER_AND_DAY,
)

LAG: Final = table(
    "lag",
    "lag of a group on a partition, with its status",
    *GROUP_COLUMNS,
    *TOPIC_PARTITION_COLUMNS,
    Column("owner_member_id", "STRING", "owner"),
    Column("status", "STRING", "OK, NO_COMMIT, DATA_LOSS, OUT_OF_RANGE, UNKNOWN, NOT_SUBSCRIBED, NO_MEMBERS"),
    Column("lag_records", "BIGINT", "lag in records; null: unknown"),
    Column("raw_lag_records", "BIGINT", "end - committed; may be negative"),
    Column("committed_offset", "BIGINT", "committed offset"),
    Column("log_start_offset", "BIGINT", "first readable offset"),
    Column("end_offset", "BIGINT", "end offset by the isolation level"),
    Column("read_at", "TIMESTAMP", "when the end was read"),
    Column("arrival_rate_records_per_s", "DOUBLE", "by the rate window"),
    Column("consume_rate_records_per_s", "DOUBLE", "by the rate window"),
    Column("time_lag_ms", "BIGINT", "age of the next record, interpolated from earlier snapshots"),
    Column(
        "drain_time_ms",
        "BIGINT",
        "time to zero lag at the current rates; 0: at most a minute behind; null: not shrinking",
    ),
    Column("stalled", "BOOLEAN", "lag without a commit over the rate window"),
    Column("target_member_id", "STRING", "owner in the target assignment; null: classic group"),
    Column("commit_problem", "STRING", "why the commits are unknown; null: known"),
    Column("subscription_problem", "STRING", "why the subscription is unknown; null: known"),
    Column("owner_problem", "STRING", "why the owner is unknown, or which members own it together"),
    Column("lag_bound", "STRING", "LOWER or UPPER: `lag_records` is a bound; null: exact"),
    Column("time_lag_at_least_ms", "BIGINT", "lower bound where `time_lag_ms` is unknown"),
    Column("racks", "ARRAY<STRING>", "as in `offsets`"),
    key=("snapshot_id", "group_id", "topic_id", "topic", "partition"),
    writer="spark",
    partition_by=CLUSTER_AND_DAY,
)

HOURLY_RATES: Final = table(
    "hourly_rates",
    "records that arrived at a partition per second of an hour that is over; `day` is the hour's",
    *PARTITION_COLUMNS,
    Column("hour", "TIMESTAMP", "when the hour began", nullable=False),
    *TOPIC_PARTITION_COLUMNS,
    Column("arrival_rate_records_per_s", "DOUBLE", "between the two snapshots", nullable=False),
    Column("from_snapshot_id", "STRING", "the snapshot nearest to its begin", nullable=False),
    Column("to_snapshot_id", "STRING", "the snapshot nearest to its end", nullable=False),
    key=("hour", "topic_id", "topic", "partition"),
    partition_by=CLUSTER_AND_DAY,
)

_PARTITION_FORECAST: Final = (
    "topic_id: STRING, topic: STRING, partition: INT, read_at: TIMESTAMP, end_offset: BIGINT, "
    "position: BIGINT, last_records_per_s: DOUBLE, smoothed_records_per_s: DOUBLE, "
    "anchor_read_at: TIMESTAMP, anchor_end_offset: BIGINT, "
    "anchor_last_records_per_s: DOUBLE, anchor_smoothed_records_per_s: DOUBLE, "
    "forecast_records_per_s: ARRAY<DOUBLE>"
)

_PREDICTION: Final = (
    "measure: STRING, is_horizon: BOOLEAN, ahead_s: DOUBLE, predicted: DOUBLE, lower: DOUBLE, upper: DOUBLE, "
    "scored: DOUBLE, scored_lower: DOUBLE, scored_upper: DOUBLE, actual: DOUBLE, held: BOOLEAN, "
    "pending_at: TIMESTAMP, pending: DOUBLE, pending_lower: DOUBLE, pending_upper: DOUBLE, "
    "pending_steady: DOUBLE, pending_by_rate: DOUBLE, steady_error: DOUBLE, by_rate_error: DOUBLE, "
    "mean_error: DOUBLE, num_scored: BIGINT, below: DOUBLE, above: DOUBLE"
)

FORECASTS: Final = table(
    "forecasts",
    "a group's forecast of arrivals after a snapshot, and its errors so far, from which the next one follows",
    *GROUP_COLUMNS,
    Column("read_at", "TIMESTAMP", "when the snapshot's ends were read", nullable=False),
    Column("horizon_s", "INT", "seconds of the forecast, in steps of equal length", nullable=False),
    Column(
        "model",
        "STRING",
        "last_rate, smoothed_rate, same_hour_yesterday or same_hour_last_week",
        nullable=False,
    ),
    Column("tried_s", "ARRAY<DOUBLE>", "by model, for how long it was scored; old seconds count less"),
    Column(
        "interval_errors",
        "ARRAY<STRUCT<records: DOUBLE, of_last_rate: DOUBLE>>",
        "by model, absolute errors until the next snapshot, old ones less; beside those of the last rate",
    ),
    Column(
        "horizon_errors",
        "ARRAY<STRUCT<records: DOUBLE, of_last_rate: DOUBLE>>",
        "the same of horizons that are over",
    ),
    Column("common_errors", "ARRAY<DOUBLE>", "counts of relative errors of the group's sum, by size"),
    Column("own_errors", "ARRAY<DOUBLE>", "counts of relative errors of partitions beside it, by size"),
    Column("is_of_horizon", "BOOLEAN", "these are errors of horizons, else of intervals"),
    Column(
        "partitions",
        f"ARRAY<STRUCT<{_PARTITION_FORECAST}>>",
        "by partition: where the group continues; rates, and those at the anchor, from which the horizon "
        "runs that is scored next; the mean rate forecast for each step",
    ),
    Column("assignment_hash", "BIGINT", "of the owners: a prediction holds for one assignment"),
    Column("idle_s", "DOUBLE", "seconds of arrivals that members who keep up are behind when they are seen"),
    Column(
        "predictions",
        f"ARRAY<STRUCT<{_PREDICTION}>>",
        "of total_lag_records, max_member_lag_records and time_lag_ms, at the next snapshot and at the "
        "horizon, with an interval that holds nine times in ten; the earlier prediction that this snapshot "
        "scores; the next one to be scored; the errors so far",
    ),
    key=("snapshot_id", "group_id"),
    partition_by=CLUSTER_AND_DAY,
)

_MEMBER_SPEED: Final = (
    "identity: INT, member_id: STRING, group_instance_id: STRING, client_id: STRING, "
    "speed_records_per_s: DOUBLE, is_bound: BOOLEAN, confidence: DOUBLE, busy_s: DOUBLE, "
    "at_least_records_per_s: DOUBLE"
)
_PARTITION_COST: Final = (
    "topic_id: STRING, topic: STRING, partition: INT, cost: DOUBLE, "
    "processed: ARRAY<STRUCT<identity: INT, records: DOUBLE>>"
)

SPEEDS: Final = table(
    "speeds",
    "speeds of a group's members and costs of its partitions' records, from which the next ones follow",
    *GROUP_COLUMNS,
    Column("end_read_at", "TIMESTAMP", "as in `snapshots`", nullable=False),
    Column("read_at", "TIMESTAMP", "when the group's commits were read; null: they were not"),
    Column(
        "members",
        f"ARRAY<STRUCT<{_MEMBER_SPEED}>>",
        "members, those that are away with a null `member_id`. `group_instance_id` or `client_id` say which "
        "one it is; both null: one speed of all others. `speed_records_per_s`: of records of cost 1, at "
        "least that where `is_bound`; `confidence`: from 0 to 1; `busy_s`: seconds reported or with "
        "a backlog, old ones count less",
    ),
    Column(
        "partitions",
        f"ARRAY<STRUCT<{_PARTITION_COST}>>",
        "partitions whose records do not cost 1, the median, or that a member processed while it was busy: "
        "`processed`, by `identity` in `members`",
    ),
    key=("snapshot_id", "group_id"),
    partition_by=CLUSTER_AND_DAY,
)
