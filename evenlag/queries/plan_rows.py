"""Queries on plans: what was proposed, its status and outcome, and its effect on lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import EVENT_RANK, DecisionKind, PlanEvent, RequestState
from evenlag.formatting import answered_by, moment
from evenlag.lake.filters import matching
from evenlag.lake.snapshot_ids import slot_day
from evenlag.lake.tables import APPROVAL_REQUESTS, DECISIONS, OUTCOMES, PLANS

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.lake.filters import Filter
    from evenlag.lake.reader import LakeReader

# Large, or evenlag's own: what a plan is sealed with says nothing to a reader.
_NOT_SHOWN: Final = frozenset({"payload", "settings", "policy_hash", "assignments_hash", "seal"})
# Columns of `plan_rows` besides those of ``plans``, with the types of the contracts.
ADDED_COLUMNS: Final = {
    "status": "STRING",
    "reason": "STRING",
    "answer_by": "TIMESTAMP",
    "max_member_lag_before_records": "BIGINT",
    "max_member_lag_predicted_records": "BIGINT",
    "max_member_lag_actual_records": "BIGINT",
    "num_partitions_actual": "INT",
    "num_unknown_partitions_actual": "INT",
    "adherence": "DOUBLE",
    "decided_by": "STRING",
}
_SAME_START: Final = timedelta(days=31)
# No text with a given start sorts after the start and this sign.
_LAST_SIGN: Final = "\U0010ffff"


def plan_rows(
    reader: LakeReader,
    cluster: str,
    *,
    group: str | None = None,
    plan_prefix: str | None = None,
    snapshot_id: str | None = None,
    between: tuple[date, date] | None = None,
    until: datetime | None = None,
    events: Sequence[dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Read plans with their status, newest first: their rows of ``plans`` without the payload, and more.

    ``reason`` is that of the last event, or the state of the request of a plan that waits for approval. The
    lag before and predicted is a lower bound with ``num_unknown_lags`` above 0, the actual one with
    ``num_unknown_partitions_actual``; ``decided_by`` is None if no user answered, or it is not recorded.

    plan_prefix: Of several plans with this start only the newest is found, and those of the 31 days before.
    between: First and last day of the plans' snapshots; default: all.
    until: Return plans as they were at this moment.
    events: Plan events until then; read from the lake if not given.
    """
    filters = matching(cluster=cluster)
    narrowed: list[Filter] = [
        (column, "=", value) for column, value in (("group_id", group), ("snapshot_id", snapshot_id)) if value
    ]
    if snapshot_id is not None:
        between = slot_day(snapshot_id), slot_day(snapshot_id)
    if between is not None:
        filters.append(("day", ">=", between[0]))
        narrowed.append(("day", "<=", between[1]))
    if plan_prefix:
        narrowed += [("plan_id", ">=", plan_prefix), ("plan_id", "<=", plan_prefix + _LAST_SIGN)]
        last = reader.read_newest(PLANS, "day", columns=["day"], filters=[*filters, *narrowed])["day"]
        if not len(last):
            return []
        filters.append(("day", ">=", last[0].as_py() - _SAME_START))
    narrowed = [*filters, *narrowed]
    columns = [name for name in PLANS.column_names if name not in _NOT_SHOWN]
    plans = reader.read(PLANS, columns=columns, filters=narrowed).to_pylist()
    if not plans:
        return []
    wanted: list[Filter] = [*filters, ("plan_id", "in", [plan["plan_id"] for plan in plans])]
    if events is None:
        events = reader.read_events(filters=wanted).to_pylist()
    last = last_events(events)
    deciders = {
        event["plan_id"]: answered_by(event)
        for event in events
        if event["event"] in {PlanEvent.APPROVED, PlanEvent.REJECTED} and event.get("channel")
    }
    settled = {(event["plan_id"], event["event"]) for event in events}
    outcomes = {
        row["plan_id"]: row
        for row in reader.read(OUTCOMES, filters=wanted).to_pylist()
        if until is None or (row["plan_id"], row["outcome"]) in settled
    }
    # A plan that was set aside first and requested later has both rows: the request counts.
    asked = reader.read(APPROVAL_REQUESTS, filters=wanted).sort_by([("state", "descending")]).to_pylist()
    requests = {row["plan_id"]: row for row in asked if until is None or row["at"] <= until}
    rows = [
        plan_row(plan, *(known.get(plan["plan_id"]) for known in (last, outcomes, requests)))
        | {"decided_by": deciders.get(plan["plan_id"])}
        for plan in plans
    ]
    return sorted(rows, key=lambda row: (-row["slot"].timestamp(), row["group_id"]))


