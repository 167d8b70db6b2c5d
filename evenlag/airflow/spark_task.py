"""The Spark tasks of the DAGs, whose operator runs a job where an Airflow connection says.

A connection of type Spark Connect: the task starts the job as a child process, which is a client of that
server and needs no JVM. A connection of type Spark: ``spark-submit`` to its master.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Connection, Context, WeightRule
from airflow.sdk.log import mask_secret

from evenlag.airflow.compat import AirflowException, AirflowFailException
from evenlag.airflow.job_process import TaskJob, spark_python
from evenlag.airflow.kafka_connection import connection_variables
from evenlag.airflow.lineage import with_lineage
from evenlag.enums import CycleStep
from evenlag.errors import JarError
from evenlag.lake.location import LakePaths
from evenlag.policy.cron import last_due
from evenlag.policy.loader import load_policy, replaced_environment
from evenlag.redaction import remember_secret
from evenlag.safe_text import printable
from evenlag.spark_connect import (
    CONNECT_EXAMPLE,
    CONNECT_TYPE,
    PYTHON_VARIABLE,
    REMOTE_VARIABLE,
    SUBMIT_CONNECTION,
    ConnectionFaultError,
    ConnectServer,
    connect_server,
)
from evenlag.spark_installation import delta_jars
from evenlag.verified_jars import verify_jars

SUBMIT_TYPE: Final = "spark"
# Exit codes that a retry cannot fix: wrong configuration, missing data.
_HOPELESS_EXIT_CODES: Final = frozenset({2, 4})
# Of the provider's own message, which is all that it reports of the process that it ran.
_SUBMIT_EXIT_CODE: Final = re.compile(r"Error code is: (\d+)\.")
SPARK_CONNECTION: Final = "spark_default"
# A cycle of 2,000 groups takes minutes.
SPARK_TIMEOUT: Final = timedelta(minutes=20)
# A cycle that starts more often than every four minutes is short: a task that hangs must not cost 20 slots.
SHORTEST_SPARK_TIMEOUT: Final = timedelta(minutes=5)
_SLOTS_PER_TIMEOUT: Final = 5
_LONGEST_WAIT: Final = SPARK_TIMEOUT / 2
# The same result at each parse, whatever the time: another timeout would be another version of the DAG.
_REFERENCE: Final = datetime(2026, 1, 1, tzinfo=UTC)
# A day of 2,000 groups under four policies.
COMPARE_TIMEOUT: Final = timedelta(hours=2)
# The first run on a lake without maintenance so far processes all of its days; the next run continues.
MAINTENANCE_TIMEOUT: Final = timedelta(hours=6)
# The steps of whole cycles in one job.
CYCLE_STEPS: Final = (CycleStep.OBSERVE, CycleStep.DECIDE, CycleStep.PUBLISH)
# Of the Spark tasks of a cycle; all others have 1.
CYCLE_PRIORITY: Final = 10
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


class SparkJobOperator(SparkSubmitOperator):
    """Runs a job where the connection says: by Spark Connect, or by the provider's ``spark-submit``.

    The connection is read when the task runs. If it cannot be read, the provider silently uses
    ``--master yarn``, and the task waits for a YARN cluster that does not exist; this operator fails and
    names the missing setting. It does not retry a job whose exit code means that a retry cannot help.

    config: Path of the policy file.
    clusters, kafka_conn_ids: The clusters of the job, and the Airflow connections to clusters.
    refuses_backfill: Whether the task fails in a run of a backfill. Before Airflow 3.2, a DAG cannot refuse
        one itself.
    after_success: Called with the task's context after the job has succeeded; None for nothing.
    """

    _job_process: TaskJob | None = None
    _is_submitting = False

    def __init__(
        self,
        *,
        config: str,
        conn_id: str,
        clusters: Sequence[str] = (),
        kafka_conn_ids: Mapping[str, str] | None = None,
        refuses_backfill: bool = False,
        after_success: Callable[[Context], None] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(conn_id=conn_id, **kwargs)
        self.config = config
        self.spark_conn_id = conn_id
        self.clusters = tuple(clusters)
        self.kafka_conn_ids = kafka_conn_ids or {}
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
        kafka = next((name for name in self.clusters if name in self.kafka_conn_ids), None)
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
        elif kafka is not None and connection.extra_dejson.get("deploy-mode") == "cluster":
            # The environment does not reach that driver, and Spark's configuration is no place for secrets.
            raise self._wrong_connection(
                f"a driver in deploy mode cluster does not get {self.kafka_conn_ids[kafka]!r}, the "
                f"connection to the cluster {kafka!r}",
                self._submit_example(),
            )

    def execute(self, context: Context) -> None:
        """Run the job and wait for it."""
        connection = self._read_connection()
        variables: dict[str, str] = {}
        for name in self.clusters:
            variables |= connection_variables(self.kafka_conn_ids, name)
        if connection.conn_type == CONNECT_TYPE:
            self._run_by_connect(connection, variables)
        else:
            self._submit_job(context, variables)
        if self.after_success is not None:
            self.after_success(context)

    def on_kill(self) -> None:
        """End the job's processes."""
        if self._job_process is not None:
            self._job_process.stop()
        elif self._is_submitting:
            super().on_kill()

    def _run_by_connect(self, connection: Connection, variables: Mapping[str, str]) -> None:
        server = server_of(connection)
        for secret in server.secrets:
            remember_secret(secret)
            mask_secret(secret)
        module = f"spark_jobs.{Path(self.application).stem}"
        arguments = printable(" ".join(self.application_args or ()))
        self.log.info("%s %s, at %s", printable(module), arguments, printable(server.name))
        self._job_process = TaskJob(
            module, self.application_args or (), {REMOTE_VARIABLE: server.url, **variables}, self.log
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

    def _submit_job(self, context: Context, variables: Mapping[str, str]) -> None:
        # The JVM, and the driver in it, take the storage of the lake from the environment.
        try:
            verify_jars(self.jars.split(",") if self.jars else ())
        except JarError as error:
            raise AirflowFailException(printable(str(error))) from error
        policy = load_policy(self.config).policy
        self._is_submitting = True
        # A server of the worker's environment is hidden from the job: the connection decides.
        environment = replaced_environment({REMOTE_VARIABLE: "", **variables})
        try:
            # The JVM inherits the umask of the lake's files.
            with environment, LakePaths(policy.lake).private_files():
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
        return f"AIRFLOW_CONN_{self.spark_conn_id.upper()}='{SUBMIT_CONNECTION}'"


def server_of(connection: Connection) -> ConnectServer:
    """Return the server of a connection of type Spark Connect, with ``use_ssl`` in its extra."""
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
        f"{message}. It is not tried again, because a retry cannot help: exit code {exit_code} (2: usage "
        "or policy error, 4: not found)"
    )


