"""`evenlag plans approve | reject`: manual approval, recorded like an approval in Airflow.

The command records the answer itself, as the account that runs it, or sends it to Airflow by a user's token.
What it may do is the policy's choice (``command_approvals``).
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.cli import option_types
from evenlag.cli.cluster_target import find_target
from evenlag.cli.console import console, print_json
from evenlag.cli.option_types import argument
from evenlag.cli.options import (
    AirflowUrlOption,
    ClusterOption,
    ConfigOption,
    JsonOption,
    NameOption,
    ReasonOption,
)
from evenlag.cli.plans import the_plan
from evenlag.cli.tables.plan_tables import SHORT_ID
from evenlag.enums import CommandApprovals, PlanEvent
from evenlag.errors import JobError, NotFoundError, UsageError
from evenlag.formatting import answered_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.airflow_rest import AirflowRest
    from evenlag.cli.cluster_target import Target
    from evenlag.lake.file_pruning import Filter
    from evenlag.publishing.answers.actors import Actor
    from evenlag.publishing.publish import PublishReport

PlanArgument = Annotated[str, argument("PLAN", "The plan id, or its first characters.", option_types.plan_id)]


class NotPublishedError(JobError):
    """Raised when a plan is approved but can no longer be published."""


def approve(
    plan: PlanArgument,
    *,
    reason: ReasonOption,
    actor: NameOption = None,
    airflow_url: AirflowUrlOption = None,
    publish: Annotated[
        bool,
        typer.Option("--publish/--no-publish", help="Publish immediately (default), or in the next cycle."),
    ] = True,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve a plan that waits for approval, and publish it if its group has not changed since."""
    from evenlag.publishing.publish import publish_hints
    from evenlag.publishing.writing.blind_writes import try_again_when_fenced

    target = find_target(None, config, cluster)
    access = _airflow(target, airflow_url, actor)
    if access is not None:
        if not publish:
            raise UsageError("--no-publish has no effect here: in Airflow, the run of the plan publishes it")
        _tell(_answer_in_airflow(target, access, plan, approve=True, reason=reason), as_json=as_json)
        return
    head, answer = _decide(target, plan, approve=True, reason=reason, name=actor)
    if not publish:
        _tell(answer | {"published": False}, as_json=as_json)
        return
    try:
        report = try_again_when_fenced(
            lambda: publish_hints(
                target.loaded,
                target.name,
                head["slot"],
                answer["run_id"],
                actor="command",
                only={head["plan_id"]},
            )
        )
    except JobError as error:
        error.args = (f"the plan is approved, but not published yet (the next cycle tries again): {error}",)
        raise
    _tell_published(answer, _outcome(target, head, report), as_json=as_json)


