"""Whoever can write the lake edits an approved plan: it is not published, and an alert reports it.

The plans are the real ones of the step ``decide``, and those of mode ``approve`` were approved as in Airflow.
The publisher's own check reads the edited lake. Each plan of a lake gets one edit, so that one look at the
lake judges many edits; some plans stay as they are, and are publishable beside the others.
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import (
    APPROVAL_REQUESTS,
    DECISIONS,
    GATE_RESULTS,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    PLANS,
)
from evenlag.monitoring.alerts import find_changes, record_changes
from evenlag.publishing.answers.actors import Actor
from evenlag.publishing.approvals import EditedPlanError, record_answer
from evenlag.publishing.event_log import append_plan_events, plan_event
from evenlag.publishing.publishable_plans import read_publishable
from evenlag.publishing.sealing.verified_plans import seal_state
from tests.support.lakes.snapshots import NOW
from tests.support.sealing.attacker import edit
from tests.support.sealing.judged import alerts, changed, copied, judge, sorted_rows
from tests.support.sealing.sealed_lake import (
    KEY,
    TABLES,
    VARIABLE,
    approve,
    decide,
    observe,
    plan_ids,
    policy,
    seal_and_approve,
    snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("key")]

AUTO = [f"auto-{number:02}" for number in range(64)]
ASKED = [f"asked-{number:02}" for number in range(17)]
# Nobody has answered yet.
WAITING = "asked-later"
# The first of each mode stays as it is: what refuses the others must not refuse all.
# The publisher looks for approvals of the cluster, of the last days. One that is moved elsewhere is as if a
# user had not answered yet: there is nothing to report.
UNSEEN = {("approve", PLAN_EVENTS.name, "APPROVED", column) for column in ("cluster", "event", "plan_id")}


class Edit(NamedTuple):
    """One edit: which row of a plan, which column, and whether the value is removed."""

    mode: str
    table: Table
    row: int
    column: str
    is_removed: bool = False


@pytest.fixture(scope="module")
def observed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a snapshot that is not decided."""
    root = tmp_path_factory.mktemp("observed") / "lake"
    observe(spark, root, [*AUTO, *ASKED, WAITING])
    return root


@pytest.fixture(scope="module")
def sealed(spark: SparkSession, observed: Path) -> Path:
    """A lake of approved plans, and one that waits."""
    root = copied(observed, observed.parent / "sealed")
    seal_and_approve(spark, root, AUTO, ASKED, num_waiting=1)
    return root


def all_edits(root: Path) -> Iterator[Edit]:
    """Each column of each row of a plan of either mode is changed; of one row in each table also removed."""
    plans = plan_ids(root)
    for table in TABLES:
        rows = LakeReader(str(root)).read(table).to_pylist()
        for mode, group in (("auto", AUTO[1]), ("approve", ASKED[1])):
            # What the modes have in common is edited in one of them.
            if mode == "approve" and table not in (PLAN_EVENTS, APPROVAL_REQUESTS):
                continue
            for number, row in enumerate(sorted_rows(table, rows, plans[group])):
                for column in table.column_names:
                    yield Edit(mode, table, number, column)
                    if number == 0 and row[column] is not None and column not in ("cluster", "day"):
                        yield Edit(mode, table, number, column, is_removed=True)


def apply(root: Path, edits: dict[str, Edit]) -> dict[str, tuple[str, str]]:
    """Apply an edit to the plan of each group; return (event, or table, column) by group."""
    plans, done = plan_ids(root), {}
    for table in {one.table.name: one.table for one in edits.values()}.values():

        def change(rows: list[dict[str, Any]], table: Table = table) -> list[dict[str, Any]]:
            for group, one in edits.items():
                if one.table is table:
                    row = sorted_rows(table, rows, plans[group])[one.row]
                    kind = next(column.type for column in table.columns if column.name == one.column)
                    done[group] = str(row.get("event", table.name)), one.column
                    row[one.column] = None if one.is_removed else changed(row[one.column], kind)
            return rows

        edit(root, table, change)
    return done


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.extended)])
def test_no_plan_of_which_one_column_of_one_row_was_edited_is_published(
    sealed: Path, tmp_path: Path, step: int
) -> None:
    plans, edits = plan_ids(sealed), list(all_edits(sealed))
    assert judge(sealed) == dict.fromkeys(plans[group] for group in [*AUTO, *ASKED])
    assert alerts(sealed) == {}
    # Each table, and each of its columns.
    assert {(one.table.name, one.column) for one in edits} == {
        (table.name, column) for table in TABLES for column in table.column_names
    }
    assert len(edits) > 350
    edits = edits[::step]
    free = {"auto": AUTO[1:], "approve": ASKED[1:]}
    waiting = {mode: iter([one for one in edits if one.mode == mode]) for mode in free}
    num_judged = 0
    while num_judged < len(edits):
        root = copied(sealed, tmp_path)
        applied = {
            group: one
            for mode, groups in free.items()
            for group, one in zip(groups, islice(waiting[mode], len(groups)), strict=False)
        }
        done = apply(root, applied)
        reasons, reported = judge(root), alerts(root)
        for group, one in applied.items():
            # Null: it may be published. A plan that the publisher does not see is not published either.
            assert reasons.get(plans[group], "not seen") is not None, one
            is_reported = any(plans[group][:12] in message for message in reported.values())
            assert is_reported or (one.mode, one.table.name, *done[group]) in UNSEEN, (one, reported)
        for group in {*AUTO, *ASKED} - applied.keys():
            assert reasons[plans[group]] is None, group
            assert group not in reported
        num_judged += len(applied)


