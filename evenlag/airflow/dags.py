"""The DAGs of a policy, as a table of their builders. A builder's docstring is the DAG's page in Airflow."""

import inspect
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from airflow.sdk import DAG, Param, TriggerRule

from evenlag.airflow import tasks
from evenlag.airflow.compat import CronDataIntervalTimetable, CronTriggerTimetable, run_types
from evenlag.airflow.lineage import with_lineage
from evenlag.airflow.spark_task import (
    COMPARE_TIMEOUT,
    DAY,
    SPARK_CONNECTION,
    SPARK_TIMEOUT,
    SparkJobOperator,
    SparkOptions,
    cluster_job,
    cycle_timeout,
    cycles_job,
    maintain_job,
    spark_step,
)
from evenlag.airflow.tasks import PUBLISH_TIMEOUT, Product, cluster_asset, product_alias
from evenlag.enums import Mode
from evenlag.errors import PolicyError
from evenlag.policy.loader import POLICY_VARIABLE, find_policy_path, nearest_or_all, read_policy
from evenlag.policy.setting_types import approver
from evenlag.policy.settings import Policy
from evenlag.publishing.answers.actors import REASON

OWNER: Final = "evenlag"
# Of the run to that of one Spark task.
RUN_TIMEOUT_FACTOR: Final = 3
RUN_TIMEOUT: Final = RUN_TIMEOUT_FACTOR * SPARK_TIMEOUT
COMPARE_RUN_TIMEOUT: Final = timedelta(hours=12)
MAINTENANCE_RUN_TIMEOUT: Final = timedelta(hours=8)
# Longer than the largest approval_timeout_s: the limit of the plan must end the waiting.
APPROVAL_RUN_TIMEOUT: Final = timedelta(days=8)
# Runs that wait for an answer occupy no worker, and must not delay the requests of other groups.
MAX_OPEN_APPROVALS: Final = 1_000
# The audit begins no other day after half of the run's time, shared among its clusters.
_AUDIT_SHARE: Final = 0.5

DEFAULT_ARGS: Final[dict[str, Any]] = {
    "owner": OWNER,
    "depends_on_past": False,
    "retries": 2,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=5),
}


class Tag(StrEnum):
    """Tags of evenlag's DAGs; a test rejects others."""

    EVENLAG = "evenlag"
    KAFKA = "kafka"
    REBALANCE = "rebalance"
    MAINTENANCE = "maintenance"
    COMPARISON = "comparison"
    AUDIT = "audit"


class DagPolicyError(Exception):
    """Raised while a DAG file is parsed; Airflow shows its message as the file's import error."""


@dataclass(frozen=True, slots=True)
class _DagPolicy:
    """A policy, and the absolute path of its file: a Spark driver has another working directory."""

    path: Path
    settings: Policy


