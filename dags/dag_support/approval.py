"""Asking a person about a plan: Airflow's approval, with the answer recorded before anything follows."""

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

# Overruled by each plan's own limit; the operator must be made with one.
_ANY_TIMEOUT: Final = timedelta(hours=1)
_NO_TIME_LEFT: Final = timedelta(seconds=1)
REASON: Final = "reason"


class PlanApprovalOperator(ApprovalOperator):
    """Airflow's approval, made to keep a record that the first answer wins in.

    It waits until the plan's own limit, however often it is begun anew. An answer is written to the lake
    before anything follows; where the plan has one already, given by the command, that one stands and this
    one is told so. No answer in time is a no.

    Parameters
    ----------
    config
        The policy file.
    answer_by
        ISO 8601; from then on no answer means no. Templated, as subject and body are.
    **kwargs
        As for Airflow's operator; a parameter ``reason`` is the person's, and recorded.
    """

    template_fields: ClassVar[Sequence[str]] = (*ApprovalOperator.template_fields, "answer_by")  # type: ignore[misc]  # the base says so without ClassVar

    def __init__(self, *, config: str, answer_by: str, **kwargs: Any) -> None:
        super().__init__(
            defaults=self.REJECT,
            response_timeout=_ANY_TIMEOUT,
            **kwargs,
        )
        self.config = config
        self.answer_by = answer_by

    def execute(self, context: Context) -> Any:
        """Put the question, or go on when it has its answer: an earlier try was killed after recording it."""
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
        """Record the answer; go on after a yes that stands, skip what follows else."""
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
        """Go on when the answer that stands is a yes: publishing it twice changes nothing."""
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
        # A response that came over the execution API is a dictionary, one from the database an object.
        name = user.get("name") if isinstance(user, dict) else user.name
        return person(str(name)), why or "answered on Airflow's page"

    def _policy(self) -> Any:
        from evenlag.policy.loader import load_policy

        return load_policy(self.config)


def _plan_of(context: Context) -> tuple[str, str]:
    params = context["params"]
    return str(params["cluster"]), str(params["plan_id"])


def approval_run_id(plan_id: str) -> str:
    """Name the run that asks about a plan: one plan, one run, however often it is triggered."""
    return f"approval__{plan_id}"
