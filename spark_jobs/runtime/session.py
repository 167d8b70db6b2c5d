"""The only place where a Spark session is built.

Under ``spark-submit`` the JVM runs already: the submitter sets master, jars and driver memory, and only the
other settings are set here. In a plain Python process the session is an embedded ``local[*]``, or uses the
master in ``EVENLAG_SPARK_MASTER``. On a cluster, the session sends evenlag's code to the executors.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import JobError
from evenlag.spark_installation import delta_jars
from spark_jobs.runtime.code_archive import ship_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

MASTER_VARIABLE: Final = "EVENLAG_SPARK_MASTER"
# Spark's variable: path of the Python interpreter on the executors' machines (default: python3).
EXECUTOR_PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"

# Settings of every session. They are static: set before the session is created.
SESSION_CONF: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
}

# Settings of a driver that this process starts.
_QUIET_CONF: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}

# With one compiler tier the code cache has 48 MB by default: a session of many cycles fills it, and later
# code runs uncompiled.
_QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"

# The same on a local master: no other machine connects to it, and it runs for seconds.
EMBEDDED_CONF: Final = _QUIET_CONF | {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": _QUICK_START,
}

# On a local master a cycle's tables are small, and most of the cost is Spark's overhead: compiling code for
# each query, a job for each shuffle, 50 tasks to replay a Delta log. Measured in docs/adr/0007.
LOCAL_CONF: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "2",
}

# The same for a job with many rows: compiling is worth its cost, and so are more partitions than cores, so
# that a core that has finished one takes another. No table is broadcast because it is small on disk: the
# driver collects broadcast tables, and its memory must not grow with the rows.
LARGE_LOCAL_CONF: Final = {
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.databricks.delta.snapshotPartitions": "2",
}
# Minimum number of rows for which compiling is worth its cost: below, starting a query costs more than its
# rows. 100,000 rows of plans take as long to write uncompiled as a million compiled.
_LARGE_ROWS: Final = 50_000


# A JVM takes less than a second to shut down.
_JVM_END_TIMEOUT_S: Final = 10


def is_large_snapshot(num_rows: int) -> bool:
    """Whether a snapshot is large enough for its own session settings, and for packing groups by their sizes.

    Parameters
    ----------
    num_rows
        Number of rows, or an upper bound.

    Returns
    -------
    bool
        True above 50,000 rows.
    """
    return num_rows > _LARGE_ROWS


def num_task_slots(spark: SparkSession) -> int:
    """Return the number of tasks that the session's executors run at once."""
    return int(spark.sparkContext.defaultParallelism)


@contextmanager
def sized_session(spark: SparkSession, num_rows: int) -> Iterator[None]:
    """Apply the settings for large inputs to a session on a local master, and restore them afterwards.

    On any other master nothing is changed: the cluster's settings apply.

    Parameters
    ----------
    spark
        The session.
    num_rows
        Upper bound of the number of rows.

    Yields
    ------
    None
        The settings apply during the block.
    """
    if not is_large_snapshot(num_rows) or not is_local(str(spark.sparkContext.master)):
        yield
        return
    with temporary_conf(spark, LARGE_LOCAL_CONF):
        yield


@contextmanager
def temporary_conf(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session during a block, and restore them afterwards.

    Parameters
    ----------
    spark
        The session.
    conf
        Values by key.

    Yields
    ------
    None
        The settings apply during the block.
    """
    before: dict[str, Any] = {key: spark.conf.get(key, None) for key in conf}
    try:
        for key, value in conf.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def build_session(
    app_name: str, *, conf: dict[str, str] | None = None, is_large: bool = False
) -> SparkSession:
    """Build the Spark session, or return the running one.

    Parameters
    ----------
    app_name
        Name of the application in Spark's UI.
    conf
        Further settings; they override the others.
    is_large
        Whether the job processes millions of rows; used on a local master only.

    Returns
    -------
    SparkSession
        The session.

    Raises
    ------
    JobError
        When PySpark is not installed, no Java is found, or evenlag's code cannot be sent to a cluster.
    """
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise JobError("this needs Spark: pip install 'evenlag[spark]'") from error

    settings = dict(SESSION_CONF)
    if not is_under_spark_submit():
        master = os.environ.get(MASTER_VARIABLE, "local[*]")
        settings |= EMBEDDED_CONF if is_local(master) else _QUIET_CONF
        settings["spark.master"] = master
        if jars := delta_jars():
            settings["spark.jars"] = ",".join(jars)
    settings |= conf or {}
    builder = SparkSession.builder.appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise JobError(f"Spark did not start ({error}): is Java 17 or newer on the PATH?") from error
    context = session.sparkContext
    if not is_local(str(context.master)):
        ship_code(context)
        return session
    if EXECUTOR_PYTHON_VARIABLE not in os.environ:
        # Python workers use this interpreter too, not the first python3 on the PATH.
        context.pythonExec = sys.executable
    for key, value in (LARGE_LOCAL_CONF if is_large else LOCAL_CONF).items():
        if key not in (conf or {}):
            session.conf.set(key, value)
    return session


@contextmanager
def end_session(spark: SparkSession) -> Iterator[None]:
    """End a session after a block, and its JVM if this process started it.

    PySpark leaves it to the JVM to detect the end of this process. A caller that waits for this process
    relies on the end of the JVM too, with its temporary files.

    Parameters
    ----------
    spark
        The session.

    Yields
    ------
    None
        The session ends with the block.
    """
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001  # no public API has the JVM's process
    try:
        yield
    except KeyboardInterrupt:
        # The interrupt may have truncated a response of the JVM: the connection is not usable.
        if gateway.proc is not None:
            gateway.proc.terminate()
            _wait_for_jvm(gateway.proc)
        raise
    except BaseException:
        _stop(spark, gateway)
        raise
    else:
        _stop(spark, gateway)


def _stop(spark: SparkSession, gateway: Any) -> None:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    try:
        spark.stop()
    except Py4JError:
        # A JVM that died cannot stop its session.
        if gateway.proc is None or gateway.proc.poll() is None:
            raise
    if gateway.proc is None:
        return
    gateway.shutdown()
    with contextlib.suppress(BrokenPipeError):
        gateway.proc.stdin.close()
    _wait_for_jvm(gateway.proc)
    # A later session of this process starts its own JVM.
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  # PySpark offers no call for it


def _wait_for_jvm(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_JVM_END_TIMEOUT_S)
        return
    process.kill()
    process.wait()


def is_local(master: str) -> bool:
    """Whether a master runs threads in the driver's JVM, without other executors.

    Parameters
    ----------
    master
        A Spark master URL.

    Returns
    -------
    bool
        True for ``local`` and ``local[…]``.
    """
    return master == "local" or master.startswith("local[")


def is_under_spark_submit() -> bool:
    """Whether ``spark-submit`` has started this process and its JVM.

    Returns
    -------
    bool
        True when the process has the port of a JVM from ``spark-submit``.
    """
    # spark-submit passes the port of its JVM to its Python process.
    return "PYSPARK_GATEWAY_PORT" in os.environ
