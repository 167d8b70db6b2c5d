"""Spark tasks of a DAG: one spark-submit per step, to the master that the Airflow connection names."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dags.dag_support.defaults import COMPARE_TIMEOUT, MAINTENANCE_TIMEOUT, SPARK_TIMEOUT
from dags.dag_support.lineage import with_lineage
from evenlag.spark_installation import delta_jars

if TYPE_CHECKING:
    from datetime import timedelta

    from airflow.sdk import Context

SPARK_CONNECTION: Final = "spark_default"
# A manual run has no data interval: use the time at which it became due. Both are the same in a retry, which
# then finds what the first attempt wrote.
SLOT: Final = "{{ (dag_run.data_interval_end or dag_run.run_after).isoformat() }}"
# The day of a daily run; of a manual run, the day before it became due.
DAY: Final = (
    "{{ (dag_run.data_interval_start or dag_run.run_after - macros.timedelta(days=1)).strftime('%Y-%m-%d') }}"
)
RUN_ID: Final = "{{ run_id }}"

# Exit codes that a retry cannot fix: wrong configuration, missing data.
_HOPELESS_EXIT_CODES: Final = frozenset({2, 4})
_CONNECTION_EXAMPLE: Final = (
    """AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[*]", """
    """"extra": {"deploy-mode": "client"}}'"""
)


class SparkJobOperator(SparkSubmitOperator):
    """The provider's operator with clear failures.

    If the connection cannot be read, the provider silently uses ``--master yarn``, and the task waits for a
    YARN cluster that does not exist; this operator fails and names the missing setting. It does not retry a
    job whose exit code means that a retry cannot help.
    """

    def pre_execute(self, context: Context) -> None:
        """Fail if the Spark connection cannot be read or names no master.

        Raises
        ------
        AirflowFailException
            With the missing setting.
        """
        super().pre_execute(context)
        try:
            connection = BaseHook.get_connection(SPARK_CONNECTION)
        except Exception as error:
            # Not found, invalid JSON, an invalid URI: the provider ignores any of them.
            raise AirflowFailException(
                f"the Airflow connection {SPARK_CONNECTION!r} cannot be read ({type(error).__name__}). "
                f"Make it (type Spark, host = the master), or set {_CONNECTION_EXAMPLE}"
            ) from error
        if connection.conn_type == "spark" and not connection.host:
            raise AirflowFailException(
                f"the Airflow connection {SPARK_CONNECTION!r} names no master: set its host, as in "
                f"{_CONNECTION_EXAMPLE}"
            )

    def execute(self, context: Context) -> None:
        """Submit the job and wait for it.

        Raises
        ------
        AirflowFailException
            If a retry cannot help.
        AirflowException
            If the job failed otherwise.
        """
        try:
            super().execute(context)
        except AirflowException as error:
            process = getattr(self._hook, "_submit_sp", None)
            exit_code = getattr(process, "returncode", None)
            if exit_code in _HOPELESS_EXIT_CODES:
                raise AirflowFailException(
                    f"the job ended with exit code {exit_code} (2: a mistake in the settings, 4: nothing "
                    "there); its own message is above. It is not tried again."
                ) from error
            raise


def spark_step(step: str, *, config: Path, cluster: str) -> SparkJobOperator:
    """Build the task of one step of the cycle.

    Parameters
    ----------
    step
        ``observe`` or ``decide``.
    config
        The policy file. Only names are passed: secrets stay in the driver's own environment, because
        Airflow's UI shows operator arguments, and the list of processes shows command lines.
    cluster
        The cluster's name in the policy.
    """
    arguments = [step, "--config", str(config), "--cluster", cluster, "--slot", SLOT, "--run-id", RUN_ID]
    made = _submit(step, f"evenlag-{step}-{cluster}", "cycle.py", arguments)
    with_lineage(made, step, str(config), cluster)
    return made


def data_docs_step(*, config: Path, cluster: str) -> SparkJobOperator:
    """Build the task that builds a cluster's Data Docs; parameters as in :func:`spark_step`."""
    arguments = ["--config", str(config), "--cluster", cluster]
    made = _submit(f"data_docs__{cluster}", f"evenlag-data-docs-{cluster}", "data_docs.py", arguments)
    with_lineage(made, "data_docs", str(config), cluster)
    return made


def maintain_step(*, config: Path) -> SparkJobOperator:
    """Build the task that maintains the complete lake; parameters as in :func:`spark_step`."""
    arguments = ["--config", str(config)]
    made = _submit(
        "maintain_tables",
        "evenlag-maintain-tables",
        "maintain.py",
        arguments,
        timeout=MAINTENANCE_TIMEOUT,
    )
    with_lineage(made, "maintain", str(config), None)
    return made


def audit_step(*, config: Path, cluster: str) -> SparkJobOperator:
    """Build the task that audits a cluster; parameters as in :func:`spark_step`."""
    arguments = ["--config", str(config), "--cluster", cluster]
    made = _submit(f"audit__{cluster}", f"evenlag-audit-{cluster}", "audit.py", arguments)
    with_lineage(made, "audit", str(config), cluster)
    return made


def compare_step(*, config: Path, cluster: str) -> SparkJobOperator:
    """Build the task that compares candidates on the run's day; parameters as in :func:`spark_step`."""
    arguments = ["--config", str(config), "--cluster", cluster, "--day", DAY]
    made = _submit(
        f"compare__{cluster}",
        f"evenlag-compare-{cluster}",
        "compare.py",
        arguments,
        timeout=COMPARE_TIMEOUT,
    )
    with_lineage(made, "compare", str(config), cluster)
    return made


def _submit(
    task_id: str, name: str, application: str, arguments: list[str], timeout: timedelta = SPARK_TIMEOUT
) -> SparkJobOperator:
    return SparkJobOperator(
        task_id=task_id,
        conn_id=SPARK_CONNECTION,
        application=str(_jobs_folder() / application),
        name=name,
        jars=",".join(delta_jars()) or None,
        application_args=arguments,
        execution_timeout=timeout,
        doc_md=f"`spark_jobs/{application}`, submitted through the connection `{SPARK_CONNECTION}`.",
    )


def _jobs_folder() -> Path:
    spec = find_spec("spark_jobs")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("spark_jobs is not installed: pip install 'evenlag[airflow]'")
    return Path(spec.origin).parent
