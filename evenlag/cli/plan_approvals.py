"""`evenlag plans approve | reject`: manual approval, recorded like an approval in Airflow."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.cli import option_types
from evenlag.cli.cluster_target import find_target
from evenlag.cli.console import console, print_json
from evenlag.cli.options import ActorOption, ClusterOption, ConfigOption, JsonOption, ReasonOption
from evenlag.cli.plans import SHORT_ID, the_plan
from evenlag.context import acting_person
from evenlag.enums import PlanEvent
from evenlag.errors import JobError

if TYPE_CHECKING:
    from evenlag.cli.cluster_target import Target
    from evenlag.publishing.publish import PublishReport

PlanArgument = Annotated[
    str,
    typer.Argument(parser=option_types.plan_id, metavar="PLAN", help="The plan id, or its first characters."),
]


class NotPublishedError(JobError):
    """Raised when a plan is approved but can no longer be published."""


def approve(
    plan: PlanArgument,
    *,
    reason: ReasonOption,
    actor: ActorOption = None,
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
    from evenlag.publishing.revocation import try_again_when_fenced

    target = find_target(None, config, cluster)
    head, answer = _decide(target, plan, approve=True, reason=reason, actor=actor)
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
    actor: ActorOption = None,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reject a plan that waits for approval; needs the lake, but not Kafka."""
    _, answer = _decide(find_target(None, config, cluster), plan, approve=False, reason=reason, actor=actor)
    _tell(answer, as_json=as_json)


def _decide(
    target: Target, prefix: str, *, approve: bool, reason: str, actor: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Record the decision; return the row of the plan, and the answer to print."""
    from evenlag.lake.reader import LakeReader
    from evenlag.publishing import approvals

    found = the_plan(LakeReader(target.loaded.policy.lake), target.name, prefix)
    now = datetime.now(UTC)
    answer = {
        "cluster": target.name,
        "plan_id": found["plan_id"],
        "group_id": found["group_id"],
        "status": (PlanEvent.APPROVED if approve else PlanEvent.REJECTED).value,
        "actor": approvals.person(acting_person(actor)),
        "reason": reason.strip(),
        "run_id": f"command__{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}",
    }
    head = approvals.decide(
        target.loaded,
        target.name,
        found["plan_id"],
        approve=approve,
        actor=answer["actor"],
        reason=answer["reason"],
        run_id=answer["run_id"],
        now=now,
    )
    return head, answer


def _outcome(target: Target, head: dict[str, Any], report: PublishReport) -> dict[str, Any]:
    """Return the result of publishing the plan, by this command or by another run that was first."""
    from evenlag.lake.reader import LakeReader

    if report.held:
        return {"held": report.held[0][2]}
    wanted = [("cluster", "=", head["cluster"]), ("plan_id", "=", head["plan_id"])]
    events = LakeReader(target.loaded.policy.lake).read_events(filters=wanted).to_pylist()
    told = {event["event"]: event for event in events}
    if PlanEvent.PUBLISHED in told:
        missing = next((reason for *_, reason in report.not_taken_up), None)
        return {"published": True, "sequence": told[PlanEvent.PUBLISHED]["sequence"], "not_taken_up": missing}
    return {"expired": (told.get(PlanEvent.EXPIRED) or told.get(PlanEvent.WITHDRAWN) or {}).get("reason")}


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
    if answer.get("sequence") is not None:
        line += f" and published, sequence {answer['sequence']}"
        if answer.get("not_taken_up"):
            line += f"; the group's coordinator has not taken it up so far: {answer['not_taken_up']}"
    elif answer.get("held"):
        line += f"; it waits to be published: {answer['held']}"
    elif "published" in answer:
        line += "; the next cycle publishes it"
    console().print(f"{line}.", soft_wrap=True)
