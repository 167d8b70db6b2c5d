"""A snapshot that the driver does not keep gives the rows of one that it keeps, in every table.

Two lakes get the same snapshots. One is planned, settled and evaluated from rows in memory; for the other
the limits are so low that Spark computes everything from the tables, in several batches.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake import snapshot_reader
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import (
    DECISIONS,
    GATE_RESULTS,
    LAG,
    OUTCOMES,
    PLAN_ASSIGNMENTS,
    PLAN_EVALUATIONS,
    PLAN_EVENTS,
    PLANS,
)
from evenlag.publishing.event_log import append_plan_events, plan_event
from evenlag.publishing.plan_outcomes import read_published, score_plans, settle_outcomes
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps import collect_snapshot, compute_lag, plan_groups
from spark_jobs.steps.validate_plans import validate_plans
from tests.support.lakes.cycle_lake import FIRST, GROUPS, HELD, POLICY, SECOND, Owners, write_snapshot
from tests.support.lakes.snapshots import NOW, plan_context

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table

pytestmark = [pytest.mark.extended, pytest.mark.jvm]

RESULTS = (LAG, DECISIONS, PLANS, PLAN_ASSIGNMENTS, GATE_RESULTS, PLAN_EVENTS, OUTCOMES, PLAN_EVALUATIONS)


def run_cycles(spark: SparkSession, root: Path, *, is_kept: bool) -> dict[str, list[dict[str, Any]]]:
    """Plan a snapshot, publish its plans, and observe how they are followed; return the rows by table."""
    lake = Lake(spark, str(root))
    reader, context = LakeReader(str(root)), plan_context(POLICY)
    rows = write_snapshot(lake, FIRST, {}, is_kept=is_kept)
    assert (rows.is_small, rows.is_kept(LAG)) == (is_kept, is_kept)
    planned = plan_groups.plan_groups(rows, context)
    counts = validate_plans(rows, planned, context, NOW + timedelta(seconds=9))
    assert counts == {"approved": 2, "rejected": 1, "waiting": 1}
    owners: Owners = {}
    for number, plan in enumerate(sorted(planned.heads, key=lambda head: str(head["group_id"]))):
        # The first group follows its hint, the others do not.
        if not owners:
            after = {row["partition"]: row["owner_after"] for row in rows_of(reader, PLAN_ASSIGNMENTS, plan)}
            owners[plan["group_id"]] = {
                name: [place for place, owner in sorted(after.items()) if owner == name] for name in HELD
            }
        hint = plan_event(plan, "PUBLISHED", reason=None, actor="policy", at=NOW + timedelta(seconds=20))
        more = {"sequence": number, "expires_at": NOW + timedelta(seconds=40)}
        append_plan_events(str(root), [hint | more])
    rows = write_snapshot(lake, SECOND, owners, is_kept=is_kept)
    published = read_published(reader, "c")
    assert settle_outcomes(rows, published, "r") == {"APPLIED": 1, "EXPIRED": 3}
    assert score_plans(rows, published, "r") == 4
    return {table.name: sorted_rows(reader, table) for table in RESULTS}


def sorted_rows(reader: LakeReader, table: Table) -> list[dict[str, Any]]:
    """The rows of a table, in the order of their keys."""
    rows = reader.read(table).to_pylist()
    return sorted(rows, key=lambda row: tuple(str(row[name]) for name in table.key))


def rows_of(reader: LakeReader, table: Table, plan: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reader.read(table, filters=[("plan_id", "=", plan["plan_id"])]).to_pylist()
    return found


def test_a_snapshot_that_is_not_kept_gives_the_same_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = run_cycles(spark, tmp_path / "kept", is_kept=True)
    for module in (snapshot_reader, compute_lag, collect_snapshot):
        monkeypatch.setattr(module, "MAX_DRIVER_ROWS", 3)
    # A batch of groups has at most two groups, a file of lag a few rows.
    monkeypatch.setattr(snapshot_reader, "_ROWS_PER_BATCH", 8)
    monkeypatch.setattr(compute_lag, "_ROWS_PER_FILE", 10)
    # Plans of a group at a time are written.
    monkeypatch.setattr(plan_groups, "_PARTITIONS_PER_PART", 3)
    large = run_cycles(spark, tmp_path / "large", is_kept=False)
    for table in RESULTS:
        assert large[table.name] == kept[table.name], table.name

    # A snapshot that is kept, and has more rows than the driver plans itself.
    monkeypatch.setattr(snapshot_reader, "MAX_DRIVER_ROWS", 10_000)
    monkeypatch.setattr(plan_groups, "_MAX_DRIVER_ROWS", 3)
    lake = Lake(spark, str(tmp_path / "medium"))
    plan_groups.plan_groups(write_snapshot(lake, FIRST, {}, is_kept=True), plan_context(POLICY))
    for table in (DECISIONS, PLANS, PLAN_ASSIGNMENTS):
        assert sorted_rows(LakeReader(lake.paths.root), table) == kept[table.name], table.name

    # Counted manually: six groups on four partitions, one of them also on an unread one, twice.
    assert len(kept["lag"]) == 2 * (6 * 4 + 1)
    # The members are the same in both snapshots: three groups had the time to follow, and did not.
    assert sorted(row["reason_code"] for row in kept["outcomes"]) == ["AS_HINTED", *3 * ["NOT_FOLLOWED"]]
    # A rate needs the history of the first snapshot: 400 records in 300 s.
    listed = [row["arrival_rate_records_per_s"] for row in kept["lag"] if row["snapshot_id"] == SECOND]
    rates = [rate for rate in listed if rate is not None]
    assert rates == [pytest.approx(400 / 300)] * 24
    decisions = {row["group_id"]: row["decision"] for row in kept["decisions"]}
    assert decisions == {group: "PROPOSED" for group in GROUPS if group not in {"watched", "even"}} | {
        "even": "NO_CHANGE"
    }
    assert {row["group_id"] for row in kept["plans"]} == {"billing", GROUPS[1], "shadow-1", "unread"}


def test_groups_are_divided_into_batches_by_their_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_snapshot(Lake(spark, str(tmp_path)), FIRST, {}, is_kept=True)
    names = sorted(GROUPS)
    assert list(rows.group_batches([])) == []
    assert list(rows.group_batches(GROUPS)) == [names]
    for module in (snapshot_reader, compute_lag):
        monkeypatch.setattr(module, "MAX_DRIVER_ROWS", 3)
    # Four rows of lag in each group, five in the unread one.
    for most, sizes in ((4, [1] * 6), (8, [2, 2, 1, 1]), (9, [2, 2, 2]), (25, [6])):
        monkeypatch.setattr(snapshot_reader, "_ROWS_PER_BATCH", most)
        batches = list(rows.group_batches(GROUPS))
        assert [name for batch in batches for name in batch] == names
        assert [len(batch) for batch in batches] == sizes