def _read_dag_policy(given: Path | None) -> _DagPolicy:
    """Read the policy file, or that of ``EVENLAG_CONFIG``; the environment stays as it is."""
    path = find_policy_path(given).absolute()
    try:
        policy = read_policy(path).policy
    except PolicyError as error:
        source = (
            f"The policy file is the one that {POLICY_VARIABLE} names in the environment of Airflow's "
            f"scheduler, DAG processor and workers (now {path}). "
            if given is None
            else ""
        )
        raise DagPolicyError(
            f"{error}\nThere are no DAGs of evenlag until this is fixed. {source}"
            f"Check it with: evenlag policy check {path}"
        ) from None
    return _DagPolicy(path, policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DagOptions:
    """Arguments of :func:`make_dags`, for the functions that build the DAGs."""

    dag_prefix: str = ""
    spark: SparkOptions = field(default_factory=SparkOptions)
    background: SparkOptions = field(default_factory=SparkOptions)
    kafka_conn_ids: Mapping[str, str] = field(default_factory=dict)
    task_args: Mapping[str, Any] = field(default_factory=dict)
    approvers: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()


def _dag(
    build: Callable[..., Any],
    options: _DagOptions,
    tags: tuple[Tag, ...],
    *,
    schedule: Any,
    name: str | None = None,
    max_active_runs: int = 1,
    **kwargs: Any,
) -> DAG:
    """Create a DAG with the settings that all have in common, documented by the function that builds it."""
    return DAG(
        dag_id=f"{options.dag_prefix}{name or build.__name__.strip('_')}",
        schedule=schedule,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        # Past days are processed by a backfill only, not all at once when a DAG is first enabled.
        catchup=False,
        max_active_runs=max_active_runs,
        default_args=DEFAULT_ARGS | dict(options.task_args),
        doc_md=inspect.getdoc(build),
        tags=[Tag.EVENLAG, *tags, *options.tags],
        **kwargs,
    )


def _timetable(kind: Any, schedule: str | None) -> Any:
    return kind(schedule, timezone="UTC") if schedule else None


def _lag_rebalance(policy: _DagPolicy, options: _DagOptions) -> Iterator[DAG]:
    """Balance lag within the consumer groups of a Kafka cluster.

    **What it makes.** One run is one cycle: `observe` takes a snapshot of the offsets, commits and members
    of the cluster, computes lag, and determines the outcomes of earlier hints; `decide` plans every group
    and checks each plan with the gates; `publish` writes the approved plans of groups in mode `auto` to the
    hint topic. For each plan of a group in mode `approve`, `find_waiting` and `ask` start a run of
    `plan_approval` without waiting for it. A group without a rule in the policy is in mode `shadow`: it is
    planned but never gets a hint. `report` sends new and resolved alerts to the notifier named by
    `EVENLAG_NOTIFIER`, and metrics to Airflow's backend. With `group_clusters`, `cycles` does the first
    three for all clusters at the same time. It names those that failed, which the next run tries again.
    `report_all` also updates the assets of the others.

    **Inputs.** The policy file of `make_dags`, by default the one that `EVENLAG_CONFIG` names (it defines
    one DAG per cluster, or with `group_clusters` one), a Spark connection, by default `spark_default`, and
    the secrets of the cluster in the environment of the workers, or its connection of `kafka_conn_ids`.

    **Running it again.** Clear a failed task: all tasks are idempotent. A slot has one snapshot, the same
    snapshot gives the same plans, and a repeated publish writes the same sequence number. A manual run is a
    new slot. There is no backfill: Kafka keeps no history of lag. A slot that becomes due during a run is
    started late or skipped; runs never queue up.

    **First things to check when it fails.**

    1. `observe` ends with exit code 3: the brokers do not answer or refuse the credentials; its log names
       which.
    2. Any Spark task fails within a second: the Spark connection, or no `spark-submit` on the PATH. By
       Spark Connect, it fails with exit code 3 after some 20 s: the server does not answer.
    3. `decide` succeeds but nothing is published: `evenlag plans --group GROUP` shows which gate rejected
       the plan.
    4. `publish` reports *another publisher has taken over*: Airflow retries it, and it reads the current
       state.
    """
    by_dag: dict[str, list[str]] = {}
    for cluster in policy.settings.clusters:
        by_dag.setdefault(policy.settings.cycle_dag(cluster), []).append(cluster)
    for name, clusters in by_dag.items():
        schedule = policy.settings.clusters[clusters[0]].schedule
        timeout = cycle_timeout(schedule)
        is_grouped = policy.settings.group_clusters
        with _dag(
            _lag_rebalance,
            options,
            (Tag.KAFKA, Tag.REBALANCE),
            name=name,
            description="Observe, decide and publish for "
            + (f"{len(clusters)} clusters" if is_grouped else f"the cluster {clusters[0]}"),
            schedule=_timetable(CronDataIntervalTimetable, schedule),
            # One run at a time: the next run determines the outcomes of hints.
            # A backfill would write the current state of Kafka into past slots.
            **run_types("scheduled", "manual"),
            dagrun_timeout=RUN_TIMEOUT_FACTOR * timeout,
        ) as made:
            if is_grouped:
                _add_cycles(made, clusters, policy, options)
            else:
                _add_cycle(made, clusters[0], timeout, policy, options)
        yield made


def _add_cycle(dag: DAG, cluster: str, timeout: timedelta, policy: _DagPolicy, options: _DagOptions) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    config, prefix, conn_ids = policy.path, options.dag_prefix, options.kafka_conn_ids
    of_spark: dict[str, Any] = {
        "config": config,
        "cluster": cluster,
        "timeout": timeout,
        "options": options.spark,
        "kafka_conn_ids": conn_ids,
        "refuses_backfill": True,
    }
    observe = spark_step("observe", **of_spark, outlets=[cluster_asset(prefix, cluster, Product.SNAPSHOTS)])
    decide = spark_step(
        "decide",
        **of_spark,
        outlets=[product_alias(dag.dag_id, Product.PLANS)],
        after_success=lambda context: tasks.update_assets(
            context, str(config), cluster, prefix, [Product.PLANS]
        ),
    )
    hints = product_alias(dag.dag_id, Product.HINTS)
    published = tasks.publish.override(outlets=[hints])(str(config), cluster, prefix, conn_ids)
    with_lineage(published, ["publish"], str(config), [cluster])
    # report counts what publish has published, and runs after a failure too. The state of a run is that
    # of its last tasks: completed fails with publish, so a failed run stays failed if report succeeds.
    completed = EmptyOperator(task_id="completed", execution_timeout=PUBLISH_TIMEOUT)
    observe >> decide >> published >> [tasks.report(str(config), cluster, prefix), completed]
    _add_questions(decide, [cluster], policy, options)


def _add_cycles(dag: DAG, clusters: Sequence[str], policy: _DagPolicy, options: _DagOptions) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    config, prefix = policy.path, options.dag_prefix
    cycles = cycles_job(
        clusters,
        policy.settings.clusters[clusters[0]].schedule,
        config=config,
        options=options.spark,
        kafka_conn_ids=options.kafka_conn_ids,
        refuses_backfill=True,
        # A cluster that is gone must not delay the next slot of the others.
        retries=0,
    )
    # Not the outlets of cycles: a cluster that fails, and the task with it, leaves those of the others.
    assets = [product_alias(dag.dag_id, product) for product in Product]
    reported = tasks.report_all.override(outlets=assets)(str(config), clusters, prefix)
    completed = EmptyOperator(task_id="completed", execution_timeout=PUBLISH_TIMEOUT)
    cycles >> [reported, completed]
    _add_questions(cycles, clusters, policy, options)


def _add_questions(
    decide: SparkJobOperator, clusters: Sequence[str], policy: _DagPolicy, options: _DagOptions
) -> None:
    """Add the tasks that ask about plans, where groups may have the mode `approve`."""
    from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator

    asking = [name for name in clusters if Mode.APPROVE in policy.settings.modes(name)]
    if not asking:
        return
    # Of many clusters, some may have failed; where the only one has, there is nothing to ask about.
    rule = TriggerRule.ALL_DONE if len(clusters) > 1 else TriggerRule.ALL_SUCCESS
    waiting = tasks.find_waiting.override(trigger_rule=rule)(str(policy.path), asking)
    TriggerDagRunOperator.partial(
        task_id="ask",
        trigger_dag_id=f"{options.dag_prefix}plan_approval",
        logical_date=None,
        # A retry of this task or of the cycle finds the existing run of the plan.
        skip_when_already_exists=True,
        openlineage_inject_parent_info=False,
        execution_timeout=PUBLISH_TIMEOUT,
    ).expand_kwargs(waiting)
    decide >> waiting


def _plan_approval(policy: _DagPolicy, options: _DagOptions) -> Iterator[DAG]:
    """Request manual approval of one plan, and publish the plan if it is approved.

    **What it makes.** One run is one plan of a group in mode `approve` that passed its gates. `prepare`
    opens the request and writes its text; `approve_plan` waits on Airflow's page *Required Actions*,
    without occupying a worker, until a user answers or the group's `approval_timeout_s` ends, which rejects
    the plan; `publish` writes the plan to the hint topic, if the group has not changed since it was
    planned. The answer is an event of the plan, APPROVED or REJECTED, with user, channel and reason. Where
    the policy names approvers, only they may answer: the answer of another user is refused, and the request
    stays open. The cycles of `lag_rebalance` continue in the meantime.

    **Inputs.** Triggered by `lag_rebalance__<cluster>`, with `cluster` and `plan_id`. The policy file of
    `make_dags`, by default the one that `EVENLAG_CONFIG` names, and the secrets of the cluster in the
    environment of the workers, or its connection of `kafka_conn_ids`.

    **Running it again.** Clear a failed task: a recorded answer is final, and a repeated publish writes the
    same sequence number. A plan has one request only: a manual run for a plan that has one is skipped. A
    plan may also be answered with `evenlag plans approve|reject`: the first answer is final, and the other
    user is informed.

    **First things to check when it fails.**

    1. `prepare` is skipped: the plan does not wait for approval; its log and `evenlag plans PLAN` contain
       the reason.
    2. `approve_plan` is skipped although a user approved: the command was first; its log names the user.
    3. `approve_plan` waits although a user answered: the user is not an approver; its log names the
       approvers.
    4. `publish` succeeds but there is no hint: the plan has EXPIRED, and `evenlag plans PLAN` shows the
       reason; or it is `held`, as `reasons` of the result say, and the next cycle publishes it.
    """
    from evenlag.airflow.approval import PlanApprovalOperator

    config = str(policy.path)
    with _dag(
        _plan_approval,
        options,
        (Tag.KAFKA, Tag.REBALANCE),
        description="Requests manual approval of one plan, and publishes it if it is approved",
        schedule=None,
        max_active_runs=MAX_OPEN_APPROVALS,
        # Triggered by a cycle, or manually.
        **run_types("operator_triggered", "manual"),
        dagrun_timeout=APPROVAL_RUN_TIMEOUT,
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
        prepared = tasks.prepare(config, options.approvers)
        hints = product_alias(made.dag_id, Product.HINTS)
        published = tasks.publish_plan.override(outlets=[hints])(
            config, _prepared("slot"), options.dag_prefix, options.kafka_conn_ids
        )
        for each, step in ((prepared, "ask"), (approve, "answer"), (published, "publish")):
            with_lineage(each, [step], config, is_of_run=True)
        prepared >> approve >> published
    yield made


def _prepared(name: str) -> str:
    return "{{ ti.xcom_pull(task_ids='prepare')['" + name + "'] }}"


def _plan_comparison(policy: _DagPolicy, options: _DagOptions) -> Iterator[DAG]:
    """Simulate other policies with the snapshots of a day, once a day.

    **What it makes.** For each cluster and the day of the run, the rows of `comparisons` (each snapshot
    scored under each policy) and `replays` (the day replayed under each policy), from the snapshots that
    `lag_rebalance__<cluster>` took. It does not connect to Kafka and publishes nothing. `evenlag compare`
    shows the result. This DAG exists only if the policy has a section `comparison`; `comparison: {}` is
    enough.

    **Inputs.** The policy file of `make_dags`, by default the one that `EVENLAG_CONFIG` names, the lake,
    and a Spark connection, by default `spark_default`.

    **Running it again.** At any time: a run replaces the day as a whole, and skips it if its inputs are the
    same as before. Days are independent of each other. For past days: `airflow backfill create --dag-id
    plan_comparison --from-date 2026-03-01 --to-date 2026-03-31` creates a run for each day of March up to
    the 30th (both are midnights); `--reprocess-behavior failed` repeats failed runs.

    **First things to check when it fails.**

    1. Exit code 4: the day has no snapshot.
    2. It fails within a second: the Spark connection, or no `spark-submit` on the PATH.
    """
    if policy.settings.comparison is None:
        return
    with _dag(
        _plan_comparison,
        options,
        (Tag.COMPARISON,),
        description="Scores and replays the snapshots of a day under other policies",
        # The data interval selects the day, so that a backfill can process past days.
        schedule=_timetable(CronDataIntervalTimetable, policy.settings.comparison.schedule),
        # Each task needs a JVM: running them one at a time leaves memory for the cycles.
        max_active_tasks=1,
        dagrun_timeout=COMPARE_RUN_TIMEOUT,
    ) as made:
        for cluster in policy.settings.clusters:
            cluster_job(
                "compare",
                "--day",
                DAY,
                config=policy.path,
                cluster=cluster,
                options=options.background,
                execution_timeout=COMPARE_TIMEOUT,
            )
    yield made


def _assignment_audit(policy: _DagPolicy, options: _DagOptions) -> Iterator[DAG]:
    """Build the audit of partition ownership from the snapshots: hourly, or by `audit_schedule`.

    **What it makes.** For each cluster of the policy, the tables `memberships`, `ownership` and
    `audited_snapshots`: the members of each group and the owner of each partition over time. `evenlag
    audit` queries them.

    **Inputs.** The policy file of `make_dags`, by default the one that `EVENLAG_CONFIG` names (only the
    names of the clusters and the lake), the tables `snapshots`, `members` and `offsets`, and a Spark
    connection, by default `spark_default`. It does not connect to Kafka.

    **Running it again.** At any time. A run rebuilds the days whose snapshots have changed since they were
    built: late snapshots, and those that a failed run left out. A backfill is not needed. Each day is
    committed for itself, oldest first; when a run has used up half of its time, the next run continues.

    **First things to check when it fails.**

    1. It fails within a second: the Spark connection, or no `spark-submit` on the PATH.
    2. Exit code 3: a table cannot be read or written; the log names it. The next run continues from there.
    3. It succeeds but `evenlag audit` finds no data: `lag_rebalance__<cluster>` has not taken a snapshot
       yet.
    """
    with _dag(
        _assignment_audit,
        options,
        (Tag.AUDIT,),
        description="Builds the history of partition owners from the snapshots",
        schedule=_timetable(CronTriggerTimetable, policy.settings.audit_schedule),
        # Each task needs a JVM, as above.
        max_active_tasks=1,
        # A run processes all days, or as many as it has the time for; two would write the same ones.
        **run_types("scheduled", "manual"),
        dagrun_timeout=RUN_TIMEOUT,
    ) as made:
        budget = ("--budget-s", str(_audit_budget_s(len(policy.settings.clusters))))
        for cluster in policy.settings.clusters:
            cluster_job("audit", *budget, config=policy.path, cluster=cluster, options=options.background)
    yield made


def _audit_budget_s(num_clusters: int) -> int:
    """Return the seconds after which the audit of a cluster begins no other day.

    Examples
    --------
    >>> _audit_budget_s(1), _audit_budget_s(10)
    (600, 180)
    """
    share = min(_AUDIT_SHARE * SPARK_TIMEOUT, _AUDIT_SHARE * RUN_TIMEOUT / max(num_clusters, 1))
    return int(share.total_seconds())


def _table_maintenance(policy: _DagPolicy, options: _DagOptions) -> Iterator[DAG]:
    """Maintain the tables of the lake: once a day, or as `maintenance.schedule` in the policy.

    **What it makes.** One Spark task, `maintain_tables`, processes all tables of all clusters:

    1. it downsamples old days to one snapshot of lag per hour (`raw_days`), after the audit has processed
       them,
    2. it removes rows of unfinished snapshots (`orphan_days`),
    3. it compacts past days, sorted by group (`target_file_mb`), but not the current day,
    4. it deletes replaced files (`vacuum_days`),
    5. it checks every table; the results are rows of `table_health`, which alerts use.

    Then, if the policy sets the folder `data_docs`, it builds the Data Docs of each cluster: the validation
    results of the last 50 planning runs, from `gate_results` and `quality_results`, in
    `<data_docs>/<cluster>/index.html`. The pages load nothing from the network.

    **Inputs.** The policy file of `make_dags`, by default the one that `EVENLAG_CONFIG` names, the lake,
    and a Spark connection, by default `spark_default`. The folder of the Data Docs is on the machine of the
    Spark driver.

    **Running it again.** At any time, also while cycles run: a run skips finished work, and leaves days
    that others are writing to the next run. It may be killed at any point.

    **First things to check when it fails.**

    1. Exit code 3, *pieces failed*: the log names each with its table, day and cause; the others were
       finished.
    2. `evenlag lake status` shows what the checks find now.
    3. `data_docs__…`, exit code 1, *evenlag did not write it*: the folder is something else's; name another
       one in the policy.
    4. It fails within a second: the Spark connection, or no `spark-submit` on the PATH.
    """
    with _dag(
        _table_maintenance,
        options,
        (Tag.MAINTENANCE,),
        description="Downsamples, compacts, vacuums and checks the tables of the lake",
        schedule=_timetable(CronTriggerTimetable, policy.settings.maintenance.schedule),
        # Each task needs a JVM, as above.
        max_active_tasks=1,
        # One run does all pending work; two would compact the same days.
        **run_types("scheduled", "manual"),
        dagrun_timeout=MAINTENANCE_RUN_TIMEOUT,
    ) as made:
        maintained = maintain_job(config=policy.path, options=options.background)
        for cluster in policy.settings.clusters if policy.settings.data_docs is not None else ():
            pages = cluster_job("data_docs", config=policy.path, cluster=cluster, options=options.background)
            # Build the pages even if a part of the maintenance failed.
            pages.trigger_rule = TriggerRule.ALL_DONE
            maintained >> pages
    yield made


# The DAGs of a policy, by their ids without prefix and cluster.
DAGS: Final[Mapping[str, Callable[[_DagPolicy, _DagOptions], Iterator[DAG]]]] = {
    build.__name__.strip("_"): build
    for build in (_lag_rebalance, _plan_approval, _plan_comparison, _assignment_audit, _table_maintenance)
}


# A part of DAG ids and of asset URIs, in which these need no escaping.
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]{0,100}")
_MADE: Final = "__evenlag_dag_ids__"


def make_dags(
    config: str | os.PathLike[str] | None = None,
    *,
    spark_conn_id: str = SPARK_CONNECTION,
    kafka_conn_ids: Mapping[str, str] | None = None,
    dag_prefix: str = "",
    pool: str | None = None,
    background_pool: str | None = None,
    max_active_tis_per_dag: int = 1,
    queue: str | None = None,
    executor_config: Mapping[str, Any] | None = None,
    approvers: Sequence[str] | None = None,
    default_args: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
    only: Collection[str] | None = None,
) -> dict[str, DAG]:
    """Build the DAGs of a policy.

    Airflow finds the DAGs without an assignment. Call it once for each policy, each time with another
    `dag_prefix`; or several times for one policy, each time with other DAGs in `only`.

    Parameters
    ----------
    config
        Absolute path of the policy file; None: the file that ``EVENLAG_CONFIG`` names. A file beside the DAG
        file, ``Path(__file__).with_name("evenlag.yaml")``, is part of the DAG bundle: where bundles have
        versions, each run uses the policy of its version.
    spark_conn_id
        Airflow connection to Spark, of type Spark Connect or Spark.
    kafka_conn_ids
        Airflow connections to Kafka by cluster of the policy, of type Apache Kafka. Tasks that connect to
        the cluster read it, and use its brokers and credentials instead of the policy's.
    dag_prefix
        Prefix of the DAG ids and of the names of the assets.
    pool
        Pool of the Spark tasks. It must exist: Airflow never starts a task of a pool that does not.
    background_pool
        Pool of the Spark tasks of audit, comparison and maintenance, which would delay cycles; None: that of
        the name `pool` with ``_background``, if there is a `pool`.
    max_active_tis_per_dag
        How many instances of one Spark task may run at once, over all runs of its DAG.
    queue
        Queue of all tasks.
    executor_config
        ``executor_config`` of all tasks.
    approvers
        Ids of the Airflow users who may approve plans of groups for which the policy names nobody.
    default_args
        Further default arguments of all tasks, such as ``owner``.
    tags
        Further tags of the DAGs.
    only
        Which DAGs to build, of :data:`~evenlag.airflow.dags.DAGS`; None: all.

    Returns
    -------
    dict
        The DAGs by their ids.

    Raises
    ------
    DagPolicyError
        If the policy is not valid or an argument is wrong. Airflow shows it as the file's import error.

    Examples
    --------
    >>> from evenlag.airflow import make_dags  # doctest: +SKIP
    >>> make_dags("/etc/evenlag/orders.yaml", dag_prefix="orders_", pool="evenlag")  # doctest: +SKIP
    """
    names = _check_names(only)
    _check_arguments(dag_prefix, (pool, background_pool), max_active_tis_per_dag, config)
    if background_pool is None and pool is not None:
        background_pool = f"{pool}_background"
    policy = _read_dag_policy(None if config is None else Path(config))
    for cluster in (kafka_conn_ids or {}).keys() - policy.settings.clusters:
        hint = nearest_or_all(cluster, policy.settings.clusters)
        raise DagPolicyError(f"make_dags: kafka_conn_ids: the policy has no cluster {cluster!r}{hint}")
    task_args = dict(default_args or {})
    if queue is not None:
        task_args["queue"] = queue
    if executor_config is not None:
        task_args["executor_config"] = dict(executor_config)
    options = _DagOptions(
        dag_prefix=dag_prefix,
        spark=SparkOptions(spark_conn_id, pool, max_active_tis_per_dag),
        background=SparkOptions(spark_conn_id, background_pool, max_active_tis_per_dag),
        kafka_conn_ids=dict(kafka_conn_ids or {}),
        task_args=task_args,
        approvers=None if approvers is None else _checked_approvers(approvers),
        tags=_texts(tags),
    )
    made = {dag.dag_id: dag for name in names for dag in DAGS[name](policy, options)}
    _refuse_second(made)
    return made


def _texts(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return texts; one text is not the sequence of its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def _checked_approvers(given: str | Sequence[str]) -> tuple[str, ...]:
    if not given:
        raise DagPolicyError("make_dags: approvers is empty: name at least one, or None for any user")
    try:
        return tuple(approver(each) for each in _texts(given))
    except ValueError as error:
        raise DagPolicyError(f"make_dags: approvers: {error}") from None


def _check_names(only: Collection[str] | None) -> tuple[str, ...]:
    if only is None:
        return tuple(DAGS)
    wanted = {only} if isinstance(only, str) else set(only)
    if unknown := sorted(wanted - DAGS.keys()):
        raise DagPolicyError(f"make_dags: only={unknown[0]!r} is no DAG; there are: {', '.join(DAGS)}")
    return tuple(name for name in DAGS if name in wanted)


def _check_arguments(
    dag_prefix: str,
    pools: tuple[str | None, ...],
    max_active: int,
    config: str | os.PathLike[str] | None,
) -> None:
    if not _PREFIX.fullmatch(dag_prefix):
        raise DagPolicyError(
            f"make_dags: dag_prefix={dag_prefix!r} is not usable: give at most 100 of A-Z a-z 0-9 _ . -"
        )
    if any(pool is not None and not pool.strip() for pool in pools):
        raise DagPolicyError("make_dags: a pool is empty: give the name of a pool, or none")
    if max_active < 1:
        raise DagPolicyError(
            f"make_dags: max_active_tis_per_dag={max_active}: no task could run; give 1 or more"
        )
    if config is not None and not Path(config).is_absolute():
        raise DagPolicyError(
            f"make_dags: config={str(config)!r} is no absolute path, and Airflow does not run in the folder "
            f"of the DAG file: Path(__file__).with_name({Path(config).name!r}) is the file beside it"
        )


def _refuse_second(made: Mapping[str, DAG]) -> None:
    """Refuse ids that this execution of the DAG file has made before: Airflow would keep the last one."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None:
        return
    before: set[str] = frame.f_globals.setdefault(_MADE, set())
    if twice := sorted(before & made.keys()):
        raise DagPolicyError(
            f"make_dags: {twice[0]} is made twice in this file: give each policy its own dag_prefix, and "
            "each call for the same policy other DAGs in `only`"
        )
    before.update(made)
