"""A job as a child process: its output, its environment, and that nothing of it outlives the task."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from evenlag import job_process
from evenlag.airflow.job_process import _PATIENCE_S, TaskJob
from evenlag.spark_connect import PYTHON_VARIABLE
from tests.support.processes import processes_with, wait_until_gone
from tests.support.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parents[2]

# A job with a child of its own that does not react to SIGTERM; both name the mark in their command lines.
STUBBORN = """
import signal, subprocess, sys, time
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
deaf += "print('up', flush=True); time.sleep(300)"
subprocess.Popen([sys.executable, "-c", deaf, sys.argv[1]])
time.sleep(300)
"""
# A job that opens the events as every job does.
EVENTS = """
import argparse, time
from spark_jobs.runtime.event_channel import EventChannel
parser = argparse.ArgumentParser()
parser.add_argument("mark")
parser.add_argument("--events-fd", type=int)
with EventChannel(parser.parse_args().events_fd):
    print("up", flush=True)
    time.sleep(300)
"""
TASK = """
import logging, sys
from evenlag.airflow.job_process import TaskJob
logging.basicConfig(stream=sys.stdout, level="INFO", format="%(message)s")
TaskJob("probe_job", [sys.argv[1]], {}, logging.getLogger()).run()
"""


class Log:
    """A task's log; `until` waits for a line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, message: str, /, *arguments: object) -> None:
        self.lines.append(message % arguments)

    def until(self, line: str) -> None:
        wait_until(lambda: line in self.lines, what=lambda: f"{line} is not in {self.lines}")


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of the module `probe_job`, which the job's interpreter finds."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(REPOSITORY)]))
    return tmp_path / "probe_job.py"


def test_the_output_is_copied_line_by_line_and_the_exit_code_returned(module: Path, log: Log) -> None:
    long = "x" * 200_000
    module.write_text(
        "import sys\n"
        "print('first'); sys.stdout.flush(); print('second', file=sys.stderr)\n"
        "print('x' * 200_000); sys.stdout.flush()\n"
        "sys.stdout.buffer.write(b'caf\\xe9 \\xc3\\xa9, no newline')\n"
        "sys.exit(3)\n"
    )
    assert TaskJob("probe_job", [], {}, log).run() == 3
    assert log.lines == ["first", "second", long, "caf\N{REPLACEMENT CHARACTER} é, no newline"]


def test_a_line_is_copied_before_the_job_ends(module: Path, log: Log) -> None:
    module.write_text("import time; print('up', flush=True); time.sleep(300)")
    process = TaskJob("probe_job", [], {}, log)
    thread = threading.Thread(target=process.run)
    thread.start()
    try:
        log.until("up")
        assert thread.is_alive()
    finally:
        process.stop()
        thread.join(600)


def test_the_address_is_in_the_environment_of_the_job_only(
    module: Path, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    module.write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "print(os.environ['EVENLAG_SPARK_REMOTE'])\n"
        "print('secret' in Path('/proc/self/cmdline').read_text())\n"
        "print('' in sys.path or os.getcwd() in sys.path)\n"
    )
    code = TaskJob("probe_job", ["a"], {"EVENLAG_SPARK_REMOTE": "sc://h/;token=secret"}, log).run()
    assert (code, log.lines) == (0, ["sc://h/;token=secret", "False", "False"])
    assert "EVENLAG_SPARK_REMOTE" not in os.environ


def test_what_the_job_reports_is_told(module: Path, log: Log) -> None:
    module.write_text(
        "import os, sys\n"
        "from evenlag.job_events import *\n"
        "fd = int(sys.argv[-1].partition('=')[2])\n"
        "for event in (JobProgress('lag', 0, 2), JobProgress('lag', 1, 2), JobProgress('lag', 2, 2),\n"
        "              JobResult({'groups': 2}), JobFailed('no broker answers', 3)):\n"
        "    os.write(fd, encode_event(event).encode())\n"
        "sys.exit(3)\n"
    )
    process = TaskJob("probe_job", [], {}, log)
    assert process.run() == 3
    assert process.failure == "no broker answers"
    assert log.lines == ["lag: started", "lag: done", 'result: {"groups": 2}']


def test_a_job_that_a_signal_ended_has_its_number(module: Path, log: Log) -> None:
    module.write_text("import os; os.kill(os.getpid(), 9)")
    assert TaskJob("probe_job", [], {}, log).run() == -signal.SIGKILL


def test_a_process_that_the_job_leaves_behind_does_not_keep_the_task(
    module: Path, log: Log, tmp_path: Path
) -> None:
    module.write_text(
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1e6)',"
        " sys.argv[1]])"
    )
    assert TaskJob("probe_job", [str(tmp_path / "mark")], {}, log).run() == 0
    wait_until_gone(str(tmp_path / "mark"))


def test_the_interpreter_is_that_of_the_variable(
    module: Path, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.write_text("")
    other = tmp_path / "python"
    other.write_text('#!/bin/sh\necho "other $1 $2 $3"\n')
    other.chmod(0o755)
    monkeypatch.setenv(PYTHON_VARIABLE, str(other))
    assert TaskJob("probe_job", [], {}, log).run() == 0
    assert log.lines == ["other -P -m probe_job"]


def test_stopping_ends_even_what_does_not_react_to_sigterm(module: Path, log: Log, tmp_path: Path) -> None:
    module.write_text(STUBBORN)
    mark = str(tmp_path / "mark")
    process = TaskJob("probe_job", [mark], {}, log)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(process.run()))
    thread.start()
    log.until("up")
    wait_until(lambda: len(processes_with(mark)) == 2)
    process.stop()
    thread.join(600)
    assert codes == [-signal.SIGTERM]
    wait_until_gone(mark)


def test_a_job_that_does_not_react_is_killed_before_airflow_kills_the_task() -> None:
    from airflow.sdk.execution_time.supervisor import WatchedSubprocess

    patience_s = inspect.signature(WatchedSubprocess.kill).parameters["escalation_delay"].default
    # A round of the loop that copies the output comes first, and one that looks whether the group lives.
    longest_s = _PATIENCE_S + job_process.KILLED_S + 2 * job_process.POLL_S
    assert longest_s < patience_s


def test_an_exception_in_the_task_ends_the_job_too(module: Path, tmp_path: Path) -> None:
    module.write_text(STUBBORN)
    mark = str(tmp_path / "mark")

    class TimeoutReachedError(Exception):
        pass

    class Impatient(Log):
        def info(self, message: str, /, *arguments: object) -> None:
            raise TimeoutReachedError(message % arguments)

    with pytest.raises(TimeoutReachedError):
        TaskJob("probe_job", [mark], {}, Impatient()).run()
    wait_until_gone(mark)


def test_a_job_whose_task_was_killed_ends_by_itself(module: Path, tmp_path: Path) -> None:
    module.write_text(EVENTS)
    mark = str(tmp_path / "mark")
    command = [sys.executable, "-c", textwrap.dedent(TASK), mark]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as task:
        assert task.stdout is not None
        assert task.stdout.readline() == "up\n"
        wait_until(lambda: len(processes_with(mark)) == 2)
        task.kill()
    wait_until_gone(mark)