def slot_of(run: Any) -> datetime:
    """Return the slot of a run, as :data:`SLOT` does in a template."""
    slot: datetime = run.run_after if run.run_type == "manual" else run.data_interval_end or run.run_after
    return slot


def cycle_timeout(schedule: str | None) -> timedelta:
    """Return the timeout of a Spark task of a cluster's cycle.

    Returns 20 minutes; with a faster schedule than every four minutes, five times its interval, but at
    least five minutes.
    schedule: Cron expression of the cluster; None: manual runs.

    Examples
    --------
    >>> cycle_timeout("*/5 * * * *"), cycle_timeout("* * * * *")
    (datetime.timedelta(seconds=1200), datetime.timedelta(seconds=300))
    """
    if schedule is None:
        return SPARK_TIMEOUT
    return min(SPARK_TIMEOUT, max(SHORTEST_SPARK_TIMEOUT, _SLOTS_PER_TIMEOUT * _interval(schedule)))


def _cycle_limit(schedule: str | None) -> timedelta:
    """How long a job waits for a cluster when the others have ended: as long as from slot to slot."""
    if schedule is None:
        return _LONGEST_WAIT
    return min(_LONGEST_WAIT, max(timedelta(minutes=1), _interval(schedule)))


def _interval(schedule: str) -> timedelta:
    newest, before = last_due(schedule, _REFERENCE, 2)
    return newest - before


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
    step: str,
    *,
    config: Path,
    cluster: str,
    timeout: timedelta = SPARK_TIMEOUT,
    options: SparkOptions = _DEFAULTS,
    **kwargs: Any,
) -> SparkJobOperator:
    """Build the task of ``observe`` or ``decide``."""
    return _submit(
        step,
        "cycle",
        [step, "--config", str(config), "--cluster", cluster, "--slot", SLOT, "--run-id", RUN_ID],
        options,
        config=config,
        clusters=[cluster],
        execution_timeout=timeout,
        # When a pool has one free slot, a cycle gets it before a backfill.
        priority_weight=CYCLE_PRIORITY,
        **kwargs,
    )


