"""The classic Spark session, whose JVM runs beside this process: the only module that uses py4j's objects.

Under ``spark-submit`` the JVM runs already: the submitter sets master, jars and driver memory, and only the
other settings are set here. In a plain Python process the session is an embedded ``local[*]``, or uses the
master in ``EVENLAG_SPARK_MASTER``. On a cluster, the session sends evenlag's code to the executors.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import JobError
from evenlag.lake.spark_storage import lake_storage_conf
from evenlag.private_files import OWNER_ONLY, applied_umask
from evenlag.spark_installation import delta_jars
from evenlag.verified_jars import verify_jars
from spark_jobs.runtime.code_archive import ship_code
from spark_jobs.runtime.session_conf import (
    CLASS_PATH_KEY,
    EMBEDDED_CONF,
    LARGE_LOCAL_CONF,
    LOCAL_CONF,
    QUIET_CONF,
    SESSION_CONF,
    is_local,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_VARIABLE: Final = "EVENLAG_SPARK_MASTER"
# Spark's variable: path of the Python interpreter on the executors' machines (default: python3).
EXECUTOR_PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"

# A JVM takes less than a second to shut down.
_JVM_END_TIMEOUT_S: Final = 10.0


def build_session(
    app_name: str,
    *,
    conf: dict[str, str] | None = None,
    is_large: bool = False,
    umask: int = OWNER_ONLY,
) -> SparkSession:
    """Build the Spark session, or return the running one."""
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise JobError("this needs Spark: pip install 'evenlag[spark]'") from error

    settings = SESSION_CONF | lake_storage_conf(umask=umask)
    if not is_under_spark_submit():
        master = spark_master()
        settings |= EMBEDDED_CONF if is_local(master) else QUIET_CONF
        settings["spark.master"] = master
        settings |= _delta_settings(master)
    settings |= conf or {}
    builder = SparkSession.builder.appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        # A JVM that starts here inherits it.
        with applied_umask(umask):
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


def _delta_settings(master: str) -> dict[str, str]:
    """Settings that give a session Delta's jars, verified."""
    jars = delta_jars()
    if not jars:
        return {}
    verify_jars(jars)
    if is_local(master):
        # On the JVM's own class path no task fetches them.
        return {CLASS_PATH_KEY: os.pathsep.join(jars)}
    return {"spark.jars": ",".join(jars)}


@contextmanager
def end_session(spark: SparkSession) -> Iterator[None]:
    """End a session after a block, and its JVM if this process started it.

    PySpark leaves it to the JVM to detect the end of this process. A caller that waits for this process
    relies on the end of the JVM too, with its temporary files: one that does not end in time is killed.
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
    except (Py4JError, OSError):
        if gateway.proc is None:
            raise
        # The JVM died, or does not answer: a process that was killed closes its connections before it ends.
        _wait_for_jvm(gateway.proc)
        # The first attempt has removed the connection to it; this one removes the rest of the context, so
        # that the next session does not find it.
        spark.sparkContext.stop()
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


def default_parallelism(spark: SparkSession) -> int:
    """Return how many tasks a classic session runs at the same time."""
    return int(spark.sparkContext.defaultParallelism)


def jvm_process(spark: SparkSession) -> subprocess.Popen[bytes] | None:
    """Return the process of a session's JVM; None under ``spark-submit``, which started it."""
    process: subprocess.Popen[bytes] | None = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001  # no public API
    return process


def java_objects(spark: SparkSession) -> tuple[Any, Any]:
    """Return the JVM of a session as py4j shows it, and the session's Java object."""
    session: Any = spark
    return session.sparkContext._jvm, session._jsparkSession  # noqa: SLF001  # no public API


def spark_master() -> str:
    """Return the master of a session that this process starts."""
    return os.environ.get(MASTER_VARIABLE, "local[*]")


def is_under_spark_submit() -> bool:
    """Whether ``spark-submit`` has started this process and its JVM."""
    # spark-submit passes the port of its JVM to its Python process.
    return "PYSPARK_GATEWAY_PORT" in os.environ
