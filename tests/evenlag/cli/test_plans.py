"""`evenlag plans` says why a group has no plan, why one was made in shadow, and whether one paid off."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.tables import DECISIONS, PLAN_EVALUATIONS
from tests.support.lakes.command_lake import APPLIED_PLAN, FIRST, FIRST_SLOT, SECOND, SECOND_SLOT, write_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures.command import Evenlag

NOBODY = "the group has no members: its application is not running, or takes partitions by assign()"


def decision(group: str, kind: str, reason: str | None, *, is_second: bool = True) -> dict[str, Any]:
    return {
        "snapshot_id": SECOND if is_second else FIRST,
        "slot": SECOND_SLOT if is_second else FIRST_SLOT,
        "group_id": group,
        "policy_hash": "p",
        "policy_mode": "auto",
        "decision": kind,
        "reason": reason,
    }


@pytest.fixture
def told(lake: Path, tmp_path: Path) -> Path:
    """Return a copy of the lake whose newest snapshot was decided upon, and whose first plan is scored."""
    copy = tmp_path / "copy"
    shutil.copytree(lake, copy)
    rows = [
        decision("by-hand", "NOT_PLANNED", NOBODY),
        decision("spiky", "BREACH", "1 of 3 consecutive snapshots ask for a change"),
        decision("even", "NO_CHANGE", None),
        decision("payments", "PROPOSED", None),
        decision("old", "NOT_PLANNED", "long ago", is_second=False),
    ]
    write_rows(copy, DECISIONS, rows)
    score = {
        "snapshot_id": SECOND,
        "slot": SECOND_SLOT,
        "plan_id": APPLIED_PLAN,
        "group_id": "payments",
        "published_at": FIRST_SLOT,
        "scored_after_ms": 1,
        "outcome": "APPLIED",
        "paid_off": False,
        "reason": "the most loaded member is 1600 records behind",
    }
    write_rows(copy, PLAN_EVALUATIONS, [score])
    return copy


def test_groups_without_a_plan_are_listed_with_the_reason(evenlag: Evenlag, told: Path) -> None:
    content = json.loads(evenlag("plans", "--lake", told, "--json").stdout)
    without = {row["group_id"]: row["reason"] for row in content["without_plan"]}
    assert without == {"by-hand": NOBODY, "spiky": "1 of 3 consecutive snapshots ask for a change"}
    shown = evenlag("plans", "--lake", told, "--group", "by-hand")
    assert shown.exit_code == 0
    assert "Groups without a plan" in shown.stdout
    assert "no members" in shown.stdout


def test_a_plan_says_whether_it_paid_off(evenlag: Evenlag, told: Path) -> None:
    content = json.loads(evenlag("plans", APPLIED_PLAN[:8], "--lake", told, "--json").stdout)
    assert content["score"]["paid_off"] is False
    shown = evenlag("plans", APPLIED_PLAN[:8], "--lake", told).stdout
    assert "It did not pay off: the most loaded member is 1600 records behind." in " ".join(shown.split())
