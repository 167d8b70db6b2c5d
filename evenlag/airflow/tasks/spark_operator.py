"""The operator of Spark tasks, run where an Airflow connection says.

A connection of type Spark Connect: the task starts the job as a child process, which is a client of that
server and needs no JVM. A connection of type Spark: ``spark-submit`` to its master.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook

from evenlag.airflow.compat import AirflowException, AirflowFailException
from evenlag.airflow.tasks.job_process import PYTHON_VARIABLE, JobProcess, spark_python
from evenlag.errors import JarError
from evenlag.lake.location import LakePaths
from evenlag.policy.loader import load_policy
from evenlag.redaction import remember_secret
from evenlag.safe_text import printable
from evenlag.spark_connect import (
    CONNECT_EXAMPLE,
    CONNECT_TYPE,
    REMOTE_VARIABLE,
    ConnectionFaultError,
    connect_server,
)
from evenlag.verified_jars import verify_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow.sdk import Connection, Context

    from evenlag.spark_connect import ConnectServer

SUBMIT_TYPE: Final = "spark"
# Exit codes that a retry cannot fix: wrong configuration, missing data.
_HOPELESS_EXIT_CODES: Final = frozenset({2, 4})
# Of the provider's own message, which is all that it reports of the process that it ran.
_SUBMIT_EXIT_CODE: Final = re.compile(r"Error code is: (\d+)\.")
_SUBMIT_EXAMPLE: Final = '{"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}}'


class SparkJobOperator(SparkSubmitOperator):
    """Runs a job where the connection says: by Spark Connect, or by the provider's ``spark-submit``.

    The connection is read when the task runs. If it cannot be read, the provider silently uses
    ``--master yarn``, and the task waits for a YARN cluster that does not exist; this operator fails and
    names the missing setting. It does not retry a job whose exit code means that a retry cannot help.

    config: Path of the policy file.
    refuses_backfill: Whether the task fails in a run of a backfill. Before Airflow 3.2, a DAG cannot refuse
        one itself.
    after_success: Called with the task's context after the job has succeeded; None for nothing.
    """

    _job_process: JobProcess | None = None
    _is_submitting = False

    def __init__(
        self,
        *,
        config: str,
        conn_id: str,
        refuses_backfill: bool = False,
        after_success: Callable[[Context], None] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(conn_id=conn_id, **kwargs)
        self.config = config
        self.spark_conn_id = conn_id
        self.refuses_backfill = refuses_backfill
        self.after_success = after_success

    def pre_execute(self, context: Context) -> None:
        """Fail if the Spark connection cannot be read, or names no server and no master, or in a backfill."""
        super().pre_execute(context)
        run = context.get("dag_run")
        if self.refuses_backfill and run is not None and run.run_type == "backfill":
            raise AirflowFailException(
                "this DAG has no backfill: it would write the current state of Kafka into past slots"
            )
        connection = self._read_connection()
        if connection.conn_type == CONNECT_TYPE:
            try:
                server_of(connection)
            except ConnectionFaultError as error:
                raise self._wrong_connection(str(error), CONNECT_EXAMPLE) from None
        elif connection.conn_type != SUBMIT_TYPE:
            raise self._wrong_connection(
                f"its type is {connection.conn_type!r}, which is neither Spark nor Spark Connect",
                f"{self._submit_example()}, or {CONNECT_EXAMPLE}",
            )
        elif not connection.host:
            raise self._wrong_connection("it names no master: set its host", self._submit_example())

    def execute(self, context: Context) -> None:
        """Run the job and wait for it."""
        connection = self._read_connection()
        if connection.conn_type == CONNECT_TYPE:
            self._run_by_connect(connection)
        else:
            self._submit_job(context)
        if self.after_success is not None:
            self.after_success(context)

    def on_kill(self) -> None:
        """End the job's processes."""
        if self._job_process is not None:
            self._job_process.stop()
        elif self._is_submitting:
            super().on_kill()

    def _run_by_connect(self, connection: Connection) -> None:
        from airflow.sdk.log import mask_secret

        server = server_of(connection)
        for secret in server.secrets:
            remember_secret(secret)
            mask_secret(secret)
        module = f"spark_jobs.{Path(self.application).stem}"
        arguments = printable(" ".join(self.application_args or ()))
        self.log.info("%s %s, at %s", printable(module), arguments, printable(server.name))
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
        # The JVM, and the driver in it, take the storage of the lake from the environment.
        try:
            verify_jars(self.jars.split(",") if self.jars else ())
        except JarError as error:
            raise AirflowFailException(printable(str(error))) from error
        policy = load_policy(self.config).policy
        self._is_submitting = True
        try:
            # The JVM inherits the umask of the lake's files.
            with _without_remote(), LakePaths(policy.lake).private_files():
                super().execute(context)
        except AirflowException as error:
            found = _SUBMIT_EXIT_CODE.search(str(error))
            exit_code = int(found.group(1)) if found else None
            if exit_code in _HOPELESS_EXIT_CODES:
                raise _job_failure(exit_code, "the job failed; its own message is above") from error
            raise

    def _read_connection(self) -> Connection:
        try:
            return BaseHook.get_connection(self.spark_conn_id)
        except Exception as error:
            # Not found, invalid JSON, an invalid URI: the provider ignores any of them.
            raise AirflowFailException(
                f"the Airflow connection {self.spark_conn_id!r} cannot be read ({type(error).__name__}). "
                f"Make it: type Spark Connect, host and port = the server, as in {CONNECT_EXAMPLE}; or type "
                f"Spark, host = the master, as in {self._submit_example()}"
            ) from error

    def _wrong_connection(self, fault: str, example: str) -> AirflowFailException:
        return AirflowFailException(
            f"the Airflow connection {self.spark_conn_id!r} is not usable: {fault}. Set it as in {example}"
        )

    def _submit_example(self) -> str:
        return f"AIRFLOW_CONN_{self.spark_conn_id.upper()}='{_SUBMIT_EXAMPLE}'"


def server_of(connection: Connection) -> ConnectServer:
    """Return the server of a connection of type Spark Connect.

    connection: Host, port, user id as its login, token as its password, and ``use_ssl`` in its extra.
    """
    return connect_server(
        connection.host,
        connection.port,
        user=connection.login,
        token=connection.password,
        use_ssl=connection.extra_dejson.get("use_ssl"),
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
