"""Spark tasks of a DAG, run where the Airflow connection ``spark_default`` says.

A connection of type Spark Connect: the task starts the job as a child process, which is a client of that
server and needs no JVM. A connection of type Spark: ``spark-submit`` to its master.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dags.dag_support.defaults import COMPARE_TIMEOUT, MAINTENANCE_TIMEOUT, SPARK_TIMEOUT
from dags.dag_support.job_process import PYTHON_VARIABLE, JobProcess, spark_python
from dags.dag_support.lineage import with_lineage
from evenlag.redaction import remember_secret
from evenlag.spark_connect import (
    CONNECT_EXAMPLE,
    CONNECT_TYPE,
    REMOTE_VARIABLE,
    ConnectionFaultError,
    connect_server,
)
from evenlag.spark_installation import delta_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from airflow.sdk import Connection, Context

    from evenlag.spark_connect import ConnectServer

SPARK_CONNECTION: Final = "spark_default"
SUBMIT_TYPE: Final = "spark"
# The address of a Spark Connect server, for a job: in its environment only, because it may contain a token.
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
    """Runs a job where the connection says: by Spark Connect, or by the provider's ``spark-submit``.

    The connection is read when the task runs. If it cannot be read, the provider silently uses
    ``--master yarn``, and the task waits for a YARN cluster that does not exist; this operator fails and
    names the missing setting. It does not retry a job whose exit code means that a retry cannot help.
    """

    _job_process: JobProcess | None = None

    def pre_execute(self, context: Context) -> None:
        """Fail if the Spark connection cannot be read, or names no server and no master.

        Raises
        ------
        AirflowFailException
            With the missing setting.
        """
        super().pre_execute(context)
        connection = _read_connection()
        if connection.conn_type == CONNECT_TYPE:
            try:
                server_of(connection)
            except ConnectionFaultError as error:
                raise _wrong_connection(str(error), CONNECT_EXAMPLE) from None
        elif connection.conn_type != SUBMIT_TYPE:
            raise _wrong_connection(
                f"its type is {connection.conn_type!r}, which is neither Spark nor Spark Connect",
                f"{_CONNECTION_EXAMPLE}, or {CONNECT_EXAMPLE}",
            )
        elif not connection.host:
            raise _wrong_connection("it names no master: set its host", _CONNECTION_EXAMPLE)

    def execute(self, context: Context) -> None:
        """Run the job and wait for it.

        Raises
        ------
        AirflowFailException
            If a retry cannot help.
        AirflowException
            If the job failed otherwise.
        """
        connection = _read_connection()
        if connection.conn_type == CONNECT_TYPE:
            self._run_by_connect(connection)
        else:
            self._submit_job(context)

    def on_kill(self) -> None:
        """End the job's processes."""
        if self._job_process is not None:
            self._job_process.stop()
        elif self._hook is not None:
            super().on_kill()

    def _run_by_connect(self, connection: Connection) -> None:
        from airflow.sdk.log import mask_secret

        server = server_of(connection)
        for secret in server.secrets:
            remember_secret(secret)
            mask_secret(secret)
        module = f"spark_jobs.{Path(self.application).stem}"
        self.log.info("%s %s, at %s", module, " ".join(self.application_args or ()), server.name)
        self._job_process = JobProcess(
            module, self.application_args or (), {REMOTE_VARIABLE: server.url}, self.log
        )
        try:
            exit_code = self._job_process.run()
        except OSError as error:
            raise AirflowFailException(
                f"{spark_python()} does not start ({error.strerror}): {PYTHON_VARIABLE} names the Python of "
                "evenlag[spark]"
            ) from error
        if exit_code != 0:
            how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
            raise _job_failure(exit_code, self._job_process.failure or f"the job ended with {how}")

    def _submit_job(self, context: Context) -> None:
        try:
            with _without_remote():
                super().execute(context)
        except AirflowException as error:
            process = getattr(self._hook, "_submit_sp", None)
            exit_code = getattr(process, "returncode", None)
            if exit_code in _HOPELESS_EXIT_CODES:
                raise _job_failure(exit_code, "the job failed; its own message is above") from error
            raise


def _read_connection() -> Connection:
    try:
        return BaseHook.get_connection(SPARK_CONNECTION)
    except Exception as error:
        # Not found, invalid JSON, an invalid URI: the provider ignores any of them.
        raise AirflowFailException(
            f"the Airflow connection {SPARK_CONNECTION!r} cannot be read ({type(error).__name__}). Make it: "
            f"type Spark Connect, host and port = the server, as in {CONNECT_EXAMPLE}; or type Spark, host = "
            f"the master, as in {_CONNECTION_EXAMPLE}"
        ) from error


def server_of(connection: Connection) -> ConnectServer:
    """Return the server of a connection of type Spark Connect.

    Parameters
    ----------
    connection
        Host, port, user id as its login, token as its password, and ``use_ssl`` in its extra.
    """
    return connect_server(
        connection.host,
        connection.port,
        user=connection.login,
        token=connection.password,
        use_ssl=connection.extra_dejson.get("use_ssl"),
    )


def _wrong_connection(fault: str, example: str) -> AirflowFailException:
    return AirflowFailException(
        f"the Airflow connection {SPARK_CONNECTION!r} is not usable: {fault}. Set it as in {example}"
    )


def _job_failure(exit_code: int, message: str) -> AirflowException:
    if exit_code not in _HOPELESS_EXIT_CODES:
        return AirflowException(message)
    return AirflowFailException(
        f"{message}. It is not tried again, because a retry cannot help: exit code {exit_code} (2: a mistake "
        "in the settings, 4: nothing there)"
    )


@contextmanager
def _without_remote() -> Iterator[None]:
    """Hide the server of the worker's environment from a submitted job: the connection decides."""
    remote = os.environ.pop(REMOTE_VARIABLE, None)
    try:
        yield
    finally:
        if remote is not None:
            os.environ[REMOTE_VARIABLE] = remote


def spark_step(
    *steps: str, config: Path, cluster: str, timeout: timedelta = SPARK_TIMEOUT
) -> SparkJobOperator:
    """Build the task of one step of the cycle, or of several in one session.

    Parameters
    ----------
    *steps
        ``observe``, ``decide``, or both in this order.
    config
        The policy file. Only names are passed: secrets stay in the job's own environment, because
        Airflow's UI shows operator arguments, and the list of processes shows command lines.
    cluster
        The cluster's name in the policy.
    timeout
        Of one attempt.
    """
    arguments = [*steps, "--config", str(config), "--cluster", cluster, "--slot", SLOT, "--run-id", RUN_ID]
    name = "_and_".join(steps)
    app_name = f"evenlag-{name.replace('_', '-')}-{cluster}"
    made = _submit(name, app_name, "cycle.py", arguments, timeout=timeout)
    with_lineage(made, steps, str(config), cluster)
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
        doc_md=f"`spark_jobs/{application}`, run through the connection `{SPARK_CONNECTION}`.",
    )


def _jobs_folder() -> Path:
    spec = find_spec("spark_jobs")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("spark_jobs is not installed: pip install 'evenlag[airflow]'")
    return Path(spec.origin).parent
