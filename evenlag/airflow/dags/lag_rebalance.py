"""Balance lag within the consumer groups of one Kafka cluster.

**What it makes.** One run is one cycle: `observe` takes a snapshot of the offsets, commits and members of the
cluster, computes lag, and determines the outcomes of earlier hints; `decide` plans every group and checks
each plan with the gates; `publish` writes the approved plans of groups in mode `auto` to the hint topic. For
each plan of a group in mode `approve`, `find_waiting` and `ask` start a run of `plan_approval` without
waiting for it. A group without a rule in the policy is in mode `shadow`: it is planned but never gets a hint.
`report` sends new and resolved alerts to the notifier named by `EVENLAG_NOTIFIER`, and metrics to Airflow's
backend.

**Inputs.** The policy file of `make_dags`, by default the one that `EVENLAG_CONFIG` names (it defines one DAG
per cluster), a Spark connection, by default `spark_default`, and the secrets of the cluster in the
environment of the workers.

**Running it again.** Clear a failed task: all tasks are idempotent. A slot has one snapshot, the same
snapshot gives the same plans, and a repeated publish writes the same sequence number. A manual run is a new
slot. There is no backfill: Kafka keeps no history of lag. A slot that becomes due during a run is started
late or skipped; runs never queue up.

**First things to check when it fails.**

1. `observe` ends with exit code 3: the brokers do not answer or refuse the credentials; its log names which.
2. Any Spark task fails within a second: the Spark connection, or no `spark-submit` on the PATH. By
   Spark Connect, it fails with exit code 3 after some 20 s: the server does not answer.
3. `decide` succeeds but nothing is published: `evenlag plans --group GROUP` shows which gate rejected the
   plan.
4. `publish` reports *another publisher has taken over*: Airflow retries it, and it reads the current state.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, TriggerRule, get_current_context, task

from evenlag.airflow.compat import CronDataIntervalTimetable, run_types
from evenlag.airflow.tasks.alerting import emit_metrics, load_notifier, notify
from evenlag.airflow.tasks.approval import approval_run_id
from evenlag.airflow.tasks.assets import Product, cluster_asset, product_alias, update_asset
from evenlag.airflow.tasks.defaults import (
    MAX_NEW_APPROVALS,
    PUBLISH_TIMEOUT,
    RUN_TIMEOUT_FACTOR,
    Tag,
    cycle_timeout,
)
from evenlag.airflow.tasks.job_errors import fail_or_try_again
from evenlag.airflow.tasks.lineage import with_lineage
from evenlag.airflow.tasks.spark_task import slot_of, spark_step
from evenlag.logging_setup import named_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow.sdk import Context

    from evenlag.airflow.dags.options import DagOptions
    from evenlag.airflow.dags.policy import DagPolicy
    from evenlag.policy.cluster_settings import ClusterSettings

_LOG = named_logger(__name__)


@task(execution_timeout=PUBLISH_TIMEOUT)
def publish(config: str, cluster: str, dag_prefix: str = "") -> dict[str, Any]:
    """Write the approved plans of this run's snapshot to the hint topic; needs no JVM."""
    from evenlag.policy.loader import load_policy
    from evenlag.publishing.publish import publish_hints

    run_id, slot = _run_and_slot()
    with fail_or_try_again(run_id=run_id, cluster=cluster, step="publish", slot=slot.isoformat()):
        report = publish_hints(load_policy(config), cluster, slot, run_id)
    context = get_current_context()
    update_asset(
        context,
        product_alias(context["dag"].dag_id, Product.HINTS),
        cluster_asset(dag_prefix, cluster, Product.HINTS),
        count=len(report.published),
        slot=slot,
    )
    return report.summary()


@task(execution_timeout=PUBLISH_TIMEOUT)
def find_waiting(config: str, cluster: str) -> list[dict[str, Any]]:
    """Find the plans that wait for approval, at most one per group; each gets a run of `plan_approval`."""
    from evenlag.policy.loader import load_policy
    from evenlag.publishing.approval_requests import set_aside_shadowed
    from evenlag.publishing.waiting_plans import find_waiting as find

    run_id, slot = _run_and_slot()
    with fail_or_try_again(run_id=run_id, cluster=cluster, step="find_waiting", slot=slot.isoformat()):
        loaded = load_policy(config)
        plans = set_aside_shadowed(
            loaded, cluster, find(loaded, cluster, slot), run_id=run_id, now=datetime.now(UTC)
        )
    if len(plans) > MAX_NEW_APPROVALS:
        _LOG.warning(
            "%d plans wait for a person; this run asks about %d of them", len(plans), MAX_NEW_APPROVALS
        )
    return [
        {
            "trigger_run_id": approval_run_id(plan.head["plan_id"]),
            "conf": {"cluster": cluster, "plan_id": plan.head["plan_id"]},
        }
        for plan in plans[:MAX_NEW_APPROVALS]
    ]


