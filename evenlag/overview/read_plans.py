"""Newest plan, newest settled hint and open approval request of each group of a cluster."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import Outcome, PlanEvent
from evenlag.lake.tables import GATE_RESULTS, OUTCOMES, PLAN_EVALUATIONS, PLAN_EVENTS, PLANS
from evenlag.overview.model import LastHint, LastPlan
from evenlag.publishing.approval_requests import open_requests
from evenlag.queries.plan_rows import last_events

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

LOOK_BACK: Final = timedelta(days=7)
# Rows to read at least of plans and of outcomes, newest first; more for clusters with more groups.
_MIN_ROWS: Final = 2_000
_ROWS_PER_GROUP: Final = 3
_PLAN_COLUMNS: Final = (
    "plan_id",
    "group_id",
    "day",
    "slot",
    "moves",
    "metrics_before",
    "metrics_after",
    "num_unknown_lags",
)
_OUTCOME_COLUMNS: Final = (
    "plan_id",
    "group_id",
    "day",
    "slot",
    "outcome",
    "reason",
    "max_member_lag_before_records",
    "max_member_lag_actual_records",
    "num_unknown_partitions",
    "total_lag_before_records",
    "total_lag_actual_records",
)


@dataclass(frozen=True, slots=True)
class PlanState:
    """What is known of a group's plans; parts without data are None."""

    plan: LastPlan | None = None
    hint: LastHint | None = None
    approval_until: datetime | None = None


def read_plan_states(
    reader: LakeReader, cluster: str, snapshot: Mapping[str, Any], now: datetime
) -> dict[str, PlanState]:
    """Read the plans of the week before a snapshot, as far as the newest rows tell.

    Returns by group id; groups without plans, hints and requests are left out.
    """
    since = snapshot["day"] - LOOK_BACK
    wanted: list[Filter] = [("cluster", "=", cluster), ("day", ">=", since)]
    limit = max(_MIN_ROWS, _ROWS_PER_GROUP * (snapshot["num_groups"] or 0))
    plans = _last_plans(reader, wanted, limit)
    hints = _last_hints(reader, wanted, limit)
    asked = {group_id: row["answer_by"] for group_id, row in open_requests(reader, cluster, now).items()}
    return {
        group_id: PlanState(plans.get(group_id), hints.get(group_id), asked.get(group_id))
        for group_id in {*plans, *hints, *asked}
    }


def _last_plans(reader: LakeReader, wanted: list[Filter], limit: int) -> dict[str, LastPlan]:
    rows = reader.read_newest(PLANS, "slot", filters=wanted, columns=_PLAN_COLUMNS, limit=limit).to_pylist()
    newest: dict[str, dict[str, Any]] = {}
    for row in rows:
        newest.setdefault(row["group_id"], row)
    if not newest:
        return {}
    ids = [row["plan_id"] for row in newest.values()]
    by_plan: list[Filter] = [
        wanted[0],
        ("day", ">=", min(row["day"] for row in newest.values())),
        ("plan_id", "in", ids),
    ]
    columns = ("plan_id", "event", "reason", "at")
    events = last_events(reader.read_events(filters=by_plan, columns=columns).to_pylist())
    failed: dict[str, set[str]] = defaultdict(set)
    verdicts = reader.read(
        GATE_RESULTS, columns=("plan_id", "gate"), filters=[*by_plan, ("passed", "=", False)]
    )
    for row in verdicts.to_pylist():
        failed[row["plan_id"]].add(row["gate"])
    return {
        group_id: _plan(row, events.get(row["plan_id"], {}), failed[row["plan_id"]])
        for group_id, row in newest.items()
    }


def _plan(row: Mapping[str, Any], event: Mapping[str, Any], failed: set[str]) -> LastPlan:
    before, after = (row[name] or {} for name in ("metrics_before", "metrics_after"))
    return LastPlan(
        plan_id=row["plan_id"],
        slot=row["slot"],
        status=event.get("event"),
        reason=event.get("reason"),
        moves=row["moves"],
        before_records=before.get("max_member_lag_records"),
        after_records=after.get("max_member_lag_records"),
        num_unknown=row["num_unknown_lags"] or 0,
        failed_gates=tuple(sorted(failed)),
    )


def _last_hints(reader: LakeReader, wanted: list[Filter], limit: int) -> dict[str, LastHint]:
    """Newest settled hint of each group, without those that a newer hint replaced."""
    rows = reader.read_newest(
        OUTCOMES, "slot", filters=wanted, columns=_OUTCOME_COLUMNS, limit=limit
    ).to_pylist()
    ignored = sorted({row["group_id"] for row in rows if row["outcome"] == Outcome.IGNORED})
    published: dict[str, tuple[int, str]] = {}
    if ignored:
        of_groups: list[Filter] = [
            *wanted,
            ("event", "=", PlanEvent.PUBLISHED),
            ("group_id", "in", ignored),
        ]
        columns = ("group_id", "plan_id", "sequence")
        for row in reader.read(PLAN_EVENTS, columns=columns, filters=of_groups).to_pylist():
            found = (row["sequence"] or 0, row["plan_id"])
            published[row["group_id"]] = max(found, published.get(row["group_id"], found))
    newest: dict[str, dict[str, Any]] = {}
    for row in rows:
        last = published.get(row["group_id"])
        is_replaced = row["outcome"] == Outcome.IGNORED and last is not None and last[1] != row["plan_id"]
        if row["group_id"] not in newest and not is_replaced:
            newest[row["group_id"]] = row
    followed = [row["plan_id"] for row in newest.values() if row["outcome"] == Outcome.APPLIED]
    of_plans: list[Filter] = [*wanted, ("plan_id", "in", followed)]
    evaluated: dict[str, bool | None] = {}
    if followed:
        found_rows = reader.read(PLAN_EVALUATIONS, columns=("plan_id", "paid_off"), filters=of_plans)
        evaluated = {row["plan_id"]: row["paid_off"] for row in found_rows.to_pylist()}
    return {group_id: _hint(row, evaluated) for group_id, row in newest.items()}


def _hint(row: Mapping[str, Any], evaluated: Mapping[str, bool | None]) -> LastHint:
    return LastHint(
        plan_id=row["plan_id"],
        settled_at=row["slot"],
        outcome=row["outcome"],
        reason=row["reason"],
        before_records=row["max_member_lag_before_records"],
        actual_records=row["max_member_lag_actual_records"],
        num_unknown=row["num_unknown_partitions"] or 0,
        total_before_records=row["total_lag_before_records"],
        total_actual_records=row["total_lag_actual_records"],
        is_evaluated=row["plan_id"] in evaluated,
        paid_off=evaluated.get(row["plan_id"]),
    )
