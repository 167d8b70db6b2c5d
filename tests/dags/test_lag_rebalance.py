"""The DAG of the main job: its shape, its schedule, and what its tasks are handed."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from airflow.utils.types import DagRunType

from evenlag.airflow.spark_task import RUN_ID, SLOT, SparkJobOperator

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import DAG, Context


@pytest.fixture
def dag(dag_bag: DagBag) -> DAG:
    return dag_bag.dags["lag_rebalance__orders"]


def _spark_task(dag: DAG, task_id: str) -> SparkJobOperator:
    found = dag.get_task(task_id)
    assert isinstance(found, SparkJobOperator)
    return found


def test_there_is_one_dag_for_each_cluster_of_the_policy(dag_bag: DagBag) -> None:
    cycles = ["lag_rebalance__by-hand", "lag_rebalance__orders"]
    made = ["plan_approval", "plan_comparison", "table_maintenance"]
    assert sorted(dag_bag.dags) == ["assignment_audit", *cycles, *made]


def test_observe_comes_before_decide_and_report_counts_what_is_published(dag: DAG) -> None:
    assert {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks} == {
        "observe": ["decide"],
        "decide": ["find_waiting", "publish"],
        "publish": ["completed", "report"],
        "completed": [],
        "report": [],
        "find_waiting": ["ask"],
        "ask": [],
    }


def test_the_schedule_is_the_policy_s_and_its_intervals_have_a_width(dag_bag: DagBag) -> None:
    from airflow.sdk import CronDataIntervalTimetable

    timetable = dag_bag.dags["lag_rebalance__orders"].timetable
    assert isinstance(timetable, CronDataIntervalTimetable)
    assert timetable.expression == "*/5 * * * *"
    assert not dag_bag.dags["lag_rebalance__by-hand"].timetable.can_be_scheduled


def test_a_run_has_the_cluster_to_itself_and_nothing_is_backfilled(dag: DAG) -> None:
    assert dag.max_active_runs == 1
    assert dag.catchup is False
    assert set(dag.allowed_run_types or ()) == {"scheduled", "manual"}


def test_the_spark_tasks_are_told_names_only(dag: DAG, policy_file: Path) -> None:
    for step in ("observe", "decide"):
        task = _spark_task(dag, step)
        assert task.application_args == [
            step,
            *("--config", str(policy_file)),
            *("--cluster", "orders"),
            *("--slot", SLOT),
            *("--run-id", RUN_ID),
        ]
        assert Path(task.application).name == "cycle.py"
        assert Path(task.application).parent.name == "spark_jobs"
        assert not task.env_vars
        assert not task.conf


def test_no_secret_and_no_reference_to_one_reaches_an_operator(dag: DAG) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    stored = json.dumps(DagSerialization.to_dict(dag), default=str)
    assert "s3cret-orders-password" not in stored
    assert "ORDERS_PASSWORD" not in stored
    assert "ORDERS_SIGNING_KEY" not in stored


BY_HAND = "2026-11-21T13:07:09.000123+00:00"


@pytest.mark.parametrize(
    ("run_type", "interval_end", "expected"),
    [
        ("scheduled", datetime(2026, 11, 21, 13, 5, tzinfo=UTC), "2026-11-21T13:05:00+00:00"),
        ("manual", None, BY_HAND),
        ("manual", datetime(2026, 11, 21, 13, 5, tzinfo=UTC), BY_HAND),
    ],
    ids=["scheduled", "by hand", "by hand, with the logical date that the form fills in"],
)
def test_the_slot_is_the_interval_s_end_and_of_a_manual_run_when_it_was_due(
    dag: DAG, run_type: str, interval_end: datetime | None, expected: str
) -> None:
    task = _spark_task(dag, "observe")
    run = SimpleNamespace(
        run_type=DagRunType(run_type),
        data_interval_end=interval_end,
        run_after=datetime(2026, 11, 21, 13, 7, 9, 123, tzinfo=UTC),
    )

    rendered = task.render_template(
        task.application_args,
        cast("Context", {"dag_run": run, "run_id": "manual__1"}),
        dag.get_template_env(),
    )

    assert rendered[rendered.index("--slot") + 1] == expected
    assert rendered[rendered.index("--run-id") + 1] == "manual__1"


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        (None, "cannot be read"),
        ("spark://local[*]", "cannot be read"),
        ('{"conn_type": "spark"}', "names no master"),
        ('{"conn_type": "spark_connect"}', "names no server"),
        ('{"conn_type": "http", "host": "localhost"}', "neither Spark nor Spark Connect"),
    ],
    ids=["missing", "uri form", "no host", "connect without a host", "another type"],
)
def test_without_a_usable_spark_connection_the_task_fails_and_says_what_to_set(
    dag: DAG, connection: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenlag.airflow.compat import AirflowFailException

    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    if connection is not None:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)

    with pytest.raises(AirflowFailException, match=expected) as caught:
        _spark_task(dag, "observe").pre_execute(cast("Context", {}))

    example = '"port": 15002' if "connect" in (connection or "") else '"host": "local[*]"'
    assert example in str(caught.value)


def test_with_a_spark_connection_the_task_goes_on(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_DEFAULT",
        json.dumps({"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}}),
    )
    task = _spark_task(dag, "observe")

    task.pre_execute(cast("Context", {}))

    assert task._get_hook()._connection["master"] == "local[*]"


SUBMIT = '{"conn_type": "spark", "host": "local[*]"}'
CONNECT = '{"conn_type": "spark_connect", "host": "localhost", "port": 15002, "password": "s3cret/token"}'


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("connection", [SUBMIT, CONNECT], ids=["spark-submit", "spark connect"])
@pytest.mark.parametrize(("exit_code", "tried_again"), [(1, True), (2, False), (3, True), (4, False)])
def test_only_a_failure_that_time_may_heal_is_tried_again(
    dag: DAG,
    connection: str,
    exit_code: int,
    tried_again: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from evenlag.airflow.compat import AirflowException, AirflowFailException

    submit = script(tmp_path / "spark-submit", f"exit {exit_code}")
    monkeypatch.setenv("PATH", str(submit.parent), prepend=":")
    monkeypatch.setenv("EVENLAG_SPARK_PYTHON", str(script(tmp_path / "python", f"exit {exit_code}")))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    task: Any = _spark_task(dag, "decide")
    task._hook = None

    with pytest.raises(AirflowException) as caught:
        type(task).execute.__wrapped__(task, {})

    assert isinstance(caught.value, AirflowFailException) is not tried_again
    assert f"exit code {exit_code}" in str(caught.value) or connection == SUBMIT


def test_by_spark_connect_a_task_starts_the_same_job_and_no_spark_submit(
    dag: DAG, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record"
    python = script(
        tmp_path / "python", f'printf "%s\\n" "$EVENLAG_SPARK_REMOTE" "$@" > {record}', "echo running"
    )
    monkeypatch.setenv("EVENLAG_SPARK_PYTHON", str(python))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", CONNECT)
    task: Any = _spark_task(dag, "observe")

    type(task).execute.__wrapped__(task, {})

    remote, *command, events = record.read_text(encoding="utf-8").splitlines()
    assert remote == "sc://localhost:15002/;token=s3cret%2Ftoken"
    assert command == ["-P", "-m", "spark_jobs.cycle", *task.application_args]
    assert events.startswith("--events-fd=")
    assert "EVENLAG_SPARK_REMOTE" not in os.environ


def test_a_submitted_job_does_not_see_the_server_of_the_worker_s_environment(
    dag: DAG, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record"
    script(tmp_path / "spark-submit", f'echo "remote=$EVENLAG_SPARK_REMOTE" > {record}')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("EVENLAG_SPARK_REMOTE", "sc://elsewhere")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", SUBMIT)
    task: Any = _spark_task(dag, "observe")
    task._hook = None

    type(task).execute.__wrapped__(task, {})

    assert record.read_text(encoding="utf-8") == "remote=\n"
    assert os.environ["EVENLAG_SPARK_REMOTE"] == "sc://elsewhere"


def test_an_interpreter_that_is_not_there_is_named(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    from evenlag.airflow.compat import AirflowFailException

    monkeypatch.setenv("EVENLAG_SPARK_PYTHON", "/nowhere/python")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", CONNECT)
    task: Any = _spark_task(dag, "observe")
    with pytest.raises(AirflowFailException, match=r"/nowhere/python does not start.*EVENLAG_SPARK_PYTHON"):
        type(task).execute.__wrapped__(task, {})
