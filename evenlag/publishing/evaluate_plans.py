"""Evaluate published plans whose horizon has passed, by this snapshot, into ``plan_evaluations``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.enums import PlanEvent
from evenlag.lag import group_lag
from evenlag.lake.snapshot_ids import slot_day
from evenlag.lake.tables import LAG, MEMBERS, OUTCOMES, PLAN_EVALUATIONS, PLANS
from evenlag.lake.writer import append_guarded
from evenlag.planning.evaluations import DuePlan, build_evaluations
from evenlag.publishing.event_log import plan_guard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime

    from evenlag.lag.group_lag import GroupLag
    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.snapshot_reader import SnapshotReader
    from evenlag.planning.published_plans import PublishedPlan

_MEMBER_COLUMNS = ("group_id", "member_id")


def score_plans(rows: SnapshotReader, published: Sequence[PublishedPlan], run_id: str) -> int:
    """Evaluate the plans that are due, each once, by a snapshot whose lag and outcomes are written."""
    due = _find_due(rows, published)
    if not due:
        return 0
    evaluations = []
    for group_ids in rows.group_batches({one.plan.group_id for one in due}):
        names = set(group_ids)
        plans = [one for one in due if one.plan.group_id in names]
        members = rows.rows_of_groups(MEMBERS, _MEMBER_COLUMNS, names)
        lag = rows.rows_of_groups(LAG, group_lag.LAG_COLUMNS, names)
        evaluations += build_evaluations(
            plans,
            before=_lag_before(rows, plans),
            now=group_lag.measure_lag(lag, members),
            marker=rows.marker,
            run_id=run_id,
        )
    evaluations.sort(key=lambda row: (row["group_id"], row["plan_id"]))
    since = min(one.plan.day for one in due)

    def not_evaluated() -> list[dict[str, Any]]:
        done = _evaluated(rows, since)
        return [row for row in evaluations if row["plan_id"] not in done]

    # Two snapshots may evaluate at the same time.
    return len(append_guarded(rows.reader.paths.root, PLAN_EVALUATIONS, not_evaluated, plan_guard))


def find_open_since(rows: SnapshotReader, published: Sequence[PublishedPlan]) -> datetime | None:
    """Return when the oldest plan was published that is open: it still has to be settled or evaluated."""
    if not published:
        return None
    done = _evaluated(rows, min(plan.day for plan in published))
    return min((plan.published_at for plan in published if plan.plan_id not in done), default=None)


def _evaluated(rows: SnapshotReader, since: date) -> set[str]:
    """Plans that were evaluated by a snapshot of a day or later."""
    filters: list[Filter] = [("cluster", "=", rows.cluster), ("day", ">=", since)]
    return set(
        rows.reader.read(PLAN_EVALUATIONS, columns=["plan_id"], filters=filters)["plan_id"].to_pylist()
    )


def _find_due(rows: SnapshotReader, published: Sequence[PublishedPlan]) -> list[DuePlan]:
    """Published plans that have ended, are not evaluated yet, and whose horizon precedes the snapshot."""
    started_at = rows.marker["started_at"]
    candidates = {plan.plan_id: plan for plan in published if plan.published_at <= started_at}
    if not candidates:
        return []
    open_plans = candidates.keys() - _evaluated(rows, min(plan.day for plan in candidates.values()))
    if not open_plans:
        return []
    since: list[Filter] = [
        ("cluster", "=", rows.cluster),
        ("day", ">=", min(candidates[plan_id].day for plan_id in open_plans)),
    ]
    wanted: Filter = ("plan_id", "in", sorted(open_plans))
    outcomes = rows.reader.read(
        OUTCOMES, columns=["plan_id", "outcome", "reason"], filters=[*since, wanted]
    ).to_pylist()
    endings = {row["plan_id"]: (row["outcome"], row["reason"]) for row in outcomes}
    for plan_id in open_plans:
        plan = candidates[plan_id]
        if plan.ending is not None and plan.is_withdrawn:
            endings[plan_id] = (PlanEvent.WITHDRAWN.value, plan.ending[1])
    if not endings:
        return []
    heads = rows.reader.read(
        PLANS,
        columns=["plan_id", "settings", "gain", "metrics_before", "metrics_after"],
        filters=[
            ("cluster", "=", rows.cluster),
            ("day", "in", {candidates[plan_id].day for plan_id in endings}),
            ("plan_id", "in", sorted(endings)),
        ],
    ).to_pylist()
    due = [DuePlan(candidates[row["plan_id"]], row, *endings[row["plan_id"]]) for row in heads]
    return [one for one in due if one.horizon_at <= started_at]


def _lag_before(rows: SnapshotReader, due: Sequence[DuePlan]) -> dict[tuple[str, str], GroupLag]:
    """Lag of the plans' groups in the snapshots that they were planned from."""
    snapshot_ids = {one.plan.snapshot_id for one in due}
    lag = rows.reader.read(
        LAG,
        columns=["snapshot_id", *group_lag.LAG_COLUMNS],
        filters=[
            ("cluster", "=", rows.cluster),
            ("day", "in", {slot_day(snapshot_id) for snapshot_id in snapshot_ids}),
            ("snapshot_id", "in", sorted(snapshot_ids)),
            ("group_id", "in", sorted({one.plan.group_id for one in due})),
        ],
    )
    import pyarrow as pa
    import pyarrow.compute as pc

    nobody = pa.table({name: pa.array([], pa.string()) for name in _MEMBER_COLUMNS})
    found: dict[tuple[str, str], GroupLag] = {}
    for snapshot_id in sorted(snapshot_ids):
        of_snapshot = lag.filter(pc.equal(lag["snapshot_id"], snapshot_id))
        measured = group_lag.measure_lag(of_snapshot, nobody)
        found |= {(snapshot_id, group_id): one for group_id, one in measured.items()}
    return found
