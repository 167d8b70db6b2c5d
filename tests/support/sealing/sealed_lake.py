"""A lake of plans that the step ``decide`` has sealed, and users approved: what an attacker edits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import Channel, RequestState
from evenlag.lake.reader import LakeReader
from evenlag.lake.run_records import keep_policy
from evenlag.lake.snapshot_reader import find_marker
from evenlag.lake.tables import (
    APPROVAL_REQUESTS,
    COMMITS,
    DECISIONS,
    GATE_RESULTS,
    MEMBERS,
    OFFSETS,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    PLANS,
    SNAPSHOTS,
)
from evenlag.lake.writer import append_once
from evenlag.policy.loader import LoadedPolicy, parse_policy
from evenlag.publishing.answers.actors import Actor
from evenlag.publishing.approvals import record_answer, request_approval
from evenlag.publishing.sealing.row_seal import Sealer
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.compute_lag import compute_lag
from spark_jobs.steps.plan_groups import plan_groups
from spark_jobs.steps.snapshot_rows import SnapshotRows
from spark_jobs.steps.validate_plans import validate_plans
from tests.support.lakes.snapshots import HEAD, NOW, arrow, commit, marker, member, offset, plan_context
from tests.support.spark_tables import together, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table

KEY: Final = "a key of the tests that has more than thirty-two bytes"
VARIABLE: Final = "TEST_APPROVAL_KEY"
# What the rows of a plan are in.
TABLES: Final = (DECISIONS, PLANS, PLAN_ASSIGNMENTS, GATE_RESULTS, PLAN_EVENTS, APPROVAL_REQUESTS)
POLICY: Final = """
lake: {lake}
clusters:
  c: {{bootstrap_servers: "localhost:9092", approval_key: {{env: TEST_APPROVAL_KEY}}, schedule: null}}
groups:
  - {{match: "asked-*", mode: approve, min_gain: 0.1, reset_policy: earliest, gates: {{cooldown_s: 0}}}}
  - {{match: "auto-*", mode: auto, min_gain: 0.1, reset_policy: earliest, gates: {{cooldown_s: 0}}}}
  - {{match: "*", mode: shadow}}
"""
HELD: Final = {"m-1": [0, 1], "m-2": [2, 3]}
LAGS: Final = (900, 800, 10, 10)


def policy(root: Path) -> LoadedPolicy:
    """The policy of a lake."""
    return parse_policy(POLICY.format(lake=root), environ={})


def observe(spark: SparkSession, root: Path, groups: Iterable[str]) -> None:
    """Write a snapshot of groups whose lag is uneven."""
    lake, end = Lake(spark, str(root)), 11_000
    rows: dict[Table, list[dict[str, Any]]] = {OFFSETS: [], COMMITS: [], MEMBERS: []}
    rows[OFFSETS] = [offset(number, end) for number in range(len(LAGS))]
    for group in groups:
        rows[COMMITS] += [commit(number, end - lag, group=group) for number, lag in enumerate(LAGS)]
        rows[MEMBERS] += [member(name, group=group, held={"t": held}) for name, held in HELD.items()]
    ended = HEAD | marker(num_partitions=len(LAGS), hint_topic_max_bytes=100_000)
    read = SnapshotRows(lake, LakeReader(str(root)), ended)
    with together():
        for table, found in rows.items():
            write_rows(root, table, arrow(table, found))
            read.keep(table, arrow(table, found))
    loaded = policy(root)
    compute_lag(read, loaded.policy)
    append_once(str(root), SNAPSHOTS, [ended], None)


def snapshot(spark: SparkSession, root: Path) -> SnapshotRows:
    """The snapshot of a lake, or of a copy of it."""
    reader = LakeReader(str(root))
    found = find_marker(reader, "c", NOW)
    assert found is not None
    return SnapshotRows(Lake(spark, str(root)), reader, found)


def decide(rows: SnapshotRows, root: Path) -> dict[str, int]:
    """Plan and judge the groups as the step does."""
    loaded = policy(root)
    keep_policy(rows.reader, "c", NOW, loaded)
    context, sealer = plan_context(loaded.text), Sealer.of(loaded.policy.clusters["c"])
    planned = plan_groups(rows, context, sealer)
    return validate_plans(rows, planned, context, NOW + timedelta(seconds=9), sealer)


def seal_and_approve(
    spark: SparkSession, root: Path, auto: Sequence[str], asked: Sequence[str], *, num_waiting: int
) -> None:
    """Decide an observed snapshot; a user approves the plans of some groups, others wait."""
    counts = decide(snapshot(spark, root), root)
    assert counts == {"approved": len(auto), "rejected": 0, "waiting": len(asked) + num_waiting}
    plans = plan_ids(root)
    for group in asked:
        approve(root, plans[group])


def approve(root: Path, plan_id: str) -> None:
    """Ask a user about a plan that waits; the user approves it."""
    loaded = policy(root)
    request_approval(loaded, "c", plan_id, run_id="ask", now=NOW, approvers=["ada"], dag_id="plan_approval")
    record_answer(
        loaded,
        "c",
        plan_id,
        approve=True,
        actor=Actor("ada", Channel.PAGE, "Ada Lovelace"),
        reason="fine",
        run_id="ask",
        now=NOW + timedelta(seconds=60),
    )


def plan_ids(root: Path) -> dict[str, str]:
    """Plan by group."""
    rows = LakeReader(str(root)).read(PLANS, columns=["group_id", "plan_id"]).to_pylist()
    return {row["group_id"]: row["plan_id"] for row in rows}


def is_of_plan(table: Table, row: dict[str, Any], plan_id: str) -> bool:
    """Whether a row belongs to a plan; a request that was not made does not."""
    return row["plan_id"] == plan_id and (
        table is not APPROVAL_REQUESTS or row["state"] == RequestState.ASKED.value
    )
