"""What the report tells, from a lake with everything, and from lakes that lack parts."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from evenlag.cli.app import app
from evenlag.errors import NotFoundError
from evenlag.lake.reader import LakeReader
from evenlag.overview.views import answer
from evenlag.queries.comparisons import model_error_text
from evenlag.report.model import MemberLag
from evenlag.report.page import report_page
from evenlag.report.read_report import Names, read_report
from tests.support.lakes.report_lake import (
    CLUSTER,
    FOLLOWED,
    FORMULA,
    GROUP,
    HOSTILE,
    LEFT_LAG,
    MEMBERS_BY_ID,
    NUM_LEFT,
    NUM_READINGS,
    PLAN,
    PLANNED,
    lag,
    owner,
    slot,
    write_planned,
    write_seen,
)
from tests.support.spark_tables import together
from tests.truth.oracle.page import parse_page

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.report.model import Report


class _Page(HTMLParser):
    """Collects what a page would ask for, and its ids."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_for: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in {"src", "href", "xlink:href", "action"} and not (value or "").startswith("#"):
                self.asked_for.append(f"{tag} {name}={value}")
            if name == "id":
                self.ids.append(str(value))


def _held(member: str, reading: int, lag_at: int) -> int:
    return sum(lag(p, lag_at) for p in range(8) if owner(p, reading) == member)


def test_lag_is_told_before_as_predicted_and_after(report: Report) -> None:
    assert report.change is not None
    assert (report.change.plan_id, report.change.status) == (PLAN, "APPLIED")
    assert report.change.members == tuple(
        MemberLag(
            name,
            before=_held(member, PLANNED, PLANNED),
            predicted=_held(member, FOLLOWED, PLANNED),
            after=_held(member, FOLLOWED, FOLLOWED),
        )
        for member, name in (("pod-0-aa", "pod-0"), ("pod-1-bb", FORMULA), ("pod-2-cc", HOSTILE))
    )


def test_the_timeline_has_every_stretch_and_mark(report: Report) -> None:
    timeline = report.timeline
    assert timeline is not None
    assert timeline.partitions == tuple(f"orders-{number}" for number in range(8))
    for each in timeline.intervals:
        number = int(each.partition.rpartition("-")[2])
        reading = round((each.start - slot(0)) / (slot(1) - slot(0)))
        member = owner(number, reading)
        names = {"pod-0-aa": "pod-0", "pod-1-bb": FORMULA, "pod-2-cc": HOSTILE}
        assert each.owner == (None if member is None else names[member])
    marks = [(mark.kind, mark.at) for mark in timeline.marks]
    assert ("rebalance", slot(FOLLOWED)) in marks
    assert ("rebalance", slot(3)) in marks
    assert [kind for kind, _ in marks].count("hint") == 2


def test_the_first_line_is_what_happened_and_whether_it_was_worth_it(report: Report, page_file: Path) -> None:
    after = {member: _held(member, FOLLOWED, FOLLOWED) for member in MEMBERS_BY_ID}
    assert report.verdict.kind == "plain"
    assert report.verdict.happened == (
        f"Plan followed at 12:50: the most loaded member went from 24,000 to {max(after.values()):,} records "
        f"of lag; predicted {max(_held(member, FOLLOWED, PLANNED) for member in MEMBERS_BY_ID):,}."
    )
    assert report.verdict.evaluation == "Whether it was worth it is known at its horizon."
    assert report.verdict.others == "The period has 2 plans: 1 followed, 1 rejected."
    text = page_file.read_text(encoding="utf-8")
    assert text.index("Plan followed at 12:50") < text.index("Slots <time") < text.index("<h2")


def test_the_time_to_drain_is_shown_before_and_after(report: Report, page_file: Path) -> None:
    # Before, the heavy partitions get 50 records/s and 30 are processed. After, 40 records/s are caught up.
    assert report.change is not None
    assert report.change.drain_before_ms == math.inf
    slowest = max(lag(partition, FOLLOWED) for partition in range(8))
    assert report.change.drain_after_ms == round(1000 * slowest / 40) == 300_000
    text = page_file.read_text(encoding="utf-8")
    assert "<b>never → 5 min</b>to drain, before and after the plan" in text
    assert "before never, after 5 min." in text


def test_a_topic_that_the_group_has_left_is_beside_the_totals(report: Report, page_file: Path) -> None:
    """Chart, table, tile and the members' lag by one definition; the time behind does not count it either."""
    totals = [sum(lag(p, n) for p in range(8)) for n in range(NUM_READINGS)]
    assert list(report.observed.lag_records) == totals
    assert (report.now["lag_records"], report.now["num_partitions"], report.now["time_lag_ms"]) == (
        totals[-1],
        8,
        None,
    )
    left = report.now["num_not_subscribed_partitions"], report.now["not_subscribed_lag_records"]
    assert left == (NUM_LEFT, NUM_LEFT * LEFT_LAG)
    text = page_file.read_text(encoding="utf-8")
    assert (
        f"<b>{NUM_LEFT * LEFT_LAG:,}</b>records in {NUM_LEFT} partitions without a subscriber, not counted"
        in text
    )


