"""The contracts of the lake's tables, as data: columns with types and meaning, key, partitioning.

No Spark here, so that the command, the DAG files and the documentation read the same contracts as the
jobs. All moments are UTC timestamps; all durations are milliseconds and say so; all counts of records say
so. Evolution adds columns only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CLUSTER_AND_DAY: Final = ("cluster", "day")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its type in Spark SQL's DDL, what it means, and whether it may be null."""

    name: str
    type: str
    doc: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the lake.

    Attributes
    ----------
    name
        Folder under the lake root.
    doc
        What one row is.
    key
        Columns that tell rows apart.
    columns
        In the order in which they are written.
    writer
        ``"spark"`` or ``"direct"``; a table has one kind of writer only, because appends by Spark and by
        ``deltalake`` side by side on a local folder can lose a commit.
    """

    name: str
    doc: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    writer: str = "spark"

    @property
    def ddl(self) -> str:
        """The schema in Spark SQL's DDL.

        Every column is nullable to Spark: add-only evolution and outer joins both need it, and the
        contract's own nullability is checked by the jobs' tests.
        """
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns in order."""
        return tuple(column.name for column in self.columns)


def _partition_columns() -> tuple[Column, ...]:
    return (
        Column("cluster", "STRING", "the cluster's name in the policy", nullable=False),
        Column("day", "DATE", "UTC day of the slot", nullable=False),
    )


def _snapshot_columns() -> tuple[Column, ...]:
    return (
        *_partition_columns(),
        Column("snapshot_id", "STRING", "the attempt to read that this row came from", nullable=False),
    )


def _partition_key_columns() -> tuple[Column, ...]:
    return (
        Column("topic_id", "STRING", "Kafka's topic id, as Uuid.toString() prints it", nullable=False),
        Column("topic", "STRING", "name of the topic", nullable=False),
        Column("partition", "INT", "number of the partition", nullable=False),
    )


SNAPSHOTS: Final = Table(
    name="snapshots",
    doc="one finished reading of a cluster: the marker, written last; without it the rest is invisible",
    key=("cluster", "slot"),
    columns=(
        *_snapshot_columns(),
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
        *_snapshot_columns(),
        *_partition_key_columns(),
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
        *_snapshot_columns(),
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
        *_snapshot_columns(),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("group_state", "STRING", "Stable, PreparingRebalance, CompletingRebalance, Empty, Dead"),
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
    ),
)

