"""Metrics for Prometheus: each value is what the recorded lakes hold, by Prometheus' own parser."""

from __future__ import annotations

import json
import math
import re
import stat
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from evenlag.cli.manifests import manifest_text
from evenlag.lake.reader import LakeReader
from evenlag.overview.metrics import ClusterCounts, PlanRows, read_plan_rows, render_metrics
from evenlag.overview.model import Overview
from evenlag.overview.read_cluster import read_cluster
from evenlag.safe_text import printable
from tests.support.overview.rows import HIDDEN, NOW, groups_of_each_kind, overview_of
from tests.truth.oracle.expected.figures import open_requests
from tests.truth.oracle.expected.lag import group_rows
from tests.truth.oracle.lake_rows import LakeRows
from tests.truth.recorded_lakes import RecordedLake, each_lake, extract

if TYPE_CHECKING:
    from tests.evenlag.overview.conftest import Site
    from tests.support.fixtures.command import Evenlag

Samples = dict[str, dict[tuple[str, ...], float]]


def parse(text: str) -> Samples:
    """Return the values by metric and labels, without the prefix."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation.endswith(".")
        for sample in family.samples:
            values = found.setdefault(sample.name.removeprefix("evenlag_"), {})
            key = tuple(sample.labels.values())
            assert key not in values, (sample.name, key)
            values[key] = sample.value
    return found


@pytest.fixture(scope="module", params=each_lake())
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RecordedLake:
    return extract(request.param, tmp_path_factory.mktemp(request.param))


def test_values_are_those_of_the_lake(lake: RecordedLake) -> None:
    for cluster in lake.clusters:
        rows = LakeRows(lake.root, cluster)
        now = rows.newest["finished_at"] + timedelta(seconds=1)
        reader = LakeReader(str(lake.root))
        state, groups = read_cluster(reader, cluster, now)
        counts = read_plan_rows(reader, cluster, now).count(now)
        reported = parse(render_metrics(Overview((state,), groups), {cluster: counts}).decode())
        assert reported["snapshot_timestamp_seconds"] == {(cluster,): rows.newest["end_read_at"].timestamp()}
        assert reported["snapshot_completeness_ratio"] == {(cluster,): rows.newest["completeness"]}
        assert reported["open_approvals"] == {(cluster,): open_requests(rows, now)}
        expected = group_rows(rows, rows.newest["snapshot_id"])
        lags = {row["group_id"]: row["lag_records"] for row in expected if row["lag_records"] is not None}
        shown_lags = {group: value for (_, group), value in reported["group_lag_records"].items()}
        assert sorted(shown_lags.values()) == sorted(lags.values())
        # Names with control characters are escaped, so backslashes are doubled.
        plain = {name.replace("\\", 2 * "\\"): lag for name, lag in lags.items() if name.isprintable()}
        assert plain.items() <= shown_lags.items()
        assert all(name.isprintable() for name in shown_lags)
        skews = [row["lag_skew"] for row in expected if row["lag_skew"] is not None]
        assert sorted(reported.get("group_lag_skew_ratio", {}).values()) == pytest.approx(sorted(skews))
        since = now - timedelta(hours=24)
        events = {(row["plan_id"], row["event"]) for row in rows.where("plan_events") if row["at"] >= since}
        by_event = Counter(event.lower() for _, event in events)
        shown = {event: value for (_, event), value in reported["plan_events_24h"].items()}
        assert {event: value for event, value in shown.items() if value} == by_event
        assert shown.keys() >= {"proposed", "published", "withdrawn"}
        # What became of hints, from the events: an outcome's event is of the snapshot that settled it.
        hints = {plan for plan, event in events if event == "PUBLISHED"}
        settled = {plan: row["outcome"] for row in rows.where("outcomes") for plan in [row["plan_id"]]}
        settled |= {plan: "WITHDRAWN" for plan, event in events if event == "WITHDRAWN" and plan in hints}
        by_outcome: Counter[str] = Counter()
        for (_, outcome, _), value in reported["hint_outcomes_24h"].items():
            by_outcome[outcome] += int(value)
        assert +by_outcome == Counter(outcome.lower() for outcome in settled.values())
        published = [row["at"] for row in rows.where("plan_events") if row["event"] == "PUBLISHED"]
        assert reported.get("last_publish_timestamp_seconds", {}) == (
            {(cluster,): max(published).timestamp()} if published else {}
        )


def test_what_is_not_known_has_no_value_and_what_never_drains_is_infinite() -> None:
    groups = {row.group_id: row for row in groups_of_each_kind()}
    shown = parse(render_metrics(overview_of(*groups.values()), {}).decode())
    for row in groups.values():
        key = (row.cluster, row.group_id if row.group_id != HIDDEN else "pay\\u202elor")
        assert shown["group_lag_records"].get(key) == row.lag_records
        behind_s = None if row.time_lag_ms is None else row.time_lag_ms / 1000
        assert shown["group_time_lag_seconds"].get(key) == behind_s
        if row.drain_time_ms in {None, math.inf}:
            assert shown["group_drain_seconds"].get(key) == row.drain_time_ms
    assert shown["group_drain_seconds"]["orders", "payments"] == 600
    assert HIDDEN in groups


def test_hints_are_counted_by_the_reason_of_their_end() -> None:
    recent, before = NOW - timedelta(hours=1), NOW - timedelta(hours=25)
    ends = [
        ("a", "APPLIED", "AS_HINTED", recent),
        ("b", "IGNORED", "NEWER_HINT", recent),
        ("c", "IGNORED", "NEWER_HINT", recent),
        ("d", "EXPIRED", "MEMBERS_CHANGED", recent),
        ("e", "EXPIRED", "NOT_FOLLOWED", before),
        # Of an earlier version, and a code that does not belong to its outcome.
        ("f", "APPLIED", None, recent),
        ("g", "EXPIRED", None, recent),
        ("h", "IGNORED", "AS_HINTED", recent),
        # Followed, then taken back.
        ("i", "APPLIED", "AS_HINTED", recent),
    ]
    outcomes = [
        {"plan_id": plan, "outcome": outcome, "reason_code": code, "slot": slot}
        for plan, outcome, code, slot in ends
    ]
    events = [
        {"plan_id": plan, "event": event, "at": at}
        for plan, event, at in [
            ("i", "PUBLISHED", before),
            ("i", "WITHDRAWN", recent),
            # Approved, never published: no hint was withdrawn.
            ("j", "WITHDRAWN", recent),
            ("k", "PUBLISHED", before),
            ("k", "WITHDRAWN", before),
        ]
    ]
    counts = PlanRows(events, outcomes, None).count(NOW)
    shown = parse(render_metrics(overview_of(), {"orders": counts}).decode())["hint_outcomes_24h"]
    assert {key[1:]: value for key, value in shown.items()} == {
        ("applied", "as_hinted"): 2,
        ("ignored", "newer_hint"): 2,
        ("ignored", "other_assignor"): 0,
        ("ignored", "no_members"): 0,
        ("ignored", "unknown"): 1,
        ("expired", "members_changed"): 1,
        ("expired", "not_followed"): 0,
        ("expired", "unknown"): 1,
        ("withdrawn", "withdrawn"): 1,
    }


def test_groups_of_unknown_and_of_the_largest_lag_have_metrics_and_the_others_are_counted() -> None:
    groups = groups_of_each_kind()
    reported = parse(render_metrics(overview_of(*groups), {}, max_groups=2).decode())
    numbers = Counter(row.cluster for row in groups)
    assert reported["groups"] == {(cluster,): number for cluster, number in numbers.items()}
    assert reported["groups_left_out"] == {(cluster,): number - 2 for cluster, number in numbers.items()}
    for cluster in numbers:
        of_cluster = [row for row in groups if row.cluster == cluster]
        unknown = {printable(row.group_id) for row in of_cluster if row.num_unknown_partitions}
        lags = {printable(row.group_id): row.lag_records or 0 for row in of_cluster}
        shown = {key[1] for key in reported["group_members"] if key[0] == cluster}
        assert len(shown) == 2
        assert len(shown & unknown) == min(2, len(unknown))
        left = lags.keys() - shown - unknown
        assert all(lags[name] >= max((lags[other] for other in left), default=0) for name in shown - unknown)


def test_a_name_cannot_add_a_line() -> None:
    (row, *_) = groups_of_each_kind()
    line = 'evenlag_group_lag_records{cluster="orders",group="forged"} 7'
    hostile = type(row)("orders", f'a"}} 1\n{line}', lag_records=1)
    shown = parse(render_metrics(overview_of(hostile), {'or"ders\n': ClusterCounts()}).decode())
    assert len(shown["group_lag_records"]) == 1
    assert list(shown["group_lag_records"].values()) == [1]


def test_no_two_names_have_the_same_series() -> None:
    (row, *_) = groups_of_each_kind()
    names = ("a\n", "a\\n", "a\\\n", "a\\\\n", "a\\\\\n")
    groups = [type(row)("orders", name, lag_records=number) for number, name in enumerate(names)]
    shown = parse(render_metrics(overview_of(*groups), {}).decode())
    assert sorted(shown["group_lag_records"].values()) == list(range(len(names)))
    assert shown["group_lag_records"]["orders", "a\\n"] == 0
    queries = [manifest_text("keda", "orders", name, None, "http://p", 3) for name in names]
    for number, query in enumerate(queries):
        (trigger,) = yaml.safe_load(query)["spec"]["triggers"]
        _, _, group = trigger["metadata"]["query"].removesuffix("})").partition("group=")
        assert shown["group_lag_records"]["orders", json.loads(group)] == number


def test_the_server_has_them_and_says_when_the_policy_is_broken(site: Site) -> None:
    from tests.evenlag.overview.test_server import ask

    site.groups = groups_of_each_kind()
    status, text, headers = ask(f"{site.url}/metrics")
    assert status == 200
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert sum(parse(text)["groups"].values()) == len(site.groups)
    site.groups = None
    status, text, _ = ask(f"{site.url}/metrics")
    assert (status, "line 3" in text) == (503, False)


def test_the_command_prints_them_and_writes_a_file_for_a_collector(evenlag: Evenlag, tmp_path: Path) -> None:
    lake = extract("brokers", tmp_path / "lake")
    where = ["--lake", str(lake.root)]
    printed = parse(evenlag("metrics", *where).stdout)
    of_cluster = evenlag("lag", *where, "--cluster", lake.clusters[0], "--json").stdout
    listed: list[dict[str, Any]] = json.loads(of_cluster)["groups"]
    assert {key[1] for key in printed["group_members"]} >= {row["group_id"] for row in listed}
    file = tmp_path / "evenlag.prom"
    assert evenlag("metrics", *where, "--textfile", str(file)).stdout == ""
    assert parse(file.read_text(encoding="utf-8")).keys() == printed.keys()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evenlag.prom", "lake"]
    wrong = evenlag("metrics", *where, "--textfile", str(tmp_path / "evenlag.txt"))
    assert wrong.exit_code == 2
    assert "ends in .prom" in wrong.stderr


def test_the_page_lists_each_metric_and_no_other() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`evenlag_[^|]+) \|", page, flags=re.MULTILINE)
    listed = re.findall(r"evenlag_\w+", " ".join(cells))
    text = render_metrics(overview_of(*groups_of_each_kind()), {"orders": ClusterCounts()}).decode()
    assert sorted(listed) == sorted(family.name for family in text_string_to_metric_families(text))
