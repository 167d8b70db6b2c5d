"""A snapshot that the driver does not keep gives the rows of one that it keeps, in every table.

Two lakes get the same snapshots. One is planned, settled and evaluated from rows in memory; for the other
the limits are so low that Spark computes everything from the tables, in several batches.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import (
    COMMITS,
    DECISIONS,
    GATE_RESULTS,
    LAG,
    MEMBERS,
    OFFSETS,
    OUTCOMES,
    PLAN_ASSIGNMENTS,
    PLAN_EVALUATIONS,
    PLAN_EVENTS,
    PLANS,
    SNAPSHOTS,
)
from evenlag.policy.loader import parse_policy
from evenlag.publishing.event_log import PlanEventRow, append_plan_events
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps import collect_snapshot, compute_lag, plan_groups, snapshot_rows
from spark_jobs.steps.score_plans import score_plans
from spark_jobs.steps.settle_outcomes import read_published, settle_outcomes
from spark_jobs.steps.snapshot_rows import SnapshotRows
from spark_jobs.steps.validate_plans import validate_plans
from tests.support.lakes.snapshots import (
    HEAD,
    NOW,
    SNAPSHOT,
    arrow,
    commit,
    marker,
    member,
    offset,
    plan_context,
)
from tests.support.spark_tables import write_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table

pytestmark = pytest.mark.jvm

POLICY = """
lake: /nowhere
clusters: {c: {bootstrap_servers: "localhost:9092"}}
groups:
  - {match: "shadow-*", mode: shadow, assignor: lag-aware}
  - {match: "watched", mode: observe}
  - {match: "*", mode: auto, assignor: lag-aware, min_gain: 0.1, reset_policy: earliest,
     back_off: {horizon_s: 60}, gates: {cooldown_s: 0}}
