"""`evenlag plans approve | reject`, and who is asked: real broker, real consumers, a lake without a JVM."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.tables import PLANS
from evenlag.publishing import approvals
from evenlag.publishing.answers.actors import Actor, NotAnApproverError, this_account
from evenlag.publishing.publish import publish_hints
from tests.support.live_plan import LiveGroup
from tests.support.spark_tables import together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker
    from tests.support.fixtures.command import Evenlag

pytestmark = pytest.mark.broker


@pytest.fixture
def live(
    broker: Broker, spark: SparkSession, tmp_path: Path, unique: Callable[[str], str]
) -> Iterator[LiveGroup]:
    made = LiveGroup(broker, spark, tmp_path, unique)
    try:
        yield made
    finally:
        made.close()


def test_an_approved_plan_is_published_at_once_with_who_and_why_and_the_first_answer_holds(
    evenlag: Evenlag, live: LiveGroup
) -> None:
    plan = live.plan()
    call = (plan[:10], "--config", live.config, "--actor", "ada", "--reason", "looks right")
    answer = json.loads(evenlag("plans", "approve", *call, "--json", USER="eve", LOGNAME="eve").stdout)
    assert (answer["plan_id"], answer["status"], answer["sequence"]) == (plan, "APPROVED", 1)
    events = live.events(plan)
    # The name is what was typed; the account is the operating system's, whatever $USER says.
    account, host = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        for command in (["id", "-un"], ["uname", "-n"])
    )
    recorded = tuple(events["APPROVED"][name] for name in ("actor", "actor_name", "channel", "account"))
    assert recorded == (f"account:{account}", "ada", "command", f"{account}@{host}")
    assert events["APPROVED"]["reason"] == "looks right"
    shown = evenlag("plans", plan, "--config", live.config, "--lake", live.lake)
    assert f"account:{account} (ada), by command on {account}@{host}" in shown.stdout
    assert events["PUBLISHED"]["sequence"] == 1
    assert live.topic_state.hints[live.group_id].plan_id == plan

    for verb in ("reject", "approve"):
        late = evenlag("plans", verb, plan[:10], "--config", live.config, "--reason", "no")
        assert late.exit_code == 2
        assert f"plan {plan[:12]} is APPROVED since" in late.stderr
        assert f"by account:{account} (ada), by command on {account}@{host}: looks right" in late.stderr
    assert set(live.events(plan)) == {"PROPOSED", "APPROVED", "PUBLISHED"}


def test_a_rejected_plan_is_never_published(evenlag: Evenlag, live: LiveGroup) -> None:
    plan = live.plan()
    answer = evenlag("plans", "reject", plan, "--config", live.config, "--reason", "not before the sale")
    assert answer.exit_code == 0, answer.output
    assert f"plan {plan[:12]} is REJECTED" in answer.stdout
    assert publish_hints(live.loaded, live.name, datetime.now(UTC), "cycle").published == []
    late = evenlag("plans", "approve", plan, "--config", live.config, "--reason", "yes")
    assert late.exit_code == 2
    assert "not before the sale" in late.stderr
    assert live.group_id not in live.topic_state.hints
    shown = evenlag("plans", "--config", live.config, "--lake", live.lake)
    assert "not before the sale" in shown.stdout


@pytest.mark.extended
def test_a_group_whose_membership_changes_between_approval_and_publish_is_never_hinted(
    evenlag: Evenlag, live: LiveGroup
) -> None:
    plan = live.plan()
    call = ("plans", "approve", plan, "--config", live.config, "--reason", "yes")
    recorded = evenlag(*call, "--no-publish")
    assert "the next cycle publishes it" in recorded.stdout
    live.add_member()
    report = publish_hints(live.loaded, live.name, datetime.now(UTC), "cycle")
    assert (report.published, len(report.expired)) == ([], 1)
    assert live.events(plan)["EXPIRED"]["reason"] == "the group's members, topics or partitions have changed"
    assert live.group_id not in live.topic_state.hints

    second = live.plan(age_s=0)
    live.runners.pop().close()
    live.wait_until_settled()
    late = evenlag("plans", "approve", second, "--config", live.config, "--reason", "yes")
    assert late.exit_code == 1
    assert "approved, but will not be published: the group's members" in late.stderr
    assert live.group_id not in live.topic_state.hints


def test_a_plan_that_does_not_wait_is_told_why(evenlag: Evenlag, live: LiveGroup) -> None:
    with together():
        shadow = live.plan(mode="shadow", age_s=30)
        failed = live.plan(failed_gate="moves 41 partitions", age_s=20)
        old = live.plan(age_s=2 * 3600)
        waiting = live.plan()
    twin = waiting[:20] + shadow[20:]
    live.write(PLANS, [{"cluster": live.name, "day": datetime.now(UTC).date(), "plan_id": twin,
                        "slot": datetime.now(UTC), "group_id": live.group_id}])  # fmt: skip
    for prefix, exit_code, message in (
        ("ffff" * 16, 4, "there is no plan ffff"),
        (waiting[:20], 2, "2 plans begin with"),
        (shadow, 2, "was made in mode shadow: only plans of mode approve wait for a person"),
        (failed, 2, "is REJECTED since"),
        (old, 2, "could be approved until"),
    ):
        answer = evenlag("plans", "approve", prefix, "--config", live.config, "--reason", "yes")
        assert (answer.exit_code, message in answer.stderr) == (exit_code, True), answer.output
        assert answer.stderr.count("\n") == 1
    live.set_mode("shadow")
    answer = evenlag("plans", "approve", waiting, "--config", live.config, "--reason", "yes")
    assert answer.exit_code == 2
    assert "is in mode shadow by now" in answer.stderr
    assert "APPROVED" not in live.events(waiting)


def test_one_plan_of_a_group_is_asked_for_at_a_time_and_later_ones_stay_in_shadow_with_the_reason(
    evenlag: Evenlag, live: LiveGroup
) -> None:
    now = datetime.now(UTC)
    first = live.plan(age_s=60)
    ask = approvals.request_approval(live.loaded, live.name, first, run_id="run 1", now=now)
    assert ask.answer_by == now + timedelta(hours=1)
    again = approvals.request_approval(
        live.loaded, live.name, first, run_id="run 1", now=now + timedelta(minutes=5)
    )
    assert again == ask
    with pytest.raises(approvals.NotWaitingError, match="by the run run 1 already"):
        approvals.request_approval(live.loaded, live.name, first, run_id="by hand", now=now)

    second = live.plan(age_s=5)
    slot = live.slots[second]
    plans = approvals.find_waiting(live.loaded, live.name, slot + timedelta(microseconds=7))
    assert [plan.head["plan_id"] for plan in plans] == [second]
    assert approvals.set_aside_shadowed(live.loaded, live.name, plans, run_id="cycle", now=now) == []
    with pytest.raises(approvals.NotWaitingError, match="stays in shadow: plan"):
        approvals.request_approval(live.loaded, live.name, second, run_id="run 2", now=now)
    shown = {
        plan["plan_id"]: plan["reason"]
        for plan in json.loads(evenlag("plans", "--lake", live.lake, "--json").stdout)["plans"]
    }
    assert shown[first].startswith("waits for a person, until")
    assert shown[second].startswith(f"stays in shadow: plan {first[:12]} of the group waits for a person")

    # Once the first has its answer, or its time is over, a later plan may be asked for.
    approvals.record_answer(
        live.loaded, live.name, first, approve=False, actor=Actor("ada"), reason="no", run_id="run 1", now=now
    )
    third = live.plan(age_s=0)
    asked = approvals.request_approval(live.loaded, live.name, third, run_id="run 3", now=now)
    assert asked.plan.head["group_id"] == live.group_id


def test_while_one_group_waits_for_a_person_the_others_are_published(live: LiveGroup) -> None:
    waiting = live.plan(group_id="waiting", age_s=20)
    now = datetime.now(UTC)
    live.add_rule("waiting", "approve")
    live.set_mode("auto")
    approvals.request_approval(live.loaded, live.name, waiting, run_id="run", now=now)
    plan = live.plan(mode="auto", approved=True)
    report = publish_hints(live.loaded, live.name, datetime.now(UTC), "cycle")
    assert [published for _, published, _ in report.published] == [plan]
    assert set(live.events(waiting)) == {"PROPOSED"}


def test_only_an_approver_decides_and_only_over_a_channel_that_the_policy_allows(
    evenlag: Evenlag, live: LiveGroup
) -> None:
    plan, account = live.plan(), this_account()
    call = (plan[:10], "--config", live.config, "--reason", "looks right")

    def set_policy(*, rule: str = "", cluster: str = "") -> None:
        live.rule_keys, live.cluster_keys = rule, cluster
        live.set_mode("approve")

    # A name that was typed makes nobody an approver.
    set_policy(rule="approvers: [ada, 'account:somebody']")
    line = (
        f"error: plan {plan[:12]}: account:{account} is not an approver of the group {live.group_id} on "
        "sandbox; approvers: ada, account:somebody\n"
    )
    for verb, name in (("approve", ""), ("reject", ""), ("approve", "ada")):
        refused = evenlag("plans", verb, *call, *(("--actor", name) if name else ()))
        assert (refused.exit_code, refused.stderr) == (2, line)
    for rule, message in (
        (
            "refuse",
            "not at all (command_approvals: refuse): answer on Airflow's page, under Required Actions",
        ),
        (
            "airflow",
            "only through Airflow (command_approvals: airflow): give --airflow-url, and your token in",
        ),
    ):
        set_policy(cluster=f"command_approvals: {rule}")
        refused = evenlag("plans", "approve", *call)
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.output
        # Whoever calls the same function gets the same answer.
        with pytest.raises(NotAnApproverError, match=f"command_approvals: {rule}"):
            approvals.record_answer(
                live.loaded, live.name, plan, approve=True, actor=Actor.of_command(), reason="yes",
                run_id="command__1", now=datetime.now(UTC),
            )  # fmt: skip
    by_airflow = (*call, "--airflow-url", "http://127.0.0.1:1")
    for more, exit_code, message in (
        ((), 4, "Airflow was not asked about plan"),
        (("--actor", "ada"), 2, "--actor has no effect with Airflow"),
        (("--no-publish",), 2, "--no-publish has no effect here"),
    ):
        refused = evenlag("plans", "approve", *by_airflow, *more, EVENLAG_AIRFLOW_TOKEN="t")
        assert (refused.exit_code, message in refused.stderr) == (exit_code, True), refused.output
    assert "needs your token" in evenlag("plans", "approve", *by_airflow).stderr
    assert set(live.events(plan)) == {"PROPOSED"}

    # The command may have another policy than the publisher: what counts is the policy of who publishes.
    set_policy(rule=f"approvers: 'account:{account}'")
    assert evenlag("plans", "approve", *call, "--no-publish").exit_code == 0
    set_policy(cluster="approvers: [ada]")
    assert publish_hints(live.loaded, live.name, datetime.now(UTC), "cycle").published == []
    assert live.events(plan)["EXPIRED"]["reason"] == (
        f"account:{account} is not an approver of the group {live.group_id} on sandbox; approvers: ada"
    )
    assert live.group_id not in live.topic_state.hints


def test_the_approvers_of_a_request_hold_where_the_policy_names_nobody(
    evenlag: Evenlag, live: LiveGroup
) -> None:
    plan, now = live.plan(), datetime.now(UTC)
    approvals.request_approval(
        live.loaded, live.name, plan, run_id="run", now=now, approvers=["ada"], dag_id="eu_plan_approval"
    )
    refused = evenlag("plans", "approve", plan, "--config", live.config, "--reason", "yes")
    assert (refused.exit_code, "is not an approver" in refused.stderr) == (2, True), refused.output
    ada = Actor.of_airflow({"id": "ada", "name": "[/x]\x1b[2J=1+1"}, "page")
    approvals.record_answer(
        live.loaded, live.name, plan, approve=False, actor=ada, reason="[bold]no", run_id="run", now=now
    )
    # A display name is whatever its user chose.
    for call in (("plans", plan), ("plans",)):
        shown = evenlag(*call, "--lake", live.lake).stdout
        assert "ada ([/x]\\x1b[2J=1+1), on Airflow's page" in shown, shown
        assert "\x1b" not in shown
    (row,) = json.loads(evenlag("plans", "--lake", live.lake, "--json").stdout)["plans"]
    assert row["decided_by"] == "ada ([/x]\x1b[2J=1+1), on Airflow's page"
