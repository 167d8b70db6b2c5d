"""A Spark session of either kind, and what steps need to know of it.

A job runs on the Spark Connect server in ``EVENLAG_SPARK_REMOTE``, else on a classic session. Steps use the
DataFrame API and SQL only, which both kinds have.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from evenlag.errors import JobError
from evenlag.logging_setup import named_logger
from evenlag.private_files import OWNER_ONLY
from evenlag.spark_connect import REMOTE_VARIABLE
from evenlag.spark_installation import ensure_delta_jars
from spark_jobs.runtime.classic_session import (
    build_session,
    default_parallelism,
    end_session,
    is_under_spark_submit,
    spark_master,
)
from spark_jobs.runtime.session_conf import LARGE_LOCAL_CONF, SERVER_PARALLELISM_KEY, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OpenSession: TypeAlias = "Callable[[], AbstractContextManager[SparkSession]]"

_LOG: Final = named_logger(__name__)
_NO_FILE_NAME: Final = re.compile(r"[^\w.-]+")


# Minimum number of rows for which compiling is worth its cost: below, starting a query costs more than its
# rows. 100,000 rows of plans take as long to write uncompiled as a million compiled.
_LARGE_ROWS: Final = 50_000
# More partitions than a server has task slots, so that Spark's own default shows.
_PROBE_ROWS: Final = 100_000

_NUM_TASK_SLOTS: Final[WeakKeyDictionary[Any, int]] = WeakKeyDictionary()
# Of blocks of :func:`temporary_conf`: how many have changed a setting, and its value before the first.
_CHANGED: Final[WeakKeyDictionary[Any, dict[str, tuple[int, str | None]]]] = WeakKeyDictionary()
_CONF_LOCK: Final = threading.Lock()


@contextmanager
def open_session(
    app_name: str,
    *,
    is_large: bool = False,
    job_identity: str | None = None,
    umask: int = OWNER_ONLY,
    is_quiet: bool = False,
) -> Iterator[SparkSession]:
    """Open a session: on the server in ``EVENLAG_SPARK_REMOTE`` if it is set, else a classic one.

    is_large: Whether the job processes millions of rows; used on a local master only.
    job_identity: The same text for a job and its repeat: on a server, a repeat first ends what is left of
        the earlier attempt. None: no other attempt exists.
    is_quiet: Whether the output of a JVM that starts here goes to a file.
    """
    if remote := remote_url():
        from spark_jobs.runtime.connect_session import connect

        with connect(remote, is_large=is_large, job_identity=job_identity) as spark:
            yield spark
        return
    if not is_under_spark_submit() and is_local(spark_master()):
        # A Spark of its own, which nobody else configures.
        ensure_delta_jars()
    log = quiet_log(app_name) if is_quiet and has_quiet_log() else None
    with _output_to(log):
        try:
            spark = build_session(app_name, is_large=is_large, umask=umask)
        except JobError as error:
            if log is None:
                raise
            raise JobError(f"{error} Spark's own output is in {log}") from error
    with _removed_after(log), end_session(spark):
        yield spark


class WarmSession:
    """A session that is kept over the cycles of one or more clusters, and replaced when it is lost."""

    def __init__(self, open_session: OpenSession) -> None:
        self._open_session = open_session
        self._lock = threading.RLock()
        self._opened: AbstractContextManager[SparkSession] | None = None
        self._spark: SparkSession | None = None

    def get(self) -> SparkSession:
        """Return the session; open one if there is none."""
        with self._lock:
            if self._spark is None:
                opened = self._open_session()
                self._spark, self._opened = opened.__enter__(), opened
                if threading.current_thread() is threading.main_thread():
                    # PySpark's handler first cancels the jobs of its context: with a dead JVM it raises
                    # another error in place of the interrupt.
                    signal.signal(signal.SIGINT, signal.default_int_handler)
            return self._spark

    def drop_if_lost(self, error: BaseException, spark: SparkSession | None) -> BaseException | None:
        """Close the session if it does not answer any more; the next :meth:`get` then opens another.

        Returns the error as the session explains it; None when the session answers, or there was none.
        spark: The session with the error, which the cycle of another cluster may have replaced.
        """
        if spark is None:
            return None
        if spark is self._spark:
            # Not with the lock: a busy server answers late, and other clusters begin their cycles meanwhile.
            try:
                spark.range(1).collect()
            except Exception:  # noqa: BLE001, S110  # whatever the client raises without its server
                pass
            else:
                return None
        with self._lock:
            if spark is not self._spark:
                return error
            try:
                self.close(error)
            except JobError as explained:
                return explained
            except Exception:  # noqa: BLE001  # a session that is gone may fail to close
                return error
        return error

    def close(self, error: BaseException | None = None) -> None:
        """Close the session, if there is one; `error` ends it, None at a normal end."""
        opened, self._opened, self._spark = self._opened, None, None
        if opened is not None:
            opened.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)


def remote_url() -> str | None:
    """Return the address of the Spark Connect server of this process; None for a classic session."""
    return os.environ.get(REMOTE_VARIABLE) or None


def has_quiet_log() -> bool:
    """Whether a quiet session of this process has a JVM whose output goes to a file."""
    return remote_url() is None and not is_under_spark_submit()


def quiet_log(app_name: str) -> Path:
    """Return the path of the file with the JVM's output of a quiet session of this process."""
    return Path(tempfile.gettempdir()) / f"{_NO_FILE_NAME.sub('-', app_name)}-{os.getpid()}.log"


