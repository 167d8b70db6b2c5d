"""Who is recorded as the one who decided, and whom a policy lets decide."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from evenlag.enums import Channel
from evenlag.formatting import answered_by
from evenlag.policy.loader import parse_policy
from evenlag.publishing.answers.actors import (
    TIME_LIMIT,
    Actor,
    airflow_user,
    sent_by_command,
    this_account,
    why_not,
)

POLICY = """\
lake: /data
clusters:
  orders:
    bootstrap_servers: b1:9092
    approvers: ada, grace
  mobile:
    bootstrap_servers: b2:9092
    command_approvals: {rule}
groups:
  - match: payments-*
    mode: approve
    approvers: [evenlag, "account:linus"]
  - match: "*"
    mode: approve
"""


def refusal(
    actor: Actor, group: str, *, cluster: str = "orders", rule: str = "allow", asked: list[str] | None = None
) -> str | None:
    text = POLICY.format(rule=rule)
    policy = parse_policy(text, environ={}).policy
    return why_not(policy, cluster, group, actor, asked)


def user(user_id: str) -> Actor:
    return Actor.of_airflow({"id": user_id, "name": "A User"}, "page")


def test_the_approvers_of_the_rule_come_before_those_of_the_cluster() -> None:
    assert refusal(user("ada"), "billing") is None
    assert refusal(user("ada"), "payments-eu") == (
        "ada is not an approver of the group payments-eu on orders; approvers: evenlag, account:linus"
    )
    assert refusal(user("evenlag"), "payments-eu") is None
    assert refusal(user("evenlag"), "billing") is not None
    # Nobody is named there.
    assert refusal(user("mallory"), "billing", cluster="mobile") is None
    assert refusal(user("mallory"), "billing", cluster="mobile", asked=["ada"]) is not None
    assert refusal(user("mallory"), "billing", asked=["mallory"]) is not None


def test_an_account_is_no_user_of_airflow_and_a_name_is_no_id() -> None:
    linus = Actor("account:linus", Channel.COMMAND)
    assert refusal(linus, "payments-eu") is None
    assert refusal(Actor("account:ada", Channel.COMMAND), "billing") is not None
    # A user of Airflow may have any id, and any name.
    assert refusal(user("account:linus"), "payments-eu") is not None
    assert refusal(user("linus"), "payments-eu") is not None
    assert refusal(Actor.of_airflow({"id": "9", "name": "ada"}, "page"), "billing") is not None


@pytest.mark.parametrize(("rule", "word"), [("airflow", "only through Airflow"), ("refuse", "not at all")])
def test_a_policy_may_keep_the_command_from_deciding(rule: str, word: str) -> None:
    shown = refusal(Actor("account:ada", Channel.COMMAND), "billing", cluster="mobile", rule=rule)
    assert shown is not None
    assert word in shown
    by_airflow = Actor.of_airflow({"id": "ada", "name": "ada"}, sent_by_command())
    assert by_airflow.channel is Channel.COMMAND
    assert refusal(by_airflow, "billing", cluster="mobile", rule=rule) is None


def test_the_time_limit_approves_nothing() -> None:
    assert refusal(TIME_LIMIT, "billing", cluster="mobile") is not None


def test_the_channel_is_what_the_sender_reports_and_the_user_what_airflow_authenticated() -> None:
    for sent_by, channel, account in (
        ("page", Channel.PAGE, None),
        ("", Channel.API, None),
        ("pages", Channel.API, None),
        ("command root@host", Channel.COMMAND, "root@host"),
        ("command", Channel.COMMAND, None),
    ):
        actor = Actor.of_airflow(SimpleNamespace(id=7, name="Ada"), sent_by)
        assert (actor.id, actor.channel, actor.name, actor.account) == ("7", channel, "Ada", account)
    assert Actor.of_airflow({"id": "ada", "name": "ada"}, "").name is None


def test_the_account_is_the_one_of_the_process_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER"):
        monkeypatch.setenv(name, "ada")
    by_coreutils = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert this_account() == by_coreutils
    actor = Actor.of_command(" on-call ")
    assert (actor.id, actor.name, actor.channel) == (f"account:{by_coreutils}", "on-call", Channel.COMMAND)
    monkeypatch.setattr("os.getuid", lambda: 3_999_999_999)
    assert this_account() == "uid=3999999999"


def test_no_user_is_recorded_as_a_job_or_an_account() -> None:
    for name in ("policy", "evenlag", "gates", "command", "time limit", "account:ada"):
        assert airflow_user(name) == f"{name} (person)"
    assert airflow_user("ada") == "ada"


def test_rows_of_earlier_versions_show_their_actor_alone() -> None:
    assert answered_by({"actor": "ada"}) == "ada"
    assert answered_by({"actor": "ada", "actor_name": None, "channel": None, "account": None}) == "ada"
    # A channel of a later version.
    assert answered_by({"actor": "ada", "channel": "chat"}) == "ada, chat"
