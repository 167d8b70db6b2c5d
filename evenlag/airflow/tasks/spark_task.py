"""The Spark tasks of the DAGs: their arguments, limits and lineage."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import WeightRule

from evenlag.airflow.tasks.defaults import COMPARE_TIMEOUT, CYCLE_PRIORITY, MAINTENANCE_TIMEOUT, SPARK_TIMEOUT
from evenlag.airflow.tasks.lineage import with_lineage
from evenlag.airflow.tasks.spark_operator import SparkJobOperator
from evenlag.spark_installation import delta_jars

if TYPE_CHECKING:
    from datetime import datetime, timedelta

SPARK_CONNECTION: Final = "spark_default"
# A manual run takes a snapshot of its own, at the time at which it became due. The form of Airflow's page
# fills in a logical date, whose interval ends in a slot that has a snapshot already. Both times are the same
# in a retry, which then finds what the first attempt wrote.
SLOT: Final = (
    "{{ (dag_run.run_after if dag_run.run_type == 'manual'"
    " else dag_run.data_interval_end or dag_run.run_after).isoformat() }}"
)
# The day of a daily run; of a manual run, the day before it became due.
DAY: Final = (
    "{{ (dag_run.data_interval_start or dag_run.run_after - macros.timedelta(days=1)).strftime('%Y-%m-%d') }}"
)
RUN_ID: Final = "{{ run_id }}"


def slot_of(run: Any) -> datetime:
    """Return the slot of a run, as :data:`SLOT` does in a template."""
    slot: datetime = run.run_after if run.run_type == "manual" else run.data_interval_end or run.run_after
    return slot


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where the Spark tasks of a DAG run, and how many of them.

    conn_id: Airflow connection to Spark.
    pool: Pool of the tasks; None for Airflow's default pool.
    max_active_tis_per_dag: How many instances of one task may run at once, over all runs of its DAG. A
        backfill runs ten runs at once, whatever the DAG's ``max_active_runs`` is.
    """

    conn_id: str = SPARK_CONNECTION
    pool: str | None = None
    max_active_tis_per_dag: int = 1


_DEFAULTS: Final = SparkOptions()


def spark_step(
    *steps: str,
    config: Path,
    cluster: str,
    timeout: timedelta = SPARK_TIMEOUT,
    options: SparkOptions = _DEFAULTS,
    **kwargs: Any,
) -> SparkJobOperator:
    """Build the task of one step of the cycle, or of several in one session.

    *steps: ``observe``, ``decide``, or both in this order.
    """
    arguments = [*steps, "--config", str(config), "--cluster", cluster, "--slot", SLOT, "--run-id", RUN_ID]
    name = "_and_".join(steps)
    made = _submit(
        name,
        f"evenlag-{name.replace('_', '-')}-{cluster}",
        "cycle.py",
        arguments,
        options,
        config=str(config),
        execution_timeout=timeout,
        # When a pool has one free slot, a cycle gets it before a backfill.
        priority_weight=CYCLE_PRIORITY,
        **kwargs,
    )
    with_lineage(made, steps, str(config), cluster)
    return made


def data_docs_step(*, config: Path, cluster: str, options: SparkOptions = _DEFAULTS) -> SparkJobOperator:
    """Build the task that builds a cluster's Data Docs."""
    arguments = ["--config", str(config), "--cluster", cluster]
    name = f"evenlag-data-docs-{cluster}"
    made = _submit(f"data_docs__{cluster}", name, "data_docs.py", arguments, options, config=str(config))
    with_lineage(made, "data_docs", str(config), cluster)
    return made


def maintain_step(*, config: Path, options: SparkOptions = _DEFAULTS) -> SparkJobOperator:
    """Build the task that maintains the complete lake."""
    made = _submit(
        "maintain_tables",
        "evenlag-maintain-tables",
        "maintain.py",
        ["--config", str(config)],
        options,
        config=str(config),
        execution_timeout=MAINTENANCE_TIMEOUT,
    )
    with_lineage(made, "maintain", str(config), None)
    return made


def audit_step(
    *, config: Path, cluster: str, budget_s: int, options: SparkOptions = _DEFAULTS
) -> SparkJobOperator:
    """Build the task that audits a cluster."""
    arguments = ["--config", str(config), "--cluster", cluster, "--budget-s", str(budget_s)]
    name = f"evenlag-audit-{cluster}"
    made = _submit(f"audit__{cluster}", name, "audit.py", arguments, options, config=str(config))
    with_lineage(made, "audit", str(config), cluster)
    return made


def compare_step(*, config: Path, cluster: str, options: SparkOptions = _DEFAULTS) -> SparkJobOperator:
    """Build the task that compares candidates on the run's day."""
    made = _submit(
        f"compare__{cluster}",
        f"evenlag-compare-{cluster}",
        "compare.py",
        ["--config", str(config), "--cluster", cluster, "--day", DAY],
        options,
        config=str(config),
        execution_timeout=COMPARE_TIMEOUT,
    )
    with_lineage(made, "compare", str(config), cluster)
    return made


def _submit(
    task_id: str, name: str, application: str, arguments: list[str], options: SparkOptions, **kwargs: Any
) -> SparkJobOperator:
    if options.pool is not None:
        kwargs["pool"] = options.pool
    return SparkJobOperator(
        task_id=task_id,
        conn_id=options.conn_id,
        application=str(_jobs_folder() / application),
        name=name,
        jars=",".join(delta_jars()) or None,
        application_args=arguments,
        max_active_tis_per_dag=options.max_active_tis_per_dag,
        # As they are, not the sum over what follows.
        weight_rule=WeightRule.ABSOLUTE,
        doc_md=f"`spark_jobs/{application}`, run through the connection `{options.conn_id}`.",
        **({"execution_timeout": SPARK_TIMEOUT} | kwargs),
    )


def _jobs_folder() -> Path:
    spec = find_spec("spark_jobs")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("spark_jobs is not installed: pip install 'evenlag[airflow]'")
    return Path(spec.origin).parent