@contextmanager
def _output_to(path: Path | None) -> Iterator[None]:
    """Redirect standard output and standard error of this process, and of its new children, to a file."""
    if path is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, saved in enumerate(kept, start=1):
            os.dup2(saved, number)
            os.close(saved)
        os.close(descriptor)


@contextmanager
def _removed_after(log: Path | None) -> Iterator[None]:
    """Remove a file after a block, unless the block ends by an unexpected error."""
    try:
        yield
    except Exception as error:
        # evenlag's errors name their cause; Spark's output adds nothing.
        if log is not None and not isinstance(error, JobError):
            _LOG.warning("Spark's own output is in %s", log)
            log = None
        raise
    finally:
        if log is not None:
            log.unlink(missing_ok=True)


def is_connect(spark: SparkSession) -> bool:
    """Whether a session runs on a Spark Connect server."""
    # By name: importing the class would import gRPC into classic sessions.
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def num_task_slots(spark: SparkSession) -> int:
    """Return how many tasks a session runs at the same time; determined once per session."""
    known = _NUM_TASK_SLOTS.get(spark)
    if known is None:
        known = max(1, _num_server_slots(spark) if is_connect(spark) else default_parallelism(spark))
        _NUM_TASK_SLOTS[spark] = known
    return known


def _num_server_slots(spark: SparkSession) -> int:
    from pyspark.sql import functions as sf

    # A server of ours has it as a setting. Of another one, the partitions of a range show it.
    parallelism = spark.conf.get(SERVER_PARALLELISM_KEY, None)
    if parallelism is not None and parallelism.isdecimal():
        return int(parallelism)
    partitions = spark.range(_PROBE_ROWS).select(sf.spark_partition_id().alias("partition")).distinct()
    return partitions.count()


@contextmanager
def sized_session(spark: SparkSession, num_rows: int) -> Iterator[None]:
    """Apply the settings for large inputs during a block; only on a local master, a cluster has its own."""
    if num_rows <= _LARGE_ROWS or not is_local(str(spark.conf.get("spark.master", ""))):
        yield
        return
    with temporary_conf(spark, LARGE_LOCAL_CONF):
        yield


@contextmanager
def temporary_conf(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session during a block, and restore them afterwards.

    Threads share a session: of blocks that overlap, the last one restores what was before the first.
    """
    entered: list[str] = []
    try:
        with _CONF_LOCK:
            changed = _CHANGED.setdefault(spark, {})
            for key, value in conf.items():
                number, before = changed.get(key) or (0, spark.conf.get(key, None))
                changed[key] = number + 1, before
                entered.append(key)
                spark.conf.set(key, value)
        yield
    finally:
        with _CONF_LOCK:
            for key in entered:
                number, before = changed.pop(key)
                if number > 1:
                    changed[key] = number - 1, before
                elif before is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, before)
