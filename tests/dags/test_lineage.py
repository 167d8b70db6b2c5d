"""What Airflow's runner and provider report to OpenLineage; nothing if it is not configured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenlag.airflow.lineage import STEPS, Dataset, step_datasets
from evenlag.lake.tables import TABLES
from tests.support.lineage import names_of, read_completed_tasks

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

REPOSITORY = Path(__file__).resolve().parents[2]

# Programs in place of spark-submit and of the jobs' Python: other tests check what a job does, these what is
# reported about it. The second one writes the address that it was given, as a careless job would.
_SUBMIT = "#!/bin/sh\nexit 0\n"
_PYTHON = "#!/bin/sh\necho connecting to $EVENLAG_SPARK_REMOTE\n"
_CONNECTIONS = {
    "spark-submit": '{"conn_type": "spark", "host": "local[*]"}',
    "spark connect": '{"conn_type": "spark_connect", "host": "localhost", "password": "s3cret/token"}',
}
_RUN = """
from airflow.utils.db import initdb
initdb()
from evenlag.airflow import make_dags
dag = make_dags(only=["lag_rebalance"])["lag_rebalance__orders"]
run = dag.test(mark_success_pattern="report")
print("RUN", run.run_id, run.state)
"""


def test_every_step_names_tables_that_there_are() -> None:
    named = {name for inputs, outputs in STEPS.values() for name in (*inputs, *outputs)}
    assert {name for name in named if not name.startswith("/")} <= set(TABLES)


def test_a_cluster_s_topics_go_by_its_first_broker(policy_file: Path) -> None:
    inputs, outputs = step_datasets("publish", str(policy_file), "orders")
    assert Dataset("kafka://broker-1:9092", "evenlag-hints") in inputs
    assert outputs[0] == Dataset("kafka://broker-1:9092", "evenlag-hints")
    assert [(one.namespace, Path(one.name).name) for one in outputs[1:]] == [("file", "plan_events")]


def test_maintenance_covers_every_table(policy_file: Path) -> None:
    inputs, outputs = step_datasets("maintain_tables", str(policy_file), None)
    assert outputs[:-1] == inputs
    named = {one.table.name for one in outputs if one.table is not None}
    assert named == set(TABLES)


def test_nothing_of_openlineage_is_loaded_before_it_is_asked_for(dag_bag: DagBag) -> None:
    assert hasattr(
        dag_bag.dags["lag_rebalance__orders"].get_task("publish"), "get_openlineage_facets_on_complete"
    )
    code = (
        "import sys, evenlag.airflow.lineage\n"
        "print([name for name in sys.modules if 'openlineage' in name or name.startswith('airflow')])\n"
    )
    answer = _python(code, {})
    assert answer.stdout.strip() == "[]", answer.stderr


@pytest.mark.extended
@pytest.mark.airflow
@pytest.mark.parametrize("way", ["spark connect", pytest.param("spark-submit", marks=pytest.mark.soak)])
def test_airflow_tells_what_each_task_reads_and_writes(way: str, tmp_path: Path, policy_file: Path) -> None:
    events, programs = tmp_path / "events.jsonl", tmp_path / "bin"
    programs.mkdir()
    for name, text in (("spark-submit", _SUBMIT), ("python", _PYTHON)):
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "EVENLAG_SPARK_PYTHON": str(programs / "python"),
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "evenlag-test",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(events), "append": True}
        ),
        "AIRFLOW_CONN_SPARK_DEFAULT": _CONNECTIONS[way],
        "EVENLAG_CONFIG": str(policy_file),
        "ORDERS_PASSWORD": "s3cret-orders-password",
        "ORDERS_SIGNING_KEY": "s3cret-signing-key-of-thirty-two-bytes",
    }
    ran = _python(_RUN, environment)
    runs = [line.split()[1:] for line in ran.stdout.splitlines() if line.startswith("RUN ")]
    assert [state for _, state in runs] == ["success"], (ran.stdout + ran.stderr)[-4_000:]
    run_id = runs[0][0]
    logged = ran.stdout + ran.stderr
    assert ("connecting to sc://localhost/;token=***" in logged) == (way == "spark connect")
    assert "s3cret" not in logged

    text = events.read_text(encoding="utf-8")
    assert "s3cret" not in text
    assert "ORDERS_PASSWORD" not in text
    by_task = read_completed_tasks(events, run_id)
    for step in ("observe", "decide", "publish"):
        inputs, outputs = step_datasets(step, str(policy_file), "orders")
        event = by_task[step]
        assert names_of(event["inputs"]) == names_of(inputs), step
        assert names_of(event["outputs"]) == names_of(outputs), step
        assert event["job"]["name"] == f"lag_rebalance__orders.{step}"
        assert event["job"]["namespace"] == "evenlag-test"
    lag = next(one for one in by_task["observe"]["outputs"] if one["name"].endswith("/lag"))
    columns = [field["name"] for field in lag["facets"]["schema"]["fields"]]
    assert columns == list(TABLES["lag"].column_names)


def _python(code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
