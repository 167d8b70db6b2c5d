"""Tables of plans, gate results, plan events and outcomes (gold)."""

from __future__ import annotations

from typing import Final

from evenlag.lake.tables.contract import (
    CLUSTER_AND_DAY,
    GROUP_COLUMNS,
    PLAN_COLUMNS,
    SNAPSHOT_COLUMNS,
    TOPIC_PARTITION_COLUMNS,
    Column,
    table,
)

# Columns of ``lag`` and ``members`` by which groups are planned and loads are built.
PLANNED_LAG: Final = (
    *("group_id", "topic_id", "topic", "partition", "owner_member_id", "target_member_id", "status"),
    *("lag_records", "lag_bound", "arrival_rate_records_per_s", "consume_rate_records_per_s", "stalled"),
    *("commit_problem", "owner_problem", "racks"),
)
PLANNED_MEMBERS: Final = (
    *("group_id", "group_state", "group_type", "assignor", "member_id", "group_instance_id", "rack_id"),
    *("subscription", "subscription_error", "assignment_error", "error"),
)
_METRICS_STRUCT: Final = (
    "STRUCT<max_member_lag_records: BIGINT, mean_member_lag_records: DOUBLE, lag_skew: DOUBLE, "
    "min_member_partitions: INT, max_member_partitions: INT, balance_score: BIGINT>"
)

_PREDICTION_STRUCT: Final = (
    "STRUCT<record_s: DOUBLE, next_lag_records: DOUBLE, next_wait_ms: BIGINT, horizon_lag_records: DOUBLE, "
    "horizon_wait_ms: BIGINT>"
)

_INTERVAL: Final = "predicted: DOUBLE, lower: DOUBLE, upper: DOUBLE"
_EXPECTED: Final = f"ARRAY<STRUCT<measure: STRING, is_horizon: BOOLEAN, ahead_s: DOUBLE, {_INTERVAL}>>"
_SCORED: Final = f"ARRAY<STRUCT<measure: STRING, {_INTERVAL}, actual: DOUBLE, held: BOOLEAN>>"

PLANS: Final = table(
    "plans",
    "a plan's head: an assignment for one group from one snapshot; without it there is no plan",
    *SNAPSHOT_COLUMNS,
    Column("slot", "TIMESTAMP", "the snapshot's slot", nullable=False),
    Column("plan_id", "STRING", "SHA-256 of the payload, in hex", nullable=False),
    Column("group_id", "STRING", "group.id", nullable=False),
    Column("mode", "STRING", "shadow, approve or auto", nullable=False),
    Column("assignor", "STRING", "its assignor", nullable=False),
    Column("settings", "STRING", "the group's settings as canonical JSON", nullable=False),
    Column("policy_hash", "STRING", "SHA-256 of the policy text", nullable=False),
    Column("fingerprint", "STRING", "of members, subscriptions and partition counts", nullable=False),
    Column("payload", "STRING", "payload of the hint", nullable=False),
    Column("payload_bytes", "INT", "size of the payload", nullable=False),
    Column("group_state", "STRING", "state of the group in the snapshot"),
    Column("group_type", "STRING", "type of the group in the snapshot"),
    Column("group_assignor", "STRING", "assignor that the group had selected"),
    Column("num_members", "INT", "members planned for", nullable=False),
    Column("num_partitions", "INT", "partitions planned", nullable=False),
    Column("num_unassigned_partitions", "INT", "partitions without a subscriber", nullable=False),
    Column("num_unknown_partitions", "INT", "partitions of unknown load", nullable=False),
    Column("num_stalled_partitions", "INT", "stalled partitions"),
    Column("moves", "INT", "partitions that leave a live owner", nullable=False),
    Column("count_gap", "INT", "largest difference of counts that one move could reduce", nullable=False),
    Column("gain", "DOUBLE", "relative decrease of the largest member load; null: made whatever it saves"),
    Column("metrics_before", _METRICS_STRUCT, "measures of the current assignment"),
    Column("metrics_after", _METRICS_STRUCT, "measures of the plan"),
    Column("violations", "ARRAY<STRING>", "findings of the checker"),
    Column("run_id", "STRING", "the run that planned it"),
    Column("mode_reason", "STRING", "why it is in shadow although the policy allows more"),
    Column("consecutive_breaches", "INT", "consecutive snapshots that need a change"),
    Column("num_unknown_lags", "INT", "partitions of unknown lag: the measures' lags are then lower bounds"),
    Column("assignments_hash", "STRING", "SHA-256 of its rows of `plan_assignments`; null: shadow"),
    Column("seal", "STRING", "seal of the row; null: no key, or shadow"),
    Column("attempt_id", "STRING", "null; development versions filled it, and their seals cover it"),
    Column("across_racks_before", "DOUBLE", "share of the load that members read across racks"),
    Column("across_racks_after", "DOUBLE", "the same in the plan; both null: no rack is known"),
    Column("horizon_ms", "BIGINT", "how far ahead the predictions look; null: no speed is known"),
    Column("step_ms", "BIGINT", "the first step of the horizon, `next` in the predictions"),
    Column(
        "prediction_before",
        _PREDICTION_STRUCT,
        "expected without the plan: record-seconds that records wait within the horizon (with `load: time` "
        "and a `target_wait_s` only those beyond it), the group's lag and "
        "the longest time until a member has processed its own, after the first step and at the horizon",
    ),
    Column("prediction_after", _PREDICTION_STRUCT, "the same with the plan, its cost included"),
    Column("record_s_saved", "DOUBLE", "of these, what the plan saves within the horizon, without its cost"),
    Column("record_s_cost", "DOUBLE", "record-seconds that records wait because the plan is followed"),
    Column(
        "follow_ms", "BIGINT", "how long the group takes to follow a plan: measured, or its client's default"
    ),
    Column(
        "capacities",
        "ARRAY<STRUCT<member_key: STRING, capacity: DOUBLE>>",
        "relative capacities by measured speeds, which the plan balances by; null: as the policy configures",
    ),
    Column(
        "expected",
        _EXPECTED,
        "total_lag_records and time_lag_ms with the plan, at the next snapshot and at the horizon, with an "
        "interval of 90 % by the errors of `forecasts`; null: no speed or forecast is known",
    ),
    key=("plan_id",),
)

