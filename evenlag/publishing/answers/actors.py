"""Who approves a plan, over which channel, and whether the policy lets that user.

An id names a user: of Airflow, as Airflow authenticated the request, or ``account:NAME``, the account of the
operating system that runs the command. A name is what a page shows or a person typed: it may be shared, and
nothing depends on it.
"""

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from evenlag.enums import Channel, CommandApprovals
from evenlag.errors import JobError
from evenlag.policy.setting_types import ACCOUNT_PREFIX
from evenlag.policy.settings import Policy

POLICY_ACTOR: Final = "policy"
PUBLISHER_ACTOR: Final = "evenlag"
# Actors that jobs record. Any other actor is a user, or a user's command.
JOB_ACTORS: Final = frozenset({POLICY_ACTOR, "planner", "gates", "observer", PUBLISHER_ACTOR})
# Actor of the rejection that is recorded when the deadline passes without an answer.
TIME_LIMIT_ACTOR: Final = "time limit"
# Names that jobs record as their actor; a user with such an id gets a suffix.
_RESERVED_ACTORS: Final = JOB_ACTORS | {"command", TIME_LIMIT_ACTOR}
_NUM_NAMED: Final = 10


class NotAnApproverError(JobError, exit_code=2):
    """Raised when a user answers who may not, or over a channel that the policy does not allow."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who approved or rejected a plan; only the id counts, and a job has no channel.

    id: The user, as recorded: :func:`airflow_user`, ``account:NAME``, or a job.
    account: Account and host that the command ran on, as it reports them.
    """

    id: str
    channel: Channel | None = None
    name: str | None = None
    account: str | None = None

    @classmethod
    def of_airflow(cls, user: Any, sent_by: str) -> Self:
        """Return the user who answered a request, as Airflow authenticated the user.

        user: A mapping from its execution API, or an object from its database.
        sent_by: What the sender reports of itself; other than a page or the command it is a call of the API.
        """
        given = user if isinstance(user, dict) else {"id": user.id, "name": user.name}
        found, name = str(given["id"]), str(given.get("name") or "")
        channel = _CHANNELS.get(sent_by.partition(" ")[0], Channel.API)
        account = sent_by.partition(" ")[2].strip() if channel is Channel.COMMAND else ""
        return cls(airflow_user(found), channel, name if name != found else None, account or None)

    @classmethod
    def of_command(cls, name: str | None = None) -> Self:
        """Return the account of the operating system that runs this process."""
        account = this_account()
        given = (name or "").strip()
        return cls(f"{ACCOUNT_PREFIX}{account}", Channel.COMMAND, given or None, account_and_host())

    def columns(self) -> dict[str, Any]:
        """Return the columns of ``plan_events`` that record it."""
        channel = None if self.channel is None else self.channel.value
        return {"actor": self.id, "channel": channel, "actor_name": self.name, "account": self.account}


# The time limit rejects what nobody answers.
TIME_LIMIT: Final = Actor(TIME_LIMIT_ACTOR)
# The field for the reason in the form on Airflow's page.
REASON: Final = "reason"
# A field of the form on Airflow's page that it does not show, and what it sends in it. Calls of the API leave
# it out, and the command says so.
SENT_BY: Final = "sent_by"
PAGE: Final = Channel.PAGE.value
_CHANNELS: Final = {PAGE: Channel.PAGE, Channel.COMMAND.value: Channel.COMMAND}


def sent_by_command() -> str:
    """Return what the command reports of itself when it answers a request of Airflow."""
    return f"{Channel.COMMAND.value} {account_and_host()}"


def airflow_user(user_id: str) -> str:
    """Return the actor to record for a user of Airflow: never a job, and never an account."""
    is_taken = user_id in _RESERVED_ACTORS or user_id.startswith(ACCOUNT_PREFIX)
    return f"{user_id} (person)" if is_taken else user_id


def this_account() -> str:
    """Return the account that this process runs as, whatever the environment says."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid={os.getuid()}"


def account_and_host() -> str:
    """Return the account and host of this process, as recorded with an answer."""
    return f"{this_account()}@{socket.gethostname()}"


def check_may_decide(
    policy: Policy, head: Mapping[str, Any], actor: Actor, asked: Iterable[str] | None = None
) -> None:
    """Check that a user may approve a plan; `asked` by its request are approvers if the policy names none."""
    reason = why_not(policy, head["cluster"], head["group_id"], actor, asked)
    if reason is not None:
        raise NotAnApproverError(f"plan {head['plan_id'][:12]}: {reason}")


def why_not(
    policy: Policy, cluster: str, group_id: str, actor: Actor, asked: Iterable[str] | None = None
) -> str | None:
    """Return why a user may not approve plans of a group; None if the user may."""
    if actor.id == TIME_LIMIT_ACTOR:
        return "nobody approved it: the time limit can only reject"
    is_local = actor.channel is Channel.COMMAND and actor.id.startswith(ACCOUNT_PREFIX)
    settings = policy.clusters.get(cluster)
    if is_local and settings is not None and settings.command_approvals is not CommandApprovals.ALLOW:
        return f"{channel_rule(cluster, settings.command_approvals)}, and {actor.id} used it"
    approvers = policy.approvers_of(cluster, group_id)
    named = tuple(asked or ()) if approvers is None else approvers
    if not named or actor.id in {_recorded(one) for one in named}:
        return None
    shown = ", ".join(named[:_NUM_NAMED]) + (", …" if len(named) > _NUM_NAMED else "")
    return f"{actor.id} is not an approver of the group {group_id} on {cluster}; approvers: {shown}"


def channel_rule(cluster: str, rule: CommandApprovals) -> str:
    """Return what a cluster's policy says about decisions by the command, as the start of a message."""
    what = "only through Airflow" if rule is CommandApprovals.AIRFLOW else "not at all"
    return f"the command may approve plans of {cluster} {what} (command_approvals: {rule.value})"


def _recorded(approver: str) -> str:
    return approver if approver.startswith(ACCOUNT_PREFIX) else airflow_user(approver)