def reject(
    plan: PlanArgument,
    *,
    reason: ReasonOption,
    actor: NameOption = None,
    airflow_url: AirflowUrlOption = None,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reject a plan that waits for approval; needs the lake, but not Kafka."""
    target = find_target(None, config, cluster)
    access = _airflow(target, airflow_url, actor)
    if access is None:
        _, answer = _decide(target, plan, approve=False, reason=reason, name=actor)
    else:
        answer = _answer_in_airflow(target, access, plan, approve=False, reason=reason)
    _tell(answer, as_json=as_json)


def _airflow(target: Target, url: str | None, name: str | None) -> AirflowRest | None:
    """Return the Airflow to answer through, None to record it here; check what the policy allows."""
    from evenlag.publishing.answers.actors import NotAnApproverError, channel_rule
    from evenlag.publishing.answers.airflow_request import find_access

    rule = target.settings.command_approvals
    if rule is CommandApprovals.REFUSE:
        raise NotAnApproverError(
            f"{channel_rule(target.name, rule)}: answer on Airflow's page, under Required Actions"
        )
    access = find_access(url)
    if access is None and rule is CommandApprovals.AIRFLOW:
        raise NotAnApproverError(
            f"{channel_rule(target.name, rule)}: give --airflow-url, and your token in EVENLAG_AIRFLOW_TOKEN"
        )
    if access is not None and name is not None:
        raise UsageError("--actor has no effect with Airflow: its token names the user")
    return access


def _answer_in_airflow(
    target: Target, access: AirflowRest, prefix: str, *, approve: bool, reason: str
) -> dict[str, Any]:
    """Answer the request of the plan in Airflow; return the answer to print."""
    from evenlag.lake.reader import LakeReader
    from evenlag.publishing.answers.airflow_request import answer_request
    from evenlag.publishing.approvals import check_waiting, read_plan

    plan_id = the_plan(LakeReader(target.loaded.policy.lake), target.name, prefix)["plan_id"]
    # Whoever answers needs no key: Airflow checks the user, and its task the plan.
    found = read_plan(target.loaded, target.name, plan_id, datetime.now(UTC), is_sealed=False)
    check_waiting(target.loaded, found)
    request = found.request
    if request is None:
        raise NotFoundError(
            f"Airflow was not asked about plan {plan_id[:SHORT_ID]}: see the DAG lag_rebalance of "
            f"{target.name}, tasks find_waiting and ask"
        )
    actor = answer_request(access, request, approve=approve, reason=reason.strip())
    answer = _answer(target, found.head, actor, approve=approve, reason=reason, run_id=request["run_id"])
    return answer | {"airflow": access.url}


def _answer(
    target: Target, plan: Mapping[str, Any], actor: Actor, *, approve: bool, reason: str, run_id: str
) -> dict[str, Any]:
    return {
        "cluster": target.name,
        "plan_id": plan["plan_id"],
        "group_id": plan["group_id"],
        "status": (PlanEvent.APPROVED if approve else PlanEvent.REJECTED).value,
        **actor.columns(),
        "reason": reason.strip(),
        "run_id": run_id,
    }


def _decide(
    target: Target, prefix: str, *, approve: bool, reason: str, name: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Record the answer of this account; return the row of the plan, and the answer to print."""
    from evenlag.lake.reader import LakeReader
    from evenlag.publishing import approvals
    from evenlag.publishing.answers.actors import Actor

    found = the_plan(LakeReader(target.loaded.policy.lake), target.name, prefix)
    now = datetime.now(UTC)
    actor = Actor.of_command(name)
    run_id = f"command__{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    head = approvals.record_answer(
        target.loaded,
        target.name,
        found["plan_id"],
        approve=approve,
        actor=actor,
        reason=reason.strip(),
        run_id=run_id,
        now=now,
    )
    return head, _answer(target, head, actor, approve=approve, reason=reason, run_id=run_id)


def _outcome(target: Target, head: dict[str, Any], report: PublishReport) -> dict[str, Any]:
    """Return the result of publishing the plan, by this command or by another run that was first."""
    from evenlag.lake.reader import LakeReader

    if report.held:
        return {"held": report.held[0][2]}
    wanted: list[Filter] = [
        ("cluster", "=", head["cluster"]),
        ("day", ">=", head["day"]),
        ("plan_id", "=", head["plan_id"]),
    ]
    events = LakeReader(target.loaded.policy.lake).read_events(filters=wanted).to_pylist()
    newest = {event["event"]: event for event in events}
    if PlanEvent.PUBLISHED in newest:
        missing = next((reason for *_, reason in report.not_taken_up), None)
        return {
            "published": True,
            "sequence": newest[PlanEvent.PUBLISHED]["sequence"],
            "not_taken_up": missing,
        }
    return {"expired": (newest.get(PlanEvent.EXPIRED) or newest.get(PlanEvent.WITHDRAWN) or {}).get("reason")}


def _tell_published(answer: dict[str, Any], outcome: dict[str, Any], *, as_json: bool) -> None:
    if "expired" in outcome:
        raise NotPublishedError(
            f"the plan is approved, but will not be published: {outcome['expired']}. Later cycles plan again"
        )
    _tell(answer | {"published": False, "sequence": None, "held": None} | outcome, as_json=as_json)


def _tell(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    line = f"{answer['group_id']}: plan {answer['plan_id'][:SHORT_ID]} is {answer['status']}"
    if "airflow" in answer:
        what = "and publishes it" if answer["status"] == PlanEvent.APPROVED else "with the reason"
        line += f" by {answered_by(answer)}; the run {answer['run_id']} of Airflow records it {what}"
    elif answer.get("sequence") is not None:
        line += f" and published, sequence {answer['sequence']}"
        if answer.get("not_taken_up"):
            line += f"; the group has not taken it up so far: {answer['not_taken_up']}"
    elif answer.get("held"):
        line += f"; it waits to be published: {answer['held']}"
    elif "published" in answer:
        line += "; the next cycle publishes it"
    console().print(f"{line}.", soft_wrap=True)
