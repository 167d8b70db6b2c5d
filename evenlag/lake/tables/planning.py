"""Tables of plans, gate results, plan events and outcomes (gold)."""

from __future__ import annotations

from typing import Final

from evenlag.lake.tables.contract import Column, Table, partition_key_columns, snapshot_columns

_METRICS_STRUCT: Final = (
    "STRUCT<max_member_lag_records: BIGINT, mean_member_lag_records: DOUBLE, lag_skew: DOUBLE, "
    "min_member_partitions: INT, max_member_partitions: INT, balance_score: BIGINT>"
)

PLANS: Final = Table(
    name="plans",
    doc="a plan's head: an assignment proposed for one group from one snapshot; without it there is no plan",
    key=("plan_id",),
    columns=(
        *snapshot_columns(),
        Column("slot", "TIMESTAMP", "the snapshot's slot", nullable=False),
        Column("plan_id", "STRING", "SHA-256 of the payload, in hex", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("mode", "STRING", "shadow, approve or auto: what it was planned in", nullable=False),
        Column("assignor", "STRING", "the assignor that made it", nullable=False),
        Column("settings", "STRING", "the group's settings as canonical JSON", nullable=False),
        Column("policy_hash", "STRING", "SHA-256 of the policy text", nullable=False),
        Column(
            "fingerprint", "STRING", "fingerprint of the group's members and subscriptions", nullable=False
        ),
        Column("payload", "STRING", "the hint's payload, exactly as it would be published", nullable=False),
        Column("payload_bytes", "INT", "size of the payload", nullable=False),
        Column("group_state", "STRING", "state of the group in the snapshot"),
        Column("group_type", "STRING", "type of the group in the snapshot"),
        Column("group_assignor", "STRING", "assignor that the group had selected"),
        Column("num_members", "INT", "members planned for", nullable=False),
        Column("num_partitions", "INT", "partitions planned", nullable=False),
        Column("num_unassigned_partitions", "INT", "partitions without a subscriber", nullable=False),
        Column(
            "num_unknown_partitions",
            "INT",
            "partitions whose load (lag, or rate by the settings) is not known",
            nullable=False,
        ),
        Column("num_stalled_partitions", "INT", "stalled partitions: moving them may not help"),
        Column("moves", "INT", "partitions that leave a live owner", nullable=False),
        Column(
            "count_gap", "INT", "largest difference of counts that a partition could cross", nullable=False
        ),
        Column("gain", "DOUBLE", "relative fall of the most loaded member's known load; 0: nothing falls"),
        Column("metrics_before", _METRICS_STRUCT, "the measures of the current owners"),
        Column("metrics_after", _METRICS_STRUCT, "the measures of what is planned"),
        Column("violations", "ARRAY<STRING>", "what the checker found wrong with the assignment"),
        Column("run_id", "STRING", "the run that planned it"),
        Column("mode_reason", "STRING", "why it was planned in shadow though the policy allows more"),
        Column(
            "consecutive_breaches", "INT", "consecutive snapshots, including this one, that need a change"
        ),
        Column(
            "num_unknown_lags",
            "INT",
            "partitions whose lag is not known: the largest lags of the measures are then lower bounds",
        ),
        Column("assignments_hash", "STRING", "SHA-256 of its rows of plan_assignments; null: mode shadow"),
        Column("seal", "STRING", "seal of the row; null: no key, or mode shadow"),
        Column(
            "attempt_id",
            "STRING",
            "the attempt whose rows of plan_assignments are the plan's; null: all are (earlier versions)",
        ),
    ),
    writer="direct",
)

PLAN_ASSIGNMENTS: Final = Table(
    name="plan_assignments",
    doc="a partition of a plan whose head names this attempt; in shadow only the ones that change owner",
    key=("plan_id", "topic_id", "partition"),
    columns=(
        *snapshot_columns(),
        Column("plan_id", "STRING", "the plan", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        *partition_key_columns(),
        Column("owner_before", "STRING", "member_id of the current owner; null: none"),
        Column("owner_after", "STRING", "member_id of the planned owner; null: no subscriber"),
        Column(
            "owner_after_key", "STRING", "the same as the hint names it: i:<instance id> or m:<member id>"
        ),
        Column("moved", "BOOLEAN", "whether it leaves a live owner, or its target owner", nullable=False),
        Column("lag_records", "BIGINT", "lag it was planned with"),
        Column("lag_status", "STRING", "status of that lag"),
        Column(
            "attempt_id",
            "STRING",
            "the attempt to plan that wrote this row; null: an earlier version wrote it",
        ),
    ),
)

DECISIONS: Final = Table(
    name="decisions",
    doc="what planning made of a group of a snapshot, plan or not; all of a snapshot are written at once",
    key=("snapshot_id", "group_id"),
    columns=(
        *snapshot_columns(),
        Column("slot", "TIMESTAMP", "the snapshot's slot", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("policy_hash", "STRING", "SHA-256 of the policy text", nullable=False),
        Column("policy_mode", "STRING", "mode by the policy: shadow, approve or auto", nullable=False),
        Column("mode", "STRING", "effective mode: shadow if the group cannot get hints or backs off"),
        Column(
            "decision",
            "STRING",
            "PROPOSED, BREACH (not often enough in a row yet), NO_CHANGE, NOT_PLANNED or FAILED",
            nullable=False,
        ),
        Column("reason", "STRING", "why, in plain words"),
        Column("is_breach", "BOOLEAN", "whether the assignor would change the group; null: not planned"),
        Column(
            "consecutive_breaches", "INT", "consecutive snapshots, including this one, that need a change"
        ),
        Column("gain", "DOUBLE", "relative fall of the most loaded member's load, by the plan"),
        Column("plan_id", "STRING", "the plan, when one was proposed"),
        Column("run_id", "STRING", "the run"),
        Column("seal", "STRING", "seal of the row, if the plan may be published"),
    ),
    writer="direct",
)

PLAN_EVENTS: Final = Table(
    name="plan_events",
    doc="an event of a plan: from planning, gates, approvals, the publisher, the CLI and later snapshots",
    key=("plan_id", "event"),
    columns=(
        *snapshot_columns(),
        Column("plan_id", "STRING", "the plan", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column(
            "event",
            "STRING",
            "PROPOSED, REJECTED, APPROVED, PUBLISHED, APPLIED, IGNORED, EXPIRED or WITHDRAWN",
            nullable=False,
        ),
        Column("reason", "STRING", "why, in plain words"),
        Column(
            "actor",
            "STRING",
            "who or what decided: id of the user of Airflow, account:NAME for the command, or a job",
            nullable=False,
        ),
        Column(
            "at",
            "TIMESTAMP",
            "when it happened; of what a job decides from a snapshot, the end of that snapshot",
        ),
        Column("sequence", "BIGINT", "the hint's sequence number, for PUBLISHED and WITHDRAWN"),
        Column("expires_at", "TIMESTAMP", "when the hint ends, for PUBLISHED"),
        Column("run_id", "STRING", "the run"),
        Column(
            "channel",
            "STRING",
            "how a user's decision arrived: page, api or command; null: no user decided, or not recorded",
        ),
        Column("actor_name", "STRING", "name of that user as displayed, or as given to the command"),
        Column("account", "STRING", "account and host that the command ran on, as it reports them"),
        Column(
            "seal",
            "STRING",
            "seal of the row, for PROPOSED and APPROVED; of an approval also over all rows of the plan",
        ),
        Column(
            "signing_key_id",
            "STRING",
            "id of the key that signed the hint, for PUBLISHED; null: unsigned, or of an earlier attempt",
        ),
    ),
    writer="direct",
)

GATE_RESULTS: Final = Table(
    name="gate_results",
    doc="a gate's verdict on a plan",
    key=("plan_id", "gate"),
    columns=(
        *snapshot_columns(),
        Column("plan_id", "STRING", "the plan", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("gate", "STRING", "name of the gate", nullable=False),
        Column("passed", "BOOLEAN", "whether the plan passed", nullable=False),
        Column("observed", "STRING", "what was measured"),
        Column("allowed", "STRING", "what the policy allows"),
        Column("message", "STRING", "the verdict in plain words", nullable=False),
        Column("run_id", "STRING", "the run"),
        Column("seal", "STRING", "seal of the row, if the plan may be published"),
    ),
    writer="direct",
)

_UNKNOWN_COLUMNS: Final = (
    Column("num_partitions", "INT", "partitions of the group in the snapshot; null: it has no lag of it"),
    Column(
        "num_unknown_partitions",
        "INT",
        "of these, the ones whose lag is not known: the actual lags are then lower bounds, null when all are",
    ),
)

OUTCOMES: Final = Table(
    name="outcomes",
    doc="what became of a published plan, as a later snapshot showed it",
    key=("plan_id",),
    columns=(
        *snapshot_columns(),
        Column("slot", "TIMESTAMP", "slot of the snapshot that settled it", nullable=False),
        Column("plan_id", "STRING", "the plan", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("outcome", "STRING", "APPLIED, IGNORED or EXPIRED", nullable=False),
        Column("reason", "STRING", "why, in plain words"),
        Column("adherence", "DOUBLE", "share of the hinted partitions that their hinted members own"),
        Column("max_member_lag_before_records", "BIGINT", "lag of the most loaded member when planned"),
        Column("max_member_lag_predicted_records", "BIGINT", "the same by the plan"),
        Column(
            "max_member_lag_actual_records", "BIGINT", "the actual value, of the partitions with known lag"
        ),
        Column("total_lag_before_records", "BIGINT", "lag of the group when planned"),
        Column(
            "total_lag_actual_records", "BIGINT", "actual lag of the group, of the partitions with known lag"
        ),
        Column("lag_skew_before", "DOUBLE", "most loaded member over the mean, when planned"),
        Column("lag_skew_predicted", "DOUBLE", "the same by the plan"),
        Column("lag_skew_actual", "DOUBLE", "the actual value; null: not all lag is known"),
        Column("run_id", "STRING", "the run"),
        Column("target_adherence", "DOUBLE", "the share by the coordinator's target; null: classic protocol"),
        *_UNKNOWN_COLUMNS,
        Column(
            "reason_code",
            "STRING",
            "the reason as a code: AS_HINTED, NEWER_HINT, OTHER_ASSIGNOR, NO_MEMBERS, MEMBERS_CHANGED, "
            "NOT_FOLLOWED or UNKNOWN; null: an earlier version wrote the row",
        ),
    ),
    writer="direct",
)

PLAN_EVALUATIONS: Final = Table(
    name="plan_evaluations",
    doc="a published plan, scored by the first snapshot after its horizon",
    key=("plan_id",),
    columns=(
        *snapshot_columns(),
        Column("slot", "TIMESTAMP", "slot of the snapshot that scored it", nullable=False),
        Column("plan_id", "STRING", "the plan", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("settings", "STRING", "the settings the plan was made by: only equal ones count together"),
        Column("published_at", "TIMESTAMP", "when the hint was published", nullable=False),
        Column("scored_after_ms", "BIGINT", "from the publishing to the scoring snapshot", nullable=False),
        Column("outcome", "STRING", "APPLIED, IGNORED, EXPIRED or WITHDRAWN", nullable=False),
        Column("outcome_reason", "STRING", "why, in plain words"),
        Column("paid_off", "BOOLEAN", "whether the plan paid off; null: unknown, see the reason"),
        Column("reason", "STRING", "the verdict in plain words", nullable=False),
        Column("max_member_lag_before_records", "BIGINT", "lag of the most loaded member when planned"),
        Column("max_member_lag_predicted_records", "BIGINT", "the same by the plan"),
        Column("max_member_lag_actual_records", "BIGINT", "the same at the horizon, as far as known"),
        Column("total_lag_before_records", "BIGINT", "lag of the group when planned"),
        Column("total_lag_actual_records", "BIGINT", "lag of the group at the horizon, as far as known"),
        Column("gain_predicted", "DOUBLE", "relative fall of the most loaded member's load by the plan"),
        Column("gain_actual", "DOUBLE", "relative fall of the most loaded member's share of the group's lag"),
        Column(
            "drain_time_before_ms",
            "BIGINT",
            "longest drain time of a partition when planned; null: never, or a lag is not known",
        ),
        Column("drain_time_actual_ms", "BIGINT", "the same at the horizon"),
        Column("run_id", "STRING", "the run"),
        *_UNKNOWN_COLUMNS,
    ),
    writer="direct",
)