def test_who_looks_at_one_plan_is_told_whether_it_is_as_it_was_sealed(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, edited = copied(sealed, tmp_path), plan_ids(sealed)[AUTO[1]]

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row | {"moves": 0} if row["plan_id"] == edited else row for row in rows]

    edit(root, PLANS, change)
    reader, loaded = LakeReader(str(root)), policy(root)
    heads = {row["plan_id"]: row for row in reader.read(PLANS).to_pylist()}
    sound = heads[plan_ids(sealed)[AUTO[0]]]
    assert seal_state(loaded, reader, sound) == (True, "its rows are as they were sealed")
    is_sealed, reason = seal_state(loaded, reader, heads[edited])
    assert (is_sealed, "its row of plans was edited" in reason) == (False, True)
    assert seal_state(None, reader, sound)[0] is None
    assert seal_state(policy(sealed), reader, sound)[0] is None
    monkeypatch.delenv(VARIABLE)
    assert seal_state(loaded, reader, sound)[0] is None


def test_a_plan_of_which_a_row_is_missing_or_was_taken_from_another_plan_is_not_published(
    sealed: Path, tmp_path: Path
) -> None:
    root, plans = copied(sealed, tmp_path), plan_ids(sealed)
    edited = set()
    for number, table in enumerate(TABLES):
        groups = ASKED[1:4] if table is APPROVAL_REQUESTS else AUTO[3 * number + 1 :][:3]
        without, mixed, source = (plans[group] for group in groups)

        def change(
            rows: list[dict[str, Any]],
            table: Table = table,
            without: str = without,
            mixed: str = mixed,
            source: str = source,
        ) -> list[dict[str, Any]]:
            gone = sorted_rows(table, rows, without)[-1]
            own, other = sorted_rows(table, rows, mixed)[-1], sorted_rows(table, rows, source)[0]
            own.update(other | {"plan_id": mixed, "group_id": own["group_id"]})
            return [row for row in rows if row is not gone]

        edit(root, table, change)
        edited |= {without, mixed}
    reasons = judge(root)
    approved = {plans[group] for group in [*AUTO, *ASKED]}
    assert {plan for plan in approved if reasons.get(plan, "not seen") is not None} == edited


