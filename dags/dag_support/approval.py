"""Operator for manual approval of a plan; it records the answer before any later task runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowSkipException

from dags.dag_support.job_errors import fail_or_try_again

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from evenlag.publishing.waiting_plans import AlreadyDecidedError

# Airflow requires a timeout; execute replaces it by the limit of the plan.
_ANY_TIMEOUT: Final = timedelta(hours=1)
_NO_TIME_LEFT: Final = timedelta(seconds=1)
REASON: Final = "reason"


class PlanApprovalOperator(ApprovalOperator):
    """Airflow's approval operator with a recorded answer. The first recorded answer is final.

    It waits until the time limit of the plan, however often it is retried. It writes the answer to the lake
    before later tasks run. If the plan was already answered with the command, it follows that answer and
    reports it. No answer within the limit rejects the plan.

    Parameters
    ----------
    config
        Path of the policy file.
    answer_by
        Time limit, ISO 8601. Templated, like subject and body.
    **kwargs
        Arguments of Airflow's operator; its parameter ``reason`` is recorded.
    """

    template_fields: ClassVar[Sequence[str]] = (*ApprovalOperator.template_fields, "answer_by")  # type: ignore[misc]  # the base class declares it without ClassVar

    def __init__(self, *, config: str, answer_by: str, **kwargs: Any) -> None:
        super().__init__(
            defaults=self.REJECT,
            response_timeout=_ANY_TIMEOUT,
            **kwargs,
        )
        self.config = config
        self.answer_by = answer_by

    def execute(self, context: Context) -> Any:
        """Open the request, or follow an answer that an earlier, killed attempt has recorded."""
        from evenlag.publishing.waiting_plans import AlreadyDecidedError, NotWaitingError, check_waiting

        cluster, plan_id = _plan_of(context)
        with fail_or_try_again(cluster=cluster, step="ask", plan_id=plan_id):
            try:
                check_waiting(self._policy(), cluster, plan_id)
            except AlreadyDecidedError as error:
                return self._go_by(error)
            except NotWaitingError as error:
                raise AirflowSkipException(str(error)) from error
        left = datetime.fromisoformat(self.answer_by) - datetime.now(UTC)
        self.response_timeout = max(left, _NO_TIME_LEFT)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Record the answer; continue if the recorded answer is an approval, else skip later tasks."""
        from evenlag.publishing.approvals import decide
        from evenlag.publishing.waiting_plans import AlreadyDecidedError, NotWaitingError

        if "error" in event:
            return super().execute_complete(context, event)
        self.validate_chosen_options(event["chosen_options"])
        self.validate_params_input(event["params_input"] or {})
        cluster, plan_id = _plan_of(context)
        is_yes = event["chosen_options"] == [self.APPROVE]
        actor, reason = self._who_and_why(event)
        with fail_or_try_again(cluster=cluster, step="answer", plan_id=plan_id):
            try:
                decide(
                    self._policy(),
                    cluster,
                    plan_id,
                    approve=is_yes,
                    actor=actor,
                    reason=reason,
                    run_id=context["run_id"],
                    now=event["responded_at"],
                )
            except AlreadyDecidedError as error:
                self.log.warning("This answer changes nothing: %s", error)
                if is_yes:
                    self._go_by(error)
            except NotWaitingError as error:
                raise AirflowSkipException(str(error)) from error
        return super().execute_complete(context, event)

    def _go_by(self, error: AlreadyDecidedError) -> dict[str, Any]:
        """Continue if the recorded answer is an approval: publishing is idempotent."""
        from evenlag.enums import PlanEvent

        if error.event["event"] != PlanEvent.APPROVED:
            raise AirflowSkipException(str(error)) from error
        self.log.info("It has its answer: %s", error)
        return {"chosen_options": [self.APPROVE], "responded_by": error.event["actor"]}

    def _who_and_why(self, event: dict[str, Any]) -> tuple[str, str]:
        from evenlag.publishing.approvals import TIME_LIMIT_ACTOR, person

        user = event.get("responded_by_user")
        if event.get("timedout") or user is None:
            return TIME_LIMIT_ACTOR, f"nobody answered until {self.answer_by}"
        why = str((event["params_input"] or {}).get(REASON) or "").strip()
        # A response is a dictionary over the execution API, and an object from the database.
        name = user.get("name") if isinstance(user, dict) else user.name
        return person(str(name)), why or "answered on Airflow's page"

    def _policy(self) -> Any:
        from evenlag.policy.loader import load_policy

        return load_policy(self.config)


def _plan_of(context: Context) -> tuple[str, str]:
    params = context["params"]
    return str(params["cluster"]), str(params["plan_id"])


def approval_run_id(plan_id: str) -> str:
    """Return the id of the run for a plan: one run per plan, however often it is triggered."""
    return f"approval__{plan_id}"
