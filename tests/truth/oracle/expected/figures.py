"""Metrics, hot partitions and the approval page: expected values, for tests to compare."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.truth.oracle.expected.lag import at_least
from tests.truth.oracle.forms import number
from tests.truth.oracle.lake_rows import by, counted, known_sum

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tests.truth.oracle.lake_rows import LakeRows, Row

_EVENTS: Final = (
    "PROPOSED", "REJECTED", "APPROVED", "PUBLISHED", "APPLIED", "IGNORED", "EXPIRED", "WITHDRAWN",
)  # fmt: skip
_FINAL: Final = frozenset(_EVENTS) - {"PROPOSED"}
_HOT_RECORDS: Final = 1_000
_MEMBERS_SHOWN: Final = 20


def figures(rows: LakeRows, now: datetime) -> dict[str, float]:
    """Return the metrics of a cluster from its newest snapshot; events count for plans of that snapshot."""
    snapshot = rows.newest
    snapshot_id = snapshot["snapshot_id"]
    own_plans = {row["plan_id"] for row in rows.where("plans", snapshot_id=snapshot_id)}
    pairs = {(event["plan_id"], event["event"]) for event in rows.events if event["plan_id"] in own_plans}
    events = Counter(event for _, event in pairs)
    outcomes = Counter(row["outcome"] for row in rows.where("outcomes", snapshot_id=snapshot_id))
    # What groups have left is in no total.
    lag = counted(rows.lag_of(snapshot_id))
    total = known_sum(lag) if lag else 0
    found = {
        "approvals.open": open_requests(rows, now),
        "snapshot.age_s": (now - snapshot["finished_at"]).total_seconds(),
        "snapshot.completeness": snapshot["completeness"],
        "snapshot.groups": snapshot["num_groups"],
        "snapshot.partitions": snapshot["num_partitions"],
        "lag.records": total,
        "lag.unknown_partitions": sum(row["lag_records"] is None for row in lag),
        "plans.made": len(own_plans),
        **{f"plans.{name.lower()}": events[name] for name in _EVENTS},
        **{f"outcomes.{name.lower()}": outcomes[name] for name in ("APPLIED", "IGNORED", "EXPIRED")},
    }
    return {name: value for name, value in found.items() if value is not None}


def open_requests(rows: LakeRows, now: datetime) -> int:
    """Return the number of plans that wait for approval and whose deadline has not passed."""
    ended = {event["plan_id"] for event in rows.events if event["event"] in _FINAL}
    asked = [row for row in rows.rows("approval_requests") if row["state"] == "ASKED"]
    return len({row["plan_id"] for row in asked if row["plan_id"] not in ended and row["answer_by"] > now})


def hot_partitions(rows: LakeRows) -> list[Row]:
    """Return groups of the newest snapshot whose largest member lag comes from one partition."""
    snapshot_id = rows.newest["snapshot_id"]
    found = []
    for group_id, lag in sorted(by(rows.lag_of(snapshot_id), "group_id").items()):
        members = {r["member_id"] for r in rows.where("members", snapshot_id=snapshot_id, group_id=group_id)}
        members.discard(None)
        taken = [row for row in lag if row["status"] != "NOT_SUBSCRIBED"]
        if group_id in open_groups(rows):
            continue
        owned = [row for row in taken if row["owner_member_id"] is not None]
        if len(members) < 2 or not owned:  # nobody to share with
            continue
        mean = (known_sum(taken) or 0) / len(members)
        most = max(known_sum(own) or 0 for own in by(owned, "owner_member_id").values())
        heaviest = min(owned, key=lambda row: (-(row["lag_records"] or 0), row["topic"], row["partition"]))
        alone = heaviest["lag_records"] or 0
        if alone >= max(_HOT_RECORDS, 2 * mean) and alone >= 0.98 * most:
            found.append(
                {
                    "group_id": group_id,
                    "topic": heaviest["topic"],
                    "partition": heaviest["partition"],
                    "lag_records": alone,
                    "mean_member_lag_records": mean,
                }
            )
    return found


def open_groups(rows: LakeRows) -> list[str]:
    """Return groups of the newest snapshot with unknown lag: their even share is unknown."""
    lag = rows.lag_of(rows.newest["snapshot_id"])
    return sorted({row["group_id"] for row in lag if row["lag_records"] is None})


def approval_numbers(rows: LakeRows, plan: Row) -> list[list[str]]:
    """Return the members on a plan's approval page: lag now and as planned, for the 20 with the largest."""
    assigned = rows.assigned(plan)
    sides = ("owner_before", "owner_after")
    members = {row[side] for row in assigned for side in sides} - {None}
    found = [[[row for row in assigned if row[side] == member] for side in sides] for member in members]
    found.sort(key=lambda pair: -max(known_sum(owned) or 0 for owned in pair))
    return [[_known_lag(owned) for owned in pair] for pair in found[:_MEMBERS_SHOWN]]


def _known_lag(owned: Sequence[Row]) -> str:
    lag = known_sum(owned)
    num_unknown = sum(row["lag_records"] is None for row in owned)
    if lag is None:
        return "not known" if num_unknown else "0"
    return at_least(number(lag), num_unknown)
