"""Groups of an overview: one of each kind, and as many ordinary ones as a page needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final

from evenlag.overview.model import ClusterState, GroupRow, Overview

NOW: Final = datetime(2026, 3, 1, 14, 0, tzinfo=UTC)
HOSTILE: Final = "<script>alert('evenlag')</script>"
HIDDEN: Final = "pay\u202elor"


def plan_row(
    plan_id: str, status: str, reason: str, moves: int, before: int, after: int, *failed_gates: str
) -> dict[str, Any]:
    """Return the newest plan of a group."""
    return {
        "plan_id": plan_id,
        "slot": NOW,
        "status": status,
        "reason": reason,
        "moves": moves,
        "max_member_lag_before_records": before,
        "max_member_lag_predicted_records": after,
        "num_unknown_lags": 0,
        "failed_gates": failed_gates,
    }


def hint_row(
    plan_id: str, outcome: str, reason: str | None, before: int, actual: int | None, num_unknown: int = 0
) -> dict[str, Any]:
    """Return the newest settled hint of a group."""
    return {
        "plan_id": plan_id,
        "slot": NOW,
        "outcome": outcome,
        "reason": reason,
        "max_member_lag_before_records": before,
        "max_member_lag_actual_records": actual,
        "num_unknown_partitions": num_unknown,
    }


APPLIED: Final = plan_row("a1" * 32, "APPLIED", "all with their members", 3, 58_743, 15_433)


def groups_of_each_kind() -> tuple[GroupRow, ...]:
    """Return groups that differ in their signs; `quiet` has none."""
    refused = plan_row("b2" * 32, "REJECTED", "too many moves", 40, 900, 300, "max_moves")
    ignored = hint_row("c3" * 32, "IGNORED", "the members left", 5_000, None, 2)
    return (
        GroupRow("orders", "quiet", "Stable", 2, 4, lag_records=0, trend=(0, 0), mode="auto"),
        GroupRow(
            "orders",
            "payments",
            "Stable",
            4,
            12,
            lag_records=61_000,
            max_member_lag_records=58_743,
            lag_skew=3.85,
            unevenness=0.95,
            time_lag_ms=90_000,
            drain_time_ms=600_000,
            trend=(52_000, None, 58_000, 61_000),
            mode="auto",
            policy_mode="auto",
            plan=APPLIED,
            hint=hint_row("a1" * 32, "APPLIED", None, 58_743, 4_403),
        ),
        GroupRow(
            "orders",
            "review",
            "Stable",
            2,
            6,
            lag_records=9_000,
            trend=(9_500, 9_000),
            drain_time_ms=inf,
            num_stalled=2,
            mode="approve",
            policy_mode="approve",
            plan=refused,
            approval_until=NOW + timedelta(hours=1),
        ),
        GroupRow(
            "orders", "deaf", "Stable", 2, 6, lag_records=700, mode="shadow", policy_mode="auto", hint=ignored
        ),
        GroupRow(
            "billing", HOSTILE, "Stable", 1, 3, 2, lag_records=40, num_unknown_time_lags=3, mode="shadow"
        ),
        GroupRow(
            "billing",
            HIDDEN,
            "Stable",
            3,
            3,
            lag_records=8_000,
            hot=f"{HOSTILE}-0",
            hot_message="not fixable",
            mode="shadow",
        ),
        GroupRow(
            "billing",
            "gone",
            "Empty",
            0,
            1,
            lag_records=None,
            decision="NOT_PLANNED",
            decision_reason="no members",
        ),
    )


def overview_of(*groups: GroupRow) -> Overview:
    """Return the overview of groups."""
    clusters = tuple(ClusterState(name, NOW, 1.0) for name in dict.fromkeys(row.cluster for row in groups))
    return Overview(clusters, groups)


def many_groups(number: int) -> tuple[GroupRow, ...]:
    """Return ordinary groups with a plan each; the lag is 10 times the group's number."""
    return tuple(
        GroupRow(
            "orders",
            f"team-{place % 40:02}.consumer-{place:04}",
            "Stable",
            10,
            100,
            lag_records=10 * place,
            lag_skew=1.5,
            time_lag_ms=1000 * place,
            drain_time_ms=place,
            trend=tuple(range(place, place + 12)),
            mode="auto",
            policy_mode="auto",
            plan=APPLIED,
        )
        for place in range(number)
    )
