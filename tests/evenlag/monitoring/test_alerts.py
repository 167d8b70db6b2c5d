"""Faults: what is one, an active one is reported once, and one that cannot be reported stays unchanged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.tables import (
    GATE_RESULTS,
    LAG,
    MEMBERS,
    PLAN_EVENTS,
    PLANS,
    QUALITY_RESULTS,
    RUNS,
    SNAPSHOTS,
    Table,
)
from evenlag.monitoring.alerts import AlertChanges, find_changes, record_changes
from evenlag.monitoring.lake_health import FRESHNESS, Check, keep_checks
from evenlag.policy.loader import LoadedPolicy, parse_policy
from evenlag.quality.checks import CHECKS
from tests.support.lakes.command_lake import DAY, write_rows
from tests.support.spark_tables import together

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("spark")

SLOT = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)
NOW = SLOT + timedelta(minutes=2)
POLICY = """\
lake: {lake}
clusters:
  orders: {{bootstrap_servers: "a:1", schedule: "*/5 * * * *"}}
groups:
  - {{match: auto-*, mode: auto}}
  - {{match: approve-*, mode: approve}}
"""


class Story:
    """A lake that snapshots are added to, and what each look at it tells."""

    def __init__(self, folder: Path) -> None:
        self.lake = folder / "lake"
        self.loaded: LoadedPolicy = parse_policy(POLICY.format(lake=self.lake))
        self._rows: list[tuple[Table, list[dict[str, Any]]]] = []

    def add(self, table: Table, rows: list[dict[str, Any]]) -> None:
        """Add rows; they are written by the next look."""
        # Spark needs a moment for each append: what comes between two looks is written together.
        self._rows.append((table, rows))

    def find(self, now: datetime = NOW) -> AlertChanges:
        """Write what has come since, and look for what is new and what is over."""
        with together():
            for table, rows in self._rows:
                write_rows(self.lake, table, rows)
        self._rows.clear()
        return find_changes(self.loaded, "orders", now)

    def snapshot(self, number: int, *, completeness: float = 1.0, decided: bool = True) -> str:
        slot = SLOT + timedelta(minutes=5 * number)
        identity = f"{slot:%Y%m%dT%H%M%S}000Z-{number:08x}"
        marker = {"snapshot_id": identity, "slot": slot, "finished_at": slot, "completeness": completeness}
        self.add(SNAPSHOTS, [marker | {"num_partitions": 1000, "num_unread_partitions": 10}])
        if decided:
            run = {"run_id": "r", "step": "decide", "slot": slot, "snapshot_id": identity}
            self.add(RUNS, [run])
        return identity

    def plan(self, snapshot_id: str, group_id: str, failed: dict[str, str]) -> None:
        head = {
            "snapshot_id": snapshot_id,
            "plan_id": f"plan of {group_id} {snapshot_id}",
            "group_id": group_id,
        }
        self.add(PLANS, [head])
        verdicts = [head | {"gate": gate, "passed": False, "message": text} for gate, text in failed.items()]
        self.add(GATE_RESULTS, [head | {"gate": "complete", "passed": True}, *verdicts])

    def hint(self, sequence: int, ending: str | None, group_id: str = "auto-1") -> None:
        head = {"snapshot_id": "s", "plan_id": f"hint {sequence}", "group_id": group_id, "actor": "observer"}
        at = SLOT + timedelta(seconds=sequence)
        self.add(PLAN_EVENTS, [head | {"event": "PUBLISHED", "sequence": sequence, "at": at}])
        if ending:
            self.add(PLAN_EVENTS, [head | {"event": ending, "reason": "why", "at": at}])

    def end(self, sequence: int, ending: str) -> None:
        head = {"snapshot_id": "s", "plan_id": f"hint {sequence}", "group_id": "auto-1", "actor": "observer"}
        self.add(PLAN_EVENTS, [head | {"event": ending, "reason": "why", "at": SLOT}])

    def lag(self, snapshot_id: str, group_id: str, lags: dict[str, list[int]]) -> None:
        """Lags by member; partitions are numbered as they come."""
        head: dict[str, Any] = {"snapshot_id": snapshot_id, "group_id": group_id}
        self.add(MEMBERS, [head | {"member_id": member} for member in lags])
        rows = [
            head | {"owner_member_id": member, "lag_records": lag, "topic": "t", "status": "OK"}
            for member, held in lags.items()
            for lag in held
        ]
        self.add(LAG, [row | {"partition": number} for number, row in enumerate(rows)])

    def look(self, now: datetime = NOW) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """What is new and what is over; then it counts as told."""
        changes = self.find(now)
        record_changes(self.loaded, "orders", changes, run_id="r", now=now)
        return (
            [(fault.kind, fault.subject) for fault in changes.raised],
            [(fault.kind, fault.subject) for fault in changes.cleared],
        )


@pytest.fixture
def story(tmp_path: Path) -> Story:
    assert SLOT.date() == DAY
    return Story(tmp_path)


def test_a_standing_fault_is_told_once_and_once_when_it_is_over(story: Story) -> None:
    story.snapshot(0, completeness=0.99)
    assert story.look() == ([("INCOMPLETE_SNAPSHOT", "orders")], [])
    assert story.look(NOW + timedelta(seconds=1)) == ([], [])
    story.snapshot(1, completeness=0.99)
    assert story.look(NOW + timedelta(minutes=5)) == ([], [])
    story.snapshot(2, completeness=0.996)
    assert story.look(NOW + timedelta(minutes=10)) == ([], [("INCOMPLETE_SNAPSHOT", "orders")])
    story.snapshot(3, completeness=0.9)
    assert story.look(NOW + timedelta(minutes=15)) == ([("INCOMPLETE_SNAPSHOT", "orders")], [])


def test_a_snapshot_that_fails_checks_is_told_by_table_until_one_passes(story: Story) -> None:
    def check(snapshot_id: str, *failing: str) -> None:
        story.add(
            QUALITY_RESULTS,
            [
                {
                    "snapshot_id": snapshot_id,
                    "table_name": one.table,
                    "check_name": one.name,
                    "passed": one.name not in failing,
                    "message": f"{one.name} is broken",
                }
                for one in CHECKS
            ],
        )

    check(story.snapshot(0, completeness=0.9), "snapshot_complete", "one_owner", "offsets_not_backwards")
    faults = {(fault.kind, fault.subject): fault.message for fault in story.find().raised}
    assert set(faults) == {
        ("INCOMPLETE_SNAPSHOT", "orders"),
        ("INVALID_DATA", "members"),
        ("INVALID_DATA", "offsets"),
    }
    assert faults["INVALID_DATA", "members"] == "one_owner: one_owner is broken"
    assert story.look()[1] == []
    # A snapshot that was not checked yet says nothing.
    story.snapshot(1, completeness=0.9)
    assert story.look(NOW + timedelta(minutes=5)) == ([], [])
    check(story.snapshot(2))
    assert story.look(NOW + timedelta(minutes=10))[1] == [
        ("INCOMPLETE_SNAPSHOT", "orders"),
        ("INVALID_DATA", "members"),
        ("INVALID_DATA", "offsets"),
    ]


def test_what_was_not_recorded_is_told_again(story: Story) -> None:
    story.snapshot(0, completeness=0.99)
    for _ in range(2):
        assert story.find().raised


def test_what_maintenance_found_is_told_until_it_finds_it_no_more(story: Story) -> None:
    story.snapshot(0)
    root = story.loaded.policy.lake
    bad = Check("lag", "FILES", is_ok=False, observed="90 on 2026-03-01", allowed="50", message="run it")
    stale = Check("snapshots", FRESHNESS, is_ok=False, observed="-", allowed="-", message="shown elsewhere")
    keep_checks(root, "orders", [bad, stale], NOW)
    changes = story.find()
    assert changes.text == "UNHEALTHY_TABLE lag: 90 on 2026-03-01: run it"
    assert story.look() == ([("UNHEALTHY_TABLE", "lag")], [])
    good = Check("lag", "FILES", is_ok=True, observed="1", allowed="50", message="as it should be")
    keep_checks(root, "orders", [good], NOW + timedelta(seconds=1))
    assert story.look(NOW + timedelta(seconds=2)) == ([], [("UNHEALTHY_TABLE", "lag")])


def test_two_missing_runs_make_the_snapshot_stale(story: Story) -> None:
    assert story.look() == ([("STALE_SNAPSHOT", "orders")], [])
    story.snapshot(0)
    assert story.look(NOW + timedelta(seconds=1)) == ([], [("STALE_SNAPSHOT", "orders")])
    assert story.look(SLOT + timedelta(minutes=9)) == ([], [])
    assert story.look(SLOT + timedelta(minutes=11)) == ([("STALE_SNAPSHOT", "orders")], [])


def test_rejected_plans_of_groups_that_may_be_published_are_told_with_their_reasons(story: Story) -> None:
    first = story.snapshot(0)
    story.plan(first, "auto-1", {"max_moves": "moves 41", "cooldown": "rests"})
    story.plan(first, "approve-1", {"lag_known": "not known"})
    story.plan(first, "auto-resting", {"cooldown": "rests", "min_gain": "too little"})
    story.plan(first, "in-shadow", {"max_moves": "moves 41"})
    changes = story.find()
    assert [(fault.subject, fault.message) for fault in changes.raised] == [
        ("approve-1", "not known"),
        ("auto-1", "moves 41"),
    ]
    assert changes.text.splitlines() == [
        "PLAN_REJECTED approve-1: not known",
        "PLAN_REJECTED auto-1: moves 41",
    ]


def test_a_snapshot_that_is_not_decided_upon_ends_no_fault(story: Story) -> None:
    story.plan(story.snapshot(0), "auto-1", {"max_moves": "moves 41"})
    story.look()
    story.snapshot(1, decided=False)
    assert story.look(NOW + timedelta(minutes=5)) == ([], [])
    story.snapshot(2)
    assert story.look(NOW + timedelta(minutes=10)) == ([], [("PLAN_REJECTED", "auto-1")])


def test_a_hint_that_is_not_followed_is_told_until_one_is(story: Story) -> None:
    story.snapshot(0)
    story.hint(1, "EXPIRED")
    assert story.look() == ([("HINT_NOT_FOLLOWED", "auto-1")], [])
    # A newer hint that nobody can tell of yet does not end it, and would page again.
    story.hint(2, None)
    assert story.look(NOW + timedelta(seconds=1)) == ([], [])
    # Replaced by the next one: that says nothing about whether hints are followed.
    story.end(2, "IGNORED")
    story.hint(3, None)
    assert story.look(NOW + timedelta(seconds=2)) == ([], [])
    story.end(3, "APPLIED")
    assert story.look(NOW + timedelta(seconds=3)) == ([], [("HINT_NOT_FOLLOWED", "auto-1")])
    story.hint(1, "IGNORED", group_id="in-shadow")
    assert story.look(NOW + timedelta(seconds=4)) == ([], [])


def test_a_partition_that_no_assignment_can_help_is_told_and_one_that_can_be_helped_is_not(
    story: Story,
) -> None:
    snapshot = story.snapshot(0)
    story.lag(snapshot, "auto-hot", {"c0": [9000], "c1": [100, 100], "c2": [100]})
    story.lag(snapshot, "auto-shared-burden", {"c0": [9000, 2000], "c1": [100], "c2": [100]})
    story.lag(snapshot, "auto-even", {"c0": [9000], "c1": [8000], "c2": [9000]})
    story.lag(snapshot, "auto-small", {"c0": [900], "c1": [0], "c2": [0]})
    story.lag(snapshot, "auto-alone", {"c0": [9000]})
    story.lag(snapshot, "in-shadow", {"c0": [9000], "c1": [0], "c2": [0]})
    changes = story.find()
    assert [fault.subject for fault in changes.raised] == ["auto-hot"]
    [fault] = changes.raised
    assert "not fixable by rebalancing: t-0 alone is 9,000 records behind" in fault.message
    assert "3,100 a member" in fault.message