PLAN_ASSIGNMENTS: Final = table(
    "plan_assignments",
    "a partition of a plan; in shadow only those that move",
    *SNAPSHOT_COLUMNS,
    *PLAN_COLUMNS,
    *TOPIC_PARTITION_COLUMNS,
    Column("owner_before", "STRING", "current owner; null: none"),
    Column("owner_after", "STRING", "planned owner; null: no subscriber"),
    Column("owner_after_key", "STRING", "its key in the hint: i:INSTANCE or m:MEMBER"),
    Column("moved", "BOOLEAN", "it leaves a live owner, or its target owner", nullable=False),
    Column("lag_records", "BIGINT", "lag it was planned with"),
    Column("lag_status", "STRING", "status of that lag"),
    key=("plan_id", "topic_id", "partition"),
)

DECISIONS: Final = table(
    "decisions",
    "the result of planning a group of a snapshot; all of a snapshot are written at once",
    *GROUP_COLUMNS,
    Column("policy_hash", "STRING", "SHA-256 of the policy text", nullable=False),
    Column("policy_mode", "STRING", "shadow, approve or auto", nullable=False),
    Column("mode", "STRING", "effective mode"),
    Column("decision", "STRING", "PROPOSED, BREACH, NO_CHANGE, NOT_PLANNED or FAILED", nullable=False),
    Column("reason", "STRING", "explanation"),
    Column("is_breach", "BOOLEAN", "a change is needed; null: not planned"),
    Column("consecutive_breaches", "INT", "consecutive snapshots that need a change"),
    Column("gain", "DOUBLE", "as in `plans`"),
    Column("plan_id", "STRING", "the plan, if any"),
    Column("run_id", "STRING", "the run"),
    Column("seal", "STRING", "seal of the row, if publishable"),
    key=("snapshot_id", "group_id"),
)

_COST_COLUMNS: Final = (
    Column(
        "follow_ms",
        "BIGINT",
        "from issuing the hint until the publishing saw it followed, at looks up to 1 s apart; KIP-848: "
        "until it saw the target as hinted; null: not seen",
    ),
    Column(
        "rebalancing_ms",
        "BIGINT",
        "how long until then the group was seen to rebalance, so its members stop for at most about this; "
        "null: not followed, or KIP-848",
    ),
    Column("num_triggers", "INT", "how often evenlag made the group rebalance; null: not waited for"),
)

