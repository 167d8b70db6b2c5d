"""Operator for manual approval of a plan; it records the answer before any later task runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context

from evenlag.airflow.compat import answer_within, fixed_value
from evenlag.airflow.tasks import fail_or_try_again, plan_of
from evenlag.enums import PlanEvent
from evenlag.policy.loader import load_policy
from evenlag.publishing.answers.actors import PAGE, REASON, SENT_BY, TIME_LIMIT, Actor, NotAnApproverError
from evenlag.safe_text import printable

if TYPE_CHECKING:
    from evenlag.publishing.approvals import AlreadyDecidedError

# Airflow requires a timeout; execute replaces it by the limit of the plan.
_ANY_TIMEOUT: Final = timedelta(hours=1)
_NO_TIME_LEFT: Final = timedelta(seconds=1)


class PlanApprovalOperator(ApprovalOperator):
    """Airflow's approval operator with a recorded answer. The first recorded answer is final.

    It waits until the time limit of the plan, however often it is retried. It writes the answer to the lake
    before later tasks run. If the plan was already answered with the command, it follows that answer and
    reports it. No answer within the limit rejects the plan.

    config: Path of the policy file.
    answer_by: Time limit, ISO 8601. Templated, like subject and body.
    approvers: Ids of the users who may answer for groups for which the policy names nobody; None: whoever
        Airflow lets answer. An answer of somebody else is refused, and the request is opened again.
    **kwargs: Arguments of Airflow's operator; its parameter ``reason`` is recorded.
    """

    template_fields: ClassVar[Sequence[str]] = (*ApprovalOperator.template_fields, "answer_by")  # type: ignore[misc]  # the base class declares it without ClassVar

    def __init__(
        self, *, config: str, answer_by: str, approvers: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**{**kwargs, "defaults": self.REJECT, **answer_within(_ANY_TIMEOUT)})
        self.params[SENT_BY] = fixed_value(PAGE, note="How the answer is sent. Leave it as it is.")
        self.config = config
        self.answer_by = answer_by
        self.approvers = approvers

    def validate_params(self) -> None:
        """Leave the DAG's parameters out of the form: providers before 1.13 refuse those without a value."""
        for name in self.params.keys() - {REASON, SENT_BY}:
            del self.params[name]
        super().validate_params()

    def execute(self, context: Context) -> Any:
        """Open the request, or follow an answer that an earlier, killed attempt has recorded."""
        from evenlag.publishing.approvals import AlreadyDecidedError, check_waiting, read_plan

        cluster, plan_id = plan_of(context)
        with fail_or_try_again(cluster=cluster, step="ask", plan_id=plan_id):
            loaded = load_policy(self.config)
            try:
                plan = read_plan(loaded, cluster, plan_id, datetime.now(UTC))
                check_waiting(loaded, plan)
            except AlreadyDecidedError as error:
                return self._go_by(error)
        # Airflow has no template for them. Those of the request hold where nobody is named any more.
        named = (
            loaded.policy.approvers_of(cluster, plan.head["group_id"])
            or self.approvers
            or (plan.request or {}).get("approvers")
        )
        self.assigned_users = [{"id": one, "name": one} for one in named] if named else None
        left = datetime.fromisoformat(self.answer_by) - datetime.now(UTC)
        for name, limit in answer_within(max(left, _NO_TIME_LEFT)).items():
            setattr(self, name, limit)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Record the answer; continue if the recorded answer is an approval, else skip later tasks.

        Airflow itself refuses the answers of others than the approvers, except in the simple auth manager's
        mode in which all users are admins, and with the approvers of the time of the request. evenlag checks
        them, too: if the answer is refused, the request is opened again.
        """
        from evenlag.publishing.approvals import AlreadyDecidedError, record_answer

        if "error" in event:
            return super().execute_complete(context, event)
        self.validate_chosen_options(event["chosen_options"])
        given = {name: str((event["params_input"] or {}).get(name) or "") for name in (REASON, SENT_BY)}
        cluster, plan_id = plan_of(context)
        is_yes = event["chosen_options"] == [self.APPROVE]
        actor, reason = self._who_and_why(event, **given)
        refusal = None
        with fail_or_try_again(cluster=cluster, step="answer", plan_id=plan_id):
            try:
                record_answer(
                    load_policy(self.config),
                    cluster,
                    plan_id,
                    approve=is_yes,
                    actor=actor,
                    reason=reason,
                    run_id=context["run_id"],
                    now=event["responded_at"],
                    approvers=self.approvers,
                )
            except AlreadyDecidedError as error:
                self.log.warning("This answer changes nothing: %s", printable(str(error)))
                if is_yes:
                    self._go_by(error)
            except NotAnApproverError as error:
                refusal = str(error)
        if refusal is not None:
            self.log.warning("The answer is refused, and the request is opened again: %s", printable(refusal))
            return self.execute(context)
        # The API checks no field, and a wrong one must not lose an answer that is on record.
        return super().execute_complete(context, event | {"params_input": {}}) | {"params_input": given}

    def _go_by(self, error: AlreadyDecidedError) -> dict[str, Any]:
        """Continue if the recorded answer is an approval: publishing is idempotent."""
        if error.event["event"] != PlanEvent.APPROVED:
            raise error
        self.log.info("It has its answer: %s", printable(str(error)))
        return {"chosen_options": [self.APPROVE], "responded_by": error.event["actor"]}

    def _who_and_why(self, event: dict[str, Any], *, reason: str, sent_by: str) -> tuple[Actor, str]:
        user = event.get("responded_by_user")
        if event.get("timedout") or user is None:
            return TIME_LIMIT, f"nobody answered until {self.answer_by}"
        return Actor.of_airflow(user, sent_by), reason.strip() or "answered in Airflow"
