"""Plans of all groups from a snapshot's lag: one Arrow call a group, partitions as columns all the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.choices import Mode
from spark_jobs.lake import conform
from spark_jobs.tables import DECISIONS, PLAN_ASSIGNMENTS, PLANS, Column, Table
from spark_jobs.transforms.hintable import hint_obstacle, planning_obstacle

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from spark_jobs.core_bridge import GroupPlan
    from spark_jobs.settings import GroupSettings, Policy

# What one Arrow call answers: what was decided (one row), the plan's head (at most one) and its partitions,
# told apart by `kind`.
DECISION: Final = "decision"
HEAD: Final = "head"
ROW: Final = "row"

PROPOSED: Final = "PROPOSED"
BREACH: Final = "BREACH"
NO_CHANGE: Final = "NO_CHANGE"
NOT_PLANNED: Final = "NOT_PLANNED"
FAILED: Final = "FAILED"


def _planned_table() -> Table:
    tables = (PLANS, PLAN_ASSIGNMENTS, DECISIONS)
    shared = {column.name: column for table in tables for column in table.columns}
    kind = Column("kind", "STRING", "decision, head or row")
    return Table("planned", "what planning answers", ("plan_id",), (*shared.values(), kind))


PLANNED: Final = _planned_table()


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """What earlier snapshots tell of a group.

    Attributes
    ----------
    breaches
        How many readings in a row, up to the one before this, asked for a change.
    backs_off
        Why the group is left alone for now, None when it is not.
    """

    breaches: int = 0
    backs_off: str | None = None


_NO_HISTORY: Final = GroupHistory()


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What all plans of a run share.

    Attributes
    ----------
    policy, policy_hash
        The policy and the hash of its text.
    cluster, kafka_cluster_id
        Name in the policy, id from the brokers.
    snapshot_id, slot, day
        The snapshot planned from.
    run_id
        The run.
    history
        What is known of groups from before; a group that is not in it has none.
    """

    policy: Policy
    policy_hash: str
    cluster: str
    kafka_cluster_id: str
    snapshot_id: str
    slot: datetime
    day: date
    run_id: str
    history: Mapping[str, GroupHistory] = field(default_factory=dict)


def build_plans(lag: DataFrame, members: DataFrame, context: PlanContext) -> DataFrame:
    """Decide upon every group whose mode is not ``observe``.

    Parameters
    ----------
    lag, members
        The snapshot's rows.
    context
        What all plans share; it travels to the executors and holds no secret.

    Returns
    -------
    DataFrame
        By ``PLANNED``: one row of ``kind`` decision a group, and of each plan its head and rows. A group
        whose best assignment is the one it has gets no plan.
    """
    people = members.select(
        "group_id",
        "group_state",
        "group_type",
        "assignor",
        "member_id",
        "group_instance_id",
        "subscription",
        "error",
    )
    partitions = lag.select(
        "group_id",
        "topic_id",
        "topic",
        "partition",
        "owner_member_id",
        "status",
        "lag_records",
        "arrival_rate_records_per_s",
        "stalled",
    )

    def plan(lag_rows: pa.Table, member_rows: pa.Table) -> pa.Table:
        return plan_one_group(lag_rows, member_rows, context)

    return (
        partitions.groupBy("group_id")
        .cogroup(people.groupBy("group_id"))
        .applyInArrow(plan, schema=PLANNED.ddl)
    )


def select_heads(planned: DataFrame) -> DataFrame:
    """The rows of ``plans``."""
    from pyspark.sql import functions as sf

    return conform(planned.where(sf.col("kind") == HEAD), PLANS)


def select_assignments(planned: DataFrame) -> DataFrame:
    """All rows of the plans by the contract of ``plan_assignments``, the unmoved ones of shadow plans too."""
    from pyspark.sql import functions as sf

    return conform(planned.where(sf.col("kind") == ROW), PLAN_ASSIGNMENTS)


def select_decisions(planned: DataFrame) -> DataFrame:
    """The rows of ``decisions``."""
    from pyspark.sql import functions as sf

    return conform(planned.where(sf.col("kind") == DECISION), DECISIONS)


def plan_one_group(lag: pa.Table, members: pa.Table, context: PlanContext) -> pa.Table:
    """Decide upon one group; one that cannot be planned says why and never fails the others."""
    from assignor_core.errors import AssignorError
    from spark_jobs.arrow_schema import arrow_schema
    from spark_jobs.core_bridge import build_group, plan_group

    schema = arrow_schema(PLANNED)
    group_id = (lag if lag.num_rows else members)["group_id"][0].as_py()
    settings = context.policy.group_settings(context.cluster, group_id)
    if settings.mode is Mode.OBSERVE:
        return schema.empty_table()
    decision = _Decision(context, group_id, settings.mode.value, schema)
    if obstacle := planning_obstacle(members):
        return decision.row(NOT_PLANNED, reason=obstacle)
    if not lag.num_rows:
        return decision.row(NOT_PLANNED, reason="none of the topics that its members take was read")
    try:
        plan = plan_group(
            build_group(lag, members),
            settings,
            kafka_cluster_id=context.kafka_cluster_id,
            group_id=group_id,
            snapshot_id=context.snapshot_id,
        )
    except AssignorError as error:
        return decision.row(FAILED, reason=str(error))
    if not plan.is_change:
        return decision.row(NO_CHANGE, is_breach=False, breaches_in_row=0)
    return _propose(plan, settings, members, decision)