def test_no_large_number_is_of_something_that_never_ran(page_file: Path) -> None:
    tiles = page_file.read_text(encoding="utf-8").split('<ul class="numbers">')[1].split("</ul>")[0]
    assert "hints published / followed" in tiles
    for candidate in ("lag-aware-sticky", "cooperative-sticky", "the best", "percentile"):
        assert candidate not in tiles


def test_gates_that_passed_every_plan_are_folded(page_file: Path) -> None:
    text = page_file.read_text(encoding="utf-8")
    gates = text[text.index("<h3>Gates</h3>") :]
    shown, folded = gates.split("<details>", 1)
    assert "cooldown" in shown
    assert "max_moves" not in shown
    assert folded.startswith("<summary>1 gate passed every plan</summary>")
    assert "max_moves" in folded.split("</details>")[0]


def test_plans_that_were_rejected_in_turn_for_the_same_reason_have_one_row(report: Report) -> None:
    def plans(*reasons: str | None) -> list[dict[str, Any]]:
        """Plans of one cycle after the other, the newest first."""
        return [
            {
                **report.plans[0],
                "plan_id": f"{number:064x}",
                "slot": report.until - timedelta(minutes=5 * number),
                "status": "REJECTED" if reason else "APPLIED",
                "reason": reason,
            }
            for number, reason in enumerate(reasons)
        ]

    def rows(*reasons: str | None) -> list[list[str]]:
        page = parse_page(report_page(replace(report, plans=plans(*reasons))))
        return next(table.rows for name, table in page.tables.items() if name.startswith("Plans"))

    shown = rows("failed: a", "failed: a", "failed: a", None, None, "failed: a", "failed: b")
    assert [row[-1] for row in shown] == ["failed: a", "", "", "failed: a", "failed: b"]
    first, last = (f"{report.until - timedelta(minutes=passed):%Y-%m-%d %H:%M:%S}" for passed in (0, 10))
    assert shown[0][1] == f"{first} and 2 more since {last}"
    assert [" more " in row[1] for row in shown] == [True, False, False, False, False]
    assert len(rows(*["failed: a"] * 500)) == 1


def test_policies_are_ordered_with_the_best_marked(report: Report) -> None:
    assert [(row["policy"], row["is_best"]) for row in report.policies] == [
        ("lag-aware-sticky", True),
        (HOSTILE, False),
        ("observed", False),
        ("cooperative-sticky", False),
        ("range", False),
    ]
    assert report.policies[0]["optimality_gap"] == pytest.approx(0.055)
    assert report.model is not None
    assert (report.model["median_error"], report.model["p95_error"]) == (0.04, 0.1)
    assert model_error_text(report.model) == (
        "differs from the measured lag by 4.0 % (90 records) at the median and 10.0 % (700 records) at the "
        "95th percentile of the 12 snapshots with lag"
    )
    assert report.replayed[0].name == "as it ran (replayed)"
    assert report.observed.lag_records[0] == sum(lag(p, 0) for p in range(8))


def test_gates_and_decisions_are_counted(report: Report) -> None:
    assert [(gate.gate, gate.num_judged, gate.num_failed) for gate in report.gates] == [
        ("max_moves", 1, 0),
        ("cooldown", 1, 1),
    ]
    assert [(each.decision, each.count) for each in report.decisions] == [
        ("NO_CHANGE", NUM_READINGS - 2),
        ("PROPOSED", 2),
    ]
    assert report.num_by_event["PUBLISHED"] == 1


def test_members_are_named_shortly_and_apart() -> None:
    names = Names(
        {
            "app-1111": (None, "app"),
            "app-2222": (None, "app"),
            "lone-3333": (None, "lone"),
            "old-4444": ("pod-0", "x"),
            "new-5555": ("pod-0", "x"),
            "bare": (None, None),
        }
    )
    members = ("app-1111", "app-2222", "lone-3333", "old-4444", "new-5555", "bare", "gone", None)
    shown = [names.of(member) for member in members]
    assert shown == ["app …1111", "app …2222", "lone", "pod-0", "pod-0", "bare", "gone", "nobody"]


def test_the_page_asks_nobody_for_anything_and_runs_nothing(page_file: Path) -> None:
    text = page_file.read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    assert page.asked_for == []
    assert page.tags & {"script", "iframe", "link", "img", "object"} == set()
    assert not re.search(r"url\((?!#)|@import", text)
    assert "default-src &#x27;none&#x27;" in text
    assert len(page.ids) == len(set(page.ids))
    # Every colour of the pictures is one of the page's.
    assert not re.search(r"#0([1-9a-d])(?:0\1){2}\b", text)


def test_the_same_lake_makes_the_same_page(report: Report, page_file: Path) -> None:
    assert report_page(report) == page_file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bare_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bare")
    with together(spark):
        write_seen(root)
    return root


