"""What is judged of Airflow: its connection, its DAG files and its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.airflow_rest import AirflowRest, AirflowRestError
from evenlag.bundle import dag_texts
from evenlag.doctor.airflow_checks import (
    airflow_checks,
    check_connection,
    check_dag_files,
    dags_findings,
    health_findings,
    heartbeat_findings,
    imports_findings,
    pools_findings,
)
from evenlag.doctor.model import Verdict
from evenlag.policy.loader import parse_policy
from tests.evenlag.doctor.verdicts import NOW, worst

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        ("spark://local[*]", "failed"),
        ('{"conn_type": "spark"}', "failed"),
        ('{"conn_type": "spark", "host": "local[*]"}', "ok"),
        ("null", "failed"),
        ('{"conn_type": "spark_connect", "host": "localhost", "port": 15002}', "ok"),
        ('{"conn_type": "spark_connect", "host": "h", "extra": "{\\"use_ssl\\": true}"}', "ok"),
        ('{"conn_type": "spark_connect", "host": "h", "extra": {"use_ssl": "yes"}}', "failed"),
        ('{"conn_type": "spark_connect"}', "failed"),
        ("spark-connect://:s3cret@localhost:15002?use_ssl=true", "ok"),
        ("spark-connect://", "failed"),
        ('{"conn_type": "http", "host": "localhost"}', "failed"),
        ("", "skipped"),
    ],
)
def test_the_spark_connection_is_json_with_a_master(value: str, verdict: str) -> None:
    assert worst(check_connection({"AIRFLOW_CONN_SPARK_DEFAULT": value})) == verdict


def test_dag_files_of_another_version_are_told(tmp_path: Path) -> None:
    environ = {"AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path)}
    assert worst(check_dag_files(environ)) == "failed"
    for name, text in dag_texts().items():
        (tmp_path / "evenlag_dags" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "evenlag_dags" / name).write_text(text, encoding="utf-8")
    assert worst(check_dag_files(environ)) == "ok"
    (tmp_path / "evenlag_dags" / "lag_rebalance.py").write_text("# older", encoding="utf-8")
    [found] = check_dag_files(environ)
    assert found.message.endswith("of another version: lag_rebalance.py")
    assert found.remedy == f"evenlag dags install {tmp_path}"


def test_a_dag_file_of_one_s_own_needs_no_installed_files(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "ours.py").write_text("from evenlag.airflow import make_dags\n", encoding="utf-8")
    [found] = check_dag_files({"AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path)})
    assert (found.verdict, found.message) == (Verdict.OK, f"{tmp_path}/team/ours.py calls make_dags")


@pytest.mark.parametrize(
    ("slots", "verdict", "expected"),
    [
        ({"default_pool": 128, "spark jobs": 2}, "ok", "the pools exist: default_pool, spark jobs"),
        ({"default_pool": -1, "spark jobs": -1}, "ok", "the pools exist"),
        ({"default_pool": 128, "spark jobs": None}, "failed", "the pool spark jobs does not exist"),
        ({"default_pool": 128, "spark jobs": 0}, "failed", "the pool spark jobs has no slots"),
    ],
)
def test_a_pool_that_starts_no_task_is_a_failure(
    slots: dict[str, int | None], verdict: str, expected: str
) -> None:
    [found] = pools_findings({"default_pool": ["a.publish"], "spark jobs": ["a.observe", "a.decide"]}, slots)
    assert found.verdict.value == verdict
    assert found.message.startswith(expected)
    if verdict == "failed":
        assert found.remedy == "airflow pools set 'spark jobs' 2 evenlag"
        assert "a.observe and 1 more" in found.message


@pytest.mark.parametrize(("num_slots", "verdict"), [(2, "warning"), (3, "ok"), (-1, "ok")])
def test_background_tasks_that_can_take_all_slots_of_the_cycles_pool_are_a_warning(
    num_slots: int, verdict: str
) -> None:
    background = ["a_assignment_audit.audit__c", "a_table_maintenance.maintain_tables"]
    [found] = pools_findings({"p": ["a_lag_rebalance__c.observe", *background]}, {"p": num_slots})
    assert found.verdict.value == verdict
    assert ("cycles wait in the pool p" in found.message) == (verdict == "warning")
    apart = {"p": ["a_lag_rebalance__c.observe"], "p_background": background}
    assert worst(pools_findings(apart, dict.fromkeys(apart, 1))) == "ok"


def test_airflow_s_answers_are_judged() -> None:
    healthy = {part: {"status": "healthy"} for part in ("metadatabase", "scheduler", "dag_processor")}
    assert worst(health_findings(healthy)) == "ok"
    [found] = health_findings(healthy | {"scheduler": {"status": "unhealthy"}})
    assert found.message == "scheduler is unhealthy"
    assert worst(imports_findings({"import_errors": []})) == "ok"
    broken = {"filename": "lag.py", "stack_trace": "Traceback\n  …\nDagPolicyError: no file\n"}
    assert imports_findings({"import_errors": [broken]})[0].message == "lag.py: DagPolicyError: no file"
    assert worst(dags_findings({"a": {"is_paused": False}})) == "ok"
    assert worst(dags_findings({"a": {"is_paused": True}})) == "warning"
    assert worst(dags_findings({"a": None})) == "failed"
    assert worst(heartbeat_findings(300, ["*/5 * * * *"], NOW)) == "ok"
    assert worst(heartbeat_findings(300, ["*/5 * * * *", "* * * * *"], NOW)) == "warning"
    assert worst(heartbeat_findings(300, [], NOW)) == "skipped"
    # A month is longer than any timeout.
    assert worst(heartbeat_findings(300, ["0 0 L * *"], NOW)) == "ok"


@pytest.mark.parametrize(
    ("version", "mode", "triggerer", "verdict"),
    [
        ("3.1.8", "approve", None, "failed"),
        ("3.2.1", "approve", "unhealthy", "failed"),
        ("3.2.1", "approve", "healthy", "ok"),
        ("3.2.1", "auto", None, "ok"),
        ("3.3.0", "approve", None, "ok"),
    ],
)
def test_a_policy_that_asks_needs_the_triggerer_of_an_older_airflow(
    version: str, mode: str, triggerer: str | None, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {part: {"status": "healthy"} for part in ("metadatabase", "scheduler", "dag_processor")}
    answers = {
        "version": {"version": version},
        "monitor/health": {**parts, "triggerer": {"status": triggerer}},
    }
    monkeypatch.setattr(AirflowRest, "get", lambda _, path: answers[path])
    text = f"lake: x\nclusters: {{c: {{bootstrap_servers: h:1}}}}\ngroups: [{{match: g, mode: {mode}}}]\n"
    policy = parse_policy(text, environ={}).policy
    checks = {check.full_name: check for check in airflow_checks(policy, "http://127.0.0.1:1", {})}
    [found] = checks["airflow.health"].look()
    assert found.verdict.value == verdict
    if verdict == "failed":
        assert found.message.endswith("no answer to a request for approval arrives")
        assert found.remedy.endswith("airflow triggerer")


@pytest.mark.parametrize(
    ("status", "verdict", "expected"),
    [
        (None, "ok", "/evenlag/overview opens"),
        (404, "warning", "the API server has no evenlag[airflow]"),
        (503, "failed", "EVENLAG_CONFIG"),
        (403, "failed", "with DAG prefixes EVENLAG_REPORT_LAKES"),
        (401, "failed", "EVENLAG_AIRFLOW_TOKEN"),
    ],
)
def test_the_entry_of_the_navigation_has_to_open(
    status: int | None, verdict: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(_: AirflowRest, method: str, path: str) -> bytes:
        assert (method, path) == ("GET", "/evenlag/overview")
        if status is not None:
            raise AirflowRestError("refused", "the reason", status)
        return b"<html>"

    monkeypatch.setattr(AirflowRest, "send", send)
    monkeypatch.setattr(AirflowRest, "get", lambda _, path, **query: {"dags": [], "path": path, **query})
    checks = {check.full_name: check for check in airflow_checks(None, "http://127.0.0.1:1", {})}
    [found] = checks["airflow.page"].look()
    assert found.verdict.value == verdict
    assert expected in f"{found.message} {found.remedy}"


def test_an_airflow_that_is_not_there_fails_what_asks_it() -> None:
    checks = {check.full_name: check for check in airflow_checks(None, "http://127.0.0.1:1", {})}
    [found] = checks["airflow.health"].look()
    assert found.verdict is Verdict.FAILED
    assert "127.0.0.1:1" in found.message
