"""Request manual approval of one plan, and publish the plan if it is approved.

**What it makes.** One run is one plan of a group in mode `approve` that passed its gates. `prepare` opens the
request and writes its text; `approve_plan` waits on Airflow's page *Required Actions*, without occupying a
worker, until a user answers or the group's `approval_timeout_s` ends, which rejects the plan; `publish`
writes the plan to the hint topic, if the group has not changed since it was planned. The answer is an event
of the plan, APPROVED or REJECTED, with user, channel and reason. Where the policy names approvers, only they
may answer: the answer of another user is refused, and the request stays open. The cycles of `lag_rebalance`
continue in the meantime.

**Inputs.** Triggered by `lag_rebalance__<cluster>`, with `cluster` and `plan_id`. The policy file of
`make_dags`, by default the one that `EVENLAG_CONFIG` names, and the secrets of the cluster in the environment
of the workers.

**Running it again.** Clear a failed task: a recorded answer is final, and a repeated publish writes the same
sequence number. A plan has one request only: a manual run for a plan that has one is skipped. A plan may also
be answered with `evenlag plans approve|reject`: the first answer is final, and the other user is informed.

**First things to check when it fails.**

1. `prepare` is skipped: the plan does not wait for approval; its log and `evenlag plans PLAN` contain the
   reason.
2. `approve_plan` is skipped although a user approved: the command was first; its log names the user.
3. `approve_plan` waits although a user answered: the user is not an approver; its log names the approvers.
4. `publish` succeeds but there is no hint: the plan has EXPIRED, and `evenlag plans PLAN` shows the reason;
   or it is `held`, as `reasons` of the result say, and the next cycle publishes it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_current_context, task

from evenlag.airflow.compat import AirflowSkipException, run_types
from evenlag.airflow.tasks.approval import PlanApprovalOperator
from evenlag.airflow.tasks.assets import Product, cluster_asset, product_alias, update_asset
from evenlag.airflow.tasks.defaults import (
    APPROVAL_RUN_TIMEOUT,
    MAX_OPEN_APPROVALS,
    PUBLISH_TIMEOUT,
    Tag,
)
from evenlag.airflow.tasks.job_errors import fail_or_try_again
from evenlag.airflow.tasks.lineage import with_lineage_of_run
from evenlag.publishing.answers.actors import REASON
from evenlag.safe_text import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evenlag.airflow.dags.options import DagOptions
    from evenlag.airflow.dags.policy import DagPolicy


@task(execution_timeout=PUBLISH_TIMEOUT)
def prepare(config: str, approvers: Sequence[str] | None) -> dict[str, Any]:
    """Open the request, and write its text.

    approvers: Who may answer for groups for which the policy names nobody.
    """
    from evenlag.policy.loader import load_policy
    from evenlag.publishing.approval_page import build_page
    from evenlag.publishing.approval_requests import request_approval
    from evenlag.publishing.waiting_plans import NotWaitingError

    context = get_current_context()
    cluster, plan_id = context["params"]["cluster"], context["params"]["plan_id"]
    about = {"run_id": context["run_id"], "cluster": cluster, "step": "ask", "plan_id": plan_id}
    with fail_or_try_again(**about):
        loaded = load_policy(config)
        try:
            request = request_approval(
                loaded,
                cluster,
                plan_id,
                run_id=context["run_id"],
                now=datetime.now(UTC),
                approvers=approvers,
                dag_id=context["dag"].dag_id,
            )
        except NotWaitingError as error:
            raise AirflowSkipException(printable_lines(str(error))) from error
        page = build_page(request.plan, answer_by=request.answer_by)
    return {
        "subject": page.subject,
        "body": page.body,
        "answer_by": request.answer_by.isoformat(),
        "slot": request.slot.isoformat(),
    }


@task(execution_timeout=PUBLISH_TIMEOUT)
def publish(config: str, slot: str, dag_prefix: str) -> dict[str, Any]:
    """Write this plan to the hint topic, with the same checks as in a cycle; needs no JVM."""
    from evenlag.policy.loader import load_policy
    from evenlag.publishing.publish import publish_hints
    from evenlag.publishing.writing.blind_writes import try_again_when_fenced

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
    update_asset(
        context,
        product_alias(context["dag"].dag_id, Product.HINTS),
        cluster_asset(dag_prefix, cluster, Product.HINTS),
        count=len(report.published),
        slot=datetime.fromisoformat(slot),
    )
    unpublished = (*report.expired, *report.held, *report.not_taken_up)
    return report.summary() | {"reasons": [why for *_, why in unpublished]}


def _make_dag(config: str, options: DagOptions) -> DAG:
    """Build the DAG."""
    with DAG(
        dag_id=options.dag_id("plan_approval"),
        description="Requests manual approval of one plan, and publishes it if it is approved",
        schedule=None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        # A run that waits for an answer must not delay the requests of other groups.
        max_active_runs=MAX_OPEN_APPROVALS,
        # Triggered by a cycle, or manually.
        **run_types("operator_triggered", "manual"),
        dagrun_timeout=APPROVAL_RUN_TIMEOUT,
        default_args=options.default_args,
        doc_md=__doc__,
        tags=options.all_tags(Tag.EVENLAG, Tag.KAFKA, Tag.REBALANCE),
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
            approvers=options.approvers,
            params={
                REASON: Param(
                    "", type=["string", "null"], title="Why", description="It is recorded with your user id."
                )
            },
            execution_timeout=PUBLISH_TIMEOUT,
            doc_md="Answered under *Required Actions*, or by `evenlag plans approve|reject`.",
        )
        prepared = prepare(config, options.approvers)
        hints = product_alias(made.dag_id, Product.HINTS)
        published = publish.override(outlets=[hints])(config, _prepared("slot"), options.dag_prefix)
        for each, step in ((prepared, "ask"), (approve, "answer"), (published, "publish")):
            with_lineage_of_run(each, step, config)
        prepared >> approve >> published
    return made


def _prepared(name: str) -> str:
    return "{{ ti.xcom_pull(task_ids='prepare')['" + name + "'] }}"


def make_dags_of(policy: DagPolicy, options: DagOptions) -> Iterator[DAG]:
    """Build the DAG of a policy."""
    yield _make_dag(str(policy.path), options)
