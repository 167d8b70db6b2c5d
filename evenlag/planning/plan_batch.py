"""Plans the groups of a batch, each for itself, in one Arrow call.

The stages: the rows of a batch in order, the groups that the policy selects, the decision about each with
its plan, and the columns of all of them. A group that cannot be planned, whatever the reason, does not
affect the others. No Python loop goes over partitions.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evenlag.enums import DecisionKind, Mode
from evenlag.lake.tables import DECISIONS, PLAN_ASSIGNMENTS, PLANS, Column, Table
from evenlag.logging_setup import WorkerLog, named_logger
from evenlag.planning.assignments_hash import hash_assignments
from evenlag.planning.eligibility import GroupSummary, hint_blocker, planning_blocker, summarize_groups
from evenlag.planning.expectations import Expected, expect_plan
from evenlag.planning.gate_inputs import COUNTED_INPUTS, count_rows
from evenlag.planning.group_work import NO_FACTS, GroupFacts

if TYPE_CHECKING:
    from assignor_core.group import Group
    from assignor_core.metrics import Metrics
    from evenlag.planning.group_batch import GroupBatch
    from evenlag.planning.group_planner import GroupPlan
    from evenlag.planning.time_plans import Prediction
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.settings import Policy


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """What earlier snapshots show of a group.

    breaches: Number of consecutive snapshots, up to the previous one, that asked for a change.
    backs_off: Why the group backs off for now; None when it does not.
    facts: What is known of its forecasts and of the plans that it followed.
    expected: What is predicted if it stays as it is.
    """

    breaches: int = 0
    backs_off: str | None = None
    facts: GroupFacts = NO_FACTS
    expected: tuple[Expected, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What all plans of a run share; it is pickled to the executors and contains no secret.

    cluster, kafka_cluster_id: Name in the policy, id from the brokers.
    finished_at: End time of that snapshot: the time of all decisions from it.
    history: By group id; a group that is missing has none.
    log: How executors log, and with which fields; None: they do not.
    """

    policy: Policy
    policy_hash: str
    cluster: str
    kafka_cluster_id: str
    snapshot_id: str
    slot: datetime
    day: date
    finished_at: datetime
    run_id: str
    history: Mapping[str, GroupHistory] = field(default_factory=dict)
    log: WorkerLog | None = None


@dataclass(frozen=True, slots=True)
class SelectedGroup:
    """A group of a batch whose mode is not ``observe``.

    summary: Its rows of ``members`` as a whole.
    settings, settings_text: The settings in effect, and their canonical text.
    """

    number: int
    group_id: str
    summary: GroupSummary
    settings: GroupSettings
    settings_text: str


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """The decision about one group, with the columns of ``decisions``.

    policy_mode, mode: The mode of its settings, and the mode in effect for its plan.
    decision: What was decided.
    plan_id: The plan; None when there is none.
    reason: Why the group has no plan, or why its plan is in shadow mode.
    traceback: Of an unexpected error.
    is_breach, consecutive_breaches: Whether this snapshot asks for a change, and how many consecutive ones
        up to this; None: not planned.
    gain: Relative fall of the largest load by capacity.
    """

    group_id: str
    policy_mode: str
    mode: str
    decision: DecisionKind
    plan_id: str | None = None
    reason: str | None = None
    traceback: str | None = None
    is_breach: bool | None = None
    consecutive_breaches: int | None = None
    gain: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A decided group, with its plan where it has one.

    number: The group's number in the batch.
    plan, head: The plan, and the columns of its row of ``plans``; None without a plan.
    """

    number: int
    decision: GroupDecision
    plan: GroupPlan | None = None
    head: Mapping[str, Any] | None = None


def head_columns(
    group: SelectedGroup, plan: GroupPlan, decision: GroupDecision, expected: Sequence[Expected]
) -> dict[str, Any]:
    """Return the columns of a plan's row of ``plans``."""
    rows, summary = plan.rows, group.summary
    num_unknown_lags, num_partitions = int(rows.is_unknown.sum()), rows.group.num_partitions
    return {
        "assignor": group.settings.assignor,
        "settings": group.settings_text,
        "mode_reason": decision.reason,
        "consecutive_breaches": decision.consecutive_breaches,
        "fingerprint": plan.fingerprint,
        "payload": plan.payload.decode("ascii"),
        "payload_bytes": len(plan.payload),
        "group_state": summary.state,
        "group_type": summary.type,
        "group_assignor": summary.assignor,
        "num_members": rows.group.num_members,
        "num_partitions": num_partitions,
        "num_unassigned_partitions": int((plan.assignment < 0).sum()),
        "num_unknown_partitions": int(plan.is_unknown.sum()),
        "num_unknown_lags": num_unknown_lags,
        "num_stalled_partitions": int(rows.stalled.sum()),
        "moves": plan.moves,
        "count_gap": plan.count_gap,
        "gain": plan.gain,
        "across_racks_before": plan.across_before,
        "across_racks_after": plan.across_after,
        "metrics_before": _known_metrics(plan.before, num_unknown_lags, num_partitions),
        "metrics_after": _known_metrics(plan.after, num_unknown_lags, num_partitions),
        "violations": list(plan.violations),
        "follow_ms": round(1000 * plan.follow_s),
        **_predictions(plan),
        "expected": expect_plan(expected, plan.time),
        "capacities": _measured_capacities(group.settings, plan),
    }


