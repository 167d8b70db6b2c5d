"""Tables of operations: approvals, control actions, alerts, policies, runs, maintenance."""

from typing import Final

from evenlag.lake.tables.contract import PARTITION_COLUMNS, PLAN_COLUMNS, SNAPSHOT_COLUMNS, Column, table

APPROVAL_REQUESTS: Final = table(
    "approval_requests",
    "a request for approval, or why a plan of mode approve has none",
    *SNAPSHOT_COLUMNS,
    *PLAN_COLUMNS,
    Column("state", "STRING", "ASKED, or SHADOWED: another plan of the group waits", nullable=False),
    Column("reason", "STRING", "why no approval is requested"),
    Column("at", "TIMESTAMP", "when it was requested or shadowed", nullable=False),
    Column("answer_by", "TIMESTAMP", "deadline"),
    Column("run_id", "STRING", "the run of plan_approval that waits"),
    Column("approvers", "ARRAY<STRING>", "null: whoever Airflow lets answer"),
    Column("dag_id", "STRING", "the DAG of that run"),
    Column("seal", "STRING", "seal of the row, for ASKED"),
    key=("plan_id", "state"),
)

CONTROL_ACTIONS: Final = table(
    "control_actions",
    "a manual action on a cluster's hints",
    *PARTITION_COLUMNS,
    Column("action_id", "STRING", "random", nullable=False),
    Column("action", "STRING", "WITHDRAW, STOP_ALL, RESUME or PURGE", nullable=False),
    Column("hint_topic", "STRING", "the hint topic", nullable=False),
    Column("group_id", "STRING", "the group, for WITHDRAW"),
    Column("plan_id", "STRING", "plan of the current hint; null: not readable"),
    Column("sequence", "BIGINT", "the hint's sequence number"),
    Column("reason", "STRING", "as given", nullable=False),
    Column("actor", "STRING", "who", nullable=False),
    Column("at", "TIMESTAMP", "when", nullable=False),
    key=("action_id",),
)

ALERTS: Final = table(
    "alerts",
    "an alert raised or cleared: the last row is its state",
    *PARTITION_COLUMNS,
    Column(
        "kind",
        "STRING",
        "STALE_SNAPSHOT, INCOMPLETE_SNAPSHOT, INVALID_DATA, PLAN_REJECTED, HINT_NOT_FOLLOWED, "
        "HOT_PARTITION, TARGET_MISSED, UNHEALTHY_TABLE or EDITED_PLAN",
        nullable=False,
    ),
    Column("subject", "STRING", "the group, the table, or the cluster", nullable=False),
    Column("state", "STRING", "RAISED, CLEARED, or STANDING (active, repeated weekly)", nullable=False),
    Column("message", "STRING", "description of the fault", nullable=False),
    Column("at", "TIMESTAMP", "when it was detected", nullable=False),
    Column("run_id", "STRING", "the run that detected it"),
    key=("kind", "subject", "at"),
)

QUALITY_RESULTS: Final = table(
    "quality_results",
    "the verdict of one quality check of a snapshot",
    *SNAPSHOT_COLUMNS,
    Column("slot", "TIMESTAMP", "the snapshot's slot", nullable=False),
    Column("suite", "STRING", "bronze: what was read; silver: the lag computed from it", nullable=False),
    Column("table_name", "STRING", "the table that is checked", nullable=False),
    Column("check_name", "STRING", "name of the check", nullable=False),
    Column("passed", "BOOLEAN", "verdict", nullable=False),
    Column("observed", "STRING", "the measured value"),
    Column("allowed", "STRING", "the limit", nullable=False),
    Column("message", "STRING", "'passed', or what is wrong", nullable=False),
    Column("checked_at", "TIMESTAMP", "when it was checked", nullable=False),
    Column("run_id", "STRING", "the run that checked it"),
    key=("snapshot_id", "check_name"),
)

POLICIES: Final = table(
    "policies",
    "a policy text that was used, by its hash",
    *PARTITION_COLUMNS,
    Column("policy_hash", "STRING", "SHA-256 of the text", nullable=False),
    Column("text", "STRING", "the policy file as it was, references to secrets included", nullable=False),
    key=("policy_hash",),
)

RUNS: Final = table(
    "runs",
    "a step of a run that ended, or a run of the audit",
    *PARTITION_COLUMNS,
    Column("run_id", "STRING", "Airflow's run id, or the command's", nullable=False),
    Column("step", "STRING", "observe, decide or audit", nullable=False),
    Column("slot", "TIMESTAMP", "the slot; of an audit, when it began", nullable=False),
    Column("snapshot_id", "STRING", "the snapshot it worked on; null: an audit"),
    Column("started_at", "TIMESTAMP", "when it began", nullable=False),
    Column("finished_at", "TIMESTAMP", "when it ended", nullable=False),
    Column("summary", "STRING", "counts of what it did, and what is open, as JSON"),
    key=("run_id", "step", "slot"),
)

DOWNSAMPLED_DAYS: Final = table(
    "downsampled_days",
    "a downsampled day: one snapshot an hour remains",
    *PARTITION_COLUMNS,
    Column("num_snapshots", "INT", "snapshots before downsampling", nullable=False),
    Column("kept_snapshot_ids", "ARRAY<STRING>", "snapshots whose lag is kept", nullable=False),
    Column("downsampled_at", "TIMESTAMP", "null: the next run continues"),
    key=("cluster", "day"),
    writer="spark",
)

TABLE_HEALTH: Final = table(
    "table_health",
    "a check of a table, or of a cluster's snapshots, after maintenance",
    *PARTITION_COLUMNS,
    Column("checked_at", "TIMESTAMP", "when the check was made", nullable=False),
    Column("table_name", "STRING", "the table", nullable=False),
    Column(
        "check_name",
        "STRING",
        "SCHEMA, PROTOCOL, PROPERTIES, LOG, FILES, ORPHANS, MISSING_DAYS or FRESHNESS",
        nullable=False,
    ),
    Column("is_ok", "BOOLEAN", "whether the check passed", nullable=False),
    Column("observed", "STRING", "what was found", nullable=False),
    Column("allowed", "STRING", "what is expected", nullable=False),
    Column("message", "STRING", "the verdict and the remedy", nullable=False),
    key=("cluster", "checked_at", "table_name", "check_name"),
)
