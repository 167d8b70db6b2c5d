"""Tables of candidate policies: evaluated at snapshots, and simulated over a period (gold)."""

from __future__ import annotations

from typing import Final

from evenlag.lake.tables.contract import Column, Table, partition_columns, snapshot_columns

_POLICY_COLUMNS: Final = (
    Column("group_id", "STRING", "group.id", nullable=False),
    Column("policy", "STRING", "name of what is compared: NAME[:key=value,…], or observed", nullable=False),
    Column("assignor", "STRING", "the assignor; null for observed, what really ran"),
    Column("settings", "STRING", "its settings as canonical JSON; null for observed"),
)

COMPARISONS: Final = Table(
    name="comparisons",
    doc="what a policy would have assigned to a group at a snapshot, scored by that snapshot's lag alone",
    key=("snapshot_id", "group_id", "policy"),
    columns=(
        *snapshot_columns(),
        Column("slot", "TIMESTAMP", "the snapshot's slot", nullable=False),
        *_POLICY_COLUMNS,
        Column("reason", "STRING", "why it could not be scored; null when it was"),
        Column("num_members", "INT", "members of the group"),
        Column("num_partitions", "INT", "partitions of the topics that they subscribe to"),
        Column(
            "num_unknown_partitions",
            "INT",
            "of these, the ones whose lag is not known: with any, mean, skew, gap and gain are null",
        ),
        Column("num_unassigned_partitions", "INT", "of these, partitions without a subscriber"),
        Column("moves", "INT", "partitions that would leave a live owner"),
        Column("min_member_partitions", "INT", "the fewest partitions that a member would own"),
        Column("max_member_partitions", "INT", "the most partitions that a member would own"),
        Column("count_gap", "INT", "largest difference of counts that a partition could cross"),
        Column("balance_score", "BIGINT", "sum over all pairs of members of how far their counts differ"),
        Column("max_member_lag_records", "BIGINT", "lag of the member that would be furthest behind"),
        Column("mean_member_lag_records", "DOUBLE", "lag of a member on average"),
        Column("lag_skew", "DOUBLE", "the largest by the mean; 1 when all are behind alike"),
        Column(
            "lower_bound_records", "DOUBLE", "no assignment brings the lag of the furthest behind below this"
        ),
        Column(
            "optimality_gap", "DOUBLE", "how far the furthest behind is above the bound, as a share of it"
        ),
        Column("gain", "DOUBLE", "relative fall of the most loaded member's lag; below 0 it grows"),
        Column("comparison_id", "STRING", "hash of what was compared: policies, snapshots, model"),
    ),
)

_REPLAY_COLUMNS: Final = (
    *partition_columns(),
    *_POLICY_COLUMNS,
    Column("reason", "STRING", "why it could not be simulated; null: it was"),
    Column("period_start", "TIMESTAMP", "snapshot at which the simulation starts", nullable=False),
    Column("period_end", "TIMESTAMP", "snapshot at which it ends", nullable=False),
    Column("num_snapshots", "INT", "snapshots in the period that contain the group", nullable=False),
    Column("num_partitions", "INT", "partitions simulated"),
    Column("num_members", "INT", "different members in the period"),
    Column("protocol", "STRING", "COOPERATIVE or EAGER: what a rebalance stops; null for observed"),
    Column("at", "ARRAY<TIMESTAMP>", "moments of the snapshots; the arrays below have one value for each"),
    Column("lag_records", "ARRAY<BIGINT>", "lag of the group"),
    Column("max_member_lag_records", "ARRAY<BIGINT>", "lag of the member that is furthest behind"),
    Column("time_lag_ms", "ARRAY<BIGINT>", "age of the oldest record of the group not yet processed"),
    Column("mean_lag_records", "DOUBLE", "lag of the group on average over time, by the model's integral"),
    Column("max_lag_records", "BIGINT", "largest lag of the group at a snapshot"),
    Column("p95_time_lag_ms", "BIGINT", "time lag that is not exceeded for 95 % of the partitions' time"),
    Column("max_time_lag_ms", "BIGINT", "largest time lag of a partition at a snapshot"),
    Column(
        "drain_from", "TIMESTAMP", "when the observed lag was largest: the same for all policies of a group"
    ),
    Column(
        "drain_time_ms",
        "BIGINT",
        "from then until all that had arrived was processed; null: not in the period",
    ),
    Column("moves", "INT", "partitions that left a live owner, taking over included"),
    Column("takeover_moves", "INT", "of these, at the first snapshot, from the observed owners"),
    Column("rebalances", "INT", "rebalances, taking over included"),
    Column("forced_rebalances", "INT", "of these, because members, subscriptions or partitions changed"),
    Column("paused_ms", "BIGINT", "time for which partitions were paused in rebalances, summed over them"),
    Column("arrived_records", "BIGINT", "records that arrived in the period"),
    Column("processed_records", "BIGINT", "records that were processed in it"),
    Column("num_observed_capacities", "INT", "members with an observed capacity: busy for long enough"),
    Column("num_assumed_capacities", "INT", "members whose capacity is that of others, or a lower bound"),
    Column(
        "median_error",
        "DOUBLE",
        "observed only: median of |simulated - observed| lag, relative to the observed lag, over "
        "num_error_snapshots",
    ),
    Column("p95_error", "DOUBLE", "observed only: the same, 95th percentile"),
    Column("median_error_records", "DOUBLE", "observed only: median of |simulated - observed| lag over them"),
    Column("p95_error_records", "DOUBLE", "observed only: the same, 95th percentile"),
    Column("comparison_id", "STRING", "hash of what was compared: policies, snapshots, model"),
    Column("num_unknown_ages", "INT", "partitions whose first backlog has no known age: times are minima"),
    Column("unknown_share", "DOUBLE", "part of the partitions' time before their first known lag: left out"),
    Column("measured_mean_lag_records", "DOUBLE", "observed only: measured lag on average over time"),
    Column("measured_max_lag_records", "BIGINT", "observed only: largest measured lag at a snapshot"),
    Column("num_unknown_lags", "INT", "observed only: lags of a partition at a snapshot that are not known"),
    Column(
        "measured_unknown_share", "DOUBLE", "observed only: part of the partitions' time without known lag"
    ),
    Column("measured_max_time_lag_ms", "BIGINT", "observed only: largest measured time lag at a snapshot"),
    Column("num_unknown_time_lags", "INT", "observed only: lags at a snapshot that have no time lag"),
    Column("num_error_snapshots", "INT", "observed only: snapshots with lag; null: the errors are over all"),
    Column("num_unknown_partitions", "INT", "partitions whose lag is never known: in no figure"),
)

REPLAYS: Final = Table(
    name="replays",
    doc="a day of a group simulated under a policy, from the state in the day's first snapshot",
    key=("day", "group_id", "policy"),
    columns=_REPLAY_COLUMNS,
)

CONTINUOUS_REPLAYS: Final = Table(
    name="continuous_replays",
    doc="a period of several days of a group simulated under a policy; day is its first day",
    key=("day", "group_id", "policy"),
    columns=_REPLAY_COLUMNS,
)
