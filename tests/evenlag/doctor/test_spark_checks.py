"""What is judged of Spark: Java, packages, jars, Pythons and the master."""

from __future__ import annotations

import pytest

from evenlag.doctor.spark_checks import (
    check_master,
    check_packages,
    judge_jars,
    judge_java,
    judge_python,
)
from tests.evenlag.doctor.test_checks import worst


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
    assert worst(judge_java("java", text)) == verdict


def test_packages_jars_and_pythons_have_to_fit() -> None:
    good = {"pyspark": "4.1.3", "pyspark-client": "4.1.3", "delta-spark": "4.4.0"}
    assert worst(check_packages(good)) == "ok"
    assert worst(check_packages(good | {"pyspark-client": "4.1.2"})) == "failed"
    assert worst(check_packages(dict.fromkeys(good))) == "skipped"
    jars = ["delta-spark_4.1_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"]
    assert worst(judge_jars(jars, "f", "4.4.0")) == "ok"
    assert worst(judge_jars(jars, "f", "4.3.0")) == "failed"
    assert worst(judge_jars([*jars, "delta-spark_2.13-4.0.0.jar"], "f", "4.4.0")) == "failed"
    assert worst(judge_jars(jars[:1], "f", "4.4.0")) == "failed"
    assert worst(judge_jars([], "f", "4.4.0")) == "warning"
    assert worst(judge_python("python3", "3.9", "3.11")) == "failed"


def test_a_spark_master_is_knocked_at() -> None:
    connection = '{"conn_type": "spark", "host": "spark://127.0.0.1", "port": 1}'
    found = check_master({"AIRFLOW_CONN_SPARK_DEFAULT": connection})
    assert worst(found) == "failed"
    assert "127.0.0.1:1" in found[0].told
    assert worst(check_master({"EVENLAG_SPARK_MASTER": "local[*]"})) == "ok"
    assert worst(check_master({})) == "skipped"
