"""What the captions of lag say of rows that a limit leaves out."""

from __future__ import annotations

from typing import Any

from evenlag.cli.lag import left_out_groups_text


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