LAG: Final = Table(
    name="lag",
    doc="how far a group is behind on a partition, and what that number is worth",
    key=("snapshot_id", "group_id", "topic_id", "topic", "partition"),
    columns=(
        *_snapshot_columns(),
        Column("slot", "TIMESTAMP", "the snapshot's slot", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        *_partition_key_columns(),
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
    ),
)

_METRICS_STRUCT: Final = (
    "STRUCT<max_member_lag_records: BIGINT, mean_member_lag_records: DOUBLE, lag_skew: DOUBLE, "
    "min_member_partitions: INT, max_member_partitions: INT, balance_score: BIGINT>"
)

PLANS: Final = Table(
    name="plans",
    doc="a plan's head: an assignment proposed for one group from one snapshot; without it there is no plan",
    key=("plan_id",),
    columns=(
        *_snapshot_columns(),
        Column("slot", "TIMESTAMP", "the snapshot's slot", nullable=False),
        Column("plan_id", "STRING", "SHA-256 of the payload, in hex", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("mode", "STRING", "shadow, approve or auto: what it was planned in", nullable=False),
        Column("assignor", "STRING", "the assignor that made it", nullable=False),
        Column("settings", "STRING", "the group's settings as canonical JSON", nullable=False),
        Column("policy_hash", "STRING", "SHA-256 of the policy text", nullable=False),
        Column("fingerprint", "STRING", "who is in the group and what it takes", nullable=False),
        Column("payload", "STRING", "the hint's payload, exactly as it would be published", nullable=False),
        Column("payload_bytes", "INT", "size of the payload", nullable=False),
        Column("group_state", "STRING", "state of the group in the snapshot"),
        Column("group_type", "STRING", "type of the group in the snapshot"),
        Column("group_assignor", "STRING", "assignor that the group had selected"),
        Column("num_members", "INT", "members planned for", nullable=False),
        Column("num_partitions", "INT", "partitions planned", nullable=False),
        Column("num_unassigned_partitions", "INT", "partitions that nobody takes", nullable=False),
        Column("num_unknown_partitions", "INT", "partitions whose lag is not known", nullable=False),
        Column("num_stalled_partitions", "INT", "partitions that stand still: moving them may not help"),
        Column("moves", "INT", "partitions that leave a live owner", nullable=False),
        Column(
            "count_gap", "INT", "largest difference of counts that a partition could cross", nullable=False
        ),
        Column("gain", "DOUBLE", "relative fall of the most loaded member's load; 0 when nothing falls"),
        Column("metrics_before", _METRICS_STRUCT, "the measures of what is"),
        Column("metrics_after", _METRICS_STRUCT, "the measures of what is planned"),
        Column("violations", "ARRAY<STRING>", "what the checker found wrong with the assignment"),
        Column("run_id", "STRING", "the run that planned it"),
        Column("mode_reason", "STRING", "why it was planned in shadow though the policy allows more"),
        Column("breaches_in_row", "INT", "readings in a row, this one included, that ask for a change"),
    ),
)

DECISIONS: Final = Table(
    name="decisions",
    doc="what planning made of a group of a snapshot, plan or not",
    key=("snapshot_id", "group_id", "policy_hash"),
    columns=(
        *_snapshot_columns(),
        Column("slot", "TIMESTAMP", "the snapshot's slot", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("policy_hash", "STRING", "SHA-256 of the policy text", nullable=False),
        Column("policy_mode", "STRING", "mode by the policy: shadow, approve or auto", nullable=False),
        Column("mode", "STRING", "mode that held: shadow where the group cannot be hinted or backs off"),
        Column(
            "decision",
            "STRING",
            "PROPOSED, BREACH (not often enough in a row yet), NO_CHANGE, NOT_PLANNED or FAILED",
            nullable=False,
        ),
        Column("reason", "STRING", "why, in plain words"),
        Column("is_breach", "BOOLEAN", "whether the assignor would change the group; null: not planned"),
        Column("breaches_in_row", "INT", "readings in a row, this one included, that ask for a change"),
        Column("gain", "DOUBLE", "relative fall of the most loaded member's load, by the plan"),
        Column("plan_id", "STRING", "the plan, when one was proposed"),
        Column("run_id", "STRING", "the run"),
    ),
)

PLAN_ASSIGNMENTS: Final = Table(
    name="plan_assignments",
    doc="a partition of a plan; in shadow only the ones that change owner",
    key=("plan_id", "topic_id", "partition"),
    columns=(
        *_snapshot_columns(),
        Column("plan_id", "STRING", "the plan", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        *_partition_key_columns(),
        Column("owner_before", "STRING", "member_id that holds it; null when nobody does"),
        Column("owner_after", "STRING", "member_id that shall hold it; null when nobody takes it"),
        Column(
            "owner_after_key", "STRING", "the same as the hint names it: i:<instance id> or m:<member id>"
        ),
        Column("moved", "BOOLEAN", "whether it leaves a live owner", nullable=False),
        Column("lag_records", "BIGINT", "lag it was planned with"),
        Column("lag_status", "STRING", "status of that lag"),
    ),
)

_EVENT_COLUMNS: Final = (
    *_snapshot_columns(),
    Column("plan_id", "STRING", "the plan", nullable=False),
    Column("group_id", "STRING", "group.id", nullable=False),
    Column(
        "event",
        "STRING",
        "PROPOSED, REJECTED, APPROVED, PUBLISHED, APPLIED, IGNORED, EXPIRED or WITHDRAWN",
        nullable=False,
    ),
    Column("reason", "STRING", "why, in plain words"),
    Column("actor", "STRING", "who or what decided", nullable=False),
    Column("at", "TIMESTAMP", "when it happened; for what a job derives, the slot it derives it from"),
    Column("sequence", "BIGINT", "the hint's sequence number, for PUBLISHED and WITHDRAWN"),
    Column("expires_at", "TIMESTAMP", "when the hint ends, for PUBLISHED"),
    Column("run_id", "STRING", "the run"),
)

PLAN_EVENTS: Final = Table(
    name="plan_events",
    doc="something that happened to a plan, told by a Spark job",
    key=("plan_id", "event"),
    columns=_EVENT_COLUMNS,
)

CONTROL_EVENTS: Final = Table(
    name="control_events",
    doc="something that happened to a plan, told where no JVM runs: the publisher and the command",
    key=("plan_id", "event"),
    columns=_EVENT_COLUMNS,
    writer="direct",
)

APPROVAL_REQUESTS: Final = Table(
    name="approval_requests",
    doc="a plan of mode approve that passed its gates: whether a person is asked, or why not",
    key=("plan_id", "state"),
    columns=(
        *_snapshot_columns(),
        Column("plan_id", "STRING", "the plan", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column(
            "state", "STRING", "ASKED, or SHADOWED: another plan of the group waits already", nullable=False
        ),
        Column("reason", "STRING", "why nobody is asked, in plain words"),
        Column("at", "TIMESTAMP", "when it was asked, or set aside", nullable=False),
        Column("answer_by", "TIMESTAMP", "from then on no answer means no"),
        Column("run_id", "STRING", "the run of plan_approval that waits"),
    ),
    writer="direct",
)

CONTROL_ACTIONS: Final = Table(
    name="control_actions",
    doc="something a person did to a cluster's hints; what it did to a plan stands in control_events too",
    key=("action_id",),
    columns=(
        *_partition_columns(),
        Column("action_id", "STRING", "random", nullable=False),
        Column("action", "STRING", "WITHDRAW, STOP_ALL or RESUME", nullable=False),
        Column("hint_topic", "STRING", "the hint topic", nullable=False),
        Column("group_id", "STRING", "the group, for WITHDRAW"),
        Column("plan_id", "STRING", "the plan whose hint stood there; null when it could not be read"),
        Column("sequence", "BIGINT", "the hint's sequence number"),
        Column("reason", "STRING", "why, as the person said", nullable=False),
        Column("actor", "STRING", "who", nullable=False),
        Column("at", "TIMESTAMP", "when", nullable=False),
    ),
    writer="direct",
)

ALERTS: Final = Table(
    name="alerts",
    doc="a fault that began or ended: its last row says whether it stands",
    key=("kind", "subject", "at"),
    columns=(
        *_partition_columns(),
        Column(
            "kind",
            "STRING",
            "STALE_SNAPSHOT, INCOMPLETE_SNAPSHOT, PLAN_REJECTED, HINT_NOT_FOLLOWED or HOT_PARTITION",
            nullable=False,
        ),
        Column("subject", "STRING", "the group, or the cluster", nullable=False),
        Column("state", "STRING", "RAISED or CLEARED", nullable=False),
        Column("message", "STRING", "the fault in plain words", nullable=False),
        Column("at", "TIMESTAMP", "when it was seen", nullable=False),
        Column("run_id", "STRING", "the run that saw it"),
    ),
    writer="direct",
)

GATE_RESULTS: Final = Table(
    name="gate_results",
    doc="a gate's verdict on a plan",
    key=("plan_id", "gate"),
    columns=(
        *_snapshot_columns(),
        Column("plan_id", "STRING", "the plan", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("gate", "STRING", "name of the gate", nullable=False),
        Column("passed", "BOOLEAN", "whether the plan passed", nullable=False),
        Column("observed", "STRING", "what was measured"),
        Column("allowed", "STRING", "what the policy allows"),
        Column("message", "STRING", "the verdict in plain words", nullable=False),
        Column("run_id", "STRING", "the run"),
    ),
)

OUTCOMES: Final = Table(
    name="outcomes",
    doc="what became of a published plan, as a later snapshot showed it",
    key=("plan_id",),
    columns=(
        *_snapshot_columns(),
        Column("slot", "TIMESTAMP", "slot of the snapshot that settled it", nullable=False),
        Column("plan_id", "STRING", "the plan", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("outcome", "STRING", "APPLIED, IGNORED or EXPIRED", nullable=False),
        Column("reason", "STRING", "why, in plain words"),
        Column("adherence", "DOUBLE", "share of the hinted partitions that their hinted members hold"),
        Column("max_member_lag_before_records", "BIGINT", "lag of the most loaded member when planned"),
        Column("max_member_lag_predicted_records", "BIGINT", "the same by the plan"),
        Column("max_member_lag_actual_records", "BIGINT", "the same as seen"),
        Column("total_lag_before_records", "BIGINT", "lag of the group when planned"),
        Column("total_lag_actual_records", "BIGINT", "lag of the group as seen"),
        Column("lag_skew_before", "DOUBLE", "most loaded member over the mean, when planned"),
        Column("lag_skew_predicted", "DOUBLE", "the same by the plan"),
        Column("lag_skew_actual", "DOUBLE", "the same as seen"),
        Column("run_id", "STRING", "the run"),
    ),
)

SCORES: Final = Table(
    name="scores",
    doc="a published plan, scored by the first snapshot after its horizon",
    key=("plan_id",),
    columns=(
        *_snapshot_columns(),
        Column("slot", "TIMESTAMP", "slot of the snapshot that scored it", nullable=False),
        Column("plan_id", "STRING", "the plan", nullable=False),
        Column("group_id", "STRING", "group.id", nullable=False),
        Column("settings", "STRING", "the settings the plan was made by: only equal ones count together"),
        Column("published_at", "TIMESTAMP", "when the hint was published", nullable=False),
        Column("scored_after_ms", "BIGINT", "from the publishing to the scoring snapshot", nullable=False),
        Column("outcome", "STRING", "APPLIED, IGNORED, EXPIRED or WITHDRAWN", nullable=False),
        Column("outcome_reason", "STRING", "why, in plain words"),
        Column("paid_off", "BOOLEAN", "whether the plan was worth it; null: cannot be told"),
        Column("reason", "STRING", "the verdict in plain words", nullable=False),
        Column("max_member_lag_before_records", "BIGINT", "lag of the most loaded member when planned"),
        Column("max_member_lag_predicted_records", "BIGINT", "the same by the plan"),
        Column("max_member_lag_actual_records", "BIGINT", "the same at the horizon"),
        Column("total_lag_before_records", "BIGINT", "lag of the group when planned"),
        Column("total_lag_actual_records", "BIGINT", "lag of the group at the horizon"),
        Column("gain_predicted", "DOUBLE", "relative fall of the most loaded member's load by the plan"),
        Column("gain_actual", "DOUBLE", "relative fall of the most loaded member's share of the group's lag"),
        Column(
            "drain_time_before_ms", "BIGINT", "longest drain time of a partition when planned; null: never"
        ),
        Column("drain_time_actual_ms", "BIGINT", "the same at the horizon; null: never"),
        Column("run_id", "STRING", "the run"),
    ),
)

POLICIES: Final = Table(
    name="policies",
    doc="a policy text that was used, by its hash",
    key=("policy_hash",),
    columns=(
        *_partition_columns(),
        Column("policy_hash", "STRING", "SHA-256 of the text", nullable=False),
        Column("text", "STRING", "the policy file as it was, references to secrets included", nullable=False),
    ),
)

RUNS: Final = Table(
    name="runs",
    doc="a step of a run that ended",
    key=("run_id", "step", "slot"),
    columns=(
        *_partition_columns(),
        Column("run_id", "STRING", "Airflow's run id, or the command's", nullable=False),
        Column("step", "STRING", "observe or decide", nullable=False),
        Column("slot", "TIMESTAMP", "the slot", nullable=False),
        Column("snapshot_id", "STRING", "the snapshot it worked on"),
        Column("started_at", "TIMESTAMP", "when it began", nullable=False),
        Column("finished_at", "TIMESTAMP", "when it ended", nullable=False),
        Column("summary", "STRING", "counts of what it did, as JSON"),
    ),
)

TABLES: Final = {
    table.name: table
    for table in (
        SNAPSHOTS,
        OFFSETS,
        COMMITS,
        MEMBERS,
        LAG,
        PLANS,
        PLAN_ASSIGNMENTS,
        DECISIONS,
        PLAN_EVENTS,
        CONTROL_EVENTS,
        APPROVAL_REQUESTS,
        CONTROL_ACTIONS,
        ALERTS,
        GATE_RESULTS,
        OUTCOMES,
        SCORES,
        POLICIES,
        RUNS,
    )
}
