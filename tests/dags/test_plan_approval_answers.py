"""What an answer on Airflow's page does, by the operator itself: recorded, and the first one holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

from evenlag.airflow.approval import PlanApprovalOperator
from evenlag.airflow.tasks import approval_run_id
from evenlag.publishing import approvals
from evenlag.publishing.answers.actors import Actor
from tests.support.live_plan import LiveGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow.sdk import Context
    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker

pytestmark = pytest.mark.broker

ADA = {"id": "7", "name": "ada"}


@pytest.fixture
def live(
    broker: Broker, spark: SparkSession, tmp_path: Path, unique: Callable[[str], str]
) -> Iterator[LiveGroup]:
    made = LiveGroup(broker, spark, tmp_path, unique)
    try:
        yield made
    finally:
        made.close()


class Asked:
    """An operator that waits for the answer to one plan."""

    def __init__(self, live: LiveGroup, plan_id: str) -> None:
        from airflow.providers.standard.operators.empty import EmptyOperator
        from airflow.sdk import DAG, Param

        self.live, self.plan_id, self.run_id = live, plan_id, approval_run_id(plan_id)
        now = datetime.now(UTC)
        request = approvals.request_approval(live.loaded, live.name, plan_id, run_id=self.run_id, now=now)
        with DAG("asked", schedule=None):
            self.operator = PlanApprovalOperator(
                task_id="approve_plan",
                config=str(live.config),
                subject="s",
                body="b",
                answer_by=request.answer_by.isoformat(),
                params={"reason": Param("", type=["string", "null"])},
            )
            _ = self.operator >> EmptyOperator(task_id="publish")
        params = {"cluster": live.name, "plan_id": plan_id}
        # What is skipped is also noted in an XCom, for a task that is tried again.
        instance = SimpleNamespace(xcom_push=lambda **_: None, map_index=-1)
        self.context = cast(
            "Context", {"params": params, "run_id": self.run_id, "task": self.operator, "ti": instance}
        )

    def answer(self, option: str, *, user: Any = ADA, reason: str = "", **more: Any) -> Any:
        event = {
            "chosen_options": [option],
            "params_input": {"reason": reason},
            "responded_at": datetime.now(UTC),
            "responded_by_user": user,
            "timedout": False,
        }
        return self.operator.execute_complete(self.context, event | more)

    @property
    def events(self) -> dict[str, dict[str, Any]]:
        return self.live.events(self.plan_id)

    def decide_by_command(self, *, approve: bool) -> None:
        approvals.record_answer(
            self.live.loaded,
            self.live.name,
            self.plan_id,
            approve=approve,
            actor=Actor("grace"),
            reason="by command",
            run_id="command__1",
            now=datetime.now(UTC),
        )


def test_a_yes_is_recorded_with_the_person_s_name_and_reason(live: LiveGroup) -> None:
    asked = Asked(live, live.plan())
    asked.answer("Approve", reason=" looks right ")
    recorded = asked.events["APPROVED"]
    assert (recorded["actor"], recorded["reason"], recorded["run_id"]) == ("7", "looks right", asked.run_id)
    assert (recorded["actor_name"], recorded["channel"], recorded["account"]) == ("ada", "api", None)
    # A worker that is killed after the record runs it again: the same answer, without a second request.
    asked.answer("Approve", reason="looks right")
    assert asked.operator.execute(asked.context)["responded_by"] == "7"


def test_a_no_is_recorded_and_skips_the_publishing(live: LiveGroup) -> None:
    asked = Asked(live, live.plan())
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        asked.answer("Reject", reason="not today")
    assert "publish" in str(list(skipped.value.tasks))
    assert (asked.events["REJECTED"]["actor"], asked.events["REJECTED"]["reason"]) == ("7", "not today")
    with pytest.raises(AirflowSkipException, match="is REJECTED since"):
        asked.operator.execute(asked.context)


def test_no_answer_in_time_is_a_no_by_nobody(live: LiveGroup) -> None:
    asked = Asked(live, live.plan())
    with pytest.raises(DownstreamTasksSkipped):
        asked.answer("Reject", user=None, timedout=True)
    assert asked.events["REJECTED"]["actor"] == "time limit"
    assert "nobody answered until" in asked.events["REJECTED"]["reason"]


def test_a_yes_after_the_command_s_no_changes_nothing_and_publishes_nothing(live: LiveGroup) -> None:
    asked = Asked(live, live.plan())
    asked.decide_by_command(approve=False)
    with pytest.raises(AirflowSkipException, match=r"is REJECTED since .* by grace: by command"):
        asked.answer("Approve")
    assert set(asked.events) == {"PROPOSED", "REJECTED"}


def test_a_no_after_the_command_s_yes_changes_nothing(live: LiveGroup) -> None:
    asked = Asked(live, live.plan())
    asked.decide_by_command(approve=True)
    with pytest.raises(DownstreamTasksSkipped):
        asked.answer("Reject")
    assert set(asked.events) == {"PROPOSED", "APPROVED"}
    assert asked.events["APPROVED"]["actor"] == "grace"


def test_a_person_who_is_called_as_a_job_is_told_apart(live: LiveGroup) -> None:
    asked = Asked(live, live.plan())
    asked.answer("Approve", user={"id": "policy", "name": "policy"})
    assert asked.events["APPROVED"]["actor"] == "policy (person)"


def test_it_waits_until_the_plan_s_own_limit_however_often_it_is_begun(
    live: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.standard.operators import hitl
    from airflow.sdk.exceptions import TaskAwaitingInput

    # The request goes to Airflow's database over the task's supervisor, which is not here.
    requests: list[dict[str, Any]] = []
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **given: requests.append(given))
    asked = Asked(live, live.plan())
    asked.context["task_instance"] = cast("Any", type("Instance", (), {"id": "1"})())
    for begun_after_s, left_s in ((0, 3600), (3000, 600), (4000, 1)):
        until = datetime.fromisoformat(asked.operator.answer_by)
        asked.operator.answer_by = (until - timedelta(seconds=begun_after_s)).isoformat()
        with pytest.raises(TaskAwaitingInput):
            asked.operator.execute(asked.context)
        assert asked.operator.response_timeout is not None
        assert asked.operator.response_timeout.total_seconds() == pytest.approx(left_s, abs=30)
        asked.operator.answer_by = until.isoformat()
    assert [given["assigned_users"] for given in requests] == [None, None, None]

    # The approvers of the policy come before those of the DAG file; an answer of others opens it again.
    asked.operator.approvers = ("grace",)
    for rule, ids in (("", ["grace"]), ("approvers: [ada, linus]", ["ada", "linus"])):
        live.rule_keys = rule
        live.set_mode("approve")
        with pytest.raises(TaskAwaitingInput):
            asked.answer("Approve", user={"id": "7", "name": "ada"})
        assert [user["id"] for user in requests[-1]["assigned_users"]] == ids
    assert set(asked.events) == {"PROPOSED"}


def test_approvers_of_the_request_hold_where_the_policy_names_nobody_any_more(
    live: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.standard.operators import hitl
    from airflow.sdk.exceptions import TaskAwaitingInput

    requests: list[dict[str, Any]] = []
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **given: requests.append(given))
    live.rule_keys = "approvers: [grace]"
    live.set_mode("approve")
    asked = Asked(live, live.plan())
    asked.context["task_instance"] = cast("Any", type("Instance", (), {"id": "1"})())
    live.rule_keys = ""
    live.set_mode("approve")
    # In another case it is another user; and nobody else may answer because the list is gone.
    for user_id in ("Grace", "ada"):
        with pytest.raises(TaskAwaitingInput):
            asked.answer("Approve", user={"id": user_id, "name": "grace"})
        assert [user["id"] for user in requests[-1]["assigned_users"]] == ["grace"]
    assert set(asked.events) == {"PROPOSED"}
    asked.answer("Approve", user={"id": "grace", "name": "Grace"})
    assert asked.events["APPROVED"]["actor"] == "grace"


def test_the_page_holds_numbers_a_picture_and_moves_whatever_names_hold(live: LiveGroup) -> None:
    from evenlag.publishing.approval_page import build_page
    from evenlag.publishing.approvals import read_plan

    plan = live.plan(group_id="a|b *c* `d`")
    now = datetime.now(UTC)
    page = build_page(read_plan(live.loaded, live.name, plan, now), answer_by=now)
    assert "move 4 of 4 partitions, most loaded member from 2,100 to 1,700 records" in page.subject
    lines = page.body.splitlines()
    bars = [line for line in lines if "█" in line]
    assert [line.count("█") for line in bars] == [10 + 24, 24 + 10]
    assert sum(line.startswith("| orders") for line in lines) == 4
    assert "1,200" in next(line for line in lines if line.startswith("| orders"))
    assert json.dumps(page.body)  # it goes through XCom
    assert "**No answer until" in page.body