@dataclass(frozen=True, slots=True)
class _Decision:
    """What is told of one group."""

    context: PlanContext
    group_id: str
    policy_mode: str
    schema: pa.Schema

    @property
    def shared(self) -> dict[str, Any]:
        """The columns that all its rows have alike."""
        return _shared_columns(self.context, self.group_id)

    @property
    def history(self) -> GroupHistory:
        """What is known of the group from before."""
        return self.context.history.get(self.group_id, _NO_HISTORY)

    def row(self, decision: str, **columns: Any) -> pa.Table:
        """One row of ``decisions``, as a table."""
        return _rows([self.columns(decision, **columns)], self.schema)

    def columns(self, decision: str, **columns: Any) -> dict[str, Any]:
        """One row of ``decisions``."""
        fixed = {
            "kind": DECISION,
            "decision": decision,
            "policy_hash": self.context.policy_hash,
            "policy_mode": self.policy_mode,
            "mode": self.policy_mode,
        }
        return self.shared | fixed | columns


def _propose(plan: GroupPlan, settings: GroupSettings, members: pa.Table, decision: _Decision) -> pa.Table:
    """A plan that would change the group: proposed when enough readings in a row have asked for a change."""
    import pyarrow as pa

    from assignor_core.hint import plan_id

    breaches, needed = decision.history.breaches + 1, settings.gates.min_breaches
    told = {"is_breach": True, "breaches_in_row": breaches, "gain": plan.gain}
    if breaches < needed:
        waits = f"{breaches} of {needed} readings in a row ask for a change"
        return decision.row(BREACH, reason=waits, **told)
    reason = hint_obstacle(members)
    if reason is None and settings.mode is not Mode.SHADOW:
        reason = decision.history.backs_off
    mode = Mode.SHADOW.value if reason else settings.mode.value
    shared = decision.shared | {"plan_id": plan_id(plan.payload), "mode": mode}
    head = _head_columns(plan, settings, members, decision.context)
    head |= {"kind": HEAD, "mode_reason": reason, "breaches_in_row": breaches}
    proposed = decision.columns(PROPOSED, reason=reason, mode=mode, plan_id=shared["plan_id"], **told)
    return pa.concat_tables(
        [
            _rows([proposed, shared | head], decision.schema),
            _assignment_rows(plan, shared | {"kind": ROW}, decision.schema),
        ]
    )


def _shared_columns(context: PlanContext, group_id: str) -> dict[str, Any]:
    return {
        "cluster": context.cluster,
        "day": context.day,
        "snapshot_id": context.snapshot_id,
        "slot": context.slot,
        "group_id": group_id,
        "run_id": context.run_id,
    }


def _head_columns(
    plan: GroupPlan, settings: GroupSettings, members: pa.Table, context: PlanContext
) -> dict[str, Any]:
    unknown, stalled = plan.is_unknown, plan.rows.stalled
    return {
        "assignor": settings.assignor,
        "settings": settings.canonical_json(),
        "policy_hash": context.policy_hash,
        "fingerprint": plan.fingerprint,
        "payload": plan.payload.decode("ascii"),
        "payload_bytes": len(plan.payload),
        "group_state": members["group_state"][0].as_py(),
        "group_type": members["group_type"][0].as_py(),
        "group_assignor": members["assignor"][0].as_py(),
        "num_members": plan.rows.group.num_members,
        "num_partitions": plan.rows.group.num_partitions,
        "num_unassigned_partitions": int((plan.assignment < 0).sum()),
        "num_unknown_partitions": int(unknown.sum()),
        "num_stalled_partitions": int(stalled.sum()),
        "moves": plan.moves,
        "count_gap": plan.count_gap,
        "gain": plan.gain,
        "metrics_before": _metrics(plan.before),
        "metrics_after": _metrics(plan.after),
        "violations": list(plan.violations),
    }


def _metrics(metrics: Any) -> dict[str, Any]:
    return {
        "max_member_lag_records": metrics.max_member_lag_records,
        "mean_member_lag_records": metrics.mean_member_lag_records,
        "lag_skew": metrics.lag_skew,
        "min_member_partitions": metrics.min_member_partitions,
        "max_member_partitions": metrics.max_member_partitions,
        "balance_score": metrics.balance_score,
    }


def _assignment_rows(plan: GroupPlan, shared: dict[str, Any], schema: pa.Schema) -> pa.Table:
    """One row a partition."""
    import pyarrow as pa

    from spark_jobs.core_bridge import member_keys

    rows, group = plan.rows, plan.rows.group
    before, after = group.live_owner, plan.assignment
    moved = (group.owner >= 0) & (group.owner != after)
    columns = {
        "topic_id": _take(rows.topic_ids, group.row_topic),
        "topic": _take(group.topics, group.row_topic),
        "partition": pa.array(group.row_partition, pa.int32()),
        "owner_before": _take(group.member_ids, before),
        "owner_after": _take(group.member_ids, after),
        "owner_after_key": _take(member_keys(group), after),
        "moved": pa.array(moved),
        "lag_records": pa.array(group.lag, mask=rows.is_unknown),
        "lag_status": pa.array(rows.status, pa.string()),
    }
    arrays = [
        columns[field.name]
        if field.name in columns
        else pa.repeat(pa.scalar(shared.get(field.name), field.type), group.num_partitions)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _take(values: tuple[str, ...], index: NDArray[np.int32]) -> pa.Array:
    """Look strings up by index; -1 is null. No Python loop over rows."""
    import numpy as np
    import pyarrow as pa

    places = pa.array(index, pa.int32(), mask=np.asarray(index) < 0)
    return pa.array(values, pa.string()).take(places)


def _rows(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=schema)
