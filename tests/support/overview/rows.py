"""Groups of an overview: one of each kind, and as many ordinary ones as a page needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final

from evenlag.overview.model import ClusterState, GroupRow, LastHint, LastPlan, Overview

NOW: Final = datetime(2026, 3, 1, 14, 0, tzinfo=UTC)
HOSTILE: Final = "<script>alert('evenlag')</script>"
HIDDEN: Final = "pay\u202elor"


def groups_of_each_kind() -> tuple[GroupRow, ...]:
    """Return groups that differ in their signs; `quiet` has none."""
    plan = LastPlan("a1" * 32, NOW, "APPLIED", "all with their members", 3, 58_743, 15_433)
    refused = LastPlan("b2" * 32, NOW, "REJECTED", "too many moves", 40, 900, 300, 0, ("max_moves",))
    ignored = LastHint("c3" * 32, NOW, "IGNORED", "the members left", 5_000, None, 2)
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
            plan=plan,
            hint=LastHint("a1" * 32, NOW, "APPLIED", None, 58_743, 4_403),
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
    clusters = tuple(
        ClusterState(name, "s", NOW, 1.0) for name in dict.fromkeys(row.cluster for row in groups)
    )
    return Overview(clusters, groups)


def many_groups(number: int) -> tuple[GroupRow, ...]:
    """Return ordinary groups with a plan each; the lag is 10 times the group's number."""
    plan = LastPlan("a1" * 32, NOW, "APPLIED", "all with their members", 3, 58_743, 15_433)
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
            plan=plan,
        )
        for place in range(number)
    )