def _predictions(plan: GroupPlan) -> dict[str, Any]:
    """What is expected without and with a plan; nothing where that is not known."""
    time = plan.time
    if time is None:
        return {}
    return {
        "horizon_ms": round(1000 * time.stay.step_s * len(time.stay.lag)),
        "step_ms": round(1000 * time.stay.step_s),
        "prediction_before": _prediction(time.stay),
        "prediction_after": _prediction(time.planned),
        "record_s_saved": time.saved_record_s,
        "record_s_cost": time.cost_record_s,
    }


def _prediction(expected: Prediction) -> dict[str, Any]:
    return {
        "record_s": expected.record_s,
        "next_lag_records": float(expected.lag[0]),
        "next_wait_ms": round(1000 * expected.largest_wait_s[0]),
        "horizon_lag_records": float(expected.lag[-1]),
        "horizon_wait_ms": round(1000 * expected.largest_wait_s[-1]),
    }


def _measured_capacities(settings: GroupSettings, plan: GroupPlan) -> list[dict[str, Any]] | None:
    """The members' capacities by key; None where they are as configured."""
    from evenlag.planning.group_planner import member_keys

    group, configured = plan.rows.group, settings.configured_capacities(plan.rows.group.instance_ids)
    if np.array_equal(plan.capacity, np.nan_to_num(configured, nan=1.0)):
        return None
    capacity = zip(member_keys(group), plan.capacity.tolist(), strict=True)
    return [{"member_key": key, "capacity": each} for key, each in capacity]


def _known_metrics(measured: Metrics, num_unknown: int, num_partitions: int) -> dict[str, Any]:
    """The metrics, without those that unknown lag makes meaningless: it counts as 0 in the arrays."""
    columns: dict[str, Any] = measured.as_dict()
    if num_unknown:
        columns |= {"mean_member_lag_records": None, "lag_skew": None}
        if num_unknown == num_partitions:
            columns["max_member_lag_records"] = None
    return columns


_LOG = named_logger(__name__)
_NO_HISTORY = GroupHistory()


def plan_batch(lag: pa.Table, members: pa.Table, context: PlanContext) -> pa.Table:
    """Decide about the groups of a batch.

    Returns by ``PLANNED``: a row for each group whose mode is not ``observe``, and for each further 10,000
    partitions of its plan; groups ordered by id.
    lag, members: All rows of each group, in any order, with the columns that ``build_batch`` needs.
    """
    from evenlag.planning.group_batch import build_batch

    try:
        batch = build_batch(lag, members)
    except Exception as error:  # noqa: BLE001 - malformed rows of one group must not fail the others
        return _plan_apart(lag, members, context, error)
    return planned_table(
        batch, [plan_selected(batch, group, context) for group in select_groups(batch, context)]
    )


