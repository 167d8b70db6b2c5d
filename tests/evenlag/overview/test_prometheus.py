"""Prometheus itself scrapes `evenlag serve`, by the configuration and with the rules that are shipped."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module, util
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import ADVICE, LAG, OUTCOMES, PLANS, SNAPSHOTS
from evenlag.lake.writer import append_once
from evenlag.overview.metrics import OUTCOME_REASONS, ClusterCounts, render_metrics
from evenlag.publishing.event_log import append_plan_events, plan_event
from evenlag.queries.advice import SHOWN_COLUMNS
from tests.evenlag.overview.test_metric_families import parse
from tests.evenlag.overview.test_server import TOKEN, ask
from tests.support.overview.prometheus import (
    MONITORING,
    Prometheus,
    dashboard_expressions,
    metrics_of,
    program,
    promtool,
    running_prometheus,
)
from tests.support.overview.rows import groups_of_each_kind, overview_of
from tests.support.waiting import wait_until
from tests.truth.recorded_lakes import extract

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

RULES = MONITORING / "evenlag.rules.yml"
DASHBOARD = MONITORING / "dashboard.json"


def rules() -> dict[str, Mapping[str, Any]]:
    """The alert rules by name."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def add_recent_plans(root: str) -> None:
    """A plan that was followed a moment ago, as recorded lakes grow old, and a target that is missed."""
    reader, now = LakeReader(root), datetime.now(UTC)
    found = reader.read_newest(SNAPSHOTS, "end_read_at", columns=SNAPSHOTS.column_names, filters=[])
    newest = found.to_pylist()[0]
    head = {name: newest[name] for name in ("cluster", "day", "snapshot_id", "slot", "end_read_at")}
    groups = reader.read(LAG, columns=["group_id"], filters=snapshot_filters(newest))["group_id"]
    told = {"num_members": 1, "members_needed": 2, "reason": "rate", "target_wait_s": 5, "met_share": 0.5}
    told |= {"is_target_met": False, "missed_since": now, "group_id": groups[0].as_py()}
    append_once(root, ADVICE, [dict.fromkeys(ADVICE.column_names) | head | told], None)
    plan = reader.read(PLANS).to_pylist()[-1]
    plan |= {"plan_id": "of-this-test", "day": now.date()}
    event = plan_event(plan, "PUBLISHED", reason=None, actor="test", at=now)
    append_plan_events(root, [event])
    row = dict.fromkeys(OUTCOMES.column_names) | {
        name: plan[name] for name in ("cluster", "day", "snapshot_id", "plan_id", "group_id", "run_id")
    }
    end = {"slot": now - timedelta(minutes=5), "outcome": "APPLIED", "reason_code": "AS_HINTED"}
    append_once(root, OUTCOMES, [row | end], None)


@contextmanager
def serving(root: str, token_file: Path) -> Iterator[str]:
    """`evenlag serve` with a token, and its address."""
    arguments = [sys.executable, "-m", "evenlag", "serve", "--lake", root, "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENLAG_")}
    environment["EVENLAG_SERVE_TOKEN_FILE"] = str(token_file)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = re.match(r"http://(127\.0\.0\.1:\d+)/", process.stdout.readline())
            assert address
            yield address[1]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(600)


