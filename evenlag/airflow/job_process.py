"""A Spark job as a child process of a task, without a JVM. Its output goes to the task's log line by line."""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from evenlag.job_events import JobEvent, JobFailed, JobProgress, JobResult
from evenlag.job_process import Ending, JobProcess
from evenlag.redaction import redact
from evenlag.safe_text import printable, printable_lines
from evenlag.spark_connect import PYTHON_VARIABLE

# Airflow kills a task that does not end within five seconds.
_PATIENCE_S: Final = 3.0


class Log(Protocol):
    """A task's log."""

    def info(self, message: str, /, *arguments: object) -> object:
        """Write a line."""


class TaskJob(JobProcess):
    """One run of a job by a task.

    failure: What the job reported when it failed; None if it did not fail or could not report it.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Log
    ) -> None:
        endings = (Ending(signal.SIGTERM, True, _PATIENCE_S),)
        command = [spark_python(), "-P", "-m", module, *arguments]
        super().__init__(command, environment, self._copy, self._note, endings)
        self._log = log
        self.failure: str | None = None

    def _copy(self, line: str) -> None:
        self._log.info("%s", printable(redact(line)))

    def _note(self, event: JobEvent) -> None:
        match event:
            case JobProgress(step, done, total) if done in {0, total}:
                self._log.info("%s: %s", printable(redact(step)), "done" if done else "started")
            case JobResult(result):
                self._log.info("result: %s", printable(redact(json.dumps(result, default=str))))
            case JobFailed(message):
                self.failure = printable_lines(redact(message))


def spark_python() -> str:
    """Return the interpreter of the jobs: ``EVENLAG_SPARK_PYTHON``, else the one of this process."""
    return os.environ.get(PYTHON_VARIABLE) or sys.executable