PLAN_EVENTS: Final = table(
    "plan_events",
    "an event of a plan",
    *SNAPSHOT_COLUMNS,
    *PLAN_COLUMNS,
    Column(
        "event",
        "STRING",
        "PROPOSED, REJECTED, APPROVED, PUBLISHED, APPLIED, IGNORED, EXPIRED or WITHDRAWN",
        nullable=False,
    ),
    Column("reason", "STRING", "explanation"),
    Column("actor", "STRING", "id of an Airflow user, account:NAME, or a job", nullable=False),
    Column("at", "TIMESTAMP", "time; for decisions from a snapshot, its end"),
    Column("sequence", "BIGINT", "of the hint, for PUBLISHED and WITHDRAWN"),
    Column("expires_at", "TIMESTAMP", "for PUBLISHED"),
    Column("run_id", "STRING", "the run"),
    Column("channel", "STRING", "of a user's decision: page, api or command"),
    Column("actor_name", "STRING", "display name of the user"),
    Column("account", "STRING", "account and host of the command"),
    Column("seal", "STRING", "for PROPOSED and APPROVED; of an approval over all rows of the plan"),
    Column(
        "signing_key_id",
        "STRING",
        "key of the hint's signature, for PUBLISHED; null: unsigned, or an earlier attempt",
    ),
    *_COST_COLUMNS,
    key=("plan_id", "event"),
)

GATE_RESULTS: Final = table(
    "gate_results",
    "a gate's verdict on a plan",
    *SNAPSHOT_COLUMNS,
    *PLAN_COLUMNS,
    Column("gate", "STRING", "name of the gate", nullable=False),
    Column("passed", "BOOLEAN", "whether the plan passed", nullable=False),
    Column("observed", "STRING", "what was measured"),
    Column("allowed", "STRING", "what the policy allows"),
    Column("message", "STRING", "verdict in words", nullable=False),
    Column("run_id", "STRING", "the run"),
    Column("seal", "STRING", "seal of the row, if publishable"),
    key=("plan_id", "gate"),
)

_UNKNOWN_COLUMNS: Final = (
    Column("num_partitions", "INT", "partitions of the group; null: no lag in the snapshot"),
    Column(
        "num_unknown_partitions",
        "INT",
        "of these, of unknown lag: actual lags are then lower bounds, or null",
    ),
)

OUTCOMES: Final = table(
    "outcomes",
    "the outcome of a published plan by a later snapshot",
    *SNAPSHOT_COLUMNS,
    Column("slot", "TIMESTAMP", "of the snapshot that settled it", nullable=False),
    *PLAN_COLUMNS,
    Column("outcome", "STRING", "APPLIED, IGNORED or EXPIRED", nullable=False),
    Column("reason", "STRING", "explanation"),
    Column("adherence", "DOUBLE", "share of the hinted partitions with their hinted members"),
    Column("max_member_lag_before_records", "BIGINT", "largest member lag when planned"),
    Column("max_member_lag_predicted_records", "BIGINT", "as predicted"),
    Column("max_member_lag_actual_records", "BIGINT", "actual, of known lags"),
    Column("total_lag_before_records", "BIGINT", "lag of the group when planned"),
    Column("total_lag_actual_records", "BIGINT", "actual, of known lags"),
    Column("lag_skew_before", "DOUBLE", "when planned"),
    Column("lag_skew_predicted", "DOUBLE", "as predicted"),
    Column("lag_skew_actual", "DOUBLE", "actual; null: some lag is unknown"),
    Column("run_id", "STRING", "the run"),
    Column("target_adherence", "DOUBLE", "`adherence` of the target assignment; null: classic group"),
    *_UNKNOWN_COLUMNS,
    Column(
        "reason_code",
        "STRING",
        "AS_HINTED, NEWER_HINT, OTHER_ASSIGNOR, NO_MEMBERS, MEMBERS_CHANGED, NOT_FOLLOWED or UNKNOWN; "
        "null: earlier versions",
    ),
    *_COST_COLUMNS,
    Column("expected", _SCORED, "what the plan predicted for this snapshot, and whether it held"),
    key=("plan_id",),
)