def cycles_job(
    clusters: Sequence[str],
    schedule: str | None,
    *,
    config: Path,
    options: SparkOptions,
    **kwargs: Any,
) -> SparkJobOperator:
    """Build the task of whole cycles of many clusters, none of which waits long for another one."""
    named = [word for name in clusters for word in ("--cluster", name)]
    limit = ("--limit-s", f"{_cycle_limit(schedule).total_seconds():.0f}")
    return _submit(
        "cycles",
        "cycle",
        [*CYCLE_STEPS, "--config", str(config), *named, "--slot", SLOT, "--run-id", RUN_ID, *limit],
        options,
        config=config,
        clusters=clusters,
        steps=CYCLE_STEPS,
        execution_timeout=cycle_timeout(schedule),
        priority_weight=CYCLE_PRIORITY,
        **kwargs,
    )


def cluster_job(
    job: str, *arguments: str, config: Path, cluster: str, options: SparkOptions, **kwargs: Any
) -> SparkJobOperator:
    """Build the task of a job for one cluster: ``audit``, ``compare`` or ``data_docs``."""
    return _submit(
        job,
        job,
        ["--config", str(config), "--cluster", cluster, *arguments],
        options,
        config=config,
        clusters=[cluster],
        task_id=f"{job}__{cluster}",
        **kwargs,
    )


def maintain_job(*, config: Path, options: SparkOptions) -> SparkJobOperator:
    """Build the task that maintains the complete lake."""
    return _submit(
        "maintain_tables",
        "maintain",
        ["--config", str(config)],
        options,
        config=config,
        execution_timeout=MAINTENANCE_TIMEOUT,
    )


def _submit(
    step: str,
    job: str,
    arguments: list[str],
    options: SparkOptions,
    *,
    config: Path,
    clusters: Sequence[str] = (),
    steps: Sequence[str] = (),
    kafka_conn_ids: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> SparkJobOperator:
    if options.pool is not None:
        kwargs["pool"] = options.pool
    defaults: dict[str, Any] = {"task_id": step, "execution_timeout": SPARK_TIMEOUT}
    made = SparkJobOperator(
        conn_id=options.conn_id,
        config=str(config),
        clusters=clusters,
        kafka_conn_ids=kafka_conn_ids,
        application=str(_jobs_folder() / f"{job}.py"),
        name="-".join(["evenlag", step.replace("_", "-"), *(clusters if len(clusters) == 1 else ())]),
        jars=",".join(delta_jars()) or None,
        application_args=arguments,
        max_active_tis_per_dag=options.max_active_tis_per_dag,
        # As they are, not the sum over what follows.
        weight_rule=WeightRule.ABSOLUTE,
        doc_md=f"`spark_jobs/{job}.py`, run through the connection `{options.conn_id}`.",
        **(defaults | kwargs),
    )
    with_lineage(made, steps or [step], str(config), clusters or [None])
    return made


def _jobs_folder() -> Path:
    spec = find_spec("spark_jobs")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("spark_jobs is not installed: pip install 'evenlag[airflow]'")
    return Path(spec.origin).parent
