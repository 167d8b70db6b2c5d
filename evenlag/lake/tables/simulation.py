"""Tables of candidate policies: evaluated at snapshots, and simulated over a period (gold)."""

from typing import Final

from evenlag.lake.tables.contract import PARTITION_COLUMNS, SNAPSHOT_COLUMNS, Column, table

# Columns of ``lag`` and ``members`` that a replay reads, besides the speeds of members.
REPLAYED_LAG: Final = (
    *("snapshot_id", "group_id", "topic_id", "topic", "partition", "status", "owner_member_id"),
    *("lag_records", "log_start_offset", "end_offset", "time_lag_ms"),
)
REPLAYED_MEMBERS: Final = (
    *("snapshot_id", "group_id", "group_state", "group_type", "assignor", "member_id"),
    *("group_instance_id", "subscription", "error"),
)
_POLICY_COLUMNS: Final = (
    Column("group_id", "STRING", "group.id", nullable=False),
    Column("policy", "STRING", "candidate: NAME[:key=value,…], or observed", nullable=False),
    Column("assignor", "STRING", "null: observed"),
    Column("settings", "STRING", "canonical JSON; null: observed"),
)

COMPARISONS: Final = table(
    "comparisons",
    "a candidate's assignment of a group at a snapshot, by that snapshot's lag",
    *SNAPSHOT_COLUMNS,
    Column("slot", "TIMESTAMP", "the snapshot's slot", nullable=False),
    *_POLICY_COLUMNS,
    Column("reason", "STRING", "why there is no result"),
    Column("num_members", "INT", "members of the group"),
    Column("num_partitions", "INT", "partitions of their topics"),
    Column(
        "num_unknown_partitions",
        "INT",
        "of these, of unknown lag: with any, mean, skew, gap and gain are null",
    ),
    Column("num_unassigned_partitions", "INT", "of these, without a subscriber"),
    Column("moves", "INT", "partitions that leave a live owner"),
    Column("min_member_partitions", "INT", "fewest partitions of a member"),
    Column("max_member_partitions", "INT", "most partitions of a member"),
    Column("count_gap", "INT", "largest difference of counts that one move could reduce"),
    Column("balance_score", "BIGINT", "sum of the differences of counts over all pairs"),
    Column("max_member_lag_records", "BIGINT", "largest member lag"),
    Column("mean_member_lag_records", "DOUBLE", "mean member lag"),
    Column("lag_skew", "DOUBLE", "largest by mean; 1 is even"),
    Column("lower_bound_records", "DOUBLE", "lower bound of the largest member lag"),
    Column("optimality_gap", "DOUBLE", "distance from the lower bound, as a share"),
    Column("gain", "DOUBLE", "relative decrease of the largest member lag"),
    Column("comparison_id", "STRING", "hash of policies, snapshots and model"),
    key=("snapshot_id", "group_id", "policy"),
    writer="spark",
)

