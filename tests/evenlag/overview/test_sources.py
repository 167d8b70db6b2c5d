"""Which clusters the report on Airflow's page knows: of one policy, or of several lakes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from evenlag.errors import JobError
from evenlag.overview.views import LAKES_VARIABLE, OverviewView, ReportSource, answer, find_sources
from tests.truth.recorded_lakes import extract

if TYPE_CHECKING:
    from pathlib import Path


def test_each_lake_s_clusters_bear_the_prefix_of_its_dags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = str(extract("hints", tmp_path / "hints").root)
    lakes = {"": lake, "team_b_": lake, "gone_": str(tmp_path / "nothing")}
    monkeypatch.setenv(LAKES_VARIABLE, json.dumps(lakes))
    found = find_sources()
    clusters = sorted({source.cluster for source in found.values()})
    assert len(clusters) == 2
    assert list(found) == sorted([*clusters, *(f"team_b_{cluster}" for cluster in clusters)])
    north = found["team_b_north"]
    assert north == ReportSource("team_b_", "north", lake)
    # Their policies, which say whether one DAG has all clusters, are not known.
    for dag_id in ("team_b_lag_rebalance__north", "team_b_lag_rebalance"):
        assert north.is_readable(dag_id.__eq__)
    assert not north.is_readable("lag_rebalance__north".__eq__)


@pytest.mark.parametrize(("is_grouped", "dag_id"), [(False, "lag_rebalance__main"), (True, "lag_rebalance")])
def test_the_dag_of_the_policy_gives_access(
    is_grouped: bool, dag_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "evenlag.yaml"
    policy.write_text(
        f"lake: {tmp_path}\ngroup_clusters: {str(is_grouped).lower()}\n"
        "clusters: {main: {bootstrap_servers: 'kafka:9092'}}\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("EVENLAG_CONFIG", str(policy))
    monkeypatch.delenv(LAKES_VARIABLE, raising=False)
    source = find_sources()["main"]
    assert source.is_readable(lambda asked: asked == dag_id)
    assert not source.is_readable(lambda asked: asked != dag_id)


@pytest.mark.parametrize("value", ["s3a://bucket/lake", "[]", '{"a_": ""}', '{"a_": 1}'])
def test_a_value_that_names_no_lakes_is_refused_with_an_example(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LAKES_VARIABLE, value)
    with pytest.raises(JobError, match=r'EVENLAG_REPORT_LAKES is no JSON object .*"team_b_": "/srv/lake"'):
        find_sources()


def test_a_server_without_a_policy_names_the_setting_and_quotes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVENLAG_CONFIG", raising=False)
    monkeypatch.delenv(LAKES_VARIABLE, raising=False)
    overview = OverviewView().answer(lambda _: True, {})
    for shown in (answer(lambda _: True, None, None, 24), overview):
        assert shown.status_code == 503
        assert b"set EVENLAG_CONFIG, or with DAG prefixes EVENLAG_REPORT_LAKES" in bytes(shown.body)
    (tmp_path / "evenlag.yaml").write_text("lake: {secret-name: 1}\n", encoding="utf-8")
    shown = answer(lambda _: True, None, None, 24)
    assert shown.status_code == 503
    assert b"secret-name" not in bytes(shown.body)
    assert b"The policy cannot be read" in bytes(shown.body)