def select_groups(batch: GroupBatch, context: PlanContext) -> Iterator[SelectedGroup]:
    """Return the groups of a batch whose mode is not ``observe``, in their order."""
    # The text is the same for all groups of a rule. The settings are kept with it, so that the id is not
    # used again.
    texts: dict[int, tuple[GroupSettings, str]] = {}
    for number, summary in enumerate(summarize_groups(batch)):
        group_id = batch.group_ids[number]
        settings = context.policy.group_settings(context.cluster, group_id)
        if settings.mode is Mode.OBSERVE:
            continue
        if id(settings) not in texts:
            texts[id(settings)] = settings, settings.canonical_json()
        yield SelectedGroup(number, group_id, summary, settings, texts[id(settings)][1])


def plan_selected(batch: GroupBatch, group: SelectedGroup, context: PlanContext) -> PlannedGroup:
    """Plan one group; an error is its decision too."""
    from assignor_core.errors import AssignorError

    try:
        return _decide(batch, group, context)
    except AssignorError as error:
        _log_failure(group.group_id, context, str(error))
        failed = _decision(group.group_id, group.settings, DecisionKind.FAILED, str(error))
    except Exception as error:  # noqa: BLE001 - a bug in one group is recorded and must not stop all others
        failed = _unexpected(group.group_id, group.settings, context, error)
    return PlannedGroup(group.number, failed)


def _decide(batch: GroupBatch, group: SelectedGroup, context: PlanContext) -> PlannedGroup:
    from evenlag.planning.group_planner import build_group, plan_group

    blocker = planning_blocker(group.summary)
    if blocker is None and not batch.num_lag_rows[group.number]:
        blocker = "none of the topics that its members subscribe to was read"
    if blocker is not None:
        decision = _decision(group.group_id, group.settings, DecisionKind.NOT_PLANNED, blocker)
        return PlannedGroup(group.number, decision)
    history = context.history.get(group.group_id, _NO_HISTORY)
    plan = plan_group(
        build_group(batch, group.number),
        group.settings,
        kafka_cluster_id=context.kafka_cluster_id,
        group_id=group.group_id,
        snapshot_id=context.snapshot_id,
        group_type=group.summary.type,
        facts=history.facts,
    )
    if not plan.is_change:
        return PlannedGroup(group.number, _no_change(group, plan.too_small))
    return _propose(group, plan, history)


def _propose(group: SelectedGroup, plan: GroupPlan, history: GroupHistory) -> PlannedGroup:
    """A plan that would change the group: proposed when enough consecutive snapshots ask for a change."""
    from assignor_core.hint import plan_id

    settings = group.settings
    breaches, needed = history.breaches + 1, settings.gates.min_breaches
    is_due = breaches >= needed
    if is_due:
        reason = hint_blocker(group.summary)
        if reason is None and settings.mode is not Mode.SHADOW:
            reason = history.backs_off
    else:
        reason = f"{breaches} of {needed} consecutive snapshots ask for a change"
    decision = GroupDecision(
        group_id=group.group_id,
        policy_mode=settings.mode.value,
        mode=Mode.SHADOW.value if is_due and reason else settings.mode.value,
        decision=DecisionKind.PROPOSED if is_due else DecisionKind.BREACH,
        plan_id=plan_id(plan.payload) if is_due else None,
        reason=reason,
        is_breach=True,
        consecutive_breaches=breaches,
        gain=plan.gain,
    )
    if not is_due:
        return PlannedGroup(group.number, decision)
    return PlannedGroup(group.number, decision, plan, head_columns(group, plan, decision, history.expected))


