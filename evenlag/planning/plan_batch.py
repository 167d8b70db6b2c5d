"""What one Arrow call does: plan the groups of a batch, each for itself.

The stages: the rows of a batch in order, the groups that the policy selects, the decision about each with
its plan, and the columns of all of them. A group that cannot be planned, whatever the reason, does not
affect the others.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from evenlag.enums import DecisionKind, GroupType, Mode
from evenlag.logging_setup import named_logger
from evenlag.planning.context import GroupHistory
from evenlag.planning.decisions import GroupDecision, PlannedGroup, SelectedGroup, head_columns
from evenlag.planning.eligibility import hint_blocker, planning_blocker, summarize_groups
from evenlag.planning.plan_output import planned_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from evenlag.planning.context import PlanContext
    from evenlag.planning.group_batch import GroupBatch
    from evenlag.planning.group_planner import GroupPlan
    from evenlag.policy.group_settings import GroupSettings

_LOG = named_logger(__name__)
_NO_HISTORY = GroupHistory()


def plan_groups(lag: pa.Table, members: pa.Table, context: PlanContext) -> pa.Table:
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
    plan = plan_group(
        build_group(batch, group.number),
        group.settings,
        kafka_cluster_id=context.kafka_cluster_id,
        group_id=group.group_id,
        snapshot_id=context.snapshot_id,
        is_for_brokers=group.summary.type == GroupType.CONSUMER,
    )
    if not plan.is_change:
        return PlannedGroup(group.number, _no_change(group))
    return _propose(group, plan, context.history.get(group.group_id, _NO_HISTORY))


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
    return PlannedGroup(group.number, decision, plan, head_columns(group, plan, decision))


def _no_change(group: SelectedGroup) -> GroupDecision:
    return GroupDecision(
        group_id=group.group_id,
        policy_mode=group.settings.mode.value,
        mode=group.settings.mode.value,
        decision=DecisionKind.NO_CHANGE,
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
    import pyarrow as pa
    import pyarrow.compute as pc

    both = pa.chunked_array([*lag["group_id"].chunks, *members["group_id"].chunks], pa.string())
    group_ids = sorted(pc.unique(both).to_pylist())
    if len(group_ids) == 1:
        (group_id,) = group_ids
        settings = context.policy.group_settings(context.cluster, group_id)
        if settings.mode is Mode.OBSERVE:
            return planned_table(None, [])
        return planned_table(None, [PlannedGroup(0, _unexpected(group_id, settings, context, error))])
    return pa.concat_tables(
        plan_groups(
            lag.filter(pc.equal(lag["group_id"], group_id)),
            members.filter(pc.equal(members["group_id"], group_id)),
            context,
        )
        for group_id in group_ids
    )
