"""A Spark job as a child process of a task: ``python -m spark_jobs.<job>``, without a JVM.

Its output goes to the task's log line by line. It ends with the task: on a timeout or when the task is
stopped, by a signal to its process group, and when the task's process is killed, by itself, because the
reader of its events is gone (``--events-fd``).
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Final, Protocol, cast

from evenlag.job_events import JobFailed, JobProgress, JobResult, decode_event
from evenlag.redaction import redact
from evenlag.safe_text import printable, printable_lines

PYTHON_VARIABLE: Final = "EVENLAG_SPARK_PYTHON"
# Airflow kills a task that does not end within five seconds.
_PATIENCE_S: Final = 3.0
# The system ends what is killed a moment after the signal, on a busy machine later.
_KILLED_S: Final = 0.5
_POLL_S: Final = 0.2
_CHUNK: Final = 1 << 16


class Log(Protocol):
    """A task's log."""

    def info(self, message: str, /, *arguments: object) -> object:
        """Write a line."""


class JobProcess:
    """One run of a job. Its arguments are no secrets: other users can read the command line.

    failure: What the job reported when it failed; None if it did not fail or could not report it.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Log
    ) -> None:
        self._command = [spark_python(), "-P", "-m", module, *arguments]
        self._environment = {**os.environ, **environment}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False
        self.failure: str | None = None

    def run(self) -> int:
        """Run the job and wait for it."""
        reading, writing = os.pipe()
        try:
            try:
                process = subprocess.Popen(
                    [*self._command, f"--events-fd={writing}"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    pass_fds=(writing,),
                    process_group=0,
                )
            finally:
                os.close(writing)
            self._process = process
            try:
                self._follow(process, reading)
                while process.poll() is None and not self._is_stopped:
                    time.sleep(_POLL_S)
            finally:
                _end_group(process)
            return process.returncode
        finally:
            os.close(reading)

    def stop(self) -> None:
        """Ask the job to end; a signal's handler may call it: it takes no lock and does not wait."""
        self._is_stopped = True
        if self._process is not None:
            _signal_group(self._process.pid, signal.SIGTERM)

    def _follow(self, process: subprocess.Popen[bytes], events: int) -> None:
        """Copy the output and the events until both have ended, or the job has."""
        output = cast("IO[bytes]", process.stdout)  # a pipe, see run
        with selectors.DefaultSelector() as selector, output:
            selector.register(output, selectors.EVENT_READ, _Lines(self._copy))
            selector.register(events, selectors.EVENT_READ, _Lines(self._receive))
            while selector.get_map() and not self._is_stopped:
                ready = selector.select(_POLL_S)
                for key, _ in ready:
                    data = os.read(key.fd, _CHUNK)
                    key.data.add(data)
                    if not data:
                        selector.unregister(key.fileobj)
                # A process that the job left behind may keep the output open.
                if not ready and process.poll() is not None:
                    break

    def _copy(self, line: str) -> None:
        self._log.info("%s", printable(redact(line)))

    def _receive(self, line: str) -> None:
        match decode_event(line):
            case JobProgress(step, done, total) if done in {0, total}:
                self._log.info("%s: %s", printable(redact(step)), "done" if done else "started")
            case JobResult(result):
                self._log.info("result: %s", printable(redact(json.dumps(result, default=str))))
            case JobFailed(message):
                self.failure = printable_lines(redact(message))


class _Lines:
    """Cuts a stream of bytes into lines; empty data is its end."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self._rest = b""

    def add(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            lines, self._rest = [self._rest], b""
        for line in lines:
            self._take(line.decode(errors="replace").rstrip("\r"))


def spark_python() -> str:
    """Return the interpreter of the jobs: ``EVENLAG_SPARK_PYTHON``, else the one of this process."""
    return os.environ.get(PYTHON_VARIABLE) or sys.executable


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the job and its process group."""
    for number, patience_s in ((signal.SIGTERM, _PATIENCE_S), (signal.SIGKILL, _KILLED_S)):
        _signal_group(process.pid, number)
        deadline = time.monotonic() + patience_s
        while _is_group_alive(process) and time.monotonic() < deadline:
            time.sleep(_POLL_S / 4)
    process.wait()


def _is_group_alive(process: subprocess.Popen[bytes]) -> bool:
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