PLAN_EVALUATIONS: Final = table(
    "plan_evaluations",
    "the evaluation of a published plan by the first snapshot after its horizon",
    *SNAPSHOT_COLUMNS,
    Column("slot", "TIMESTAMP", "of the evaluating snapshot", nullable=False),
    *PLAN_COLUMNS,
    Column("settings", "STRING", "settings of the plan: only equal ones count together"),
    Column("published_at", "TIMESTAMP", "when the hint was published", nullable=False),
    Column("scored_after_ms", "BIGINT", "from publishing to the evaluating snapshot", nullable=False),
    Column("outcome", "STRING", "APPLIED, IGNORED, EXPIRED or WITHDRAWN", nullable=False),
    Column("outcome_reason", "STRING", "explanation"),
    Column("paid_off", "BOOLEAN", "null: open, see `reason`"),
    Column("reason", "STRING", "verdict in words", nullable=False),
    Column("max_member_lag_before_records", "BIGINT", "largest member lag when planned"),
    Column("max_member_lag_predicted_records", "BIGINT", "as predicted"),
    Column("max_member_lag_actual_records", "BIGINT", "at the horizon, of known lags"),
    Column("total_lag_before_records", "BIGINT", "null; earlier versions filled it"),
    Column("total_lag_actual_records", "BIGINT", "at the horizon, of known lags"),
    Column("gain_predicted", "DOUBLE", "predicted decrease of the largest member load"),
    Column("gain_actual", "DOUBLE", "null; earlier versions filled it"),
    Column("drain_time_before_ms", "BIGINT", "null; earlier versions filled it"),
    Column("drain_time_actual_ms", "BIGINT", "null; earlier versions filled it"),
    Column("run_id", "STRING", "the run"),
    *_UNKNOWN_COLUMNS,
    Column(
        "stay_record_s",
        "DOUBLE",
        "record-seconds that records would have waited until the snapshot if nothing had moved: replayed",
    ),
    Column("actual_record_s", "DOUBLE", "those of the replay of what ran, without stops for the plan"),
    Column("cost_record_s", "DOUBLE", "those that the measured stops cost; all three null: not replayed"),
    Column("expected", _SCORED, "what the plan predicted for its horizon, and whether it held"),
    key=("plan_id",),
)

ADVICE: Final = table(
    "advice",
    "how many members a group needs so that records wait no longer than its target, after a snapshot",
    *GROUP_COLUMNS,
    Column("end_read_at", "TIMESTAMP", "as in `snapshots`", nullable=False),
    Column("num_members", "INT", "members that there are", nullable=False),
    Column("members_needed", "INT", "members that are advised; null: no speed or no lag is known"),
    Column("reason", "STRING", "what binds: rate, hot_partition or partitions"),
    Column("is_at_most", "BOOLEAN", "speeds are lower bounds only: fewer members may be sufficient"),
    Column(
        "members_now",
        "INT",
        "needed by this snapshot alone: fewer are advised when they last; null: unknown, so `members_needed` "
        "stays as it was",
    ),
    Column("fewer_members", "INT", "largest `members_now` since `fewer_since`; null: not fewer"),
    Column("fewer_since", "TIMESTAMP", "since when fewer than advised have been sufficient"),
    Column("members_by_rate", "INT", "needed if partitions could be divided at will"),
    Column("partitions_to_add", "INT", "partitions that would let more members help"),
    Column(
        "hot_partitions",
        "ARRAY<STRUCT<topic: STRING, partition: INT, members: DOUBLE>>",
        "partitions that no number of members helps: their records, in members that these would need",
    ),
    Column("moves", "INT", "partitions that move when the group has `members_now`"),
    Column("r_score", "DOUBLE", "what arrives at these partitions, in members"),
    Column("work_per_s", "DOUBLE", "forecast of arrivals, in records of cost 1 per second"),
    Column("speed_records_per_s", "DOUBLE", "speed of the typical member, as in `speeds`"),
    Column("confidence", "DOUBLE", "mean of those of the members' speeds, from 0 to 1"),
    Column("target_wait_s", "INT", "the group's target; null: none"),
    Column("wait_ms", "BIGINT", "age of the oldest record not processed; null: unknown"),
    Column("is_target_met", "BOOLEAN", "the oldest record is no older than the target; null: unknown"),
    Column("missed_since", "TIMESTAMP", "since which snapshot the target is missed; null: it is not"),
    Column("met_share", "DOUBLE", "share of the known time of the last 24 hours in which the target was met"),
    Column("most_members", "INT", "most members that were needed in the last 24 hours"),
    Column(
        "hours",
        "ARRAY<STRUCT<hour: TIMESTAMP, members: INT, known_s: DOUBLE, missed_s: DOUBLE>>",
        "by hour: most members needed, seconds in which it is known whether the target is met, "
        "and in which it was missed",
    ),
    key=("snapshot_id", "group_id"),
    partition_by=CLUSTER_AND_DAY,
)
