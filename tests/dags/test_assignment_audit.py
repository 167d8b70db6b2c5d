"""The DAG of the audit: one task a cluster, submitted with the policy file, one after another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evenlag.airflow.spark_task import SparkJobOperator

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag


def test_every_cluster_is_audited_hourly_one_after_another(dag_bag: DagBag, policy_file: Path) -> None:
    dag = dag_bag.dags["assignment_audit"]
    assert dag.timetable.can_be_scheduled
    assert dag.catchup is False
    assert (dag.max_active_runs, dag.max_active_tasks) == (1, 1)
    assert sorted(task.task_id for task in dag.tasks) == ["audit__by-hand", "audit__orders"]
    task = dag.get_task("audit__orders")
    assert isinstance(task, SparkJobOperator)
    assert Path(task.application).name == "audit.py"
    assert Path(task.application).is_file()
    args = ["--config", str(policy_file), "--cluster", "orders", "--budget-s", "600"]
    assert task.application_args == args