def _no_change(group: SelectedGroup, reason: str | None) -> GroupDecision:
    return GroupDecision(
        group_id=group.group_id,
        policy_mode=group.settings.mode.value,
        mode=group.settings.mode.value,
        decision=DecisionKind.NO_CHANGE,
        reason=reason,
        is_breach=False,
        consecutive_breaches=0,
    )


def _decision(
    group_id: str, settings: GroupSettings, decision: DecisionKind, reason: str, trace: str | None = None
) -> GroupDecision:
    """The decision about a group that has no plan and was not measured."""
    mode = settings.mode.value
    return GroupDecision(group_id, mode, mode, decision, reason=reason, traceback=trace)


def _unexpected(
    group_id: str, settings: GroupSettings, context: PlanContext, error: Exception
) -> GroupDecision:
    """The decision for an unexpected error: a reason for the table, a traceback for the log."""
    _log_failure(group_id, context, str(error), error)
    reason = (
        f"unexpected {type(error).__name__}: {error}; this is a bug in evenlag, and the log of decide "
        "has its traceback"
    )
    lines = "".join(traceback.format_exception(error))
    return _decision(group_id, settings, DecisionKind.FAILED, reason, lines)


def _log_failure(group_id: str, context: PlanContext, reason: str, error: Exception | None = None) -> None:
    """Log a failure in the executor's own log too, with the fields of the run."""
    if context.log is None:
        return
    with context.log.about(group_id=group_id, snapshot_id=context.snapshot_id):
        _LOG.warning("the group could not be planned: %s", reason, exc_info=error)


def _plan_apart(lag: pa.Table, members: pa.Table, context: PlanContext, error: Exception) -> pa.Table:
    """A batch whose rows cannot be ordered: each of its groups alone, so that only the faulty one fails."""
    both = pa.chunked_array([*lag["group_id"].chunks, *members["group_id"].chunks], pa.string())
    group_ids = sorted(pc.unique(both).to_pylist())
    if len(group_ids) == 1:
        (group_id,) = group_ids
        settings = context.policy.group_settings(context.cluster, group_id)
        if settings.mode is Mode.OBSERVE:
            return planned_table(None, [])
        return planned_table(None, [PlannedGroup(0, _unexpected(group_id, settings, context, error))])
    return pa.concat_tables(
        plan_batch(
            lag.filter(pc.equal(lag["group_id"], group_id)),
            members.filter(pc.equal(members["group_id"], group_id)),
            context,
        )
        for group_id in group_ids
    )


# The same in every row of a run: Spark adds them where a row needs them.
SHARED: Final = ("cluster", "day", "snapshot_id", "slot", "run_id", "policy_hash")


def _planned_table() -> Table:
    """A group's decision, head and partitions in one row: a value in a list costs Spark less than a row.

    A plan of many partitions has several rows; the first has the decision and the head.
    """
    plain = ("group_id", "plan_id", "mode")

    def nested(table: Table, *more: str) -> str:
        own = (f"{c.name}: {c.type}" for c in table.columns if c.name not in {*SHARED, *plain})
        return f"STRUCT<{', '.join([*own, *more])}>"

    counts = ", ".join(f"{name}: BIGINT" for name in COUNTED_INPUTS)
    columns = (
        Column("group_id", "STRING", "group"),
        Column("plan_id", "STRING", "its plan, null when there is none"),
        Column("mode", "STRING", "mode in effect"),
        Column("decided", nested(DECISIONS, "traceback: STRING"), "columns of its row of decisions"),
        Column("head", nested(PLANS), "columns of its row of plans; null when there is none"),
        Column("rows", f"ARRAY<{nested(PLAN_ASSIGNMENTS)}>", "the plan's partitions, or some of them"),
        Column("counts", f"STRUCT<{counts}>", "what the gates count of the plan's rows"),
    )
    return Table("planned", "output of planning", ("group_id",), columns)


PLANNED: Final = _planned_table()
# Partitions in one row of the output: the JVM keeps a row in one piece of memory, several times.
_PARTITIONS_PER_ROW: Final = 10_000