@dataclass(frozen=True, slots=True)
class Monitored:
    """A server of evenlag that a Prometheus scrapes.

    prometheus: The Prometheus; it has scraped once.
    text: What `/metrics` answers.
    """

    prometheus: Prometheus
    text: str


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    program("prometheus")
    lake = extract("brokers", tmp_path_factory.mktemp("brokers"))
    add_recent_plans(str(lake.root))
    folder = tmp_path_factory.mktemp("monitoring")
    for path in MONITORING.iterdir():
        shutil.copy(path, folder)
    (folder / "evenlag-token").write_text(f"{TOKEN}\n")
    (folder / "evenlag-token").chmod(0o600)
    with serving(str(lake.root), folder / "evenlag-token") as address:
        # The first answer takes longest: the server reads every snapshot of the trends.
        status, text, _ = ask(f"http://{address}/metrics", Authorization=f"Bearer {TOKEN}")
        assert status == 200
        config = (MONITORING / "prometheus.yml").read_text(encoding="utf-8")
        for shipped, short in (
            ("evenlag.example:8760", address),
            # No shorter than the time that an answer may take.
            ("_interval: 1m", "_interval: 30s"),
        ):
            assert shipped in config
            config = config.replace(shipped, short)
        (folder / "prometheus.yml").write_text(config, encoding="utf-8")
        with running_prometheus(folder / "prometheus.yml") as prometheus:
            prometheus.wait_for('up{job="evenlag"} == 1')
            yield Monitored(prometheus, text)


def test_promtool_accepts_configuration_rules_and_metrics_and_the_rules_pass_their_tests() -> None:
    shown = promtool("check", "config", "--syntax-only", str(MONITORING / "prometheus.yml"))
    assert "SUCCESS" in shown
    assert f"SUCCESS: {len(rules())} rules found" in promtool("check", "rules", str(RULES))
    assert "SUCCESS" in promtool("test", "rules", str(RULES.with_suffix(".test.yml")))
    counts = {"orders": ClusterCounts(published_at=datetime(2026, 3, 1, tzinfo=UTC))}
    text = render_metrics(overview_of(*groups_of_each_kind()), counts).decode()
    # Its remarks on names and units are an exit code of 3.
    assert promtool("check", "metrics", text=text) == ""


def test_each_rule_has_a_unit_test_in_which_it_fires() -> None:
    tests = yaml.safe_load(RULES.with_suffix(".test.yml").read_text(encoding="utf-8"))["tests"]
    fires = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fires == set(rules())


def test_each_alert_is_on_the_page_and_names_a_part_of_the_docs() -> None:
    page = (MONITORING.parents[1] / "docs" / "metrics.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(Evenlag\w+)` \| (\w+) \|", page, flags=re.MULTILINE)
    assert listed == [(name, rule["labels"]["severity"]) for name, rule in rules().items()]
    for rule in rules().values():
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        text = (MONITORING.parents[1] / path).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, rule["annotations"]["runbook"]


