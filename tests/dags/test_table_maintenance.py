"""The DAG of maintenance: what it does for each cluster, and that it is there only when it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dags.dag_support.spark_task import SparkJobOperator

if TYPE_CHECKING:
    import pytest
    from airflow.dag_processing.dagbag import DagBag

DAGS_FOLDER = Path(__file__).resolve().parents[2] / "dags"


def test_data_docs_are_built_daily_for_each_cluster(dag_bag: DagBag, policy_file: Path) -> None:
    dag = dag_bag.dags["table_maintenance"]
    assert dag.timetable.can_be_scheduled
    assert dag.catchup is False
    assert dag.max_active_tasks == 1
    assert sorted(task.task_id for task in dag.tasks) == ["data_docs__by-hand", "data_docs__orders"]
    task = dag.get_task("data_docs__orders")
    assert isinstance(task, SparkJobOperator)
    assert Path(task.application).name == "data_docs.py"
    assert Path(task.application).is_file()
    assert task.application_args == ["--config", str(policy_file), "--cluster", "orders"]


def test_without_a_folder_there_is_no_such_dag(
    policy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    lines = policy_file.read_text(encoding="utf-8").splitlines()
    without = tmp_path / "evenlag.yaml"
    without.write_text("\n".join(line for line in lines if "data_docs" not in line), encoding="utf-8")
    monkeypatch.setenv("EVENLAG_CONFIG", str(without))
    found = DagBag(dag_folder=str(DAGS_FOLDER / "table_maintenance.py"))
    assert found.import_errors == {}
    assert not found.dags
