"""Run a Spark job by name in its own process: this process needs neither PySpark nor Java.

The job writes progress, result and error as JSON lines to a pipe (:mod:`evenlag.job_events`). Its standard
output and standard error are copied to this process's standard error; the JVM's output goes to a file. The
job and its JVM never outlive the command: Ctrl-C ends them, and a job whose command was killed ends itself.
With a Spark Connect server no JVM is started; the job finds its URL in the environment, not in its arguments.
"""

import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from evenlag.cli.console import ReportProgress, shown_progress
from evenlag.errors import JobError
from evenlag.job_events import (
    CycleEnded,
    JobEvent,
    JobFailed,
    JobNotice,
    JobProgress,
    JobResult,
    JobStarted,
)
from evenlag.job_process import Ending, JobProcess
from evenlag.redaction import redact
from evenlag.safe_text import printable_lines
from evenlag.spark_connect import REMOTE_VARIABLE, find_remote

Receive = Callable[[CycleEnded | JobNotice | JobResult], None]

# An interrupted job ends its JVM, and then the remaining processes of its group end.
_ENDINGS: Final = (Ending(signal.SIGINT, False, 12.0), Ending(0, True, 3.0))
_TAIL_LINES: Final = 8
_TAIL_BYTES: Final = 20_000
_STARTING: Final = "starting Spark"
_NEEDED: Final = ("spark_jobs", "pyspark")
# What PySpark's client of Spark Connect imports.
_NEEDED_BY_CLIENT: Final = ("grpc", "grpc_status", "zstandard", "pandas", "pyarrow")


class JobFailedError(JobError):
    """Raised when a job failed, with its message, its exit code and the summary of what it completed."""

    def __init__(self, message: str, exit_code: int, result: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.result = result


class SparkMissingError(JobError):
    """Raised when PySpark, the jobs or Java are not installed."""


def run_job(
    job: str,
    arguments: Sequence[str],
    report: ReportProgress,
    /,
    *,
    remote: str | None = None,
    receive: Receive | None = None,
) -> dict[str, Any] | None:
    """Run a job as ``python -m spark_jobs.<job>``, and return its result; None when it succeeded without one.

    `receive` is called with the result, while the job ends its session, and with each cycle and notice of a
    job that runs cycles until it is stopped. What it raises ends the job.
    """
    remote = remote or find_remote()
    require_spark(is_remote=remote is not None)
    report(_STARTING, 0, 1)
    outcome = _Outcome()
    process = JobProcess(
        [sys.executable, *_safe_path(), "-m", f"spark_jobs.{job}", *arguments, "--quiet"],
        {} if remote is None else {REMOTE_VARIABLE: remote},
        partial(_copy_output, outcome=outcome),
        partial(_receive, outcome=outcome, report=report, receive=receive),
        _ENDINGS,
    )
    return _conclude(job, process.run(), outcome)


def job_result(remote: str | None, job: str, /, **options: object) -> dict[str, Any]:
    """Run a job, show its progress, and return its result, which must exist."""
    with shown_progress() as report:
        return sent_result(job, run_job(job, job_arguments(**options), report, remote=remote))


def sent_result(job: str, result: dict[str, Any] | None) -> dict[str, Any]:
    """Return the result of a job that sends one."""
    if result is None:
        raise JobFailedError(f"the job {job} ended well and sent no result", 1)
    return result


def job_arguments(**options: object) -> list[str]:
    """Return options as arguments of a job, without those that are None or False; a sequence is repeated."""
    arguments = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(flag)
        elif value is not None and value is not False:
            values = value if isinstance(value, list | tuple) else (value,)
            arguments += [f"{flag}={each}" for each in values]
    return arguments


def require_spark(*, is_remote: bool = False) -> None:
    """Check that the jobs, PySpark and Java can be found, without starting any of them."""
    found = {module: find_spec(module) for module in _NEEDED + (_NEEDED_BY_CLIENT if is_remote else ())}
    missing = [module for module, spec in found.items() if spec is None]
    if not missing and is_remote and not _has_connect(found["pyspark"]):
        missing = ["pyspark.sql.connect"]
    if missing:
        java = "" if is_remote else "; it also needs Java 17 or newer"
        raise SparkMissingError(
            f"this needs {missing[0]}, which is not installed: pip install 'evenlag[spark]'{java}"
        )
    if is_remote:
        return
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise SparkMissingError(
            "this needs Java, which is not on the PATH: install Java 17 or newer, or set JAVA_HOME"
        )


def _has_connect(pyspark: ModuleSpec | None) -> bool:
    """Whether PySpark has its client for Spark Connect; looking for the module would import PySpark."""
    folders = (pyspark.submodule_search_locations if pyspark else None) or ()
    return any(Path(folder, "sql", "connect").is_dir() for folder in folders)


@dataclass(slots=True)
class _Outcome:
    """Events of the job so far, and the end of its output."""

    result: dict[str, Any] | None = None
    failure: JobFailed | None = None
    spark_log: str | None = None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))


def _receive(event: JobEvent, outcome: _Outcome, report: ReportProgress, receive: Receive | None) -> None:
    match event:
        case JobStarted():
            outcome.spark_log = event.spark_log
        case JobProgress():
            report(_STARTING, 1, 1)
            report(event.step, event.done, event.total)
        case JobFailed():
            outcome.failure = event
        case JobResult():
            outcome.result = dict(event.result)
    if receive is not None and isinstance(event, JobResult | CycleEnded | JobNotice):
        receive(event)


def _conclude(job: str, returncode: int, outcome: _Outcome) -> dict[str, Any] | None:
    if outcome.failure is not None:
        raise JobFailedError(outcome.failure.message, outcome.failure.exit_code, outcome.result)
    if outcome.result is not None or returncode == 0:
        return outcome.result
    exit_code, how = returncode, f"with exit code {returncode}"
    if returncode < 0:
        exit_code = 128 - returncode
        how = f"by {signal.Signals(-returncode).name} (exit code {exit_code})"
        if returncode == -signal.SIGKILL:
            how += ", as the kernel does when memory runs out"
    message = f"the job {job} ended {how}, without a result"
    tail = list(outcome.tail)
    log = outcome.spark_log
    if log is not None and Path(log).is_file():
        message += f"; Spark's own output is in {log}"
        tail = _last_lines(Path(log)) + tail
    lines = [message, *(f"  {redact(line)}" for line in tail[-_TAIL_LINES:])]
    raise JobFailedError("\n".join(lines), exit_code)


def _safe_path() -> list[str]:
    """Return the option that keeps the current folder off the module path, unless this process has it too."""
    here = str(Path.cwd())
    return [] if {"", here} & set(sys.path) else ["-P"]


def _copy_output(line: str, outcome: _Outcome) -> None:
    """Copy a line of the job's output to standard error, and keep the last ones."""
    outcome.tail.append(line)
    sys.stderr.write(f"{printable_lines(line)}\n")


def _last_lines(log: Path) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