def plans_as_arrow(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows of :func:`plan_rows` as a table."""
    import pyarrow as pa

    from evenlag.lake.arrow_schema import arrow_schema, arrow_type

    own = [field for field in arrow_schema(PLANS) if field.name not in _NOT_SHOWN]
    added = [(name, arrow_type(kind)) for name, kind in ADDED_COLUMNS.items()]
    return pa.Table.from_pylist(list(rows), schema=pa.schema([*own, *added]))


def groups_without_plan(reader: LakeReader, cluster: str, *, group: str | None) -> list[dict[str, Any]]:
    """Read why groups got no plan from the newest snapshot that was planned, by group id.

    Groups whose assignment needs no change are left out.
    """
    newest = reader.latest_snapshot(cluster)
    columns = ("group_id", "policy_mode", "decision", "reason", "slot")
    decided = [] if newest is None else newest_decisions(reader, cluster, newest["day"], columns)
    without = {DecisionKind.BREACH, DecisionKind.NOT_PLANNED, DecisionKind.FAILED}
    rows = [row for row in decided if row["decision"] in without and group in {None, row["group_id"]}]
    return sorted(rows, key=lambda row: str(row["group_id"]))


def newest_decisions(
    reader: LakeReader, cluster: str, day: date, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Read the decisions of the newest snapshot that was planned, of a day or later, or of the day before."""
    filters = matching(cluster=cluster, since=day - timedelta(days=1))
    # All decisions of a snapshot have its slot, and are written at once.
    rows = reader.read_newest(DECISIONS, "slot", filters=filters, columns=columns)
    return list(rows.to_pylist())


def no_plan_reason(decided: Mapping[str, Any]) -> str:
    """Return why a cycle made no plan: a failed quality check, or no group needs a change."""
    if stopped := decided.get("stopped"):
        return f"nothing is planned, because the snapshot failed quality checks: {stopped}."
    return "nothing to change in the groups that are planned."


def last_events(events: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Select the event that determines the status of each plan: the last one by :func:`event_order`."""
    return {event["plan_id"]: event for event in sorted(events, key=event_order)}


def event_order(event: dict[str, Any]) -> int:
    """Return the position of an event in the life of a plan; -1 for an unknown event."""
    return EVENT_RANK.get(event["event"], -1)


def plan_row(
    plan: dict[str, Any],
    event: dict[str, Any] | None,
    outcome: dict[str, Any] | None = None,
    request: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a plan with what its last event, its outcome and its approval request say of it."""
    before, after = (plan[name] or {} for name in ("metrics_before", "metrics_after"))
    outcome = outcome or {}
    status, reason = (event["event"], event["reason"]) if event else (None, None)
    is_open = status == PlanEvent.PROPOSED and request is not None
    return {
        **plan,
        "metrics_before": before,
        "metrics_after": after,
        "status": status,
        "reason": _request_reason(request) if is_open and request is not None else reason,
        "answer_by": request["answer_by"] if is_open and request is not None else None,
        "max_member_lag_before_records": before.get("max_member_lag_records"),
        "max_member_lag_predicted_records": after.get("max_member_lag_records"),
        "max_member_lag_actual_records": outcome.get("max_member_lag_actual_records"),
        "num_partitions_actual": outcome.get("num_partitions"),
        "num_unknown_partitions_actual": outcome.get("num_unknown_partitions"),
        "adherence": outcome.get("adherence"),
    }


def _request_reason(request: dict[str, Any]) -> str:
    if request["state"] == RequestState.ASKED:
        return f"waits for a person, until {moment(request['answer_by'])}"
    return f"stays in shadow: {request['reason']}"
