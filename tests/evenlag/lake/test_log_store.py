"""A lake whose storage would not keep Spark's drivers apart is refused, with what to set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.errors import LakeSchemeError, PolicyError, SparkServerError
from evenlag.lake.location import LakePaths
from evenlag.lake.spark_storage import (
    check_log_store,
    lake_storage_conf,
    log_store_conf,
    log_store_problem,
    spark_defaults,
    writing_drivers,
)
from evenlag.policy.loader import parse_policy
from evenlag.spark_installation import JARS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HARD_LINK = "evenlag.storage.HardLinkLogStore"
CONDITIONAL = "evenlag.storage.S3ConditionalLogStore"
CHECKSUM_FILES = "spark.sql.streaming.checkpointFileManagerClass"
POLICY = "lake: {}\nclusters:\n  a: {{bootstrap_servers: a:1}}\n  b: {{bootstrap_servers: b:1}}\n"


@pytest.mark.parametrize(
    ("lake", "conf"),
    [
        ("/srv/lake", {"spark.delta.logStore.file.impl": HARD_LINK}),
        ("file:///srv/lake", {"spark.delta.logStore.file.impl": HARD_LINK}),
        ("s3a://bucket/lake", {"spark.delta.logStore.s3a.impl": CONDITIONAL}),
        ("s3://bucket/lake", {"spark.delta.logStore.s3.impl": CONDITIONAL}),
        ("s3://bucket/lake", {"spark.delta.logStore.class": "our.LogStore"}),
        ("hdfs://namenode/lake", {}),
        ("viewfs://cluster/lake", {}),
        ("abfss://container@account/lake", {}),
        ("gs://bucket/lake", {}),
    ],
)
def test_a_lake_that_keeps_drivers_apart_is_no_problem(lake: str, conf: Mapping[str, str]) -> None:
    check_log_store(lake, conf.get)


@pytest.mark.parametrize(
    ("lake", "conf", "wanted"),
    [
        ("/srv/lake", {}, f"spark.delta.logStore.file.impl={HARD_LINK}"),
        (
            "/srv/lake",
            {"spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore"},
            f"spark.delta.logStore.file.impl={HARD_LINK}",
        ),
        ("s3://bucket/lake", {}, f"spark.delta.logStore.s3.impl={CONDITIONAL}"),
        (
            "s3a://bucket/lake",
            {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore"},
            f"spark.delta.logStore.s3a.impl={CONDITIONAL}",
        ),
        # Set for another scheme than the lake's.
        (
            "s3a://bucket/lake",
            {"spark.delta.logStore.s3.impl": CONDITIONAL},
            f"spark.delta.logStore.s3a.impl={CONDITIONAL}",
        ),
    ],
)
def test_a_session_that_may_lose_commits_is_refused_on_one_line_with_what_to_set(
    lake: str, conf: Mapping[str, str], wanted: str
) -> None:
    with pytest.raises(SparkServerError) as refused:
        check_log_store(lake, conf.get)
    assert refused.value.exit_code == 2
    message = str(refused.value)
    assert lake in message
    assert wanted in message
    assert "evenlag-log-store" in message
    assert "\n" not in message


@pytest.mark.parametrize("scheme", ["oci", "wasb", "wasbs", "adl", "az", "s3n", "ofs"])
def test_a_storage_that_one_engine_does_not_know_is_refused_by_name(scheme: str) -> None:
    with pytest.raises(PolicyError) as refused:
        parse_policy(POLICY.format(f"{scheme}://place/lake"), environ={})
    assert refused.value.exit_code == 2
    assert f"{scheme}: addresses" in str(refused.value)
    with pytest.raises(PolicyError, match=f"{scheme}: addresses"):
        parse_policy(POLICY.format("/srv/lake"), environ={"EVENLAG_LAKE": f"{scheme}://place/lake"})
    with pytest.raises(LakeSchemeError, match=f"{scheme}: addresses"):
        LakePaths(f"{scheme}://place/lake")


def test_every_dag_with_spark_tasks_is_a_driver_of_its_own() -> None:
    text = POLICY.format("s3a://b/l")
    both = ("lag_rebalance__a", "lag_rebalance__b", "assignment_audit", "table_maintenance")
    assert writing_drivers(parse_policy(text, environ={}).policy) == both
    compared = parse_policy(text + "comparison: {}\n", environ={}).policy
    assert writing_drivers(compared) == (*both, "plan_comparison")


def test_a_session_uses_the_log_stores_where_their_jar_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    assert log_store_conf({}) == {}
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "evenlag-log-store-0.1.0.jar").touch()
    conf = log_store_conf({})
    assert conf == {
        "spark.delta.logStore.file.impl": HARD_LINK,
        "spark.delta.logStore.s3.impl": CONDITIONAL,
        "spark.delta.logStore.s3a.impl": CONDITIONAL,
        CHECKSUM_FILES: "evenlag.storage.S3CheckpointFileManager",
    }
    assert all(log_store_problem(lake, conf.get) is None for lake in ("/a", "s3://b/l", "s3a://b/l"))
    # What the user has chosen stays; Delta refuses both settings together.
    chosen = {"spark.delta.logStore.file.impl": "our.LogStore", CHECKSUM_FILES: "our.Manager"}
    assert not chosen.keys() & log_store_conf(chosen).keys()
    assert log_store_conf({"spark.delta.logStore.class": "our.LogStore"}) == {}


def test_the_variables_of_deltalake_configure_s3a_too(tmp_path: Path) -> None:
    secret = {
        "AWS_ACCESS_KEY_ID": "an-id",
        "AWS_SECRET_ACCESS_KEY": "a-secret",
        "AWS_SESSION_TOKEN": "a-token",
    }
    aws = lake_storage_conf(secret | {"AWS_REGION": "eu-central-1"})
    assert aws["spark.hadoop.fs.s3a.endpoint.region"] == "eu-central-1"
    assert "spark.hadoop.fs.s3a.endpoint" not in aws
    assert "spark.hadoop.fs.s3a.path.style.access" not in aws
    store = lake_storage_conf(secret | {"AWS_ENDPOINT_URL": "https://minio:9000"})
    assert store["spark.hadoop.fs.s3a.endpoint"] == "https://minio:9000"
    assert store["spark.hadoop.fs.s3a.path.style.access"] == "true"
    named = {"AWS_ENDPOINT_URL": "https://minio:9000", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}
    assert lake_storage_conf(named)["spark.hadoop.fs.s3a.path.style.access"] == "false"
    # A page shows Spark's settings: they have no credentials.
    assert not {"an-id", "a-secret", "a-token"} & set((aws | store).values())
    (tmp_path / "spark-defaults.conf").write_text("spark.hadoop.fs.s3.impl com.example.FileSystem\n")
    assert "spark.hadoop.fs.s3.impl" not in lake_storage_conf({"SPARK_CONF_DIR": str(tmp_path)})


def test_defaults_are_read_where_spark_reads_them(tmp_path: Path) -> None:
    lines = ["# ours", "", "spark.key   a value", "spark.a=b=c", "spark.b: d", "spark.empty"]
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("\n".join(lines))
    expected = {"spark.key": "a value", "spark.a": "b=c", "spark.b": "d", "spark.empty": ""}
    assert spark_defaults({"SPARK_CONF_DIR": str(tmp_path / "conf")}) == expected
    assert spark_defaults({"SPARK_HOME": str(tmp_path)}) == expected
    assert spark_defaults({"SPARK_CONF_DIR": str(tmp_path), "SPARK_HOME": str(tmp_path)}) == {}
    assert spark_defaults({}) == {}
