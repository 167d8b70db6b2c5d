"""What every DAG of ours keeps to, whatever it does."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenlag.airflow.dags import OWNER, Tag

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

REPOSITORY = Path(__file__).resolve().parents[2]
HEAVY_MODULES = ("pyspark", "delta", "great_expectations", "pandas", "kafka", "pyarrow", "deltalake", "numpy")


def test_all_dag_files_import(dag_bag: DagBag) -> None:
    assert dag_bag.import_errors == {}
    assert dag_bag.dags


def test_every_dag_says_what_it_makes_and_how_to_run_it_again(dag_bag: DagBag) -> None:
    for dag in dag_bag.dags.values():
        for heading in ("What it makes", "Inputs", "Running it again", "First things to check"):
            assert dag.doc_md is not None
            assert heading in dag.doc_md, f"{dag.dag_id} does not say: {heading}"
        assert dag.description


def test_every_dag_has_an_owner_and_known_tags(dag_bag: DagBag) -> None:
    for dag in dag_bag.dags.values():
        assert set(dag.tags) <= set(Tag), f"{dag.dag_id} carries tags that are not in Tag"
        assert Tag.EVENLAG in dag.tags
        assert {task.owner for task in dag.tasks} == {OWNER}


def test_every_task_is_retried_with_backoff_and_cannot_hang(dag_bag: DagBag) -> None:
    for dag in dag_bag.dags.values():
        assert dag.dagrun_timeout is not None
        for task in dag.tasks:
            assert (task.retries or 0) >= 1, task.task_id
            assert task.retry_exponential_backoff, task.task_id
            assert task.execution_timeout is not None, task.task_id
            assert timedelta(0) < task.execution_timeout <= dag.dagrun_timeout, task.task_id


def test_parsing_loads_nothing_heavy(policy_file: Path) -> None:
    """As in a DAG processor, each file is parsed by a fork of one process that has loaded Airflow."""
    code = """
import os, runpy, sys
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, BaseHook, CronDataIntervalTimetable, get_current_context, task
folder, *heavy = sys.argv[1:]
before = set(sys.modules)
for name in sorted(os.listdir(folder)):
    if not name.endswith(".py"):
        continue
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, name
        continue
    runpy.run_path(os.path.join(folder, name))
    print(name, *sorted(n for n in heavy if n in set(sys.modules) - before), flush=True)
    os._exit(0)
"""
    answer = subprocess.run(
        [sys.executable, "-c", code, str(REPOSITORY / "dags"), *HEAVY_MODULES],
        env=os.environ | {"EVENLAG_CONFIG": str(policy_file), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    loaded = {name: heavy for name, *heavy in (line.split() for line in answer.stdout.splitlines())}
    assert loaded == {file.name: [] for file in (REPOSITORY / "dags").glob("*.py")}


@pytest.mark.parametrize(
    ("content", "is_named", "expected"),
    [
        (None, True, "cannot be read"),
        (None, False, "cannot be read"),
        ("lake: [", True, "is not YAML"),
        (
            "lake: x\nclusters:\n  a: {bootstrap_servers: b:9092, scheduel: null}\n",
            True,
            "did you mean 'schedule'",
        ),
    ],
    ids=["missing", "no-variable", "not-yaml", "misspelt"],
)
def test_a_policy_that_cannot_be_used_is_an_import_error_that_says_what_to_do(
    content: str | None, *, is_named: bool, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    path = tmp_path / "evenlag.yaml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    if is_named:
        monkeypatch.setenv("EVENLAG_CONFIG", str(path))
    else:
        monkeypatch.delenv("EVENLAG_CONFIG", raising=False)
        monkeypatch.chdir(tmp_path)

    bag = DagBag(dag_folder=str(REPOSITORY / "dags"))

    assert len(bag.import_errors) == len(list((REPOSITORY / "dags").glob("*.py"))) - 1  # not __init__.py
    for error in bag.import_errors.values():
        assert expected in error
        assert "EVENLAG_CONFIG" in error
        assert f"evenlag policy check {path}" in error
    assert bag.dags == {}
