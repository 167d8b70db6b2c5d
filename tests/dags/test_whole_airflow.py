"""A plan that waits for a person in a whole Airflow: asked, answered over its interface, published."""

from __future__ import annotations

import contextlib
import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from dags.dag_support.lineage import step_datasets
from evenlag.doctor.airflow_checks import TOKEN_VARIABLE, airflow_checks
from evenlag.policy.loader import load_policy
from sandbox.airflow.rest import AirflowError, DagRun
from tests.support.hints import wait_until
from tests.support.lineage import names_of, read_completed_tasks

if TYPE_CHECKING:
    from sandbox.airflow.instance import Airflow
    from tests.support.live_plan import LiveGroup

_AFTER_ASKING_S = 4
# Longer than an answer takes on its way.
_ANEW_S = 20

pytestmark = [pytest.mark.airflow, pytest.mark.broker]


def wait_until_asked(airflow: Airflow, run: DagRun) -> None:
    def is_asked() -> bool:
        try:
            states = airflow.rest.refresh(run).task_states
        except AirflowError:
            return False  # there is no such run yet
        return states.get("approve_plan") == "awaiting_input"

    wait_until(is_asked, timeout_s=240, what=f"nobody was asked: {run}")
    # When an answer arrives before the executor has reported that the worker exited, Airflow 3.3.2 takes the
    # task for a lost one: it tries again and repeats the request. No user is that fast.
    time.sleep(_AFTER_ASKING_S)


def answer(airflow: Airflow, run: DagRun, option: str, reason: str) -> None:
    """Answer, and wait for the end; answer again when the request is repeated, as a busy executor causes."""
    path = f"/api/v2/dags/plan_approval/dagRuns/{run.run_id}/taskInstances/approve_plan/-1/hitlDetails"
    body = {"chosen_options": [option], "params_input": {"reason": reason}}

    airflow.rest.patch(path, body)
    answered_at = time.monotonic()

    def is_over() -> bool:
        nonlocal answered_at
        states = airflow.rest.refresh(run).task_states
        if states.get("approve_plan") == "awaiting_input" and time.monotonic() - answered_at > _ANEW_S:
            answered_at = time.monotonic()
            # Refused while the answer given is on its way.
            with contextlib.suppress(AirflowError):
                airflow.rest.patch(path, body)
        return run.state in {"success", "failed"}

    wait_until(is_over, timeout_s=240, what=f"nobody took the answer: {run}")
    assert run.state == "success", run


def trigger(airflow: Airflow, live: LiveGroup, plan: str) -> DagRun:
    return airflow.rest.trigger(
        "plan_approval", run_id=f"approval__{plan}", conf={"cluster": live.name, "plan_id": plan}
    )


def test_a_plan_waits_for_a_person_and_is_published_by_the_yes(
    airflow: Airflow, live_group: LiveGroup
) -> None:
    live, rest = live_group, airflow.rest
    plan = live.plan(age_s=1)
    rest.wait_for_dag("plan_approval")
    run = trigger(airflow, live, plan)
    wait_until_asked(airflow, run)
    later = live.plan(age_s=0)
    shadowed = rest.wait(trigger(airflow, live, later), timeout_s=240)
    assert set(shadowed.task_states.values()) == {"skipped"}
    assert live.group_id not in live.topic_state.hints

    answer(airflow, run, "Approve", "looks right")
    told = live.events(plan)
    assert told["APPROVED"]["actor"] == "evenlag (person)"
    assert told["APPROVED"]["reason"] == "looks right"
    assert told["PUBLISHED"]["run_id"] == run.run_id
    assert live.topic_state.hints[live.group_id].plan_id == plan
    wait_until(
        lambda: "publish" in read_completed_tasks(live.lineage, run.run_id),
        timeout_s=60,
        what="no lineage of the publishing",
    )
    lineage = read_completed_tasks(live.lineage, run.run_id)
    for task, step in (("prepare", "ask"), ("approve_plan", "answer"), ("publish", "publish")):
        inputs, outputs = step_datasets(step, str(live.config), live.name)
        told_of = lineage[task]
        assert told_of["job"]["name"] == f"plan_approval.{task}"
        assert (names_of(told_of["inputs"]), names_of(told_of["outputs"])) == (
            names_of(inputs),
            names_of(outputs),
        ), task


def test_the_cycle_asks_about_its_plan_and_ends_while_the_person_thinks(
    airflow: Airflow, live_group: LiveGroup
) -> None:
    live, rest = live_group, airflow.rest
    cycle = rest.trigger("lag_rebalance__sandbox")
    path = f"/api/v2/dags/{cycle.dag_id}/dagRuns/{cycle.run_id}"
    due = datetime.fromisoformat(rest.get(path)["run_after"])
    plan = live.plan(slot=due.replace(microsecond=due.microsecond // 1000 * 1000))
    with pytest.raises(AirflowError, match="task observe"):
        rest.wait(cycle, timeout_s=240)
    # There is no Spark here: the lake contains what its tasks would have written.
    for task in ("observe", "decide"):
        rest.patch(f"{path}/taskInstances/{task}", {"new_state": "success"})
    asked = DagRun("plan_approval", f"approval__{plan}")
    wait_until_asked(airflow, asked)
    rest.wait(cycle, timeout_s=240)
    assert cycle.task_states["publish"] == cycle.task_states["report"] == "success"
    assert set(live.events(plan)) == {"PROPOSED"}
    answer(airflow, asked, "Reject", "not today")
    assert asked.task_states["publish"] == "skipped"
    assert live.events(plan)["REJECTED"]["reason"] == "not today"


def test_doctor_asks_a_whole_airflow_with_a_token_and_is_told_to_bring_one(
    airflow: Airflow, live_group: LiveGroup
) -> None:
    airflow.rest.wait_for_dag("plan_approval")
    airflow.rest.wait_for_dag(f"lag_rebalance__{live_group.name}")
    airflow.rest.wait_for_dag("assignment_audit")
    policy = load_policy(live_group.config).policy

    def verdicts(token: str | None) -> dict[str, str]:
        environ = {TOKEN_VARIABLE: token} if token else {}
        checks = airflow_checks(policy, airflow.url, environ)
        return {check.name: max(one.verdict.value for one in check.look()) for check in checks}

    wait_until(lambda: verdicts(airflow.rest._token)["health"] == "ok", timeout_s=120, what="not healthy")
    told = verdicts(airflow.rest._token)
    assert (told["imports"], told["dags"]) == ("ok", "ok")
    without = verdicts(None)
    assert (without["health"], without["imports"], without["dags"]) == ("ok", "failed", "failed")
