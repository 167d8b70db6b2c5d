"""A Spark session for the command line: Spark's own output goes to a file."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenlag.errors import JobError
from evenlag.logging_setup import named_logger
from evenlag.private_files import OWNER_ONLY
from evenlag.spark_installation import ensure_delta_jars
from spark_jobs.runtime.classic_session import build_session, end_session, is_under_spark_submit
from spark_jobs.runtime.session import open_session, remote_url, starts_local_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_LOG = named_logger(__name__)
_NO_FILE_NAME: Final = re.compile(r"[^\w.-]+")


@contextmanager
def quiet_session(
    app_name: str,
    *,
    is_large: bool = False,
    job_identity: str | None = None,
    umask: int = OWNER_ONLY,
) -> Iterator[SparkSession]:
    """Open a session whose JVM writes its output to a file; the file is removed unless the job fails.

    Under ``spark-submit`` the JVM runs already and keeps its output. A session on a Spark Connect server has
    no JVM here.
    """
    if not has_quiet_log():
        with open_session(app_name, is_large=is_large, job_identity=job_identity, umask=umask) as spark:
            yield spark
        return
    if starts_local_session():
        ensure_delta_jars()
    log = quiet_log(app_name)
    with _output_into(log):
        try:
            spark = build_session(app_name, is_large=is_large, umask=umask)
        except JobError as error:
            raise JobError(f"{error} Spark's own output is in {log}") from error
    try:
        with end_session(spark):
            yield spark
    except (JobError, KeyboardInterrupt):
        # evenlag's errors name their cause; Spark's output adds nothing.
        log.unlink(missing_ok=True)
        raise
    except Exception:
        _LOG.warning("Spark's own output is in %s", log)
        raise
    log.unlink(missing_ok=True)


def has_quiet_log() -> bool:
    """Whether a :func:`quiet_session` of this process has a JVM whose output goes to a file."""
    return remote_url() is None and not is_under_spark_submit()


def quiet_log(app_name: str) -> Path:
    """Return the path of the file with the JVM's output of a :func:`quiet_session` of this process."""
    return Path(tempfile.gettempdir()) / f"{_NO_FILE_NAME.sub('-', app_name)}-{os.getpid()}.log"


@contextmanager
def _output_into(path: Path) -> Iterator[None]:
    """Redirect standard output and standard error of this process, and of its new children, to a file."""
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