def test_an_approval_that_somebody_writes_without_the_key_approves_nothing(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, plan_id = copied(sealed, tmp_path), plan_ids(sealed)[WAITING]

    def forge(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        (proposed,) = sorted_rows(PLAN_EVENTS, rows, plan_id)
        forged = {"event": "APPROVED", "actor": "ada", "channel": "page", "reason": "fine", "at": NOW}
        return [*rows, proposed | forged]

    edit(root, PLAN_EVENTS, forge)
    reason = judge(root)[plan_id]
    assert reason is not None
    assert reason.startswith("not as it was sealed: its approval was edited")
    assert alerts(root) == {WAITING: f"plan {plan_id[:12]} is {reason}"}
    # Where the report is built without the key, the plan is reported when the publisher has refused it.
    monkeypatch.delenv(VARIABLE)
    assert alerts(root) == {}
    monkeypatch.setenv(VARIABLE, KEY)
    (plan,) = (plan for plan in read_publishable(policy(root), "c", NOW) if plan["plan_id"] == plan_id)
    head = plan | {"cluster": "c", "run_id": "publish"}
    expired = plan_event(head, "EXPIRED", reason=plan["refusal"], actor="evenlag", at=NOW)
    append_plan_events(str(root), [expired])
    monkeypatch.delenv(VARIABLE)
    assert alerts(root) == {WAITING: f"plan {plan_id[:12]} is {reason}"}
    loaded = policy(root)
    changes = find_changes(loaded, "c", NOW)
    assert ("EDITED_PLAN", WAITING) in {(fault.kind, fault.subject) for fault in changes.raised}
    assert f"EDITED_PLAN {WAITING}: plan {plan_id[:12]} is not as it was sealed" in changes.text
    # It is reported for two days, and once.
    record_changes(loaded, "c", changes, run_id="r", now=NOW)
    assert find_changes(loaded, "c", NOW).raised == ()
    over = find_changes(loaded, "c", NOW + timedelta(days=3)).cleared
    assert ("EDITED_PLAN", WAITING) in {(fault.kind, fault.subject) for fault in over}


def test_a_user_cannot_approve_a_plan_that_was_edited_and_it_is_rejected(
    sealed: Path, tmp_path: Path
) -> None:
    root, plan_id = copied(sealed, tmp_path), plan_ids(sealed)[WAITING]
    edit(
        root, PLANS, lambda rows: [row | {"gain": 0.99} if row["plan_id"] == plan_id else row for row in rows]
    )
    with pytest.raises(EditedPlanError, match=r"its row of plans was edited"):
        approve(root, plan_id)
    # It was not even asked for; a decision by the command has no request.
    reader, of_plan = LakeReader(str(root)), [("plan_id", "=", plan_id)]
    assert reader.read(APPROVAL_REQUESTS, filters=of_plan).num_rows == 0
    with pytest.raises(EditedPlanError):
        record_answer(
            policy(root),
            "c",
            plan_id,
            approve=True,
            actor=Actor.of_command(),
            reason="",
            run_id="command",
            now=NOW + timedelta(seconds=60),
        )
    events = reader.read_events(filters=of_plan).to_pylist()
    assert [(row["event"], row["actor"]) for row in events] == [
        ("PROPOSED", "planner"),
        ("REJECTED", "evenlag"),
    ]
    message = f"plan {plan_id[:12]} is not as it was sealed: its row of plans"
    assert alerts(root)[WAITING].startswith(message)


def test_what_lies_in_the_lake_before_decide_is_not_sealed_by_it(
    sealed: Path, observed: Path, tmp_path: Path, spark: SparkSession
) -> None:
    """An attacker writes decisions, plans and verdicts first, or edits what a killed attempt wrote."""
    root, plans = copied(observed, tmp_path), plan_ids(sealed)
    for table in (DECISIONS, PLANS, PLAN_ASSIGNMENTS, GATE_RESULTS):
        shutil.copytree(sealed / table.name, root / table.name)
    edited = {DECISIONS: AUTO[1], PLANS: AUTO[2], GATE_RESULTS: AUTO[3]}
    for table, group in edited.items():

        def forge(rows: list[dict[str, Any]], table: Table = table, group: str = group) -> list[Any]:
            change = {"message": "x"} if table is GATE_RESULTS else {"gain": 0.99}
            return [row | change if row["group_id"] == group else row for row in rows]

        edit(root, table, forge)
    counts = decide(snapshot(spark, root), root)
    # A decision that is not as it was sealed is none: its plan is left out.
    assert counts == {"approved": len(AUTO) - 3, "rejected": 2, "waiting": len(ASKED) + 1}
    reasons = judge(root)
    assert {group for group in AUTO if reasons.get(plans[group], "not seen") is None} == {
        group for group in AUTO if group not in edited.values()
    }
    assert alerts(root).keys() == set(edited.values())


def test_a_seal_by_the_previous_key_holds_until_that_key_is_removed(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copied(sealed, tmp_path)
    monkeypatch.setenv("OLD_KEY", KEY)
    monkeypatch.setenv(VARIABLE, f"another one: {KEY}")
    reasons = judge(root)
    assert len(reasons) == len(AUTO) + len(ASKED)
    assert {"is sealed by a key that is not accepted" in str(reason) for reason in reasons.values()} == {True}
    monkeypatch.setattr(
        "tests.support.sealing.sealed_lake.POLICY",
        _with_previous_key(),
    )
    assert set(judge(root).values()) == {None}


def _with_previous_key() -> str:
    from tests.support.sealing.sealed_lake import POLICY

    own = "approval_key: {{env: TEST_APPROVAL_KEY}}"
    assert own in POLICY
    return POLICY.replace(own, f"{own}, previous_approval_key: {{{{env: OLD_KEY}}}}")
