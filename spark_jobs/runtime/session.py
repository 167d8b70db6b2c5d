"""The only place where a Spark session is built.

Under ``spark-submit`` the JVM runs already: master, jars and driver memory are the submitter's, and only
what may still be set is set here. Run as a plain Python process, the session is an embedded ``local[*]``, or
on the master that ``EVENLAG_SPARK_MASTER`` names. On a cluster our code goes along with the session.
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
# Spark's own: the executors' interpreter, by a path on the executors' machines (python3 when it is not set).
EXECUTOR_PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"

# What every session needs, wherever it runs; static, so it is set before the session is there.
SESSION_CONF: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
}

# A driver that this process starts itself.
_QUIET_CONF: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}

# Code compiled once and not twice has 48 MB by default: a session of many cycles fills that, and runs what
# comes after uncompiled.
_QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"

# The same on a local master: nobody else has to reach it, and it lives for seconds.
EMBEDDED_CONF: Final = _QUIET_CONF | {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": _QUICK_START,
}

# On a local master a cycle's tables are small, and what costs is Spark's own work around them: compiling
# code for each query, a job for each shuffle, 50 tasks to replay a Delta log. Measured in docs/adr/0007.
LOCAL_CONF: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "2",
}

# The same for a job that goes over many rows: there it pays to compile, and to have more parts than cores, so
# that a core which is done with its part takes another. Nothing is broadcast for being small on disk: the
# driver collects what is broadcast, and must not grow with the rows.
LARGE_LOCAL_CONF: Final = {
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.databricks.delta.snapshotPartitions": "2",
}
# From so many rows on compiling pays: below, a query's start costs more than its rows. Uncompiled, 100,000
# rows of plans take as long to write as a million compiled.
_LARGE_ROWS: Final = 50_000


# A JVM that has been asked to end takes below a second.
_JVM_END_TIMEOUT_S: Final = 10


def is_large_snapshot(num_rows: int) -> bool:
    """Whether so many rows are worth settings, and a look at the groups' sizes, of their own."""
    return num_rows > _LARGE_ROWS


@contextmanager
def sized_session(spark: SparkSession, num_rows: int) -> Iterator[None]:
    """Set a session on a local master for so many rows, and set it back afterwards.

    On any other master nothing is changed: there the cluster's own settings hold.

    Parameters
    ----------
    num_rows
        As many as there may be.
    """
    if not is_large_snapshot(num_rows) or not is_local(str(spark.sparkContext.master)):
        yield
        return
    with temporary_conf(spark, LARGE_LOCAL_CONF):
        yield


@contextmanager
def temporary_conf(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for the length of a block, and restore them afterwards.

    Parameters
    ----------
    spark
        The session.
    conf
        Values by key.
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
    """Build, or take the running, Spark session.

    Parameters
    ----------
    app_name
        Shown in Spark's own pages.
    conf
        Further settings; they win over ours.
    is_large
        The job goes over millions of rows: matters on a local master only.

    Raises
    ------
    JobError
        When PySpark is not installed, no Java is found, or our code cannot be sent to a cluster.
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
        # Our code runs on this interpreter beside the JVM too, not on whichever python3 the path has first.
        context.pythonExec = sys.executable
    for key, value in (LARGE_LOCAL_CONF if is_large else LOCAL_CONF).items():
        if key not in (conf or {}):
            session.conf.set(key, value)
    return session


@contextmanager
def end_session(spark: SparkSession) -> Iterator[None]:
    """End a session after a block, and the JVM too where this process started it.

    PySpark leaves the JVM to notice that this process is gone. Whoever waits for this process needs to know
    that the JVM is gone as well, with its temporary files.

    Parameters
    ----------
    spark
        The session.
    """
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001  # the JVM's process is told nowhere else
    try:
        yield
    except KeyboardInterrupt:
        # The interrupt may have cut an answer of the JVM in two: nothing more can be asked of it.
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
    from pyspark import SparkContext

    spark.stop()
    if gateway.proc is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    _wait_for_jvm(gateway.proc)
    # A later session of this process starts a JVM of its own.
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  # PySpark offers no call for it


def _wait_for_jvm(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_JVM_END_TIMEOUT_S)
        return
    process.kill()
    process.wait()


def is_local(master: str) -> bool:
    """Whether a master means threads of the driver's own JVM, and no executors elsewhere."""
    return master == "local" or master.startswith("local[")


def is_under_spark_submit() -> bool:
    """Whether the JVM runs already, started by whoever submitted this process."""
    # spark-submit hands its Python child the port of the JVM that it started.
    return "PYSPARK_GATEWAY_PORT" in os.environ
