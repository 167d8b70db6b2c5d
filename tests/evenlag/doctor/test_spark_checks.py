"""What is judged of Spark: Java, packages, jars, Pythons and the master."""

from __future__ import annotations

import json
import socket

import pytest

from evenlag.doctor.spark_checks import (
    check_connect,
    check_findings,
    check_master,
    check_packages,
    find_remote,
    jars_findings,
    java_findings,
    python_findings,
    spark_checks,
)
from tests.evenlag.doctor.verdicts import worst


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('openjdk version "17.0.12" 2024-07-16', "ok"),
        ('java version "1.8.0_401"', "failed"),
        ('openjdk version "11.0.2"', "failed"),
        ("Segmentation fault", "failed"),
    ],
)
def test_an_old_java_is_told(text: str, verdict: str) -> None:
    assert worst(java_findings("java", text)) == verdict


def test_packages_jars_and_pythons_have_to_fit() -> None:
    good = {"pyspark": "4.1.3", "pyspark-client": "4.1.3", "delta-spark": "4.4.0"}
    assert worst(check_packages(good)) == "ok"
    assert worst(check_packages(good | {"pyspark-client": "4.1.2"})) == "failed"
    assert worst(check_packages(dict.fromkeys(good))) == "skipped"
    jars = ["delta-spark_4.1_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"]
    assert worst(jars_findings(jars, "f", "4.4.0")) == "ok"
    assert worst(jars_findings(jars, "f", "4.3.0")) == "failed"
    assert worst(jars_findings([*jars, "delta-spark_2.13-4.0.0.jar"], "f", "4.4.0")) == "failed"
    assert worst(jars_findings(jars[:1], "f", "4.4.0")) == "failed"
    assert worst(jars_findings([], "f", "4.4.0")) == "warning"
    assert worst(python_findings("python3", "3.9", "3.11")) == "failed"


def test_a_spark_master_is_knocked_at() -> None:
    connection = '{"conn_type": "spark", "host": "spark://127.0.0.1", "port": 1}'
    found = check_master({"AIRFLOW_CONN_SPARK_DEFAULT": connection})
    assert worst(found) == "failed"
    assert "127.0.0.1:1" in found[0].message
    assert worst(check_master({"EVENLAG_SPARK_MASTER": "local[*]"})) == "ok"
    assert worst(check_master({})) == "skipped"


TOKEN = "s3cret/token"


@pytest.mark.parametrize(
    "environ",
    [
        {
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(
                {"conn_type": "spark_connect", "host": "localhost", "port": 15002, "password": TOKEN}
            )
        },
        {"AIRFLOW_CONN_SPARK_DEFAULT": "spark-connect://:s3cret%2Ftoken@localhost:15002"},
        {"EVENLAG_SPARK_REMOTE": "sc://localhost:15002/;token=s3cret%2Ftoken"},
    ],
    ids=["json", "uri", "variable"],
)
def test_a_connect_server_is_found_where_it_is_named(environ: dict[str, str]) -> None:
    remote = find_remote(environ)
    assert remote is not None
    assert remote.server is not None
    assert remote.server.url == "sc://localhost:15002/;token=s3cret%2Ftoken"
    assert TOKEN not in repr(remote)
    assert remote.source in environ


def test_the_connection_decides_before_the_variable() -> None:
    submit = '{"conn_type": "spark", "host": "local[*]"}'
    environ = {"AIRFLOW_CONN_SPARK_DEFAULT": submit, "EVENLAG_SPARK_REMOTE": "sc://localhost"}
    assert find_remote(environ) is None
    assert worst(check_connect(environ)) == "skipped"
    assert worst(check_master(environ)) == "ok"


def test_a_connect_server_that_does_not_answer_is_told_at_once() -> None:
    environ = {"EVENLAG_SPARK_REMOTE": "sc://127.0.0.1:1"}
    [found] = check_connect(environ)
    assert worst([found]) == "failed"
    assert found.message.startswith("sc://127.0.0.1:1: ")
    assert worst(check_connect({"EVENLAG_SPARK_REMOTE": "http://127.0.0.1:1"})) == "failed"
    assert worst(check_connect({})) == "skipped"
    assert worst(check_master(environ)) == "skipped"


def test_an_interpreter_of_the_jobs_that_is_not_there_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"sc://127.0.0.1:{listening.getsockname()[1]}"
        environ = {"EVENLAG_SPARK_REMOTE": address, "EVENLAG_SPARK_PYTHON": "/nowhere/python"}
        [found] = check_connect(environ)
    assert worst([found]) == "failed"
    assert found.message.startswith("/nowhere/python does not start")


def test_the_server_s_own_check_decides() -> None:
    line = "2026-11-23 02:11:16.465Z INFO spark_jobs.connect_server: the server answers\n"
    [found] = check_findings("sc://h", 0, line)
    assert (worst([found]), found.message) == ("ok", "sc://h: the server answers")
    [found] = check_findings("sc://h", 2, "Traceback\nthe server runs other code\n")
    assert (worst([found]), found.message) == ("failed", "sc://h: the server runs other code")
    assert worst(check_findings("sc://h", 1, "python: No module named spark_jobs")) == "skipped"


def test_what_only_a_driver_needs_is_no_fault_of_a_client() -> None:
    lacking = {"PATH": "/nowhere", "AIRFLOW_HOME": "/nowhere", "JAVA_HOME": "/nowhere"}
    for remote, verdict in (({}, "failed"), ({"EVENLAG_SPARK_REMOTE": "sc://127.0.0.1:1"}, "skipped")):
        checks = {check.full_name: check for check in spark_checks(lacking | remote)}
        assert [worst(checks[name].look()) for name in ("spark.java", "spark.submit")] == [verdict] * 2