"""
# Names that a filter or a file name might take apart.
GROUPS = ("billing", 'o\'brien \\ "x", ü', "shadow-1", "watched", "even", "unread")
BEHIND = {"even": (5, 5, 5, 5)}
FIRST, SECOND = SNAPSHOT, "20260301T120500000Z-00000002"
LATER = NOW + timedelta(minutes=5)
HELD = {"m-1": [0, 1], "m-2": [2, 3]}
RESULTS = (LAG, DECISIONS, PLANS, PLAN_ASSIGNMENTS, GATE_RESULTS, PLAN_EVENTS, OUTCOMES, PLAN_EVALUATIONS)


def write_snapshot(
    lake: Lake, snapshot_id: str, owners: dict[str, dict[str, list[int]]], *, is_kept: bool
) -> SnapshotRows:
    """Write what was read for a snapshot, and its lag and marker as the step does."""
    at = NOW if snapshot_id == FIRST else LATER
    end = 1_000 if snapshot_id == FIRST else 1_400
    of_snapshot: dict[str, Any] = {"snapshot_id": snapshot_id}
    offsets = [offset(number, end, end_read_at=at, **of_snapshot) for number in range(4)]
    offsets.append(offset(0, end, topic="u", error="LeaderNotAvailableError", end_read_at=at, **of_snapshot))
    commits, members = [], []
    for group in GROUPS:
        behind = BEHIND.get(group, (900, 800, 10, 10))
        commits += [
            commit(number, end - behind[number], group=group, read_at=at, **of_snapshot)
            for number in range(4)
        ]
        topics = ("t", "u") if group == "unread" else ("t",)
        members += [
            member(name, group=group, topics=topics, held={"t": numbers}, read_at=at, **of_snapshot)
            for name, numbers in owners.get(group, HELD).items()
        ]
    times = dict.fromkeys(("commits_read_at", "end_read_at", "finished_at"), at)
    ended = HEAD | marker(
        slot=at,
        started_at=at - timedelta(seconds=1),
        num_groups=len(GROUPS),
        num_partitions=5,
        hint_topic_max_bytes=100_000,
        **times,
        **of_snapshot,
    )
    rows = SnapshotRows(lake, LakeReader(lake.paths.root), ended)
    for table, values in ((OFFSETS, offsets), (COMMITS, commits), (MEMBERS, members)):
        write_rows(lake.paths.root, table, arrow(table, values))
        if is_kept:
            rows.keep(table, arrow(table, values))
    compute_lag.compute_lag(rows, parse_policy(POLICY, environ={}).policy)
    write_rows(lake.paths.root, SNAPSHOTS, [ended])
    return rows


def run_cycles(spark: SparkSession, root: Path, *, is_kept: bool) -> dict[str, list[dict[str, Any]]]:
    """Plan a snapshot, publish its plans, and observe how they are followed; return the rows by table."""
    lake = Lake(spark, str(root))
    reader, context = LakeReader(str(root)), plan_context(POLICY)
    rows = write_snapshot(lake, FIRST, {}, is_kept=is_kept)
    assert (rows.is_small, rows.is_kept(LAG)) == (is_kept, is_kept)
    planned = plan_groups.plan_groups(rows, context)
    counts = validate_plans(reader, planned, context, rows.marker, NOW + timedelta(seconds=9))
    assert counts == {"approved": 2, "rejected": 1, "waiting": 1}
    owners: dict[str, dict[str, list[int]]] = {}
    for number, plan in enumerate(sorted(planned.heads, key=lambda head: str(head["group_id"]))):
        # The first group follows its hint, the others do not.
        if not owners:
            after = {row["partition"]: row["owner_after"] for row in rows_of(reader, PLAN_ASSIGNMENTS, plan)}
            owners[plan["group_id"]] = {
                name: [place for place, owner in sorted(after.items()) if owner == name] for name in HELD
            }
        hint = PlanEventRow.of_plan(
            plan, "PUBLISHED", reason=None, actor="policy", at=NOW + timedelta(seconds=20)
        )
        more = {"sequence": number, "expires_at": NOW + timedelta(seconds=40)}
        append_plan_events(str(root), [PlanEventRow(**hint.as_row() | more)])
    rows = write_snapshot(lake, SECOND, owners, is_kept=is_kept)
    published = read_published(reader, "c")
    assert settle_outcomes(rows, published, "r") == {"APPLIED": 1, "EXPIRED": 3}
    assert score_plans(rows, published, "r") == 4
    found = {}
    for table in RESULTS:
        # A run's own random or present values are none of a result's columns.
        listed = reader.read(table).to_pylist()
        found[table.name] = sorted(listed, key=lambda row: tuple(str(row[name]) for name in table.key))
    return found


def rows_of(reader: LakeReader, table: Table, plan: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reader.read(table, filters=[("plan_id", "=", plan["plan_id"])]).to_pylist()
    return found


def test_a_snapshot_that_is_not_kept_gives_the_same_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = run_cycles(spark, tmp_path / "kept", is_kept=True)
    for module in (snapshot_rows, compute_lag, collect_snapshot):
        monkeypatch.setattr(module, "MAX_DRIVER_ROWS", 3)
    # A batch of groups has at most two groups, a file a few rows.
    monkeypatch.setattr(snapshot_rows, "_ROWS_PER_BATCH", 8)
    monkeypatch.setattr(compute_lag, "_ROWS_PER_FILE", 10)
    monkeypatch.setattr(plan_groups, "_ROWS_PER_FILE", 5)
    large = run_cycles(spark, tmp_path / "large", is_kept=False)
    for table in RESULTS:
        assert large[table.name] == kept[table.name], table.name

    # Counted by hand: six groups on four partitions, one of them also on an unread one, twice.
    assert len(kept["lag"]) == 2 * (6 * 4 + 1)
    # A rate needs the history of the first snapshot: 400 records in 300 s.
    rates = {row["arrival_rate_records_per_s"] for row in kept["lag"] if row["snapshot_id"] == SECOND}
    assert rates == {None, pytest.approx(400 / 300)}
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
    for module in (snapshot_rows, compute_lag):
        monkeypatch.setattr(module, "MAX_DRIVER_ROWS", 3)
    # Four rows of lag in each group, five in the unread one.
    for most, sizes in ((4, [1] * 6), (8, [2, 2, 1, 1]), (9, [2, 2, 2]), (25, [6])):
        monkeypatch.setattr(snapshot_rows, "_ROWS_PER_BATCH", most)
        batches = list(rows.group_batches(GROUPS))
        assert [name for batch in batches for name in batch] == names
        assert [len(batch) for batch in batches] == sizes