def planned_table(batch: GroupBatch | None, groups: Sequence[PlannedGroup]) -> pa.Table:
    """Return the decisions, heads and partitions of a batch's groups as one table.

    batch: The groups' rows; None where no group has a plan.
    """
    from evenlag.lake.arrow_schema import arrow_schema

    schema = arrow_schema(PLANNED)
    # In a struct, pyarrow ignores keys without a field, and a missing key is null.
    decisions = [asdict(group.decision) for group in groups]
    plans = [(group.number, group.plan) for group in groups if group.plan is not None]
    columns = {"decided": pa.array(decisions, schema.field("decided").type)} | {
        name: pa.array([row[name] for row in decisions], pa.string())
        for name in ("group_id", "plan_id", "mode")
    }
    columns["counts"] = pa.nulls(len(decisions), schema.field("counts").type)
    if batch is None or not plans:
        columns |= {name: pa.nulls(len(decisions), schema.field(name).type) for name in ("head", "rows")}
        return pa.table(columns).select(schema.names)
    has_plan = np.array([group.plan is not None for group in groups])
    rows = _rows(batch, plans, schema.field("rows").type.value_type)
    columns["head"] = pa.array(_hashed_heads(groups, rows), schema.field("head").type)
    return _cut(columns, has_plan, [plan.rows.group.num_partitions for _, plan in plans], rows)


def with_counts(planned: pa.Table, lag: pa.Table, members: pa.Table) -> pa.Table:
    """Add what the gates count of each plan, to its row that has the head."""
    rows = planned["rows"].combine_chunks()
    parent, partitions = pc.list_parent_indices(rows), pc.list_flatten(rows)
    names = ("topic_id", "topic", "partition", "owner_after")
    columns = {name: planned[name].take(parent) for name in ("plan_id", "group_id")}
    columns |= {name: pa.chunked_array([pc.struct_field(partitions, name)]) for name in names}
    counts = count_rows(pa.table(columns), lag, members)
    is_head = pc.is_valid(planned["head"]).to_pylist()
    values = [
        counts.get(plan_id) if is_first else None
        for plan_id, is_first in zip(planned["plan_id"].to_pylist(), is_head, strict=True)
    ]
    place = planned.schema.get_field_index("counts")
    field = planned.schema.field("counts")
    return planned.set_column(place, field, pa.array(values, field.type))


def table_rows(planned: pa.Table, column: str, table: Table, shared: Mapping[str, object]) -> pa.Table:
    """Return the rows of a table that are nested in a column of the output.

    shared: Values of the columns of :data:`SHARED`.
    """
    chosen = planned.filter(pc.is_valid(planned[column])).combine_chunks()
    return _by_contract(table, chosen[column].combine_chunks(), chosen, shared)


def assignment_rows(planned: pa.Table, shared: Mapping[str, object]) -> pa.Table:
    """Return a row of ``plan_assignments`` for each partition of the plans in memory.

    Returns rows by the contract, with those of shadow plans that do not move, in the order of `planned`.
    shared: Values of the columns of :data:`SHARED`.
    """
    rows = planned["rows"].combine_chunks()
    of_group = planned.select(["group_id", "plan_id"]).take(pc.list_parent_indices(rows))
    return _by_contract(PLAN_ASSIGNMENTS, pc.list_flatten(rows), of_group, shared)


def _by_contract(
    table: Table, nested: pa.StructArray, plain: pa.Table, shared: Mapping[str, object]
) -> pa.Table:
    """Rows of a table: the fields of `nested`, the values that all rows share, and columns of `plain`."""
    from evenlag.lake.arrow_schema import with_head

    columns = {name: plain[name] for name in plain.column_names}
    columns |= {field.name: pc.struct_field(nested, field.name) for field in nested.type}
    return with_head(pa.table(columns), table, shared)


