"""A snapshot has one decision: what is decided again, under whatever policy, keeps or completes it."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import find_marker
from evenlag.lake.tables import DECISIONS, GATE_RESULTS, PLAN_ASSIGNMENTS, PLAN_EVENTS, PLANS, POLICIES
from evenlag.lake.writer import DirectWriter, append_once
from evenlag.planning.decision_record import record_decision
from evenlag.policy.loader import parse_policy
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps import plan_groups as planning
from spark_jobs.steps.plan_groups import plan_groups
from spark_jobs.steps.snapshot_rows import SnapshotRows
from spark_jobs.steps.validate_plans import validate_plans
from spark_jobs.transforms.plan_frames import select_assignments
from tests.support.lakes.cycle_lake import FIRST, POLICY, write_snapshot
from tests.support.lakes.snapshots import DAY, NOW, plan_context
from tests.truth.oracle.delta_files import read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table
    from evenlag.planning.plan_batch import PlanContext
    from spark_jobs.steps.plan_groups import Planned

pytestmark = pytest.mark.jvm

WRITTEN = (DECISIONS, PLAN_ASSIGNMENTS, PLANS, PLAN_EVENTS, GATE_RESULTS)
SWAPPED = POLICY.replace("mode: shadow", "mode: other").replace("mode: auto", "mode: shadow")
EDITS = {
    "a comment": POLICY + "# one comment more\n",
    "a limit": POLICY.replace("min_gain: 0.1", "min_gain: 0.99, max_moves: 1"),
    "a rule": SWAPPED.replace("mode: other", "mode: auto"),
    "nothing": POLICY,
}
# Each write of decide, in its order: the table, and which of its writes.
WRITES = (
    (DECISIONS, 1),
    pytest.param(PLAN_ASSIGNMENTS, 1, marks=pytest.mark.extended),
    (PLANS, 1),
    pytest.param(PLAN_EVENTS, 1, marks=pytest.mark.extended),
    (GATE_RESULTS, 1),
    pytest.param(PLAN_EVENTS, 2, marks=pytest.mark.extended),
)


class Killed(BaseException):
    """The end of an attempt."""


def decide(rows: SnapshotRows, context: PlanContext, seconds: int = 9) -> tuple[Planned, dict[str, int]]:
    keep(rows, context)
    planned = plan_groups(rows, context)
    return planned, validate_plans(rows, planned, context, NOW + timedelta(seconds=seconds))


def keep(rows: SnapshotRows, context: PlanContext) -> None:
    """Store the policy's text, as the step does before it decides."""
    texts = {parse_policy(text, environ={}).policy_hash: text for text in EDITS.values()}
    row = {"cluster": "c", "day": DAY, "policy_hash": context.policy_hash, "text": texts[context.policy_hash]}
    append_once(rows.reader.paths.root, POLICIES, [row], None)


def decide_until(rows: SnapshotRows, context: PlanContext, table: Table, nth: int) -> None:
    """Decide, and die right after the n-th write of a table."""
    written: Counter[str] = Counter()

    def counted(write: Any, table_of: Any) -> Any:
        def wrapped(*given: Any, **more: Any) -> None:
            write(*given, **more)
            written[table_of(*given)] += 1
            if written[table.name] == nth:
                raise Killed

        return wrapped

    commit = counted(DirectWriter.commit, lambda writer, *_: writer.table.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectWriter, "commit", commit)
        with pytest.raises(Killed):
            decide(rows, context)


def content(root: Path) -> dict[str, list[str]]:
    """All rows of the tables of a decision, as files and log have them; each key is there once."""
    found = {}
    for table in WRITTEN:
        rows = read_rows(root, table.name)
        keys = Counter(tuple(row[name] for name in table.key) for row in rows)
        assert [key for key, count in keys.items() if count > 1] == [], table.name
        found[table.name] = sorted(repr({name: row[name] for name in sorted(row)}) for row in rows)
    return found


