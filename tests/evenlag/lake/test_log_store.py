"""Where several drivers write, S3 needs Delta's log store with DynamoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.lake.log_store import DYNAMODB_LOG_STORE, log_store_problem, spark_defaults, writing_drivers
from evenlag.policy.loader import parse_policy

if TYPE_CHECKING:
    from pathlib import Path

KEY = "spark.delta.logStore.s3a.impl"


@pytest.mark.parametrize(
    ("lake", "conf", "drivers"),
    [
        ("/srv/lake", {}, 9),
        ("file:///srv/lake", {}, 9),
        ("hdfs://namenode/lake", {}, 9),
        ("abfss://container@account/lake", {}, 9),
        ("s3a://bucket/lake", {}, 1),
        ("s3a://bucket/lake", {KEY: DYNAMODB_LOG_STORE}, 9),
        ("s3a://bucket/lake", {"spark.delta.logStore.class": DYNAMODB_LOG_STORE}, 2),
        ("weird://place/lake", {"spark.delta.logStore.weird.impl": "our.LogStore"}, 2),
    ],
)
def test_a_lake_that_keeps_drivers_apart_is_no_problem(lake: str, conf: dict[str, str], drivers: int) -> None:
    assert log_store_problem(lake, conf, num_drivers=drivers) is None


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {KEY: "io.delta.storage.S3SingleDriverLogStore"},
        # Set for another scheme than the lake's.
        {"spark.delta.logStore.s3.impl": DYNAMODB_LOG_STORE},
    ],
)
def test_s3_under_several_drivers_is_refused_with_what_to_set(conf: dict[str, str]) -> None:
    problem = log_store_problem("s3a://bucket/lake", conf, num_drivers=3)
    assert problem is not None
    assert f"{KEY}={DYNAMODB_LOG_STORE}" in problem
    assert problem.startswith("3 Spark drivers write to s3a://bucket/lake")


def test_a_storage_that_nobody_vouches_for_is_refused() -> None:
    problem = log_store_problem("weird://place/lake", {}, num_drivers=2)
    assert problem is not None
    assert "spark.delta.logStore.weird.impl" in problem


def test_every_dag_with_spark_tasks_is_a_driver_of_its_own() -> None:
    text = "lake: s3a://b/l\nclusters:\n  a: {bootstrap_servers: a:1}\n  b: {bootstrap_servers: b:1}\n"
    policy = parse_policy(text, environ={}).policy
    both = ("lag_rebalance__a", "lag_rebalance__b", "assignment_audit", "table_maintenance")
    assert writing_drivers(policy) == both
    compared = parse_policy(text + "comparison: {}\n", environ={}).policy
    assert writing_drivers(compared) == (*both, "plan_comparison")


def test_defaults_are_read_where_spark_reads_them(tmp_path: Path) -> None:
    lines = ["# ours", "", f"{KEY}   {DYNAMODB_LOG_STORE}", "spark.a=b=c", "spark.b: d", "spark.empty"]
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("\n".join(lines))
    expected = {KEY: DYNAMODB_LOG_STORE, "spark.a": "b=c", "spark.b": "d", "spark.empty": ""}
    assert spark_defaults({"SPARK_CONF_DIR": str(tmp_path / "conf")}) == expected
    assert spark_defaults({"SPARK_HOME": str(tmp_path)}) == expected
    assert spark_defaults({"SPARK_CONF_DIR": str(tmp_path), "SPARK_HOME": str(tmp_path)}) == {}
    assert spark_defaults({}) == {}
