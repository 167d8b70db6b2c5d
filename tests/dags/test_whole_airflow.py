"""A plan that waits for a person in a whole Airflow: asked, answered over its interface, published."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.airflow.lineage import step_datasets
from evenlag.airflow_rest import TOKEN_VARIABLE
from evenlag.doctor.airflow_checks import airflow_checks
from evenlag.policy.loader import load_policy
from sandbox.airflow.rest import AirflowError, DagRun, DagRunClient
from tests.support.lineage import names_of, read_completed_tasks
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from typer.testing import Result

    from sandbox.airflow.instance import Airflow
    from tests.support.fixtures.browser import Browser
    from tests.support.fixtures.command import Evenlag
    from tests.support.live_plan import LiveGroup

# Longer than an answer takes on its way.
_ANEW_S = 20

pytestmark = [pytest.mark.airflow, pytest.mark.broker]


def wait_until_asked(airflow: Airflow, run: DagRun, *, after: int = 0) -> None:
    """Wait until a request is open, and the executor has reported more than `after` ends of its task.

    When an answer arrives before the executor has reported that the worker exited, Airflow 3.3.2 takes the
    task for a lost one: it tries again and repeats the request. No user is that fast.
    """

    def is_asked() -> bool:
        try:
            state = airflow.rest.refresh(run).task_states.get("approve_plan")
            if state not in {"awaiting_input", "deferred"}:  # Airflow 3.1 defers the task
                return False
            is_answered = airflow.rest.get(details_path(run))["response_received"]
        except AirflowError:
            return False  # there is no such run yet
        return not is_answered and num_reports(airflow, run) > after

    wait_until(is_asked, what=f"nobody was asked: {run}")


def num_reports(airflow: Airflow, run: DagRun) -> int:
    """How often the executor has reported the end of a worker that ran the request."""
    key = f"task_id='approve_plan', run_id='{run.run_id}'"
    lines = (airflow.directory / "scheduler.log").read_text(encoding="utf-8").splitlines()
    return sum("Received executor event" in line and key in line for line in lines)


def details_path(run: DagRun) -> str:
    return f"{run.path}/taskInstances/approve_plan/-1/hitlDetails"


def log_in(airflow: Airflow, user: str) -> DagRunClient:
    """Return a client for another user; Airflow has chosen the password."""
    passwords = json.loads((airflow.directory / "passwords.json").read_text(encoding="utf-8"))
    return DagRunClient(airflow.url, user, passwords[user])


def answer(
    airflow: Airflow, run: DagRun, option: str, reason: str, *, send: Callable[[], object] | None = None
) -> None:
    """Answer, and wait for the end; answer again when the request is repeated, as a busy executor causes."""
    path = details_path(run)
    body = {"chosen_options": [option], "params_input": {"reason": reason}}

    (send or (lambda: airflow.rest.request("PATCH", path, body)))()
    answered_at = time.monotonic()

    def is_over() -> bool:
        nonlocal answered_at
        states = airflow.rest.refresh(run).task_states
        if states.get("approve_plan") == "awaiting_input" and time.monotonic() - answered_at > _ANEW_S:
            answered_at = time.monotonic()
            # Refused while the answer given is on its way.
            with contextlib.suppress(AirflowError):
                (send or (lambda: airflow.rest.request("PATCH", path, body)))()
        return run.state in {"success", "failed"}

    wait_until(is_over, what=f"nobody took the answer: {run}")
    assert run.state == "success", run


def trigger(airflow: Airflow, live: LiveGroup, plan: str) -> DagRun:
    return airflow.rest.trigger(
        "plan_approval", dag_run_id=f"approval__{plan}", conf={"cluster": live.name, "plan_id": plan}
    )


def has_lineage() -> bool:
    """Return whether the optional provider is installed, as it is with the lock."""
    return find_spec("airflow.providers.openlineage") is not None


def check_lineage(live: LiveGroup, run: DagRun) -> None:
    """Check that each task has told what it reads and writes."""
    wait_until(
        lambda: "publish" in read_completed_tasks(live.lineage, run.run_id),
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


def test_a_plan_waits_for_a_person_and_is_published_by_the_yes(
    airflow: Airflow, live_group: LiveGroup, evenlag: Evenlag
) -> None:
    live, rest = live_group, airflow.rest
    plan = live.plan(age_s=1)
    rest.wait_for_dag("plan_approval")
    run = trigger(airflow, live, plan)
    wait_until_asked(airflow, run)
    later = live.plan(age_s=0)
    shadowed = rest.wait(trigger(airflow, live, later))
    assert set(shadowed.task_states.values()) == {"skipped"}
    assert live.group_id not in live.topic_state.hints

    # Airflow has the approvers of the rule, so it lets an admin answer as little as anybody else.
    assert {user["id"] for user in rest.get(details_path(run))["assigned_users"]} == {"evenlag", "ada"}
    users = {user: log_in(airflow, user) for user in ("ada", "mallory")}
    with pytest.raises(AirflowError, match=r"403: .*not a respondent"):
        users["mallory"].request(
            "PATCH", details_path(run), {"chosen_options": ["Approve"], "params_input": {}}
        )

    def by_command(user: str) -> Result:
        call = ("plans", "approve", plan, "--config", live.config, "--reason", "looks right", "--json")
        users[user].get("version")
        token = str(users[user].token)
        done = evenlag(*call, EVENLAG_AIRFLOW_URL=airflow.url, EVENLAG_AIRFLOW_TOKEN=token)
        assert token not in done.output
        return done

    refused = by_command("mallory")
    assert refused.exit_code == 2, refused.output
    assert refused.stderr == (
        f"error: plan {plan[:12]}: Airflow does not let this user answer: User=mallory (id=mallory) is not a "
        "respondent for the task.\n"
    )
    account = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()

    def approve() -> None:
        done = json.loads(by_command("ada").stdout)
        assert (done["status"], done["actor"], done["channel"]) == ("APPROVED", "ada", "command")

    answer(airflow, run, "Approve", "looks right", send=approve)
    by_event = live.events(plan)
    recorded = [
        by_event["APPROVED"][name] for name in ("actor", "actor_name", "channel", "account", "reason")
    ]
    assert recorded[:3] == ["ada", None, "command"]
    assert recorded[3].startswith(f"{account}@")
    assert recorded[4] == "looks right"
    assert by_event["PUBLISHED"]["run_id"] == run.run_id
    assert live.topic_state.hints[live.group_id].plan_id == plan
    if has_lineage():
        check_lineage(live, run)


@pytest.mark.extended
def test_the_cycle_asks_about_its_plan_and_ends_while_the_person_thinks(
    airflow: Airflow, live_group: LiveGroup
) -> None:
    live, rest = live_group, airflow.rest
    # As the form of Airflow's page sends it; the run reads Kafka at the time at which it becomes due.
    cycle = rest.trigger("lag_rebalance__sandbox", logical_date=datetime.now(UTC).isoformat())
    path = f"dags/{cycle.dag_id}/dagRuns/{cycle.run_id}"
    run = rest.get(path)
    due = datetime.fromisoformat(run["run_after"])
    assert datetime.fromisoformat(run["data_interval_end"]) != due
    plan = live.plan(slot=due.replace(microsecond=due.microsecond // 1000 * 1000))
    with pytest.raises(AirflowError, match="task observe"):
        rest.wait(cycle)
    # There is no Spark here: the lake contains what its tasks would have written.
    for task in ("observe", "decide"):
        rest.request("PATCH", f"{path}/taskInstances/{task}", {"new_state": "success"})
    asked = DagRun("plan_approval", f"approval__{plan}")
    wait_until_asked(airflow, asked)
    rest.wait(cycle)
    assert cycle.task_states["publish"] == cycle.task_states["report"] == "success"
    assert set(live.events(plan)) == {"PROPOSED"}

    # Airflow keeps the approvers of the time of the request; the policy of now decides.
    live.rule_keys = "approvers: [ada]"
    live.set_mode("approve")
    wrong = {"chosen_options": ["Approve"], "params_input": {"reason": "mine", "sent_by": "page"}}
    logs = airflow.directory / "logs" / "dag_id=plan_approval" / f"run_id={asked.run_id}"
    for _ in range(3):
        before = num_reports(airflow, asked)
        assert rest.request("PATCH", details_path(asked), wrong)["responded_by"]["id"] == "evenlag"
        wait_until_asked(airflow, asked, after=before)
        message = "".join(each.read_text("utf-8") for each in logs.glob("task_id=approve_plan/*.log"))
        # Not there when Airflow took the worker for lost before it had read the answer.
        if f"evenlag (person) is not an approver of the group {live.group_id}" in message:
            break
    else:
        pytest.fail(message)
    assert set(live.events(plan)) == {"PROPOSED"}

    ada = log_in(airflow, "ada")
    no = {"chosen_options": ["Reject"], "params_input": {"reason": "not today", "sent_by": "page"}}
    answer(airflow, asked, "", "", send=lambda: ada.request("PATCH", details_path(asked), no))
    assert asked.task_states["publish"] == "skipped"
    event = live.events(plan)["REJECTED"]
    assert (event["actor"], event["channel"], event["reason"]) == ("ada", "page", "not today")


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

    wait_until(lambda: verdicts(airflow.rest.token)["health"] == "ok", what="not healthy")
    shown = verdicts(airflow.rest.token)
    assert (shown["imports"], shown["dags"], shown["pools"]) == ("ok", "ok", "ok")
    without = verdicts(None)
    assert (without["health"], without["imports"], without["dags"]) == ("ok", "failed", "failed")


@pytest.mark.extended
def test_the_form_of_airflow_s_page_sends_the_channel_in_a_field_that_it_does_not_show(
    airflow: Airflow, live_group: LiveGroup, browser: Browser
) -> None:
    live, rest = live_group, airflow.rest
    live.rule_keys = "approvers: [ada]"
    live.set_mode("approve")
    plan = live.plan(age_s=0)
    rest.wait_for_dag("plan_approval")
    run = trigger(airflow, live, plan)
    wait_until_asked(airflow, run)
    passwords = json.loads((airflow.directory / "passwords.json").read_text(encoding="utf-8"))

    def elements(selector: str) -> list[Any]:
        found: list[Any] = browser.driver.find_elements("css selector", selector)
        return [each for each in found if each.is_displayed()]

    def press(label: str) -> bool:
        buttons = [each for each in elements("button") if each.text.strip() == label and each.is_enabled()]
        for button in buttons[:1]:
            button.click()
        return bool(buttons)

    browser.open(f"{airflow.url}/auth/login")
    wait_until(lambda: len(elements("input")) >= 2, what="there is no form to log in")
    for field, text in zip(elements("input"), ("ada", passwords["ada"]), strict=False):
        field.send_keys(text)
    wait_until(lambda: press("Sign in"), what="nobody can log in")
    wait_until(lambda: "/auth/" not in browser.driver.current_url, what="ada is not logged in")
    browser.open(f"{airflow.url}/dags/plan_approval/runs/{run.run_id}/tasks/approve_plan/required_actions")
    wait_until(lambda: any(each.text == "Approve" for each in elements("button")), what="no form")
    shown = browser.driver.find_element("css selector", "body").text
    assert "sent_by" not in shown
    assert "Why" in shown
    wait_until(lambda: press("Reject"), what="nothing to press")
    rest.wait(run)
    event = live.events(plan)["REJECTED"]
    assert (event["actor"], event["channel"], event["reason"]) == ("ada", "page", "answered in Airflow")