@pytest.fixture(scope="module")
def observed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a snapshot that is not decided."""
    root = tmp_path_factory.mktemp("observed") / "lake"
    write_snapshot(Lake(spark, str(root)), FIRST, {}, is_kept=True)
    return root


@pytest.fixture(scope="module")
def decided(spark: SparkSession, observed: Path) -> Path:
    """The same, decided under the first policy by one attempt."""
    root = observed.parent / "decided"
    shutil.copytree(observed, root)
    planned, counts = decide(snapshot(spark, root), plan_context(POLICY))
    assert planned.kept is None
    assert counts == {"approved": 2, "rejected": 1, "waiting": 1}
    return root


def snapshot(spark: SparkSession, root: Path) -> SnapshotRows:
    reader = LakeReader(str(root))
    marker = find_marker(reader, "c", NOW)
    assert marker is not None
    return SnapshotRows(Lake(spark, str(root)), reader, marker)


@pytest.fixture
def rows(spark: SparkSession, observed: Path, tmp_path: Path) -> SnapshotRows:
    """A snapshot that is not decided."""
    shutil.copytree(observed, tmp_path / "lake")
    return snapshot(spark, tmp_path / "lake")


def other_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let planning give other plans, as a version of evenlag with another algorithm does."""
    text = POLICY.replace("assignor: lag-aware-sticky", "assignor: lag-aware")
    other = parse_policy(text, environ={}).policy

    plan = planning._plan

    def plan_otherwise(rows: SnapshotRows, context: PlanContext, *more: Any) -> Any:
        return plan(rows, replace(context, policy=other), *more)

    monkeypatch.setattr(planning, "_plan", plan_otherwise)


