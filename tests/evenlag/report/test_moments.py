"""The moments that a report shows, and what it leaves out, on a lake that Spark wrote over midnight.

Every snapshot begins 9 s after its slot, reads members after 10 s and lag after 11 s, and ends after 13 s.
The distances between snapshots differ, and a partition moves between the last two.
"""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from evenlag.cli.app import app
from evenlag.errors import NotFoundError
from evenlag.lake.reader import LakeReader
from evenlag.report.page import report_page
from evenlag.report.read_report import read_report
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.audit_ownership import audit_assignments
from tests.support.lakes.moments_lake import (
    BARE,
    FIFTH,
    FIRST,
    FOURTH,
    GROUP,
    SECOND,
    SLOTS,
    THIRD,
    after,
    snapshot_id,
    write_compared,
    write_planned,
    write_seen,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.report.model import Report

pytestmark = [pytest.mark.extended, pytest.mark.jvm]


@pytest.fixture(scope="module")
def root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = Lake(spark, str(tmp_path_factory.mktemp("moments")))
    for part in (write_seen, write_planned, write_compared):
        part(lake)
    audit_assignments(lake, "c")
    return lake.paths.root


def report_of(root: str, group: str = GROUP, **asked: Any) -> Report:
    return read_report(LakeReader(root), "c", group, **asked)


def marks(report: Report) -> list[tuple[str, datetime]]:
    assert report.timeline is not None
    return [(mark.event or mark.kind, mark.at) for mark in report.timeline.marks]


def test_owners_are_drawn_up_to_the_last_snapshot(root: str) -> None:
    timeline = report_of(root).timeline
    assert timeline is not None
    bars = {(each.partition, each.owner): (each.start, each.end, each.is_open) for each in timeline.intervals}
    end = after(FIFTH, 13)
    assert bars == {
        ("t-0", "pod-m-1"): (after(FIRST, 10), end, True),
        ("t-1", "pod-m-1"): (after(FIRST, 10), after(FIFTH, 10), False),
        # Seen in the newest snapshot alone.
        ("t-1", "pod-m-2"): (after(FIFTH, 10), end, True),
        ("t-2", "pod-m-1"): (after(FIRST, 10), after(THIRD, 10), False),
        ("t-2", "pod-m-2"): (after(THIRD, 10), end, True),
        ("t-3", "pod-m-2"): (after(FIRST, 10), end, True),
    }


def test_hints_are_marked_by_kind_when_it_was_seen_and_after_what_they_caused(root: str) -> None:
    report = report_of(root)
    assert marks(report) == [
        ("published", after(SECOND, 40)),
        ("rebalance", after(THIRD, 10)),
        ("followed", after(THIRD, 13)),
        ("rebalance", after(FIFTH, 10)),
        ("published", after(FIFTH, 40)),
    ]
    assert (report.num_by_event["PUBLISHED"], report.num_by_event["APPLIED"]) == (2, 1)
    page = report_page(report)
    assert "2 rebalances are marked, and hints: 2 published, 1 followed." in page
    for what in ("hint published", "hint followed"):
        assert page.count(what) > 1  # in the legend, and in the table
    assert "hint expired" not in page


def test_lag_is_shown_at_the_time_at_which_it_was_read(root: str) -> None:
    report = report_of(root)
    moments = tuple(after(slot, 11) for slot in SLOTS)
    assert report.observed.at == moments
    assert [at for at in moments if at not in report.replayed[0].at] == []
    assert report.change is not None
    assert (report.change.before_at, report.change.after_at) == (after(SECOND, 11), after(THIRD, 11))
    page = report_page(report)
    assert "Before: read at 2026-03-01 23:55:11Z" in page
    assert "After: read at 2026-03-02 00:00:11Z" in page


def test_partly_known_lag_is_a_lower_bound(root: str) -> None:
    report = report_of(root, until=after(FOURTH, 13))
    assert report.observed.lag_records == (1000, 1300, 650, 350)
    assert report.observed.num_unknown == (0, 0, 0, 1)
    assert (report.now["lag_records"], report.now["num_unknown_partitions"], report.now["unknown"]) == (
        350,
        1,
        {"UNKNOWN": 1},
    )
    page = report_page(report)
    assert "<b>≥ 350</b>" in page
    assert "of 4 partitions not known: 1 UNKNOWN" in page
    assert "In 1 of 4 snapshots some of it was not known" in page


@pytest.mark.parametrize("end", [after(SECOND, 120), after(THIRD, 5), after(THIRD, 12)])
def test_what_came_after_the_end_is_left_out(root: str, end: datetime) -> None:
    report = report_of(root, until=end)
    # A snapshot that had not ended by then was not known.
    assert (report.since, report.until, report.num_snapshots) == (FIRST, SECOND, 2)
    assert report.finished_at == after(SECOND, 13)
    assert marks(report) == [("published", after(SECOND, 40))]
    (plan,) = report.plans
    assert (plan["status"], plan["max_member_lag_actual_records"], plan["adherence"]) == (
        "PUBLISHED",
        None,
        None,
    )
    assert "APPLIED" not in report.num_by_event
    assert report.change is not None
    assert report.change.after_at is None
    assert {each.at for each in report.replayed} == {(after(FIRST, 11), after(SECOND, 11))}
    assert report.timeline is not None
    assert {each.end for each in report.timeline.intervals} == {after(SECOND, 13)}


def test_a_day_that_goes_on_after_the_end_is_not_compared(root: str) -> None:
    report = report_of(root, until=after(FOURTH, 20))
    assert {row["group_days"] for row in report.policies} == {1}
    assert report.reasons == ("2026-03-02 is left out: its simulation continues after the end of the period",)
    assert {row["group_days"] for row in report_of(root).policies} == {2}
    begun = report_of(root, until=after(FOURTH, 20), hours=0.1)
    assert list(begun.policies) == []
    assert "is left out" in report_page(begun)
    assert [plan["status"] for plan in begun.plans] == ["APPROVED"]
    assert marks(begun)[0] == ("rebalance", after(THIRD, 10))


def test_a_group_without_commits_has_its_status_for_its_lag(root: str) -> None:
    report = report_of(root, BARE)
    assert (report.now["lag_records"], report.now["unknown"]) == (None, {"NO_COMMIT": 4})
    page = report_page(report)
    assert "of 4 partitions not known: 4 NO_COMMIT" in page
    assert "It was not known in any snapshot" in page
    assert "NO_COMMIT (up to 4 partitions in 5 snapshots)" in page
    for wrong in ("the group rebalanced", "went up to", "the best"):
        assert wrong not in page


def test_a_period_without_a_snapshot_is_no_report_of_another(root: str) -> None:
    with pytest.raises(NotFoundError, match=r"no snapshot of c was taken in the 1 hours up to"):
        report_of(root, until=datetime(2026, 3, 5, tzinfo=UTC), hours=1)
    with pytest.raises(NotFoundError, match="there is no snapshot of c up to"):
        report_of(root, until=datetime(2026, 2, 5, tzinfo=UTC))
    call = ["report", GROUP, "--lake", root, "--to", "2026-03-05", "--hours", "1"]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 4
    assert done.stderr.count("\n") == 1


def test_the_audit_command_names_both_owners_while_a_snapshot_is_taken(root: str, tmp_path: Path) -> None:
    file = tmp_path / "owners.csv"
    asked = ["--at", "2026-03-02T00:04:11", "--partition", "1", "--lake", root]
    done = CliRunner().invoke(app, ["audit", "owner", GROUP, *asked, "--json", "--export", str(file)])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    candidates = [("CHANGING", "before", "m-1"), ("CHANGING", "during", "m-2")]
    names = ("certainty", "side", "member_id")
    assert [tuple(row[name] for name in names) for row in answer["partitions"]] == candidates
    assert [each["snapshot_id"] for each in answer["group"]["during"]] == [snapshot_id(FIFTH)]
    with file.open(encoding="utf-8") as lines:
        assert [tuple(row[name] for name in names) for row in csv.DictReader(lines)] == candidates


def test_the_audit_command_tells_no_sameness_across_a_move(root: str) -> None:
    asked = ["2026-03-02T00:03:20", "2026-03-02T00:04:08", "--lake", root]
    done = CliRunner().invoke(app, ["audit", "diff", GROUP, *asked, "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    (row,) = answer["partitions"]
    # Both moments lie between the two snapshots that show different owners of it.
    assert (row["partition"], row["change"], row["holder_before"]) == (1, "CHANGING", ["m-1", "m-2"])
    for end in ("before", "after"):
        ids = [answer[end][which]["snapshot_id"] for which in ("before", "after")]
        assert ids == [snapshot_id(FOURTH), snapshot_id(FIFTH)]


@pytest.mark.parametrize("question", ["churn", "adherence", "anomalies"])
def test_the_audit_of_a_period_without_a_snapshot_has_no_answer(root: str, question: str) -> None:
    asked = ["--from", "2026-03-02T00:01:00", "--to", "2026-03-02T00:02:00", "--lake", root]
    done = CliRunner().invoke(app, ["audit", question, GROUP, *asked])
    assert done.exit_code == 4, done.output
    assert done.stderr == (
        "error: no snapshot of c was taken from 2026-03-02 00:01:00Z to 2026-03-02 00:02:00Z: "
        "the last before it ended at 2026-03-02 00:00:13Z, the first after it began at 2026-03-02 00:03:09Z\n"
    )
