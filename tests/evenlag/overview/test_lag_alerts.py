"""From offsets to alerts, by the formula, the metrics and the shipped rules: what hides lag fires."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from evenlag.lag.formula import count_lag
from evenlag.lag.partitions import join_partitions
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS
from evenlag.overview import read_cluster
from evenlag.overview.metrics import render_metrics
from evenlag.policy.group_settings import GroupSettings
from tests.evenlag.overview.test_metric_families import parse
from tests.support.lakes.snapshots import HEAD, NOW, arrow, commit, member, offset
from tests.support.overview.prometheus import MONITORING, promtool
from tests.support.overview.rows import overview_of

if TYPE_CHECKING:
    from pathlib import Path

    from evenlag.overview.model import GroupRow

Rows = list[dict[str, Any]]
BEHIND, LAG_UNKNOWN, TIME_UNKNOWN = "EvenlagGroupBehind", "EvenlagGroupLagUnknown", "EvenlagGroupTimeUnknown"
UNREADABLE, UNEVEN, NOT_DRAINING = "EvenlagGroupUnreadable", "EvenlagGroupUneven", "EvenlagGroupNotDraining"
REBALANCING: Final[dict[str, Any]] = {
    "topics": None,
    "group_state": "PreparingRebalance",
    "assignor": None,
    "subscription_error": "the group is rebalancing",
    "assignment_error": "the group is rebalancing",
}


@dataclass(frozen=True)
class Case:
    """One group, alone on its cluster: its rows, those of earlier snapshots, and the alerts that fire."""

    offsets: Rows
    commits: Rows
    members: Rows
    fires: set[str]
    past_offsets: tuple[dict[str, Any], ...] = ()
    past_commits: tuple[dict[str, Any], ...] = ()
    reset: str | None = "earliest"


def ago(minutes: float, partition: int, end: int) -> dict[str, Any]:
    return offset(partition, end, end_read_at=NOW - timedelta(minutes=minutes))


def committed_ago(minutes: float, partition: int, committed: int) -> dict[str, Any]:
    return commit(partition, committed, read_at=NOW - timedelta(minutes=minutes))


def members_of(*held: list[int]) -> Rows:
    return [member(f"m-{number}", held={"t": parts}) for number, parts in enumerate(held)]


CASES: Final = {
    # The log passed the commit 40 minutes ago; nobody's assignment is known.
    "rebalancing": Case(
        [offset(0, 5_000)],
        [commit(0, 0)],
        [member(**REBALANCING)],
        {BEHIND},
        (ago(40, 0, 0), ago(39, 0, 5_000)),
    ),
    # The oldest snapshot, of 31 minutes ago, is past the commit already: it is at least as old.
    "a part is of unknown age": Case(
        [offset(0, 9_000), offset(1, 10)],
        [commit(0, 100), commit(1, 10)],
        members_of([0, 1]),
        {BEHIND, TIME_UNKNOWN},
        (ago(31, 0, 5_000), ago(31, 1, 10)),
    ),
    "no history": Case([offset(0, 9_000)], [commit(0, 100)], members_of([0]), {TIME_UNKNOWN}),
    "commits not read": Case(
        [offset(0, 9_000)],
        [{"group_id": "g", "read_at": NOW, "error": "CoordinatorNotAvailableError"}],
        members_of([0]),
        {UNREADABLE, LAG_UNKNOWN},
    ),
    "group not described": Case(
        [offset(0, 9_000)],
        [commit(0, 9_000)],
        [member(None, topics=None, group_state=None, error="the coordinator does not answer")],
        {UNREADABLE},
    ),
    "a commit beyond the log, the reset policy unknown": Case(
        [offset(0, 10)], [commit(0, 100)], members_of([0]), {LAG_UNKNOWN}, reset=None
    ),
    # All of it with one of three, in partitions that could move: the skew is 3, and never more.
    "three members": Case(
        [offset(number, 20_000) for number in range(3)],
        [commit(number, 0) for number in range(3)],
        members_of([0, 1, 2], [], []),
        {UNEVEN},
        tuple(ago(1, number, 0) for number in range(3)),
    ),
    # The same lag in one partition: no assignment helps.
    "one hot partition": Case(
        [offset(0, 60_000), offset(1, 5), offset(2, 5)],
        [commit(0, 0), commit(1, 5), commit(2, 5)],
        members_of([0], [1], [2]),
        set(),
        tuple(ago(1, number, 0) for number in range(3)),
    ),
    # 10 records arrive and are processed each second; 2,000 are left, those of the last 200 seconds.
    "keeps its distance": Case(
        [offset(0, 10_000)],
        [commit(0, 8_000)],
        members_of([0]),
        {NOT_DRAINING},
        (ago(10, 0, 4_000), ago(5, 0, 7_000)),
        (committed_ago(10, 0, 2_000), committed_ago(5, 0, 5_000)),
    ),
    # 500 records a second, and 2,000 are left: those of the last four seconds.
    "keeps up": Case(
        [offset(0, 500_000)],
        [commit(0, 498_000)],
        members_of([0]),
        set(),
        (ago(10, 0, 200_000), ago(5, 0, 350_000)),
        (committed_ago(10, 0, 198_000), committed_ago(5, 0, 348_000)),
    ),
    "empty partitions": Case(
        [offset(0, 0), offset(1, 700, start=700)], [], members_of([0, 1]), set(), reset=None
    ),
    "retention emptied the log": Case([offset(0, 100, start=100)], [commit(0, 30)], members_of([0]), set()),
    # It subscribes to t and has a commit of last year for u.
    "an abandoned topic": Case(
        [offset(0, 10), offset(0, 90_000, topic="u")],
        [commit(0, 10), commit(0, 0, topic="u")],
        members_of([0]),
        set(),
    ),
}


def group_row(name: str, case: Case) -> GroupRow:
    """The row of the overview, from the formula."""
    offsets = sorted(case.offsets, key=lambda row: (row["topic"], row["partition"]))
    members = arrow(MEMBERS, case.members)
    joined = join_partitions(
        arrow(OFFSETS, offsets),
        arrow(COMMITS, case.commits),
        members,
        lambda _group_id: GroupSettings(reset_policy=case.reset),
        offset_history=arrow(OFFSETS, case.past_offsets),
        commit_history=arrow(COMMITS, case.past_commits),
    )
    counted = count_lag(joined.partitions, joined.groups, joined.member_ids, 900).to_pylist()
    lag = arrow(LAG, [{**HEAD, "slot": NOW, **row} for row in counted])
    (row,) = read_cluster._rows(name, lag, members, (), (False, {}), {})
    return row


def promtool_file(rows: dict[str, GroupRow], path: Path) -> None:
    """A file of promtool: the metrics of all cases for two hours, and what fires then."""
    values = parse(render_metrics(overview_of(*rows.values()), {}).decode())
    series = [
        {
            "series": f'evenlag_{name}{{cluster="{labels[0]}", group="{labels[1]}"}}',
            "values": " ".join(["+Inf" if value == float("inf") else f"{value:g}"] * 121),
        }
        for name, of_group in values.items()
        if name.startswith("group_")
        for labels, value in of_group.items()
    ]
    fired = [
        {"labels": f'fired{{alertname="{alert}", cluster="{name}"}}', "value": 1}
        for name, case in CASES.items()
        for alert in sorted(case.fires)
    ]
    firing = 'max by (alertname, cluster) (ALERTS{alertstate="firing", group="g"})'
    expr = f'label_replace({firing}, "__name__", "fired", "", "")'
    test = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [{"expr": expr, "eval_time": "2h", "exp_samples": fired}],
    }
    rules = str(MONITORING / "evenlag.rules.yml")
    path.write_text(
        yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": [test]}),
        encoding="utf-8",
    )


def test_what_hides_lag_fires_and_what_is_nothing_stays_silent(tmp_path: Path) -> None:
    rows = {name: group_row(name, case) for name, case in CASES.items()}
    promtool_file(rows, tmp_path / "cases.yml")
    promtool("test", "rules", str(tmp_path / "cases.yml"))


def test_a_lower_bound_of_the_time_is_never_exported_as_the_time() -> None:
    row = group_row("a", CASES["a part is of unknown age"])
    values = parse(render_metrics(overview_of(row), {}).decode())
    assert ("a", "g") not in values.get("group_time_lag_seconds", {})
    assert values["group_time_lag_lower_bound_seconds"]["a", "g"] == pytest.approx(31 * 60)
    assert values["group_time_unknown_partitions"]["a", "g"] == 1
    assert values["group_lag_records"]["a", "g"] == 8_900
