"""What is done twice is there once: a slot decided again under another policy, and two attempts at a slot."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from evenlag.cli.app import app
from evenlag.errors import LakeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import (
    AUDITED_SNAPSHOTS,
    COMPARISONS,
    DECISIONS,
    GATE_RESULTS,
    LAG,
    OWNERSHIP,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    PLANS,
    SNAPSHOTS,
)
from evenlag.lake.writer import append_once
from evenlag.monitoring.metrics import read_metrics
from evenlag.policy.loader import parse_policy
from evenlag.report.read_report import read_report
from spark_jobs.steps import plan_groups as planning
from spark_jobs.steps.audit_ownership import audit_assignments
from spark_jobs.steps.plan_groups import plan_groups
from spark_jobs.steps.simulate_candidates import Request, run_compare
from spark_jobs.steps.snapshot_rows import find_marker
from spark_jobs.steps.validate_plans import validate_plans
from tests.support.lakes.cycle_lake import FIRST, GROUPS, POLICY, SECOND, write_snapshot
from tests.support.lakes.snapshots import DAY, NOW, SNAPSHOT, plan_context

if TYPE_CHECKING:
    from evenlag.lake.tables import Table
    from spark_jobs.planning.context import PlanContext
    from spark_jobs.runtime.delta_lake import Lake
    from spark_jobs.steps.snapshot_rows import SnapshotRows

pytestmark = pytest.mark.jvm

WRITTEN_ONCE = (PLANS, PLAN_ASSIGNMENTS, GATE_RESULTS, PLAN_EVENTS)
COMMENTED = POLICY + "# one comment more\n"
LOSER = "20260301T120000000Z-00000009"


def decide(rows: SnapshotRows, context: PlanContext, seconds: int = 9) -> dict[str, int]:
    planned = plan_groups(rows, context)
    return validate_plans(rows.reader, planned, context, rows.marker, NOW + timedelta(seconds=seconds))


def rows_by_key(reader: LakeReader, table: Table) -> dict[Any, dict[str, Any]]:
    """Rows by key; each key is there once."""
    listed = reader.read(table).to_pylist()
    counts = Counter(tuple(row[name] for name in table.key) for row in listed)
    assert [key for key, count in counts.items() if count > 1] == [], table.name
    return {tuple(row[name] for name in table.key): row for row in listed}


def test_a_repeat_under_a_policy_with_one_more_comment_writes_nothing_twice(lake: Lake) -> None:
    rows = write_snapshot(lake, FIRST, {}, is_kept=True)
    first, again = plan_context(POLICY), plan_context(COMMENTED, run_id="again")
    assert first.policy_hash != again.policy_hash
    counts = decide(rows, first)
    before = {table.name: rows_by_key(rows.reader, table) for table in WRITTEN_ONCE}
    assert (len(before["plans"]), len(before["gate_results"])) == (
        4,
        4 * len({g for _, g in before["gate_results"]}),
    )
    # Ten minutes later a gate on the snapshot's age might decide otherwise: the first verdicts count.
    assert decide(rows, again, seconds=600) == counts
    assert decide(rows, first, seconds=600) == counts
    for table in WRITTEN_ONCE:
        assert rows_by_key(rows.reader, table) == before[table.name], table.name
    # Decisions are those of a policy: each has its own, once.
    decided = Counter(policy_hash for _, _, policy_hash in rows_by_key(rows.reader, DECISIONS))
    assert decided == {first.policy_hash: 5, again.policy_hash: 5}


def test_rows_of_plans_without_heads_are_not_written_again_under_another_policy(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_snapshot(lake, FIRST, {}, is_kept=True)

    def no_heads(root: str, table: Table, *given: Any) -> bool:
        if table is PLANS:
            raise LakeError("the disk is full")
        return append_once(root, table, *given)

    with monkeypatch.context() as patch:
        patch.setattr(planning, "append_once", no_heads)
        with pytest.raises(LakeError, match="the disk is full"):
            plan_groups(rows, plan_context(POLICY))
    written = rows_by_key(rows.reader, PLAN_ASSIGNMENTS)
    assert written
    assert rows_by_key(rows.reader, PLANS) == {}
    decide(rows, plan_context(COMMENTED))
    assert rows_by_key(rows.reader, PLAN_ASSIGNMENTS) == written
    heads = rows_by_key(rows.reader, PLANS)
    assert {plan for plan, *_ in written} == {plan for (plan,) in heads}


def test_of_two_attempts_at_a_slot_the_first_marker_counts_and_the_other_s_lag_is_not_read(
    lake: Lake,
) -> None:
    reader = LakeReader(lake.paths.root)
    winner = write_snapshot(lake, SNAPSHOT, {}, is_kept=True)
    # The same slot, with ten times the lag, and other owners.
    swapped = {group: {"m-1": [2, 3], "m-2": [0, 1]} for group in GROUPS}
    write_snapshot(lake, LOSER, swapped, is_kept=True, factor=10)
    assert reader.read(SNAPSHOTS)["snapshot_id"].to_pylist() == [SNAPSHOT]
    assert find_marker(reader, "c", NOW) == reader.latest_snapshot("c")
    assert Counter(reader.read(LAG)["snapshot_id"].to_pylist()) == {SNAPSHOT: 25, LOSER: 25}

    # 900 + 800 + 10 + 10, and 20 in the even group; m-1 has the first two partitions.
    total, largest = 1_720, 1_700
    done = CliRunner().invoke(app, ["lag", "--lake", lake.paths.root, "--json"])
    assert done.exit_code == 0, done.output
    told = {group["group_id"]: group for group in json.loads(done.stdout)["groups"]}
    assert (told["billing"]["lag_records"], told["billing"]["max_member_lag_records"]) == (total, largest)
    report = read_report(reader, "c", "billing")
    assert (report.num_snapshots, report.now.lag_records, report.now.max_member_lag_records) == (
        1,
        total,
        largest,
    )
    metrics = read_metrics(lake.paths.root, "c", NOW)
    assert metrics["lag.records"] == 5 * total + 20
    assert winner.rows(LAG).num_rows == 25

    assert audit_assignments(lake, "c").days == (DAY,)
    assert reader.read(AUDITED_SNAPSHOTS)["snapshot_id"].to_pylist() == [SNAPSHOT]
    owners = {
        (row["group_id"], row["partition"]): row["member_id"] for row in reader.read(OWNERSHIP).to_pylist()
    }
    assert owners["billing", 0] == "m-1"
    # History of the next snapshot: 400 records in 300 s, since the first marker's commits.
    write_snapshot(lake, SECOND, {}, is_kept=True)
    rates = {
        (row["group_id"], row["partition"]): row["consume_rate_records_per_s"]
        for row in reader.read(LAG, filters=[("snapshot_id", "=", SECOND), ("topic", "=", "t")]).to_pylist()
    }
    assert rates["billing", 0] == pytest.approx(400 / 300)
    loaded = parse_policy(POLICY.replace("/nowhere", lake.paths.root), environ={})
    run_compare(lake, loaded, Request("c", DAY, DAY, names=("range",)))
    compared = reader.read(COMPARISONS).to_pylist()
    assert {row["snapshot_id"] for row in compared} == {SNAPSHOT, SECOND}
