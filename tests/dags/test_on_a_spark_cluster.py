"""A cycle on a real Spark cluster of two workers, through the operator, by the Airflow connection alone."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from evenlag.airflow.spark_task import spark_step
from evenlag.policy.loader import load_policy
from evenlag.publishing.publish import publish_hints
from sandbox.workload.workload import Workload
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_cluster_runs import (
    assert_one_machine_gives_the_same,
    driver_environment,
    events_of,
    tasks_by_executor,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow.sdk import Context
    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker

pytestmark = [
    pytest.mark.extended,
    pytest.mark.airflow,
    pytest.mark.broker,
    pytest.mark.jvm,
]

CLUSTER = "sandbox"
PASSWORD = "a-password-that-no-table-may-hold"
POLICY = """
lake: {lake}
clusters:
  {cluster}:
    bootstrap_servers: {servers}
    hint_topic: {hint_topic}
    temporary_member_after_s: null
    hint_signing_key: {{env: TEST_HINT_KEY}}
groups:
  - {{match: {group}, mode: auto, reset_policy: earliest, gates: {{cooldown_s: 0}}}}
"""


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster.start(tmp_path_factory.mktemp("spark") / "cluster", num_workers=2) as running:
        yield running


@pytest.fixture
def skewed(broker: Broker, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[str]:
    """Return a group of two members, one of which has nearly all of the lag."""
    from assignor_core.hint import derive_group_key

    group = unique("billing")
    key = derive_group_key(PASSWORD.encode(), group)
    with Workload(
        {"bootstrap_servers": broker.bootstrap_servers},
        tmp_path / "workload",
        topic=f"orders-{group}",
        num_partitions=6,
        group_id=group,
        hint_topic=f"hints-{group}",
        consumer={"records_per_s": 1, "hint_key_hex": key.hex()},
    ) as workload:
        workload.start_consumers(2)
        workload.wait_until_owned()
        heavy = sorted(next(iter(workload.owners().values())))
        workload.fill({heavy[0]: 3000, heavy[1]: 2500, heavy[2]: 2000})
        yield group


@pytest.fixture
def config(broker: Broker, skewed: str, tmp_path: Path) -> Path:
    path = tmp_path / "evenlag.yaml"
    servers = broker.bootstrap_servers
    text = POLICY.format(
        lake=tmp_path / "lake", cluster=CLUSTER, servers=servers, hint_topic=f"hints-{skewed}", group=skewed
    )
    path.write_text(text, encoding="utf-8")
    return path


def submit(step: str, config: Path, slot: datetime) -> None:
    """Run a step's operator as a task of Airflow's does: the connection says where."""
    task: Any = spark_step(step, config=config, cluster=CLUSTER)
    run = SimpleNamespace(run_type="scheduled", data_interval_end=slot, run_after=slot)
    context = cast("Context", {"dag_run": run, "run_id": "scheduled__1"})
    task.application_args = task.render_template(task.application_args, context)
    task.pre_execute(context)
    type(task).execute.__wrapped__(task, context)


# Two minutes; `make test` runs a cycle on two workers with the containers' commands.
@pytest.mark.soak
def test_a_cycle_on_two_workers_gives_what_one_machine_gives(
    spark_cluster: SparkCluster,
    config: Path,
    skewed: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    slot = datetime.now(UTC).replace(microsecond=0)
    monkeypatch.setenv("TEST_HINT_KEY", PASSWORD)
    with monkeypatch.context() as driver:
        for name, value in driver_environment(spark_cluster).items():
            driver.setenv(name, value)
        submit("observe", config, slot)
        submit("decide", config, slot)

    loaded = load_policy(config)
    published = publish_hints(loaded, CLUSTER, slot, "scheduled__1").published
    assert [group for group, _, _ in published] == [skewed]

    assert_one_machine_gives_the_same(
        spark,
        monkeypatch,
        config,
        cluster=CLUSTER,
        slot=slot,
        run_id="scheduled__1",
        there=Path(loaded.policy.lake),
        here=tmp_path / "local-lake",
    )
    assert_both_worked(spark_cluster)


def assert_both_worked(cluster: SparkCluster) -> None:
    """Each step had two executors, one a worker; tasks of observe ended on both, and each got our code.

    Few groups are planned in the driver: decide leaves nothing to its executors.
    """
    events = events_of(cluster)
    assert [event["Event"] for event in events].count("SparkListenerExecutorAdded") == 4
    by_executor = tasks_by_executor(events)
    (observe,) = {name.partition("/")[0] for name in by_executor}
    assert len(by_executor) == 2, by_executor
    for number in cluster.workers:
        folder = cluster.directory / f"worker-{number}" / observe
        assert list(folder.glob("*/evenlag-*.zip")), folder
    assert PASSWORD not in str(events)
    secret = next(
        line.split()[1]
        for line in (cluster.directory / "conf" / "spark-defaults.conf").read_text().splitlines()
        if line.startswith("spark.authenticate.secret")
    )
    assert secret not in str(events)


def test_an_executor_has_what_is_documented_and_nothing_of_ours(spark_cluster: SparkCluster) -> None:
    def imports(name: str) -> bool:
        command = [str(spark_cluster.executor_python), "-c", f"import {name}"]
        return subprocess.run(command, capture_output=True, check=False, cwd="/", env={}).returncode == 0

    there = [name for name in ("numpy", "pyarrow", "pandas", "kafka") if imports(name)]
    assert there == ["numpy", "pyarrow", "pandas", "kafka"]
    ours = ("evenlag", "spark_jobs", "assignor_core", "pydantic", "yaml", "airflow", "pyspark")
    assert not [name for name in ours if imports(name)]


def test_the_cluster_listens_on_the_loopback_only_and_asks_for_its_secret(
    spark_cluster: SparkCluster,
) -> None:
    shown = spark_cluster.state()
    assert {worker["host"] for worker in shown["workers"]} == {"127.0.0.1"}
    mode = (spark_cluster.directory / "conf" / "spark-defaults.conf").stat().st_mode
    assert mode & 0o077 == 0
