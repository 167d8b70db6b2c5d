"""What becomes of published plans, by each snapshot: ``outcomes`` and events, ``plan_evaluations``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any, Final

from evenlag.enums import PlanEvent
from evenlag.lag.group_lag import LAG_COLUMNS, measure_lag
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.run_records import open_since
from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import (
    LAG,
    MEMBERS,
    OUTCOMES,
    PLAN_ASSIGNMENTS,
    PLAN_EVALUATIONS,
    PLAN_EVENTS,
    PLANS,
    SNAPSHOTS,
)
from evenlag.lake.writer import append_guarded
from evenlag.planning.evaluations import HEAD_COLUMNS, DuePlan, build_evaluations
from evenlag.planning.outcomes import ASSIGNMENT_COLUMNS, MEMBER_COLUMNS, PLAN_COLUMNS, build_outcomes
from evenlag.planning.published_plans import ENDINGS, EVENT_COLUMNS, PublishedPlan, find_published
from evenlag.publishing.event_log import append_plan_events, plan_event
from evenlag.publishing.plan_effects import read_effects

_ACTOR: Final = "observer"
# A replay takes a tenth of a second of CPU. Further plans are due at the next snapshot, too.
_MOST_DUE: Final = 300


def read_published(reader: LakeReader, cluster: str) -> list[PublishedPlan]:
    """Read the published plans of a cluster that may be open, with the events that ended them.

    These are all that the newest observe left open, and those published in the three days before it or later.
    """
    filters = matching(cluster=cluster, event=[PlanEvent.PUBLISHED, *ENDINGS])
    # A plan's ending and the group's next hint are later than its own hint.
    if (since := open_since(reader, cluster)) is not None:
        filters.append(("at", ">=", since))
    return find_published(reader.read(PLAN_EVENTS, columns=EVENT_COLUMNS, filters=filters).to_pylist())


def settle_outcomes(rows: SnapshotReader, published: Sequence[PublishedPlan], run_id: str) -> dict[str, int]:
    """Settle the published plans that this snapshot can settle; return their number by outcome. Idempotent.

    It appends the events of all outcomes, also of those that a killed run has written without.
    """
    waiting = {plan.plan_id: plan for plan in published if plan.ending is None}
    if not waiting:
        return {}
    since = min(plan.day for plan in waiting.values())
    settled = _read_outcomes(rows, since, waiting)
    pending = [waiting[plan_id] for plan_id in waiting.keys() - settled.keys()]
    new = _build_outcomes(rows, pending, run_id)

    def not_settled() -> list[dict[str, Any]]:
        known = _read_outcomes(rows, since, waiting)
        return [row for row in new if row["plan_id"] not in known]

    # Two snapshots may settle at the same time: the events are those of the outcomes on record.
    written = append_guarded(rows.reader.paths.root, OUTCOMES, not_settled) if new else []
    if len(written) < len(new):
        settled = _read_outcomes(rows, since, waiting)
    recorded = settled | {row["plan_id"]: row for row in written}
    append_outcome_events(rows, [dict(row) for row in recorded.values()])
    return dict(Counter(row["outcome"] for row in written))


def _read_outcomes(rows: SnapshotReader, since: date, plan_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    filters = matching(cluster=rows.cluster, plan_id=list(plan_ids), since=since)
    return {row["plan_id"]: row for row in rows.reader.read(OUTCOMES, filters=filters).to_pylist()}


def append_outcome_events(rows: SnapshotReader, outcomes: Sequence[dict[str, Any]]) -> None:
    """Append the events of outcomes; an event's time is when its snapshot finished, not the earlier slot."""
    finished = {rows.snapshot_id: rows.marker["finished_at"]}
    others = [row for row in outcomes if row["snapshot_id"] not in finished]
    if others:
        days, ids = ({row[name] for row in others} for name in ("day", "snapshot_id"))
        filters = matching(cluster=rows.cluster, day=days, snapshot_id=ids)
        found = rows.reader.read(SNAPSHOTS, columns=["snapshot_id", "finished_at"], filters=filters)
        finished |= {row["snapshot_id"]: row["finished_at"] for row in found.to_pylist()}
    events = [
        plan_event(row, row["outcome"], reason=row["reason"], actor=_ACTOR, at=at)
        for row in outcomes
        for at in (finished.get(row["snapshot_id"], row["slot"]),)
    ]
    append_plan_events(rows.reader.paths.root, events)