def test_decided_again_after_an_edit_or_an_upgrade_a_snapshot_keeps_its_decision(
    spark: SparkSession,
    decided: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(decided, root)
    before = content(root)
    first = plan_context(POLICY)
    caplog.set_level(logging.INFO)
    other_version(monkeypatch)
    for text in EDITS.values():
        caplog.clear()
        # Ten minutes later a gate on the snapshot's age might decide otherwise: the first verdicts count.
        planned, counts = decide(snapshot(spark, root), plan_context(text, run_id="again"), seconds=600)
        assert counts == {"approved": 2, "rejected": 1, "waiting": 1}
        assert (planned.kept is not None, len(planned.heads), planned.lost) == (True, 4, frozenset())
        assert f"kept the decision of run r under policy {first.policy_hash[:12]}" in caplog.text
        assert content(root) == before


@pytest.mark.parametrize(("table", "nth"), WRITES, ids=lambda part: getattr(part, "name", part))
def test_killed_after_each_write_a_repeat_under_other_rules_completes_what_was_decided(
    table: Table, nth: int, rows: SnapshotRows, decided: Path, spark: SparkSession
) -> None:
    decide_until(rows, plan_context(POLICY), table, nth)
    root = rows.lake.paths.local_root
    for name in ("a rule", "a limit", "a comment"):
        again = plan_context(EDITS[name], run_id=name)
        planned, counts = decide(snapshot(spark, root), again)
        assert counts == {"approved": 2, "rejected": 1, "waiting": 1}
        assert planned.kept is not None
    assert content(root) == content(decided)


def test_killed_before_it_decided_an_attempt_leaves_nothing_that_another_policy_keeps(
    rows: SnapshotRows, spark: SparkSession
) -> None:
    decide_until(rows, plan_context(POLICY), POLICIES, 1)
    planned, _ = decide(snapshot(spark, rows.lake.paths.local_root), plan_context(EDITS["a rule"]))
    assert planned.kept is None
    modes = {head["group_id"]: head["mode"] for head in planned.heads}
    assert modes == {group: "auto" if group == "shadow-1" else "shadow" for group in modes}


@pytest.mark.parametrize(("table", "num_heads"), [(DECISIONS, 0), (PLANS, 4)], ids=["decided", "written"])
def test_a_plan_that_a_new_version_makes_differently_is_never_mixed_with_the_old_one(
    table: Table,
    num_heads: int,
    rows: SnapshotRows,
    decided: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
) -> None:
    decide_until(rows, plan_context(POLICY), table, 1)
    other_version(monkeypatch)
    root = rows.lake.paths.local_root
    for _ in range(2):
        planned, counts = decide(snapshot(spark, root), plan_context(POLICY, run_id="upgraded"))
        assert len(planned.heads) == num_heads
        assert len(planned.lost) == 4
        assert counts == {"approved": 0, "rejected": num_heads, "waiting": 0}
    found, whole = content(root), content(decided)
    assert found["decisions"] == whole["decisions"]
    assert found["plans"] == (whole["plans"] if num_heads else [])
    assert found["gate_results"] == []
    events = Counter(row["event"] for row in read_rows(root, PLAN_EVENTS.name)) if num_heads else {}
    assert events == ({"PROPOSED": 4, "REJECTED": 4} if num_heads else {})


@pytest.mark.parametrize("first", ["before", "after"])
def test_of_two_attempts_at_once_under_two_policies_both_go_by_the_decision_that_is_written_first(
    first: str,
    rows: SnapshotRows,
    decided: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = rows.lake.paths.local_root
    record = record_decision
    others: list[Planned] = []

    def with_another(*given: Any) -> bool:
        """Let another attempt run to its end before this one has decided, or right after."""
        monkeypatch.setattr(planning, "record_decision", record)
        is_first = record(*given) if first == "before" else False
        others.append(decide(snapshot(spark, root), plan_context(other_text, run_id=other_run))[0])
        return is_first or record(*given)

    monkeypatch.setattr(planning, "record_decision", with_another)
    # The one whose decision is written first has the policy and the run of the lake to compare with.
    texts = {True: (POLICY, "r"), False: (EDITS["a rule"], "slow")}
    text, run_id = texts[first == "before"]
    other_text, other_run = texts[first != "before"]
    planned, counts = decide(rows, plan_context(text, run_id=run_id))
    assert counts == {"approved": 2, "rejected": 1, "waiting": 1}
    (other,) = others
    # Whoever decided first is overtaken by the other one, and goes by what that one has written.
    assert (planned.kept is None, other.kept is None) == (False, first == "after")
    assert content(root) == content(decided)


@pytest.mark.parametrize(
    "stops",
    [
        pytest.param("opened", id="before it looks", marks=pytest.mark.extended),
        pytest.param("commit", id="before it commits"),
    ],
)
@pytest.mark.parametrize(("table", "nth"), WRITES, ids=lambda part: getattr(part, "name", part))
def test_an_attempt_that_stops_before_a_write_and_wakes_goes_by_the_one_that_has_completed_it(
    table: Table,
    nth: int,
    stops: str,
    rows: SnapshotRows,
    decided: Path,
    spark: SparkSession,
) -> None:
    """Whatever the attempt knows of the table when it stops: the store refuses what it writes then."""
    root = rows.lake.paths.local_root
    others: list[Planned] = []
    begun: Counter[str] = Counter()
    # Who decides is the other one, if this one stops before its decision.
    other = plan_context(POLICY) if table is DECISIONS else plan_context(EDITS["a rule"], run_id="fast")

    def after_another(step: Any) -> Any:
        """Let another attempt complete the decision before a step of this one's write."""

        def wrapped(writer: DirectWriter, *given: Any) -> Any:
            begun[writer.table.name] += 1
            if writer.table is table and begun[table.name] == nth:
                patch.undo()
                others.append(decide(snapshot(spark, root), other)[0])
            return step(writer, *given)

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectWriter, stops, after_another(getattr(DirectWriter, stops)))
        planned, counts = decide(rows, plan_context(POLICY))
    assert counts == {"approved": 2, "rejected": 1, "waiting": 1}
    assert len(others) == 1
    # Up to the heads it finds that the other one was faster; from then on both write the same.
    assert (planned.kept is not None) == (table in (DECISIONS, PLAN_ASSIGNMENTS, PLANS))
    assert content(root) == content(decided)


def test_partitions_of_an_interrupted_attempt_get_a_head_only_from_a_version_that_writes_the_same(
    rows: SnapshotRows, decided: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide_until(rows, plan_context(POLICY), PLAN_ASSIGNMENTS, 1)
    root = rows.lake.paths.local_root

    def select_otherwise(*given: Any) -> Any:
        """The same plans, with another value in one column of one group's partitions."""
        import pyarrow.compute as pc

        found = select_assignments(*given)
        place = found.schema.get_field_index("lag_status")
        changed = pc.if_else(pc.equal(found["group_id"], "billing"), "NEW", found["lag_status"])
        return found.set_column(place, found.schema.field(place), changed)

    monkeypatch.setattr(planning, "select_assignments", select_otherwise)
    planned, counts = decide(snapshot(spark, root), plan_context(POLICY, run_id="upgraded"))
    assert "billing" not in {head["group_id"] for head in planned.heads}
    assert (len(planned.heads), len(planned.lost)) == (3, 1)
    assert sum(counts.values()) == 3
    found, whole = content(root), content(decided)
    assert found["plan_assignments"] == whole["plan_assignments"]
    assert set(found["plans"]) < set(whole["plans"])