def test_a_lake_with_readings_only_says_what_to_run(bare_lake: Path) -> None:
    report = read_report(LakeReader(str(bare_lake)), CLUSTER)
    assert report.group_id == GROUP
    assert report.timeline is None
    assert report.change is not None
    assert report.change.plan_id is None
    page = report_page(report)
    assert "has not been audited yet" in page
    assert "Nothing was compared on these days" in page
    assert "No plan was proposed in the period" in page


def test_a_shorter_period_leaves_out_what_lies_before(report_lake: Path) -> None:
    report = read_report(LakeReader(str(report_lake)), CLUSTER, GROUP, hours=0.5, until=slot(20))
    assert (report.since, report.until, report.num_snapshots) == (slot(14), slot(20), 7)
    assert [plan["plan_id"][0] for plan in report.plans] == ["b"]


def test_a_group_that_is_not_there_is_said(report_lake: Path) -> None:
    with pytest.raises(NotFoundError, match=r"has the group 'payment'; groups there: payments"):
        read_report(LakeReader(str(report_lake)), CLUSTER, "payment")
    with pytest.raises(NotFoundError, match="run a cycle first"):
        read_report(LakeReader(str(report_lake)), "elsewhere")


def test_the_command_writes_the_page_and_says_what_is_missing(bare_lake: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    call = ["report", "--lake", str(bare_lake), "--file", str(path)]
    done = CliRunner().invoke(app, [*call, "--json"])
    assert done.exit_code == 0, done.output
    answered = json.loads(done.stdout)
    assert answered["file"] == str(path)
    assert answered["num_snapshots"] == NUM_READINGS
    assert len(answered["missing"]) == 2
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert CliRunner().invoke(app, [*call[:4], str(tmp_path / "nowhere" / "x.html")]).exit_code == 2
    assert CliRunner().invoke(app, [*call, "--cluster", "other"]).exit_code == 4
    earlier = CliRunner().invoke(app, [*call, "--to", "2026-03-01T13:00", "--hours", "0.5", "--json"])
    assert json.loads(earlier.stdout)["num_snapshots"] == 7


POLICY = """\
lake: {lake}
clusters:
  orders: {{bootstrap_servers: "k:9092"}}
  secret: {{bootstrap_servers: "k:9092"}}
"""


def test_airflow_shows_a_cluster_to_its_readers_only(
    bare_lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "evenlag.yaml"
    config.write_text(POLICY.format(lake=bare_lake), encoding="utf-8")
    monkeypatch.setenv("EVENLAG_CONFIG", str(config))

    def reader_of_orders(name: str) -> bool:
        return name == "lag_rebalance__orders"

    shown = answer(reader_of_orders, None, None, 24)
    page = bytes(shown.body).decode()
    assert shown.status_code == 200
    assert "payments on orders" in page
    assert "secret" not in page
    assert f"group={HOSTILE}" not in page
    assert "group=%3Cscript%3E" in page
    refused = answer(reader_of_orders, "secret", None, 24)
    unknown = answer(reader_of_orders, "nowhere", None, 24)
    assert refused.status_code == unknown.status_code == 403
    assert bytes(refused.body).replace(b"secret", b"nowhere") == unknown.body
    assert answer(lambda _name: False, None, None, 24).status_code == 403
    assert answer(reader_of_orders, "orders", HOSTILE * 2, 24).status_code == 404
    config.write_text(
        "lake: /x\nclusters: {orders: {kafka: {sasl_plain_pasword: hunter2}}\n", encoding="utf-8"
    )
    shown = answer(lambda _name: False, None, None, 24)
    page = bytes(shown.body).decode()
    assert shown.status_code == 503
    assert "The policy cannot be read" in page
    assert "hunter2" not in page
    assert "pasword" not in page
    monkeypatch.setenv("EVENLAG_CONFIG", str(tmp_path / "missing.yaml"))
    assert answer(reader_of_orders, None, None, 24).status_code == 503


def test_lag_that_is_not_known_is_no_zero(spark: SparkSession, tmp_path: Path) -> None:
    with together(spark):
        write_seen(tmp_path, lag_of_last=None)
    report = read_report(LakeReader(str(tmp_path)), CLUSTER, GROUP)
    assert (report.now["lag_records"], report.now["max_member_lag_records"]) == (None, None)
    assert report.verdict.happened == "No plan was made in the period, the group was only observed."
    assert report.observed.lag_records[-1] is None
    assert report.change is not None
    assert {member.before for member in report.change.members} == {None}
    assert "Where the line breaks it was not known" in report_page(report)


def test_a_plan_without_an_outcome_has_nothing_after(
    spark: SparkSession, bare_lake: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "lake"
    shutil.copytree(bare_lake, copy)
    with together(spark):
        write_planned(copy)
    report = read_report(LakeReader(str(copy)), CLUSTER, GROUP, hours=0.2, until=slot(PLANNED + 1))
    assert report.change is not None
    assert report.change.plan_id == PLAN
    assert all(member.after is None for member in report.change.members)
    page = report_page(report)
    assert "there is no lag after it" in page
    assert (report.verdict.kind, report.verdict.evaluation) == ("plain", "")
    assert report.verdict.happened.startswith(
        "Hint published and not followed yet at 12:40: it would take the most"
    )
