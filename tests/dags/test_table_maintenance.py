"""The DAG of maintenance: one Spark task for the lake, then pages of verdicts where they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evenlag.airflow.spark_task import SparkJobOperator

if TYPE_CHECKING:
    import pytest
    from airflow.dag_processing.dagbag import DagBag

DAGS_FOLDER = Path(__file__).resolve().parents[2] / "dags"


def test_the_lake_is_looked_after_daily_and_data_docs_are_built(dag_bag: DagBag, policy_file: Path) -> None:
    dag = dag_bag.dags["table_maintenance"]
    assert dag.timetable.can_be_scheduled
    assert dag.catchup is False
    assert (dag.max_active_runs, dag.max_active_tasks) == (1, 1)
    task = dag.get_task("maintain_tables")
    assert isinstance(task, SparkJobOperator)
    assert Path(task.application).name == "maintain.py"
    assert Path(task.application).is_file()
    assert task.application_args == ["--config", str(policy_file)]
    assert task.downstream_task_ids == {"data_docs__by-hand", "data_docs__orders"}
    pages = dag.get_task("data_docs__orders")
    assert isinstance(pages, SparkJobOperator)
    assert Path(pages.application).name == "data_docs.py"
    assert pages.application_args == ["--config", str(policy_file), "--cluster", "orders"]
    assert pages.trigger_rule == "all_done"


def test_without_a_folder_and_a_schedule_it_looks_after_the_lake_by_hand(
    policy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    lines = policy_file.read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if "data_docs" not in line]
    without = tmp_path / "evenlag.yaml"
    without.write_text("\n".join([*lines, "maintenance: {schedule: null}"]), encoding="utf-8")
    monkeypatch.setenv("EVENLAG_CONFIG", str(without))
    found = DagBag(dag_folder=str(DAGS_FOLDER / "table_maintenance.py"))
    assert found.import_errors == {}
    dag = found.dags["table_maintenance"]
    assert not dag.timetable.can_be_scheduled
    assert [task.task_id for task in dag.tasks] == ["maintain_tables"]
