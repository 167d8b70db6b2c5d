"""Rows of an attempt that no head names are in the table, and nobody reads them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from evenlag.cli.app import app
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import OUTCOMES, PLAN_ASSIGNMENTS
from evenlag.publishing.approval_page import build_page
from evenlag.publishing.event_log import PlanEventRow, append_plan_events
from evenlag.publishing.sealing.verified_plans import VerifiedPlan, read_plans
from evenlag.report.read_report import read_report
from spark_jobs.steps.plan_groups import plan_groups
from spark_jobs.steps.settle_outcomes import read_published, settle_outcomes
from spark_jobs.steps.validate_plans import validate_plans
from tests.support.lakes.cycle_lake import FIRST, HELD, POLICY, SECOND, write_snapshot
from tests.support.lakes.snapshots import NOW, plan_context
from tests.support.spark_tables import write_rows

if TYPE_CHECKING:
    from pathlib import Path

    from spark_jobs.runtime.delta_lake import Lake

pytestmark = pytest.mark.jvm

GROUP = "billing"


def shown(root: Path, plan_id: str) -> list[Any]:
    """What a user reads of a plan: command, report, and page of the approval."""
    done = CliRunner().invoke(app, ["plans", plan_id, "--lake", str(root), "--json"])
    assert done.exit_code == 0, done.output
    report = read_report(LakeReader(str(root)), "c", GROUP)
    plan = read_plans(LakeReader(str(root)), None, "c", NOW.date(), [plan_id])[plan_id]
    assert isinstance(plan, VerifiedPlan)
    page = build_page(plan, answer_by=NOW)
    assert report.change is not None
    return [json.loads(done.stdout), report.change.members, page.body]


def test_rows_of_attempts_that_no_head_names_change_nothing_that_is_read(lake: Lake) -> None:
    root = lake.paths.local_root
    reader, context = LakeReader(str(root)), plan_context(POLICY)
    rows = write_snapshot(lake, FIRST, {}, is_kept=True)
    planned = plan_groups(rows, context)
    validate_plans(rows, planned, context, NOW + timedelta(seconds=9))
    (head,) = (head for head in planned.heads if head["group_id"] == GROUP)
    of_plan = [("plan_id", "=", head["plan_id"])]
    own = reader.read(PLAN_ASSIGNMENTS, filters=of_plan).to_pylist()
    assert {row["attempt_id"] for row in own} == {head["attempt_id"]}
    assert len(own) == head["num_partitions"] == 4

    before = shown(root, head["plan_id"])
    assert len(before[0]["moves"]) == head["moves"] > 0
    # Of a killed attempt, and of an earlier version that was killed before the upgrade. Rows of one plan are
    # the same in truth: here they give each partition to the other member, and ten times the lag.
    others = {"m-1": "m-2", "m-2": "m-1"}
    strange = [
        row
        | {
            "attempt_id": attempt_id,
            "owner_after": others[row["owner_after"]],
            "owner_after_key": f"m:{others[row['owner_after']]}",
            "lag_records": 10 * row["lag_records"],
            "moved": True,
        }
        for row in own
        for attempt_id in ("killed", None)
    ]
    write_rows(root, PLAN_ASSIGNMENTS, strange)
    assert reader.read(PLAN_ASSIGNMENTS, filters=of_plan).num_rows == 12
    assert shown(root, head["plan_id"]) == before

    # The group follows the plan; by the other rows it would follow nothing.
    hint = PlanEventRow.of_plan(
        head, "PUBLISHED", reason=None, actor="policy", at=NOW + timedelta(seconds=20)
    ).as_row()
    more = {"sequence": 1, "expires_at": NOW + timedelta(seconds=40)}
    append_plan_events(str(root), [PlanEventRow(**hint | more)])
    after = {row["partition"]: row["owner_after"] for row in own}
    owners = {name: [place for place, owner in sorted(after.items()) if owner == name] for name in HELD}
    later = write_snapshot(lake, SECOND, {GROUP: owners}, is_kept=True)
    assert settle_outcomes(later, read_published(reader, "c"), "r") == {"APPLIED": 1}
    (outcome,) = reader.read(OUTCOMES).to_pylist()
    assert (outcome["plan_id"], outcome["adherence"]) == (head["plan_id"], 1.0)
