"""The DAG of comparisons: what a day's run does, and that past days can be asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from evenlag.airflow.spark_task import DAY, SparkJobOperator

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import Context

DAGS_FOLDER = Path(__file__).resolve().parents[2] / "dags"


def test_each_cluster_is_compared_by_a_spark_job_that_is_told_names_only(
    dag_bag: DagBag, policy_file: Path
) -> None:
    dag = dag_bag.dags["plan_comparison"]
    assert dag.catchup is False
    assert dag.max_active_tasks == 1
    assert sorted(task.task_id for task in dag.tasks) == ["compare__by-hand", "compare__orders"]
    task = dag.get_task("compare__orders")
    assert isinstance(task, SparkJobOperator)
    assert Path(task.application).name == "compare.py"
    assert Path(task.application).is_file()
    assert task.application_args == ["--config", str(policy_file), "--cluster", "orders", "--day", DAY]


@pytest.mark.parametrize(
    ("interval_start", "day"),
    [(datetime(2026, 3, 1, 0, 30, tzinfo=UTC), "2026-03-01"), (None, "2026-03-04")],
    ids=["scheduled or backfilled", "by hand"],
)
def test_the_day_is_the_interval_s_first_else_the_day_before(
    dag_bag: DagBag, interval_start: datetime | None, day: str
) -> None:
    from airflow.sdk.execution_time import macros

    dag = dag_bag.dags["plan_comparison"]
    task = dag.get_task("compare__orders")
    assert isinstance(task, SparkJobOperator)
    run = SimpleNamespace(data_interval_start=interval_start, run_after=datetime(2026, 3, 5, 9, tzinfo=UTC))
    context = cast("Context", {"dag_run": run, "macros": macros})
    rendered = task.render_template(task.application_args, context, dag.get_template_env())
    assert rendered[-1] == day


def test_a_backfill_has_a_run_for_each_day_between_two_midnights(dag_bag: DagBag) -> None:
    """By Airflow's own reckoning, from the DAG as the scheduler keeps it."""
    from airflow.serialization.serialized_objects import DagSerialization

    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag_bag.dags["plan_comparison"]))
    assert "backfill" in {str(kind) for kind in stored.allowed_run_types or ["backfill"]}
    runs = list(
        stored.iter_dagrun_infos_between(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC))
    )
    days = [f"{run.data_interval.start:%Y-%m-%d}" for run in runs if run.data_interval]
    assert days == [f"2026-03-{day:02}" for day in range(1, 31)]


def test_without_a_section_in_the_policy_there_is_no_such_dag(
    policy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    text = policy_file.read_text(encoding="utf-8")
    section = text[text.index("comparison:") : text.index("clusters:")]
    without = tmp_path / "evenlag.yaml"
    without.write_text(text.replace(section, ""), encoding="utf-8")
    monkeypatch.setenv("EVENLAG_CONFIG", str(without))
    found = DagBag(dag_folder=str(DAGS_FOLDER / "plan_comparison.py"))
    assert found.import_errors == {}
    assert not found.dags