@task(execution_timeout=PUBLISH_TIMEOUT, trigger_rule=TriggerRule.ALL_DONE)
def report(config: str, cluster: str, dag_prefix: str = "") -> dict[str, int]:
    """Send new and resolved alerts to the notifier, and metrics to Airflow's metrics backend."""
    from evenlag.monitoring.alerts import find_changes, record_changes
    from evenlag.monitoring.snapshot_metrics import read_metrics
    from evenlag.policy.loader import load_policy

    now, (run_id, slot) = datetime.now(UTC), _run_and_slot()
    with fail_or_try_again(run_id=run_id, cluster=cluster, step="report", slot=slot.isoformat()):
        loaded = load_policy(config)
        changes = find_changes(loaded, cluster, now)
        figures = read_metrics(loaded.policy.lake, cluster, now)
        emit_metrics(figures | {"alerts.standing": changes.num_standing}, cluster, dag_prefix=dag_prefix)
        if changes:
            _LOG.warning("%s", changes.text)
            if (notifier := load_notifier()) is not None:
                notify(notifier, changes, cluster, get_current_context())
        # After the notification: if it fails, the retry sends it again.
        record_changes(loaded, cluster, changes, run_id=run_id, now=now)
    return {
        "raised": len(changes.raised),
        "cleared": len(changes.cleared),
        "standing": changes.num_standing,
    }


def _run_and_slot() -> tuple[str, datetime]:
    run = get_current_context()["dag_run"]
    return run.run_id, slot_of(run)


def _update_plans(config: Path, cluster: str, dag_prefix: str) -> Callable[[Context], None]:
    """Return what updates the asset of plans after `decide`, by what the lake has of this slot."""

    def update(context: Context) -> None:
        from evenlag.lake.reader import LakeReader
        from evenlag.lake.snapshot_ids import floor_to_ms
        from evenlag.lake.tables import PLANS
        from evenlag.policy.loader import load_policy

        slot = floor_to_ms(slot_of(context["dag_run"]))
        with fail_or_try_again(
            run_id=context["run_id"], cluster=cluster, step="decide", slot=slot.isoformat()
        ):
            reader = LakeReader(load_policy(config).policy.lake)
            filters = [("cluster", "=", cluster), ("day", "=", slot.date()), ("slot", "=", slot)]
            count = reader.count(PLANS, filters=filters) if reader.exists(PLANS) else 0
        update_asset(
            context,
            product_alias(context["dag"].dag_id, Product.PLANS),
            cluster_asset(dag_prefix, cluster, Product.PLANS),
            count=count,
            slot=slot,
        )

    return update


def _make_dag(
    cluster: str, settings: ClusterSettings, config: Path, options: DagOptions, *, asks: bool
) -> DAG:
    """Build the DAG of one cluster; `asks`: whether a rule of the policy needs manual approval there."""
    schedule = settings.schedule
    timeout = cycle_timeout(schedule)
    prefix = options.dag_prefix
    with DAG(
        dag_id=options.dag_id(f"lag_rebalance__{cluster}"),
        description=f"Observe, decide and publish for the cluster {cluster}",
        schedule=CronDataIntervalTimetable(schedule, timezone="UTC") if schedule else None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        # The next run determines the outcomes of hints: concurrent runs would see partial results.
        max_active_runs=1,
        # A backfill would write the current state of Kafka into past slots.
        **run_types("scheduled", "manual"),
        dagrun_timeout=RUN_TIMEOUT_FACTOR * timeout,
        default_args=options.default_args,
        doc_md=__doc__,
        tags=options.all_tags(Tag.EVENLAG, Tag.KAFKA, Tag.REBALANCE),
    ) as made:
        of_spark: dict[str, Any] = {
            "config": config,
            "cluster": cluster,
            "timeout": timeout,
            "options": options.spark,
            "refuses_backfill": True,
        }
        observe = spark_step(
            "observe", **of_spark, outlets=[cluster_asset(prefix, cluster, Product.SNAPSHOTS)]
        )
        decide = spark_step(
            "decide",
            **of_spark,
            outlets=[product_alias(made.dag_id, Product.PLANS)],
            after_success=_update_plans(config, cluster, prefix),
        )
        hints = product_alias(made.dag_id, Product.HINTS)
        published = publish.override(outlets=[hints])(str(config), cluster, prefix)
        with_lineage(published, "publish", str(config), cluster)
        # report counts what publish has published, and runs after a failure too. The state of a run is that
        # of its last tasks: completed fails with publish, so a failed run stays failed if report succeeds.
        completed = EmptyOperator(task_id="completed", execution_timeout=PUBLISH_TIMEOUT)
        observe >> decide >> published >> [report(str(config), cluster, prefix), completed]
        if asks:
            waiting = find_waiting(str(config), cluster)
            TriggerDagRunOperator.partial(
                task_id="ask",
                trigger_dag_id=options.dag_id("plan_approval"),
                logical_date=None,
                # A retry of this task or of the cycle finds the existing run of the plan.
                skip_when_already_exists=True,
                openlineage_inject_parent_info=False,
                execution_timeout=PUBLISH_TIMEOUT,
            ).expand_kwargs(waiting)
            decide >> waiting
    return made


def make_dags_of(policy: DagPolicy, options: DagOptions) -> Iterator[DAG]:
    """Build a DAG for each cluster of a policy."""
    for cluster, settings in policy.clusters.items():
        asks = cluster in policy.asking_clusters
        yield _make_dag(cluster, settings, policy.path, options, asks=asks)
