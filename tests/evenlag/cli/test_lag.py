"""Which groups `evenlag lag` lists, in which order, and what captions say of rows that a limit leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from evenlag.cli.lag import GroupChoice, SortKey, left_out_groups_text


def group(name: str, lag: int | None, num_unknown: int = 0) -> dict[str, Any]:
    return {"group_id": name, "lag_records": lag, "num_unknown_partitions": num_unknown}


def test_left_out_groups_of_unknown_lag_are_named() -> None:
    groups = [
        group("orders", 9),
        group("clicks", 3),
        group("audit", 2, num_unknown=1),
        group("billing", None, 4),
    ]

    assert left_out_groups_text(groups, 1) == "3 more groups: --limit 4; of unknown lag: audit, billing"
    assert left_out_groups_text(groups, 3) == "1 more groups: --limit 4; of unknown lag: billing"
    assert left_out_groups_text(groups[:2], 1) == "1 more groups: --limit 2"
    assert left_out_groups_text(groups, 4) == ""


def test_many_groups_of_unknown_lag_are_counted() -> None:
    groups = [group("orders", 9), *(group(f"g{number}", None, 1) for number in range(7))]

    assert (
        left_out_groups_text(groups, 1)
        == "7 more groups: --limit 8; of unknown lag: g0, g1, g2, g3, g4 and 2 more"
    )


# Sorted by lag, as the queries return them.
LISTED: list[dict[str, Any]] = [
    {"group_id": "pay-b", "lag_records": 90, "lag_bound": None, "time_lag_ms": 5, "lag_skew": 1.0},
    {"group_id": "pay-a", "lag_records": 40, "lag_bound": "LOWER", "time_lag_ms": None, "lag_skew": 3.0},
    {"group_id": "audit", "lag_records": 40, "lag_bound": None, "time_lag_ms": 9, "lag_skew": 2.0},
    {"group_id": "new", "lag_records": None, "lag_bound": None, "time_lag_ms": None, "lag_skew": None},
    {"group_id": "share", "lag_records": None, "lag_bound": None, "time_lag_ms": None, "lag_skew": None},
]
REASONS = {"new": "the coordinator does not answer", "share": "not a consumer group: share"}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (GroupChoice(), "pay-b pay-a audit new share"),
        (GroupChoice(match="pay-*"), "pay-b pay-a"),
        (GroupChoice(match="/.*a.*/", sort=SortKey.GROUP), "audit pay-a pay-b share"),
        # A lower bound of 40 may be 50, and an unknown lag anything; a share group has none.
        (GroupChoice(min_lag=50), "pay-b pay-a new"),
        (GroupChoice(sort=SortKey.BEHIND), "audit pay-b pay-a new share"),
        (GroupChoice(sort=SortKey.SKEW), "pay-a audit pay-b new share"),
    ],
)
def test_groups_are_chosen_and_sorted(choice: GroupChoice, names: str) -> None:
    rows = [
        row | {"commit_problem": None, "subscription_problem": REASONS.get(str(row["group_id"]))}
        for row in LISTED
    ]
    assert " ".join(row["group_id"] for row in choice.of(rows)) == names
