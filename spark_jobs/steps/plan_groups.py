"""Plan every selected group of a snapshot: ``decisions``, ``plan_assignments``, ``plans`` and their events.

They are written in this order, each in one commit, unless the snapshot has rows there, so each row is written
once. ``decisions`` is the decision: of two attempts one writes it, and whoever finds it on record
completes it as it is, under any policy and with any version of evenlag. What is missing after a kill is
planned again with the recorded policy; a plan that this version makes differently is left out. A plan exists
when it has a head: all its rows are written before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.enums import DecisionKind, PlanEvent
from evenlag.errors import LakeError, PolicyError
from evenlag.lake.filters import Filter, matching
from evenlag.lake.tables import DECISIONS, LAG, MEMBERS, PLAN_ASSIGNMENTS, PLANS
from evenlag.lake.writer import DirectWriter, append_once
from evenlag.logging_setup import named_logger
from evenlag.planning.assignments_hash import hash_plans
from evenlag.planning.decision_record import (
    DecisionRecord,
    read_decision,
    read_judged,
    read_policy_text,
    read_recorded_heads,
    record_decision,
)
from evenlag.planning.group_steps import read_measured
from evenlag.planning.plan_batch import PLANNED, PlanContext, table_rows
from evenlag.planning.plan_history import read_history
from evenlag.policy.loader import parse_recorded
from evenlag.publishing.event_log import append_plan_events, plan_event
from evenlag.publishing.sealing.row_seal import Sealer
from evenlag.publishing.sealing.verified_plans import (
    NOT_AS_SEALED,
    is_followed,
    seal_events,
    seal_plan_rows,
)
from spark_jobs.runtime.frames import CachedFrames
from spark_jobs.runtime.session import num_task_slots, temporary_conf
from spark_jobs.runtime.session_conf import UNMEASURED_BATCHES
from spark_jobs.steps.snapshot_rows import SnapshotRows, to_contract
from spark_jobs.transforms.batch_packing import count_group_rows, pack_groups
from spark_jobs.transforms.plan_frames import build_plans, plan_in_driver, select_assignments, shared_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    _ReadAssignments = Callable[[Collection[str]], Iterable[pa.Table]]

_LOG = named_logger(__name__)
# Up to so many rows of lag the driver plans the groups itself: a Spark job takes longer to start, above all
# the first one of a session, which also starts Python workers.
_MAX_DRIVER_ROWS: Final = 5_000
# Partitions of plans that the driver has at once, of a large snapshot.
_PARTITIONS_PER_PART: Final = 50_000
_MOST_FAILURES: Final = 100
_ACTOR: Final = "planner"


@dataclass(frozen=True, slots=True)
class Planned:
    """The result of planning a snapshot.

    counts: What the gates count of each plan's rows, by plan id.
    failures: Why a group could not be planned, for at most 100 of them.
    kept: The decision on record, if another attempt has recorded or completed it.
    lost: Ids of plans that a killed attempt has decided on, and that this version of evenlag makes
        differently. They have no head, or no verdicts, and never get any.
    """

    heads: list[dict[str, Any]]
    counts: dict[str, dict[str, int]]
    num_failed: int
    failures: dict[str, str]
    kept: DecisionRecord | None = None
    lost: frozenset[str] = field(default_factory=frozenset)


def plan_groups(rows: SnapshotRows, context: PlanContext, sealer: Sealer | None = None) -> Planned:
    """Plan every selected group of a snapshot and write the result; complete a decision that is on record.

    The driver gets a row for each group and plan. For a large snapshot, groups are packed by their sizes, and
    the plans' partitions stay on the executors' disks until they are written.

    sealer: Seals the rows of plans that may be published, and checks those on record, in this process only.
    """
    record = _read_decision(rows, sealer)
    if record is None:
        planned = _decide(rows, context, sealer)
        if planned is not None:
            return planned
        # Another attempt was faster, to decide or to complete this decision.
        record = _read_decision(rows, sealer)
        if record is None:
            raise LakeError(f"the decision of {rows.snapshot_id} is in the log of decisions, but has no rows")
    _LOG.info("kept the decision of %s", record)
    return _complete(rows, context, record, sealer)


def _read_decision(rows: SnapshotRows, sealer: Sealer | None) -> DecisionRecord | None:
    """The decision on record, without plans whose decision is not as it was sealed."""

    def is_sound(row: Mapping[str, Any]) -> bool:
        if sealer is None or not is_followed(row) or sealer.holds(DECISIONS, row):
            return True
        _LOG.error("plan %s is %sits row of decisions was edited", row["plan_id"][:12], NOT_AS_SEALED)
        return False

    return read_decision(rows.reader, rows.filters, is_sound)


def _decide(rows: SnapshotRows, context: PlanContext, sealer: Sealer | None) -> Planned | None:
    """Plan, and record the decision with all that follows from it; None if another attempt did either."""
    root, shared, cluster = rows.lake.paths.root, shared_values(context), context.cluster
    with CachedFrames() as cached:
        planned, read_assignments = _plan(rows, context, cached)
        decisions = seal_plan_rows(sealer, DECISIONS, table_rows(planned, "decided", DECISIONS, shared))
        if not record_decision(root, rows.filters, decisions):
            return None
        heads = seal_plan_rows(sealer, PLANS, table_rows(planned, "head", PLANS, shared))
        if heads.num_rows:
            # Where another attempt has written the partitions, nothing else is written.
            read = partial(read_assignments, heads["plan_id"].to_pylist())
            if not DirectWriter(root, PLAN_ASSIGNMENTS).append_parts(read, cluster, rows.filters):
                return None
            if not append_once(root, PLANS, heads, rows.filters):
                return None
    listed = heads.to_pylist()
    append_plan_events(root, _proposed(listed, context, sealer), _proposals(rows))
    return Planned(listed, _counts(planned), *_log_failures(planned))


def _complete(
    rows: SnapshotRows, context: PlanContext, record: DecisionRecord, sealer: Sealer | None
) -> Planned:
    """Write what an earlier attempt has decided and not written."""
    root = rows.lake.paths.root
    heads = read_recorded_heads(rows.reader, rows.filters, record)
    known = {head["plan_id"] for head in heads}
    wanted = (record.modes.keys() - known) | (known - read_judged(rows.reader, rows.filters))
    counts: dict[str, dict[str, int]] = {}
    as_recorded = _recorded_context(rows, context, record) if wanted else None
    if as_recorded is not None:
        counts = _complete_plans(rows, as_recorded, record, known, sealer)
        heads = read_recorded_heads(rows.reader, rows.filters, record)
        known = {head["plan_id"] for head in heads}
    lost = frozenset(wanted - counts.keys()) | frozenset(wanted - known)
    if lost:
        _LOG.warning(
            "%d plans of %s were not completed: this version of evenlag makes them differently: %s",
            len(lost),
            record,
            ", ".join(plan_id[:12] for plan_id in sorted(lost)[:_MOST_FAILURES]),
        )
    append_plan_events(root, _proposed(heads, context, sealer), _proposals(rows))
    failures = dict(sorted(record.failures.items())[:_MOST_FAILURES])
    return Planned(heads, counts, len(record.failures), failures, record, lost)


def _complete_plans(
    rows: SnapshotRows,
    context: PlanContext,
    record: DecisionRecord,
    known: set[str],
    sealer: Sealer | None,
) -> dict[str, dict[str, int]]:
    """Plan again, and write the plans of the record that are not known; return the counts of its plans."""
    root = rows.lake.paths.root
    with CachedFrames() as cached:
        planned, read_assignments = _plan(rows, context, cached)
        heads = table_rows(planned, "head", PLANS, shared_values(context))
        listed = list(zip(heads["plan_id"].to_pylist(), heads["mode"].to_pylist(), strict=True))
        # The id is the hash of the payload, so a plan with a recorded id is the recorded one.
        missing = {plan_id for plan_id, mode in listed if record.modes.get(plan_id) == mode} - known
        if missing:
            read = partial(read_assignments, missing)
            writer = DirectWriter(root, PLAN_ASSIGNMENTS)
            if not writer.append_parts(read, context.cluster, rows.filters):
                missing = _same_on_record(rows, read())
            is_missing = pa.array([plan_id in missing for plan_id, _ in listed], pa.bool_())
            append_once(root, PLANS, seal_plan_rows(sealer, PLANS, heads.filter(is_missing)), rows.filters)
    return {plan_id: one for plan_id, one in _counts(planned).items() if plan_id in record.modes}


def _recorded_context(rows: SnapshotRows, context: PlanContext, record: DecisionRecord) -> PlanContext | None:
    """The context of the run that has decided; None if its policy cannot be read any more."""
    policy = context.policy
    if record.policy_hash != context.policy_hash:
        text = read_policy_text(rows.reader, context.cluster, record.policy_hash)
        try:
            policy = parse_recorded(text or "")
        except PolicyError as error:
            _LOG.warning("the policy of %s cannot be read: %s", record, error)
            return None
    history = read_history(rows.reader, policy, context.cluster, context.slot)
    run_id = record.run_id or context.run_id
    return replace(context, policy=policy, policy_hash=record.policy_hash, run_id=run_id, history=history)


def _proposals(rows: SnapshotRows) -> list[Filter]:
    return [*rows.filters, ("event", "=", PlanEvent.PROPOSED)]


def _plan(
    rows: SnapshotRows, context: PlanContext, cached: CachedFrames
) -> tuple[pa.Table, _ReadAssignments]:
    """Return rows of ``PLANNED``, and what reads the partitions of some plans."""
    if rows.is_small:
        if rows.num_lag_rows <= _MAX_DRIVER_ROWS:
            planned = plan_in_driver(*read_measured(rows, rows.rows(LAG), rows.rows(MEMBERS)), context)
        else:
            with temporary_conf(rows.lake.spark, UNMEASURED_BATCHES):
                frame = build_plans(rows.frame, context)
                planned = to_contract(frame.toArrow(), PLANNED)
        return planned, lambda plan_ids: [select_assignments(planned, context, plan_ids)]
    from pyspark import StorageLevel

    group_ids, sizes = count_group_rows(rows.frame(LAG), rows.frame(MEMBERS))
    batches = group_ids, pack_groups(sizes, num_task_slots(rows.lake.spark))
    with temporary_conf(rows.lake.spark, UNMEASURED_BATCHES):
        # On a local master an executor's memory is the driver's: it must not grow with the partitions.
        plans = cached.cache(build_plans(rows.frame, context, batches), StorageLevel.DISK_ONLY)
        planned = plans.drop("rows").toArrow()
    return planned, partial(_read_assignments, plans, planned, context)


def _read_assignments(
    plans: DataFrame, planned: pa.Table, context: PlanContext, plan_ids: Collection[str]
) -> Iterator[pa.Table]:
    """Read the partitions of some plans from Spark, some groups at a time."""
    from pyspark.sql import functions as sf

    heads = table_rows(planned, "head", PLANS, shared_values(context)).sort_by("group_id")
    place = np.cumsum(heads["num_partitions"].to_numpy()) // _PARTITIONS_PER_PART
    for number in np.unique(place):
        of_part = heads["group_id"].filter(pa.array(place == number))
        group_ids = sf.col("group_id").between(of_part[0].as_py(), of_part[-1].as_py())
        part = plans.where(group_ids & sf.col("rows").isNotNull()).select(
            "group_id", "plan_id", "mode", "rows"
        )
        yield select_assignments(part.toArrow(), context, plan_ids)


def _same_on_record(rows: SnapshotRows, parts: Iterable[pa.Table]) -> set[str]:
    """Return the plans whose partitions on record, maybe of another version of evenlag, are these."""
    same: set[str] = set()
    for part in parts:
        own = hash_plans(part)
        filters = [*rows.filters, *matching(plan_id=list(own))]
        recorded = hash_plans(rows.reader.read(PLAN_ASSIGNMENTS, filters=filters))
        same |= {plan_id for plan_id, found in own.items() if recorded.get(plan_id) == found}
    return same


def _proposed(
    heads: list[dict[str, Any]], context: PlanContext, sealer: Sealer | None
) -> list[dict[str, Any]]:
    events = [
        plan_event(head, PlanEvent.PROPOSED, reason=head["mode_reason"], actor=_ACTOR, at=context.finished_at)
        for head in heads
    ]
    return seal_events(sealer, events, {head["plan_id"]: None for head in heads if is_followed(head)})


def _counts(planned: pa.Table) -> dict[str, dict[str, int]]:
    rows = planned.select(["plan_id", "counts"]).to_pylist()
    return {row["plan_id"]: row["counts"] for row in rows if row["counts"] is not None}


def _log_failures(planned: pa.Table) -> tuple[int, dict[str, str]]:
    """Log why groups could not be planned, with the traceback of an unexpected error; count them."""
    rows = planned.filter(pc.is_valid(planned["decided"])).select(["group_id", "decided"]).to_pylist()
    failed = [row for row in rows if row["decided"]["decision"] == DecisionKind.FAILED]
    failures = {}
    for row in sorted(failed, key=itemgetter("group_id"))[:_MOST_FAILURES]:
        group_id, decided = row["group_id"], row["decided"]
        failures[group_id] = decided["reason"]
        message = "group %s could not be planned: %s", group_id, decided["reason"]
        if decided["traceback"] is None:
            _LOG.warning(*message, extra={"group_id": group_id})
        else:
            _LOG.error("%s\n%s", message[0] % message[1:], decided["traceback"], extra={"group_id": group_id})
    return len(failed), failures
