"""Metrics of a cluster for monitoring, from its newest snapshot; no JVM."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from evenlag.enums import PlanEvent
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, OUTCOMES, PLANS
from evenlag.publishing.approval_requests import open_requests
from evenlag.queries.lag import SUM_COLUMNS, sum_lag

if TYPE_CHECKING:
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter

_OUTCOMES = (PlanEvent.APPLIED, PlanEvent.IGNORED, PlanEvent.EXPIRED)
_EVENTS = (
    PlanEvent.PROPOSED,
    PlanEvent.REJECTED,
    PlanEvent.APPROVED,
    PlanEvent.PUBLISHED,
    *_OUTCOMES,
    PlanEvent.WITHDRAWN,
)


def read_metrics(lake: str, cluster: str, now: datetime) -> dict[str, float]:
    """Read the metrics of a cluster.

    Returns metrics by name; unknown ones are left out. ``snapshot.age_s, snapshot.completeness,
    snapshot.groups, snapshot.partitions`` Of the newest snapshot. ``lag.records, lag.unknown_partitions``
    Sum of the known lag, left out if all lag is unknown, and the number of partitions with unknown lag. If
    there are any, the sum is a lower bound. Both are left out of a snapshot with groups whose lag is not
    computed yet. ``plans.made, plans.<event>`` Plans made from the newest snapshot, and how many of these
    have the event. A plan is settled by a later snapshot than its own: ``plans.applied`` and
    ``plans.ignored`` stay 0. ``outcomes.<outcome>`` Published plans of earlier snapshots that the newest
    snapshot settled, by outcome. ``approvals.open`` Plans that wait for approval.
    """
    reader = LakeReader(lake)
    figures: dict[str, float] = {"approvals.open": len(open_requests(reader, cluster, now))}
    snapshot = reader.latest_snapshot(cluster)
    if snapshot is None:
        return figures
    wanted: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", "=", snapshot["day"]),
        ("snapshot_id", "=", snapshot["snapshot_id"]),
    ]
    figures |= {
        "snapshot.age_s": (now - snapshot["finished_at"]).total_seconds(),
        "snapshot.completeness": snapshot["completeness"],
        "snapshot.groups": snapshot["num_groups"],
        "snapshot.partitions": snapshot["num_partitions"],
    }
    figures |= _lag(reader, wanted, snapshot["num_groups"]) | _plans(reader, wanted)
    outcomes = reader.read(OUTCOMES, columns=["outcome"], filters=wanted)["outcome"].to_pylist()
    figures |= {f"outcomes.{outcome.lower()}": outcomes.count(outcome) for outcome in _OUTCOMES}
    return {name: value for name, value in figures.items() if value is not None}


def _lag(reader: LakeReader, wanted: list[Filter], num_groups: int | None) -> dict[str, Any]:
    """Sum the known lag, and count partitions with unknown lag; a snapshot without groups has a lag of 0."""
    lag = reader.read(LAG, columns=SUM_COLUMNS, filters=wanted)
    if not lag.num_rows and num_groups != 0:
        return {}
    found = sum_lag(lag)
    total = found["lag_records"] if lag.num_rows else 0
    return {"lag.records": total, "lag.unknown_partitions": found["num_unknown_partitions"]}


def _plans(reader: LakeReader, wanted: list[Filter]) -> dict[str, int]:
    """Count the plans made from a snapshot by their events.

    Events are found by plan id: an event has the id of the snapshot that reported it. For an outcome that is
    a later snapshot than the plan's.
    """
    plan_ids = set(reader.read(PLANS, columns=["plan_id"], filters=wanted)["plan_id"].to_pylist())
    made = {"plans.made": len(plan_ids)}
    if not plan_ids:
        return made | {f"plans.{event.lower()}": 0 for event in _EVENTS}
    by_plan: list[Filter] = [
        (column, ">=" if column == "day" else operator, value)
        for column, operator, value in wanted
        if column != "snapshot_id"
    ]
    events = reader.read_events(filters=[*by_plan, ("plan_id", "in", sorted(plan_ids))])
    # A repeated run may write an event again.
    pairs = set(zip(events["plan_id"].to_pylist(), events["event"].to_pylist(), strict=True))
    counts = Counter(event for _, event in pairs)
    return made | {f"plans.{event.lower()}": counts[event] for event in _EVENTS}