def _rows(batch: GroupBatch, plans: Sequence[tuple[int, GroupPlan]], kind: pa.StructType) -> pa.StructArray:
    """A value for each partition of each plan, plan after plan."""
    from evenlag.planning.group_planner import member_keys

    groups = [plan.rows.group for _, plan in plans]
    rows = np.concatenate([np.arange(*batch.row_start[number : number + 2]) for number, _ in plans])
    before = _numbered([plan.rows.held for _, plan in plans], groups)
    after = _numbered([plan.assignment for _, plan in plans], groups)
    claimed = np.concatenate([group.owner for group in groups])
    moved = (claimed >= 0) & (claimed != np.concatenate([plan.assignment for _, plan in plans]))
    member_ids = [member_id for group in groups for member_id in group.member_ids]
    lag = batch.lag.take(pa.array(rows)) if len(rows) < batch.lag.num_rows else batch.lag
    columns = {
        "owner_before": _take(member_ids, before),
        "owner_after": _take(member_ids, after),
        "owner_after_key": _take([key for group in groups for key in member_keys(group)], after),
        "moved": pa.array(moved),
        "lag_status": lag["status"].combine_chunks(),
    }
    columns |= {
        name: lag[name].combine_chunks() for name in ("topic_id", "topic", "partition", "lag_records")
    }
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(len(rows), field.type) for field in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _hashed_heads(groups: Sequence[PlannedGroup], rows: pa.StructArray) -> list[Mapping[str, Any] | None]:
    """The heads; of plans that may be published with the hash of their partitions."""
    table, start = pa.Table.from_struct_array(rows), 0
    heads: list[Mapping[str, Any] | None] = []
    for group in groups:
        if group.plan is None or group.head is None:
            heads.append(None)
            continue
        size = group.plan.rows.group.num_partitions
        is_followed = group.decision.mode != Mode.SHADOW.value
        found = hash_assignments(table.slice(start, size)) if is_followed else None
        heads.append({**group.head, "assignments_hash": found})
        start += size
    return heads


def _cut(
    columns: Mapping[str, pa.Array], has_plan: NDArray[np.bool_], sizes: list[int], rows: pa.StructArray
) -> pa.Table:
    """Add each group's partitions, in as many rows as they need."""
    from evenlag.lake.arrow_schema import arrow_schema

    size = np.zeros(len(has_plan), dtype=np.int64)
    size[has_plan] = sizes
    pieces = np.maximum(-(-size // _PARTITIONS_PER_ROW), 1)
    group = np.repeat(np.arange(len(size)), pieces)
    first = np.cumsum(pieces) - pieces
    piece = np.arange(len(group)) - first[group]
    taken = np.minimum(size[group] - piece * _PARTITIONS_PER_ROW, _PARTITIONS_PER_ROW)
    starts = np.concatenate([[0], np.cumsum(taken)]).astype(np.int32)
    schema = arrow_schema(PLANNED)
    cut = dict(columns)
    if len(group) > len(size):
        once = pa.array(group, mask=piece > 0)
        cut = {
            name: values.take(once if name in {"decided", "head", "counts"} else pa.array(group))
            for name, values in columns.items()
        }
    # A group without a plan has no list, which is not an empty list.
    cut["rows"] = pa.ListArray.from_arrays(
        pa.array(starts), rows, type=schema.field("rows").type, mask=pa.array(~has_plan[group])
    )
    return pa.table(cut).select(schema.names)


def _numbered(owners: list[NDArray[np.int32]], groups: list[Group]) -> NDArray[np.int32]:
    """Members' indexes within their groups as indexes among the members of all; -1 stays."""
    ends = np.cumsum([group.num_members for group in groups])
    shifts = np.repeat([0, *ends[:-1]], [len(owner) for owner in owners])
    placed = np.concatenate(owners)
    return np.where(placed >= 0, placed + shifts, -1).astype(np.int32)


def _take(values: list[str], index: NDArray[np.int32]) -> pa.Array:
    """Look strings up by index; -1 is null. No Python loop over rows."""
    return pa.array(values, pa.string()).take(pa.array(index, pa.int32(), mask=index < 0))
