"""The DAG that asks a person about a plan: its shape, and that it is asked for by the cycle's DAG."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.airflow.approval import PlanApprovalOperator
from evenlag.airflow.tasks import approval_run_id, find_waiting
from evenlag.policy.group_settings import GroupSettings
from tests.support.each import for_each

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import DAG


@pytest.fixture
def dag(dag_bag: DagBag) -> DAG:
    return dag_bag.dags["plan_approval"]


def test_a_person_stands_between_the_plan_and_its_publishing(dag: DAG) -> None:
    assert {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks} == {
        "prepare": ["approve_plan"],
        "approve_plan": ["publish"],
        "publish": [],
    }
    approval = dag.get_task("approve_plan")
    assert isinstance(approval, PlanApprovalOperator)
    assert approval.defaults == ["Reject"]
    assert approval.fail_on_reject is False


def test_it_outlasts_the_longest_time_a_policy_may_give_a_person(dag: DAG) -> None:
    longest = next(
        limit.le
        for limit in GroupSettings.model_fields["approval_timeout_s"].metadata
        if hasattr(limit, "le")
    )
    assert dag.dagrun_timeout is not None
    assert dag.dagrun_timeout > timedelta(seconds=longest)


def test_it_runs_only_when_it_is_triggered_with_a_plan(dag: DAG) -> None:
    assert not dag.timetable.can_be_scheduled
    assert dag.max_active_runs >= 1000
    assert set(dag.allowed_run_types or ()) == {"operator_triggered", "manual"}
    with pytest.raises(ValueError, match="No value passed"):
        dag.params.validate()


def test_each_of_many_clusters_is_asked_about_within_what_airflow_maps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Airflow's `max_map_length` is 1,024: it fails a task that returns more."""
    monkeypatch.setattr(
        "evenlag.airflow.tasks._find_waiting",
        lambda _, cluster: [{"trigger_run_id": f"{cluster}-{number}"} for number in range(int(cluster))],
    )
    for num_clusters, num_asked in ((30, 465), (100, 1_000)):
        clusters = [str(number) for number in range(1, num_clusters + 1)]
        asked = {each["trigger_run_id"] for each in find_waiting.function("policy", clusters)}
        assert len(asked) == num_asked
        assert asked >= {f"{cluster}-0" for cluster in clusters}


def test_an_error_is_raised_unless_a_plan_of_another_cluster_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_config: str, cluster: str) -> list[dict[str, str]]:
        if cluster == "gone":
            raise RuntimeError("no such cluster")
        return [{"trigger_run_id": "a"}] if cluster == "south" else []

    monkeypatch.setattr("evenlag.airflow.tasks._find_waiting", find)
    assert find_waiting.function("policy", ["gone", "south", "quiet"]) == [{"trigger_run_id": "a"}]
    assert find_waiting.function("policy", ["quiet"]) == []
    with pytest.raises(RuntimeError, match="no such cluster"):
        find_waiting.function("policy", ["gone", "quiet"])


def test_the_cycle_asks_where_a_rule_lets_a_person_approve_and_waits_for_nobody(dag_bag: DagBag) -> None:
    asking = dag_bag.dags["lag_rebalance__orders"]
    ask: Any = asking.get_task("ask")
    assert ask.partial_kwargs["trigger_dag_id"] == "plan_approval"
    assert ask.partial_kwargs["skip_when_already_exists"] is True
    assert not ask.partial_kwargs.get("wait_for_completion")
    assert "publish" not in asking.get_task("find_waiting").get_flat_relative_ids(upstream=False)
    assert "find_waiting" not in dag_bag.dags["lag_rebalance__by-hand"].task_ids


@for_each(("approve", "shadow"))
def test_max_mode_decides_whether_the_cycle_asks(max_mode: str, policy_file: Path, tmp_path: Path) -> None:
    from evenlag.airflow import make_dags

    rules = "groups: [{match: payments, mode: auto}, {match: refunds, clusters: orders, mode: approve}]"
    text = policy_file.read_text(encoding="utf-8").partition("groups:")[0]
    changed = tmp_path / "evenlag.yaml"
    changed.write_text(f"{text}{rules}\nmax_mode: {max_mode}\n", encoding="utf-8")
    dags = make_dags(changed, dag_prefix=f"{max_mode}_")
    asking = sorted(dag.dag_id for dag in dags.values() if "ask" in dag.task_ids)
    names = ["approve_lag_rebalance__by-hand", "approve_lag_rebalance__orders"]
    assert asking == (names if max_mode == "approve" else [])


def test_a_plan_has_one_run_however_often_it_is_triggered() -> None:
    plan_id = "3f" * 32
    assert approval_run_id(plan_id) == approval_run_id(plan_id) == f"approval__{plan_id}"


def test_the_form_has_a_field_that_the_page_does_not_show_and_the_approvers_of_the_dag_file(
    policy_file: Path,
) -> None:
    from evenlag.airflow import make_dags

    (dag,) = make_dags(
        policy_file, dag_prefix="eu_", approvers=["ada", "grace"], only=["plan_approval"]
    ).values()
    approval = dag.get_task("approve_plan")
    assert isinstance(approval, PlanApprovalOperator)
    assert list(approval.approvers or ()) == ["ada", "grace"]
    form = approval.serialized_params
    assert set(form) == {"reason", "sent_by"}
    # The page hides what has one possible value.
    assert (form["sent_by"]["schema"]["const"], form["sent_by"]["value"]) == ("page", "page")
    assert "const" not in form["reason"]["schema"]
