"""`evenlag advise`: members needed, the numbers behind it, and manifests by the schemas of their APIs."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from evenlag.cli.manifests import manifest_text
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import FORECASTS, HOURLY_RATES, MEMBERS, SPEEDS
from evenlag.monitoring.alerts import find_changes
from evenlag.overview.metrics import render_metrics
from evenlag.overview.model import Overview, Sign
from evenlag.overview.page import Choice, overview_page
from evenlag.overview.read_cluster import read_cluster
from evenlag.planning.advice_snapshot import advise_snapshot
from evenlag.policy.loader import parse_policy
from tests.support.lakes.command_lake import SECOND, SECOND_SLOT, TOPIC_ID, write_rows

if TYPE_CHECKING:
    from pathlib import Path

    from evenlag.policy.loader import LoadedPolicy
    from tests.support.fixtures.command import Evenlag

POLICY = """
lake: {lake}
clusters:
  orders: {{bootstrap_servers: "localhost:9092"}}
groups:
  - {{match: payments, target_wait_s: 5}}
"""
RATES = (60.0, 60.0, 60.0, 20.0)
# Fields, and the types of their values, that the two APIs have; a list has one kind of items, and a field
# with a star is required. From the CustomResourceDefinition of keda.sh/v1alpha1 (kedacore/keda, 756b2de) and
# the API reference of autoscaling/v2.
_METADATA: Final = {"name": str}
KEDA: Final = {
    "apiVersion": {"keda.sh/v1alpha1"},
    "kind": {"ScaledObject"},
    "metadata": _METADATA,
    "*spec": {
        "*scaleTargetRef": {"*name": str, "apiVersion": str, "kind": str},
        "pollingInterval": int,
        "cooldownPeriod": int,
        "minReplicaCount": int,
        "maxReplicaCount": int,
        "*triggers": [
            {
                "*type": {"prometheus"},
                "metricType": {"AverageValue", "Value", "Utilization"},
                # Texts only, whatever they mean.
                "*metadata": {
                    "*serverAddress": str,
                    "*query": str,
                    "*threshold": str,
                    "ignoreNullValues": {"true", "false"},
                },
            }
        ],
    },
}
HPA: Final = {
    "apiVersion": {"autoscaling/v2"},
    "kind": {"HorizontalPodAutoscaler"},
    "metadata": _METADATA,
    "*spec": {
        "*scaleTargetRef": {"*name": str, "apiVersion": {"apps/v1"}, "*kind": {"Deployment"}},
        "minReplicas": int,
        "*maxReplicas": int,
        "metrics": [
            {
                "*type": {"External"},
                "external": {
                    "*metric": {"*name": str, "selector": {"matchLabels": {"cluster": str, "group": str}}},
                    "*target": {"*type": {"AverageValue"}, "averageValue": str},
                },
            }
        ],
    },
}


def misfits(value: Any, schema: Any, where: str = "") -> list[str]:
    """Return which parts of a manifest the schema does not have, or requires."""
    if isinstance(schema, dict):
        parts = {name.removeprefix("*"): part for name, part in schema.items()}
        required = {name.removeprefix("*") for name in schema if name.startswith("*")}
        wrong = [f"{where}.{name}" for name in sorted(value.keys() - parts.keys() | required - value.keys())]
        return wrong + [
            each
            for name, part in value.items()
            if name in parts
            for each in misfits(part, parts[name], f"{where}.{name}")
        ]
    if isinstance(schema, list):
        return [each for part in value for each in misfits(part, schema[0], f"{where}[]")]
    fits = value in schema if isinstance(schema, set) else type(value) is schema
    return [] if fits else [where]


@pytest.fixture
def advised(lake: Path, tmp_path: Path) -> Path:
    """A copy of the lake with speeds, a forecast and advice."""
    copy = tmp_path / "advised"
    shutil.copytree(lake, copy)
    head = {"snapshot_id": SECOND, "slot": SECOND_SLOT, "group_id": "payments"}
    parts = [{"topic_id": TOPIC_ID, "topic": "orders", "partition": number} for number in range(len(RATES))]
    names = ("c0-x", "c1-y")
    write_rows(copy, MEMBERS, [head | {"member_id": name, "client_id": f"app-{name}"} for name in names])
    members = [
        {"identity": number, "member_id": name, "speed_records_per_s": 100.0}
        | {"is_bound": False, "confidence": 0.9}
        for number, name in enumerate(names)
    ]
    write_rows(copy, SPEEDS, [head | {"end_read_at": SECOND_SLOT, "members": members, "partitions": []}])
    forecast = [
        part | {"forecast_records_per_s": [rate] * 6} for part, rate in zip(parts, RATES, strict=True)
    ]
    about = {"read_at": SECOND_SLOT, "horizon_s": 1_800, "model": "last_rate", "partitions": forecast}
    write_rows(copy, FORECASTS, [head | about])
    reader = LakeReader(str(copy))
    snapshot = reader.latest_snapshot("orders")
    assert snapshot is not None
    assert advise_snapshot(SnapshotReader(reader, snapshot), loaded(copy).policy) == {"advised": 1}
    return copy


def loaded(lake: Path) -> LoadedPolicy:
    return parse_policy(POLICY.format(lake=lake), environ={})


def test_the_numbers_behind_the_advice_are_in_the_answer(evenlag: Evenlag, advised: Path) -> None:
    found = json.loads(evenlag("advise", "payments", "--lake", advised, "--json").stdout)
    # Two members of 100 do 196 of 200 records a second.
    wanted = {"num_members": 2, "members_needed": 3, "reason": "rate", "work_per_s": 200.0}
    assert {name: found[name] for name in wanted} == wanted
    assert (found["target_wait_s"], found["is_target_met"], found["wait_ms"]) == (5, False, None)
    work = {row["member_id"]: row["work_per_s"] for row in found["members"]}
    assert work.keys() == {"c0-x", "c1-y"}
    shown = evenlag("advise", "payments", "--lake", advised, COLUMNS="120").stdout
    assert "payments needs 3 members and has 2. The rate of arrivals decides." in shown
    assert "app-c0-x" in shown


def test_the_busiest_hour_of_a_week_is_that_of_the_groups_partitions(evenlag: Evenlag, advised: Path) -> None:
    assert json.loads(evenlag("advise", "payments", "--lake", advised, "--json").stdout)["peak_hour"] is None
    midnight = SECOND_SLOT.replace(hour=0, minute=0, second=0, microsecond=0)
    rows = [
        # Of another topic; longer ago; and 150 and 250 of the group.
        (1, TOPIC_ID, "others", 0, 900.0),
        (24 * 8, TOPIC_ID, "orders", 0, 900.0),
        *((2, TOPIC_ID, "orders", number, 50.0) for number in range(3)),
        *((26, TOPIC_ID, "orders", number, 125.0) for number in range(2)),
    ]
    ids = {"from_snapshot_id": "s-1", "to_snapshot_id": "s-2"}
    for ago, topic_id, topic, number, rate in rows:
        hour = midnight - timedelta(hours=ago)
        where = {"topic_id": topic_id, "topic": topic, "partition": number, "hour": hour, "day": hour.date()}
        write_rows(advised, HOURLY_RATES, [ids | where | {"arrival_rate_records_per_s": rate}])
    found = json.loads(evenlag("advise", "payments", "--lake", advised, "--json").stdout)
    assert found["peak_records_per_s"] == 250.0
    assert found["peak_hour"].startswith(f"{midnight - timedelta(hours=26):%Y-%m-%dT22:00}")
    assert "250.0 from" in (shown := evenlag("advise", "payments", "--lake", advised, COLUMNS="140").stdout)
    assert "3 members' work" in shown


def test_a_group_without_advice_is_not_found(evenlag: Evenlag, advised: Path, lake: Path) -> None:
    answer = evenlag("advise", "paymints", "--lake", advised)
    assert answer.exit_code == 4
    assert "has no advice about 'paymints'; did you mean 'payments'?" in " ".join(answer.stderr.split())
    assert evenlag("advise", "payments", "--lake", lake).exit_code == 4


def test_manifests_have_only_what_their_schemas_have(evenlag: Evenlag, advised: Path) -> None:
    for kind, schema in (("keda", KEDA), ("hpa", HPA)):
        text = evenlag("advise", "payments", "--lake", advised, "--manifest", kind).stdout
        found = yaml.safe_load(text)
        assert misfits(found, schema) == []
        assert found["spec"]["scaleTargetRef"]["name"] == "payments"
        assert "from ten members up" in " ".join(text.replace("#", "").split())
    (metric,) = found["spec"]["metrics"]
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}
    assert found["spec"]["maxReplicas"] == len(RATES)
    assert misfits({"spec": {"minReplica": 1, "maxReplicas": "4"}}, HPA) == [
        ".spec.minReplica",
        ".spec.scaleTargetRef",
        ".spec.maxReplicas",
    ]


def test_a_query_of_prometheus_has_no_escapes_that_it_does_not_know() -> None:
    found = yaml.safe_load(manifest_text("keda", "c", 'a"\U0001f600', None, "http://p", 3))
    (trigger,) = found["spec"]["triggers"]
    # Of a character beyond 16 bits JSON escapes two surrogates, which PromQL refuses.
    wanted = 'max(evenlag_group_members_needed{cluster="c",group="a\\"\U0001f600"})'
    assert trigger["metadata"]["query"] == wanted


def test_the_lag_of_groups_says_what_they_need_and_whether_the_target_is_met(
    evenlag: Evenlag, advised: Path
) -> None:
    (row,) = json.loads(evenlag("lag", "--lake", advised, "--json").stdout)["groups"]
    assert (row["members_needed"], row["is_target_met"]) == (3, False)
    shown = evenlag("lag", "--lake", advised, "-o", "wide").stdout
    assert "needed" in shown
    assert "missed since" in shown


def test_overview_metrics_and_alerts_have_it(advised: Path) -> None:
    now = SECOND_SLOT + timedelta(minutes=1)
    state, groups = read_cluster(LakeReader(str(advised)), "orders", now)
    assert Sign.TARGET in groups[0].signs
    page = overview_page(Overview((state,), groups), Choice())
    assert "2 members, 3 needed" in page
    text = render_metrics(Overview((state,), groups), {}).decode()
    labels = 'cluster="orders",group="payments"'
    assert f'evenlag_group_members_needed{{{labels},reason="rate"}} 3.0' in text
    assert f"evenlag_group_target_met{{{labels}}} 0.0" in text
    assert f"evenlag_group_target_wait_seconds{{{labels}}} 5.0" in text
    raised = {fault.kind: fault for fault in find_changes(loaded(advised), "orders", now).raised}
    assert raised["TARGET_MISSED"].subject == "payments"
    assert raised["TARGET_MISSED"].message.startswith("records wait longer than 5 s: missed since")
