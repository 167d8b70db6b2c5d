"""Metrics, hot partitions and the page for a person who approves, against what the recorded lakes hold."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.monitoring.hot_partitions import find_hot_partitions
from evenlag.overview.metrics import read_metrics
from evenlag.publishing.approval_page import build_page
from evenlag.publishing.sealing.verified_plans import VerifiedPlan, read_plans
from tests.truth.counts import add_counts
from tests.truth.oracle.checks import Checks
from tests.truth.oracle.expected import figures as expect_figures
from tests.truth.oracle.lake_rows import LakeRows
from tests.truth.recorded_lakes import each_lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.truth.recorded_lakes import RecordedLake

METRICS, HOT, APPROVAL = "metrics", "hot partitions", "approval page"
_MEMBER = re.compile(r"^\| (.+?) \| [█▏▎▍▌▋▊▉]* \| ([\d,]+|not known|≥ [\d,]+) \|"
                     r" [█▏▎▍▌▋▊▉]* \| ([\d,]+|not known|≥ [\d,]+) \|$", re.MULTILINE)  # fmt: skip


@pytest.fixture(params=each_lake())
def lake(request: pytest.FixtureRequest, recorded_lake: Callable[[str], RecordedLake]) -> RecordedLake:
    return recorded_lake(request.param)


def _finish(lake: RecordedLake, checks: Checks) -> None:
    add_counts(lake.root.parent.name, checks)
    assert not checks.differences, "\n".join(str(each) for each in checks.differences[:40])


def test_metrics_are_those_of_the_newest_snapshot(lake: RecordedLake) -> None:
    checks = Checks()
    for cluster in lake.clusters:
        rows = LakeRows(lake.root, cluster)
        # While requests are open, and after the last one's time.
        for later in (timedelta(seconds=1), timedelta(days=2)):
            now = rows.newest["finished_at"] + later
            shown = read_metrics(str(lake.root), cluster, now)
            checks.same(METRICS, f"{cluster} {later} later", shown, expect_figures.figures(rows, now))
    _finish(lake, checks)


def test_hot_partitions_are_those_that_alone_are_most_of_the_lag(lake: RecordedLake) -> None:
    checks = Checks()
    for cluster in lake.clusters:
        rows = LakeRows(lake.root, cluster)
        found = find_hot_partitions(LakeReader(str(lake.root)), rows.newest)
        shown = [asdict(each) for _, each in sorted(found.items()) if each is not None]
        checks.same(HOT, cluster, shown, expect_figures.hot_partitions(rows))
        is_open = sorted(name for name, each in found.items() if each is None)
        checks.same(HOT, f"{cluster}: open", is_open, expect_figures.open_groups(rows))
    _finish(lake, checks)


def test_the_page_of_a_plan_shows_each_members_lag_now_and_as_planned(lake: RecordedLake) -> None:
    checks = Checks()
    for cluster in lake.clusters:
        rows = LakeRows(lake.root, cluster)
        for plan in rows.rows("plans"):
            reader, ids = LakeReader(str(lake.root)), [plan["plan_id"]]
            found = read_plans(reader, None, cluster, plan["day"], ids, assignments="kept")[ids[0]]
            assert isinstance(found, VerifiedPlan), found
            page = build_page(found, answer_by=plan["slot"])
            shown = [list(match.groups()[1:]) for match in _MEMBER.finditer(page.body)]
            cells = expect_figures.approval_numbers(rows, plan)
            checks.same(APPROVAL, f"{plan['plan_id'][:12]}: members", sorted(shown), sorted(cells))
            moved = f"move {plan['moves']:,} of {plan['num_partitions']:,} partitions"
            checks.same(APPROVAL, f"{plan['plan_id'][:12]}: subject", moved in page.subject, True)  # expected
    _finish(lake, checks)