_REPLAY_COLUMNS: Final = (
    *PARTITION_COLUMNS,
    *_POLICY_COLUMNS,
    Column("reason", "STRING", "why there is no result"),
    Column("period_start", "TIMESTAMP", "first snapshot", nullable=False),
    Column("period_end", "TIMESTAMP", "last snapshot", nullable=False),
    Column("num_snapshots", "INT", "snapshots with the group", nullable=False),
    Column("num_partitions", "INT", "partitions simulated"),
    Column("num_members", "INT", "different members"),
    Column("protocol", "STRING", "COOPERATIVE or EAGER; null: observed"),
    Column("at", "ARRAY<TIMESTAMP>", "times of the snapshots, for the arrays below"),
    Column("lag_records", "ARRAY<BIGINT>", "lag of the group"),
    Column("max_member_lag_records", "ARRAY<BIGINT>", "largest member lag"),
    Column("time_lag_ms", "ARRAY<BIGINT>", "age of the oldest record not yet processed"),
    Column("mean_lag_records", "DOUBLE", "time-weighted mean"),
    Column("max_lag_records", "BIGINT", "largest at a snapshot"),
    Column("max_time_lag_ms", "BIGINT", "largest of a partition at a snapshot"),
    Column("drain_from", "TIMESTAMP", "time of the largest observed lag"),
    Column("drain_time_ms", "BIGINT", "from then until it was processed; null: not in the period"),
    Column("moves", "INT", "partitions that left a live owner"),
    Column("takeover_moves", "INT", "of these, at the first snapshot"),
    Column("rebalances", "INT", "including the first"),
    Column("forced_rebalances", "INT", "of these, by changes of the group"),
    Column("paused_ms", "BIGINT", "pauses of all partitions"),
    Column("arrived_records", "BIGINT", "in the period"),
    Column("processed_records", "BIGINT", "in the period"),
    Column("num_observed_capacities", "INT", "members with an observed capacity"),
    Column("num_assumed_capacities", "INT", "members with an assumed capacity"),
    Column(
        "median_error",
        "DOUBLE",
        "observed only: relative error of the simulated lag over `num_error_snapshots`",
    ),
    Column("p95_error", "DOUBLE", "observed only"),
    Column("median_error_records", "DOUBLE", "observed only: absolute error"),
    Column("p95_error_records", "DOUBLE", "observed only"),
    Column("comparison_id", "STRING", "hash of policies, snapshots and model"),
    Column(
        "num_unknown_ages", "INT", "partitions whose first backlog has no known age: times are lower bounds"
    ),
    Column("unknown_share", "DOUBLE", "share of the partitions' time before their first known lag, left out"),
    Column("measured_mean_lag_records", "DOUBLE", "observed only: measured, time-weighted"),
    Column("measured_max_lag_records", "BIGINT", "observed only: measured"),
    Column("num_unknown_lags", "INT", "observed only: unknown lags"),
    Column("measured_unknown_share", "DOUBLE", "observed only: share of time without known lag"),
    Column("measured_max_time_lag_ms", "BIGINT", "observed only: measured"),
    Column("num_unknown_time_lags", "INT", "observed only: lags without a time lag"),
    Column("num_error_snapshots", "INT", "observed only: snapshots with lag; null: all"),
    Column("num_unknown_partitions", "INT", "partitions whose lag is never known, in no figure"),
    Column("waiting_p50_ms", "BIGINT", "half of the records wait no longer until they are processed"),
    Column("waiting_p95_ms", "BIGINT", "95 % of the records wait no longer"),
    Column("waiting_p99_ms", "BIGINT", "99 % of the records wait no longer"),
    Column("record_s", "DOUBLE", "waiting of all records, in record-seconds"),
    Column("record_s_above_5s", "DOUBLE", "of this, what is above 5 s of each record"),
    Column("record_s_above_30s", "DOUBLE", "what is above 30 s"),
    Column("record_s_above_300s", "DOUBLE", "what is above 300 s"),
    Column("peak_member_lag_records", "BIGINT", "largest member lag at a snapshot"),
    Column("least_member_lag_records", "ARRAY<BIGINT>", "lower bound of `max_member_lag_records`"),
    Column("most_member_lag_records", "ARRAY<BIGINT>", "upper bound of it"),
    Column("least_peak_member_lag_records", "BIGINT", "lower bound of `peak_member_lag_records`"),
    Column("most_peak_member_lag_records", "BIGINT", "upper bound of it"),
    Column("least_record_s", "DOUBLE", "lower bound of `record_s`"),
    Column("most_record_s", "DOUBLE", "upper bound of it"),
    Column(
        "wide_share",
        "DOUBLE",
        "share of the snapshots with lag whose bounds of the largest member lag are wider than 25 % of it; "
        "null: no snapshot with lag",
    ),
)

REPLAYS: Final = table(
    "replays",
    "a simulated day of a group under a candidate",
    *_REPLAY_COLUMNS,
    key=("day", "group_id", "policy"),
    writer="spark",
)

CONTINUOUS_REPLAYS: Final = table(
    "continuous_replays",
    "a simulated period of several days; `day` is the first",
    *_REPLAY_COLUMNS,
    key=("day", "group_id", "policy"),
    writer="spark",
)