def _build_outcomes(
    rows: SnapshotReader, pending: Sequence[PublishedPlan], run_id: str
) -> list[dict[str, Any]]:
    """Build the outcomes, a batch of groups at a time."""
    if not pending:
        return []
    of_days = matching(cluster=rows.cluster, day={plan.day for plan in pending})
    of_plans = [*of_days, *matching(plan_id={plan.plan_id for plan in pending})]
    found = rows.reader.read(PLANS, columns=PLAN_COLUMNS, filters=of_plans)
    heads = {row["plan_id"]: row for row in found.to_pylist()}
    built: list[dict[str, Any]] = []
    for group_ids in rows.group_batches({plan.group_id for plan in pending}):
        names = set(group_ids)
        # A plan whose head was removed cannot be settled.
        plans = [plan for plan in pending if plan.group_id in names and plan.plan_id in heads]
        of_batch = [*of_days, *matching(plan_id=[plan.plan_id for plan in plans])]
        built += build_outcomes(
            plans,
            heads,
            assignments=rows.reader.read(PLAN_ASSIGNMENTS, columns=ASSIGNMENT_COLUMNS, filters=of_batch),
            members=rows.rows_of_groups(MEMBERS, MEMBER_COLUMNS, names),
            lag=rows.rows_of_groups(LAG, LAG_COLUMNS, names),
            marker=rows.marker,
            run_id=run_id,
        )
    return sorted(built, key=lambda row: (row["group_id"], row["plan_id"]))


def score_plans(rows: SnapshotReader, published: Sequence[PublishedPlan], run_id: str) -> int:
    """Evaluate the plans that are due, each once, by a snapshot whose lag and outcomes are written."""
    due = sorted(_find_due(rows, published), key=lambda one: (one.horizon_at, one.plan.plan_id))[:_MOST_DUE]
    if not due:
        return 0
    evaluations = []
    for group_ids in rows.group_batches({one.plan.group_id for one in due}):
        names = set(group_ids)
        plans = [one for one in due if one.plan.group_id in names]
        members = rows.rows_of_groups(MEMBERS, ("group_id", "member_id"), names)
        now = measure_lag(rows.rows_of_groups(LAG, LAG_COLUMNS, names), members)
        sizes = {group_id: group.num_partitions for group_id, group in now.items()}
        effects = read_effects(rows, plans, sizes)
        evaluations += build_evaluations(plans, now=now, effects=effects, marker=rows.marker, run_id=run_id)
    evaluations.sort(key=lambda row: (row["group_id"], row["plan_id"]))
    since = min(one.plan.day for one in due)

    def not_evaluated() -> list[dict[str, Any]]:
        done = _evaluated(rows, since)
        return [row for row in evaluations if row["plan_id"] not in done]

    # Two snapshots may evaluate at the same time.
    return len(append_guarded(rows.reader.paths.root, PLAN_EVALUATIONS, not_evaluated))


def find_open_since(rows: SnapshotReader, published: Sequence[PublishedPlan]) -> datetime | None:
    """Return when the oldest plan was published that is open: it still has to be settled or evaluated."""
    if not published:
        return None
    done = _evaluated(rows, min(plan.day for plan in published))
    return min((plan.published_at for plan in published if plan.plan_id not in done), default=None)


def _evaluated(rows: SnapshotReader, since: date) -> set[str]:
    """Plans that were evaluated by a snapshot of a day or later."""
    filters = matching(cluster=rows.cluster, since=since)
    found = rows.reader.read(PLAN_EVALUATIONS, columns=["plan_id"], filters=filters)
    return set(found["plan_id"].to_pylist())


def _find_due(rows: SnapshotReader, published: Sequence[PublishedPlan]) -> list[DuePlan]:
    """Published plans that have ended, are not evaluated yet, and whose horizon precedes the snapshot."""
    started_at = rows.marker["started_at"]
    candidates = {plan.plan_id: plan for plan in published if plan.published_at <= started_at}
    if not candidates:
        return []
    open_plans = candidates.keys() - _evaluated(rows, min(plan.day for plan in candidates.values()))
    if not open_plans:
        return []
    outcomes = _read_outcomes(rows, min(candidates[plan_id].day for plan_id in open_plans), open_plans)
    endings = {plan_id: (row["outcome"], row["reason"]) for plan_id, row in outcomes.items()}
    for plan_id in open_plans:
        plan = candidates[plan_id]
        if plan.ending is not None and plan.is_withdrawn:
            endings[plan_id] = (PlanEvent.WITHDRAWN.value, plan.ending[1])
    if not endings:
        return []
    days = {candidates[plan_id].day for plan_id in endings}
    filters = matching(cluster=rows.cluster, day=days, plan_id=endings.keys())
    heads = rows.reader.read(PLANS, columns=HEAD_COLUMNS, filters=filters).to_pylist()
    due = [DuePlan(candidates[row["plan_id"]], row, *endings[row["plan_id"]]) for row in heads]
    return [one for one in due if one.horizon_at <= started_at]