def test_each_reason_is_on_the_page() -> None:
    page = (MONITORING.parents[1] / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| `(\w+)` \|", page, flags=re.MULTILINE)
    listed = {(outcome, reason) for outcomes, reason in rows for outcome in re.findall(r"\w+", outcomes)}
    assert listed == {(outcome.lower(), reason.lower()) for outcome, reason in OUTCOME_REASONS}


def test_rules_and_dashboard_use_metrics_that_exist() -> None:
    counts = {"orders": ClusterCounts(published_at=datetime(2026, 3, 1, tzinfo=UTC))}
    advice = dict.fromkeys(SHOWN_COLUMNS) | {"target_wait_s": 5, "is_target_met": False, "met_share": 0.5}
    advice |= {"missed_since": datetime(2026, 3, 1, tzinfo=UTC), "members_needed": 3, "reason": "rate"}
    first, *others = groups_of_each_kind()
    groups = (replace(first, advice=advice, speeds=(7.0, 9.0, 40.0)), *others)
    text = render_metrics(overview_of(*groups), counts).decode()
    for name, speed in (("min", 7.0), ("median", 9.0), ("max", 40.0)):
        assert list(parse(text)[f"group_member_speed_{name}_records_per_second"].values()) == [speed]
    known = {f"evenlag_{name}" for name in parse(text)}
    used = {name: metrics_of(rule["expr"]) for name, rule in rules().items()}
    used |= {name: metrics_of(expression) for name, expression in dashboard_expressions().items()}
    assert {name: metrics - known for name, metrics in used.items() if not metrics or metrics - known} == {}


@pytest.mark.extended
def test_prometheus_has_each_value_that_the_server_has(monitored: Monitored) -> None:
    stored: dict[str, dict[tuple[str, ...], float]] = {}
    for sample in monitored.prometheus.wait_for('{job="evenlag", __name__=~"evenlag_.+"}'):
        labels = sample["metric"]
        name = labels["__name__"].removeprefix("evenlag_")
        key = (name, labels["cluster"], *(labels[each] for each in _OWN if each in labels))
        stored.setdefault(name, {})[key[1:]] = float(sample["value"][1])
    expected = parse(monitored.text)
    assert {name: values for name, values in expected.items() if values} == stored
    assert math.inf in stored["group_drain_seconds"].values()
    assert stored["hint_outcomes_24h"]["two-brokers", "applied", "as_hinted"] >= 1


_OWN = ("group", "event", "outcome", "reason")


@pytest.mark.extended
def test_each_expression_of_the_dashboard_has_values(monitored: Monitored) -> None:
    found = {name: monitored.prometheus.query(each) for name, each in dashboard_expressions().items()}
    assert [name for name, samples in found.items() if not samples] == []
    now = time.time()
    for name, expression in dashboard_expressions().items():
        values = {"query": expression, "start": f"{now - 3600}", "end": f"{now}", "step": "60"}
        assert monitored.prometheus.get("query_range", **values)["resultType"] == "matrix", name


@pytest.mark.extended
def test_the_variables_of_the_dashboard_list_clusters_and_groups(monitored: Monitored) -> None:
    variables = json.loads(DASHBOARD.read_text(encoding="utf-8"))["templating"]["list"]
    for variable in variables[1:]:
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
        match = selector.replace("$cluster", ".*")
        values = monitored.prometheus.get(f"label/{label}/values", **{"match[]": match})
        listed = {key[-1] for key in parse(monitored.text)["group_lag_records"]}
        assert (set(values) == listed) if label == "group" else (values == ["two-brokers"])


@pytest.mark.extended
def test_prometheus_evaluates_the_rules_without_an_error(monitored: Monitored) -> None:

    def found() -> dict[str, Any]:
        groups = monitored.prometheus.get("rules")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    wait_until(lambda: all(rule["health"] == "ok" for rule in found().values()), what=found)
    assert found().keys() == rules().keys()
    assert all(not rule.get("lastError") for rule in found().values())
    # The recorded lake has no new snapshot, and a group that does not drain.
    monitored.prometheus.wait_for('ALERTS{alertname="EvenlagSnapshotOverdue", cluster="two-brokers"}')
    monitored.prometheus.wait_for('ALERTS{alertname="EvenlagGroupNotDraining"}')
    assert not monitored.prometheus.query('ALERTS{alertname="EvenlagMetricsAbsent"}')


def test_grafanas_own_types_know_each_part_of_the_dashboard() -> None:
    if util.find_spec("grafana_foundation_sdk") is None:
        why = "grafana-foundation-sdk is not installed: it is in the extra `dev`"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    package = "grafana_foundation_sdk"
    import_module(f"{package}.cog.plugins").register_default_plugins()
    given = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    board = import_module(f"{package}.models.dashboard").Dashboard.from_json(given)
    kept = json.loads(import_module(f"{package}.cog.encoder").JSONEncoder().encode(board))
    # What a type does not know is lost on the way.
    assert list(lost(given, kept, "dashboard")) == []
    assert len({panel["id"] for panel in given["panels"]}) == len(given["panels"])


def lost(given: Any, kept: Any, path: str) -> Iterator[str]:
    """Parts of `given` that `kept` has not, or has otherwise."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            yield from lost(value, kept.get(name, "nothing"), f"{path}.{name}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for place, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from lost(one, other, f"{path}[{place}]")
    elif given != kept:
        yield path


def test_panels_do_not_overlap_and_fit_the_grid() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
