"""Request manual approval of one plan, and publish the plan if it is approved.

**What it makes.** One run is one plan of a group in mode `approve` that passed its gates. `prepare` opens the
request and writes its text; `approve_plan` waits on Airflow's page *Required Actions*, without occupying a
worker, until a user answers or the group's `approval_timeout_s` ends, which rejects the plan; `publish`
writes the plan to the hint topic, if the group has not changed since it was planned. The answer is an event
of the plan, APPROVED or REJECTED, with user and reason. The cycles of `lag_rebalance` continue in the
meantime.

**Inputs.** Triggered by `lag_rebalance__<cluster>`, with `cluster` and `plan_id`. The policy file named by
`EVENLAG_CONFIG`, and the secrets of the cluster in the environment of the workers.

**Running it again.** Clear a failed task: a recorded answer is final, and a repeated publish writes the same
sequence number. A plan has one request only: a manual run for a plan that has one is skipped. A plan may also
be answered with `evenlag plans approve|reject`: the first answer is final, and the other user is informed.

**First things to check when it fails.**

1. `prepare` is skipped: the plan does not wait for approval; its log and `evenlag plans PLAN` contain the
   reason.
2. `approve_plan` is skipped although a user approved: the command was first; its log names the user.
3. `publish` succeeds but there is no hint: the plan has EXPIRED; `evenlag plans PLAN` shows the reason.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from dags.dag_support.approval import REASON, PlanApprovalOperator
from dags.dag_support.defaults import (
    APPROVAL_RUN_TIMEOUT,
    DEFAULT_ARGS,
    MAX_OPEN_APPROVALS,
    PUBLISH_TIMEOUT,
    Tag,
)
from dags.dag_support.job_errors import fail_or_try_again
from dags.dag_support.lineage import with_lineage_of_run
from dags.dag_support.policy import read_dag_policy


@task(execution_timeout=PUBLISH_TIMEOUT)
def prepare(config: str) -> dict[str, Any]:
    """Open the request, and write its text."""
    from evenlag.policy.loader import load_policy
    from evenlag.publishing.approval_page import read_page
    from evenlag.publishing.approval_requests import request_approval
    from evenlag.publishing.waiting_plans import NotWaitingError

    context = get_current_context()
    cluster, plan_id = context["params"]["cluster"], context["params"]["plan_id"]
    about = {"run_id": context["run_id"], "cluster": cluster, "step": "ask", "plan_id": plan_id}
    with fail_or_try_again(**about):
        loaded = load_policy(config)
        try:
            request = request_approval(
                loaded, cluster, plan_id, run_id=context["run_id"], now=datetime.now(UTC)
            )
        except NotWaitingError as error:
            raise AirflowSkipException(str(error)) from error
        page = read_page(loaded.policy.lake, cluster, plan_id, answer_by=request.answer_by)
    return {
        "subject": page.subject,
        "body": page.body,
        "answer_by": request.answer_by.isoformat(),
        "slot": request.slot.isoformat(),
    }


@task(execution_timeout=PUBLISH_TIMEOUT)
def publish(config: str, slot: str) -> dict[str, Any]:
    """Write this plan to the hint topic, with the same checks as in a cycle; needs no JVM."""
    from evenlag.policy.loader import load_policy
    from evenlag.publishing.publish import publish_hints
    from evenlag.publishing.revocation import try_again_when_fenced

    context = get_current_context()
    cluster, plan_id = context["params"]["cluster"], context["params"]["plan_id"]
    about = {"run_id": context["run_id"], "cluster": cluster, "step": "publish", "plan_id": plan_id}
    with fail_or_try_again(**about, slot=slot):
        loaded = load_policy(config)
        report = try_again_when_fenced(
            lambda: publish_hints(
                loaded, cluster, datetime.fromisoformat(slot), context["run_id"], only={plan_id}
            )
        )
    told = (*report.expired, *report.held, *report.not_taken_up)
    return report.summary() | {"reasons": [why for *_, why in told]}


def make_dag(config: str) -> DAG:
    """Build the DAG."""
    with DAG(
        dag_id="plan_approval",
        description="Requests manual approval of one plan, and publishes it if it is approved",
        schedule=None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        # A run that waits for an answer must not delay the requests of other groups.
        max_active_runs=MAX_OPEN_APPROVALS,
        # Triggered by a cycle, or manually.
        allowed_run_types=["operator_triggered", "manual"],  # type: ignore[list-item]  # the SDK converts them to its enum
        dagrun_timeout=APPROVAL_RUN_TIMEOUT,
        default_args=DEFAULT_ARGS,
        doc_md=__doc__,
        tags=[Tag.EVENLAG, Tag.KAFKA, Tag.REBALANCE],
        params={
            "cluster": Param(type="string", title="Cluster", description="Its name in the policy."),
            "plan_id": Param(
                type="string", title="Plan", description="The whole id.", pattern="^[0-9a-f]{64}$"
            ),
        },
    ) as made:
        approve = PlanApprovalOperator(
            task_id="approve_plan",
            config=config,
            subject=_prepared("subject"),
            body=_prepared("body"),
            answer_by=_prepared("answer_by"),
            params={
                REASON: Param(
                    "", type=["string", "null"], title="Why", description="It is recorded with your name."
                )
            },
            execution_timeout=PUBLISH_TIMEOUT,
            doc_md="Answered under *Required Actions*, or by `evenlag plans approve|reject`.",
        )
        prepared, published = prepare(config), publish(config, _prepared("slot"))
        for each, step in ((prepared, "ask"), (approve, "answer"), (published, "publish")):
            with_lineage_of_run(each, step, config)
        prepared >> approve >> published
    return made


def _prepared(name: str) -> str:
    return "{{ ti.xcom_pull(task_ids='prepare')['" + name + "'] }}"


plan_approval = make_dag(str(read_dag_policy().path))
