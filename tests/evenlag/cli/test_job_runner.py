"""The runner of jobs, with jobs that start no JVM: what it shows, returns, raises and leaves running."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenlag.cli import job_runner
from evenlag.cli.job_runner import JobFailedError, SparkMissingError, require_spark, run_job
from evenlag.errors import UsageError
from evenlag.job_events import (
    CycleEnded,
    JobFailed,
    JobNotice,
    JobProgress,
    JobResult,
    JobStarted,
    decode_event,
    encode_event,
)
from tests.support.processes import processes_with, wait_until_gone
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlag.job_events import JobEvent

ROOT = Path(__file__).resolve().parents[3]
HEAD = """\
import os, signal, sys, time
from evenlag.job_events import *
fd = int([a for a in sys.argv if a.startswith("--events-fd=")][0].partition("=")[2])
def send(event):
    os.write(fd, encode_event(event).encode())
"""


@pytest.fixture
def write_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put a package `spark_jobs` with one job in front of ours."""

    def write(body: str) -> Path:
        package = tmp_path / "spark_jobs"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "job.py").write_text(HEAD + textwrap.dedent(body), encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
        monkeypatch.setattr(job_runner, "require_spark", lambda **_: None)
        return tmp_path

    return write


def _ignore(_step: str, _done: int, _total: int) -> None:
    return None


@pytest.mark.parametrize(
    "event",
    [
        JobStarted("spark_jobs.audit", "/tmp/log"),
        JobProgress("a\nb", 1, 2),
        JobResult({"days": []}),
        JobFailed("é", 2),
        CycleEnded({"slot": "2026-03-01T12:00:00+00:00", "observe": {"num_groups": 1}}),
        JobNotice("the policy file has changed"),
    ],
)
def test_an_event_is_one_line_that_reads_back(event: JobEvent) -> None:
    line = encode_event(event)
    assert line.count("\n") == 1
    assert decode_event(line) == event


@pytest.mark.parametrize(
    "line", ["", "WARN something", "[1]", "{}", '{"event": "new"}', '{"event": "error"}', "1"]
)
def test_a_line_that_is_no_event_is_ignored(line: str) -> None:
    assert decode_event(line) is None


def test_progress_and_result_come_through_whatever_the_job_prints(
    write_job: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    write_job("""
        print('{"event": "result", "result": {"from": "stdout"}}', flush=True)
        send(JobStarted("spark_jobs.job"))
        os.write(fd, b"no event\\n")
        send(JobProgress("observe", 0, 2))
        send(JobProgress("observe", 2, 2))
        send(JobResult({"arguments": sys.argv[1:-2]}))
    """)
    found: list[tuple[str, int, int]] = []
    result = run_job("job", ["--cluster=a b", "--x"], lambda *progress: found.append(progress))
    assert result == {"arguments": ["--cluster=a b", "--x"]}
    assert [step for step in found if step[0] == "observe"] == [("observe", 0, 2), ("observe", 2, 2)]
    captured = capfd.readouterr()
    assert captured.out == "", "standard output is the command's alone"
    assert "from" in captured.err


def test_an_error_is_the_commands_error_with_its_exit_code_and_what_was_done(
    write_job: Callable[[str], Path],
) -> None:
    write_job("""
        send(JobResult({"done": 1}))
        send(JobFailed("one of two failed", 3))
        sys.exit(3)
    """)
    with pytest.raises(JobFailedError, match="one of two failed") as error:
        run_job("job", [], _ignore)
    assert (error.value.exit_code, error.value.result) == (3, {"done": 1})


def test_a_killed_job_is_told_with_the_end_of_its_output(write_job: Callable[[str], Path]) -> None:
    folder = write_job("""
        log = os.path.join(os.path.dirname(os.path.dirname(__file__)), "spark.log")
        open(log, "w").write("first\\nOutOfMemoryError: heap\\n")
        send(JobStarted("spark_jobs.job", log))
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    with pytest.raises(JobFailedError) as error:
        run_job("job", [], _ignore)
    first, *tail = str(error.value).splitlines()
    assert "ended by SIGKILL (exit code 137), as the kernel does when memory runs out" in first
    assert f"Spark's own output is in {folder / 'spark.log'}" in first
    assert [line.strip() for line in tail] == ["first", "OutOfMemoryError: heap", "last words"]
    assert error.value.exit_code == 137


def test_a_job_that_dies_without_a_word_is_told_with_its_exit_code(write_job: Callable[[str], Path]) -> None:
    write_job("sys.exit(7)")
    with pytest.raises(JobFailedError, match="the job job ended with exit code 7, without a result") as error:
        run_job("job", [], _ignore)
    assert error.value.exit_code == 7


def test_a_job_that_ends_well_without_a_result_returns_none(write_job: Callable[[str], Path]) -> None:
    write_job("")
    assert run_job("job", [], _ignore) is None


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_job_never_outlives_its_command(
    how: signal.Signals, write_job: Callable[[str], Path], tmp_path: Path
) -> None:
    write_job("""
        import subprocess
        from spark_jobs_shell import EventChannel
        # As the JVM: in the job's group, and deaf to Ctrl-C.
        child = subprocess.Popen(
            ["sleep", "300"], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
        )
        with EventChannel(fd) as events:
            events.send(JobProgress("running", 0, 1))
            time.sleep(300)
    """)
    shell = (ROOT / "spark_jobs" / "runtime" / "event_channel.py").read_text(encoding="utf-8")
    # Shorter than the test's patience.
    (tmp_path / "spark_jobs_shell.py").write_text(shell.replace("15.0", "1.0"), encoding="utf-8")
    code = """
from evenlag.cli import job_runner
job_runner.require_spark = lambda **_: None
try:
    job_runner.run_job("job", [], lambda step, *_: print(step, flush=True))
except KeyboardInterrupt:
    raise SystemExit(130) from None
"""
    marker = f"JOB_RUNNER_TEST={tmp_path}"
    command = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"JOB_RUNNER_TEST": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert command.stdout is not None
        while command.stdout.readline() != "running\n":
            assert command.poll() is None
        wait_until(
            lambda: len(processes_with(marker)) == 3, what="the command, the job and what the job started"
        )
        command.send_signal(how)
        assert command.wait(600) == {signal.SIGINT: 130}.get(how, -how)
        wait_until_gone(marker)
    finally:
        command.kill()


def test_what_is_missing_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("evenlag.cli.job_runner.shutil.which", lambda _: None)
    with pytest.raises(SparkMissingError, match="install Java 17 or newer") as error:
        require_spark()
    assert error.value.exit_code == 1
    monkeypatch.setattr(
        "evenlag.cli.job_runner.find_spec", lambda name: None if name == "pyspark" else object()
    )
    with pytest.raises(
        SparkMissingError, match=r"this needs pyspark.*pip install 'evenlag\[spark\]'.*Java 17"
    ):
        require_spark()


def test_cycles_and_notices_are_received_as_they_come(write_job: Callable[[str], Path]) -> None:
    write_job("""
        send(JobNotice("first"))
        send(CycleEnded({"slot": 1}))
        send(JobResult({"cycles": 1}))
    """)
    received: list[JobEvent] = []
    assert run_job("job", [], _ignore, receive=received.append) == {"cycles": 1}
    assert received == [JobNotice("first"), CycleEnded({"slot": 1}), JobResult({"cycles": 1})]


def test_the_result_is_received_while_the_job_still_ends_its_session(
    write_job: Callable[[str], Path], tmp_path: Path
) -> None:
    write_job(f"""
        import pathlib
        send(JobResult({{"plans": 2}}))
        deadline = time.monotonic() + 600
        while not pathlib.Path({str(tmp_path / "received")!r}).exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    """)

    def receive(event: JobEvent) -> None:
        if isinstance(event, JobResult):
            (tmp_path / "received").touch()

    assert run_job("job", [], _ignore, receive=receive) == {"plans": 2}


def test_a_job_that_fails_after_its_result_failed(write_job: Callable[[str], Path]) -> None:
    write_job("""
        send(JobResult({"plans": 2}))
        send(JobFailed("the session did not end", 1))
        sys.exit(1)
    """)
    with pytest.raises(JobFailedError, match="the session did not end") as error:
        run_job("job", [], _ignore)
    assert error.value.result == {"plans": 2}


def test_what_the_receiver_raises_ends_the_job(write_job: Callable[[str], Path], tmp_path: Path) -> None:
    write_job("""
        send(CycleEnded({"slot": 1}))
        time.sleep(300)
    """)

    def refuse(_event: object) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_job("job", [f"--marker={tmp_path}"], _ignore, receive=refuse)
    wait_until_gone(f"--marker={tmp_path}")


REMOTE_JOB = """
    values = {"remote": os.environ.get("EVENLAG_SPARK_REMOTE"), "arguments": " ".join(sys.argv)}
    send(JobResult(values))
"""


def test_the_server_of_a_job_is_in_its_environment_and_not_in_its_arguments(
    write_job: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(REMOTE_JOB)
    monkeypatch.delenv("EVENLAG_SPARK_REMOTE", raising=False)
    done = run_job("job", [], _ignore, remote="sc://spark:15002")
    assert done is not None
    assert done["remote"] == "sc://spark:15002"
    assert "sc://" not in done["arguments"]
    alone = run_job("job", [], _ignore)
    assert alone is not None
    assert alone["remote"] is None


def test_the_server_of_the_environment_may_have_a_token(
    write_job: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(REMOTE_JOB)
    monkeypatch.setenv("EVENLAG_SPARK_REMOTE", "sc://spark:15002/;token=s3cret")
    done = run_job("job", [], _ignore)
    assert done is not None
    assert done["remote"] == "sc://spark:15002/;token=s3cret"
    other = run_job("job", [], _ignore, remote="sc://other")
    assert other is not None
    assert other["remote"] == "sc://other"


def test_a_wrong_server_in_the_environment_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVENLAG_SPARK_REMOTE", "spark:15002/;token=s3cret")
    with pytest.raises(UsageError, match=r"^EVENLAG_SPARK_REMOTE: .*write sc://HOST:PORT$") as error:
        run_job("job", [], _ignore)
    assert "s3cret" not in str(error.value)


def test_a_remote_job_needs_no_java_but_the_client_of_spark_connect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("evenlag.cli.job_runner.shutil.which", lambda _: None)
    require_spark(is_remote=True)
    find = importlib.util.find_spec
    for hidden in ("pyspark", "grpc", "pandas", "pyarrow"):
        monkeypatch.setattr(
            job_runner, "find_spec", lambda name, hidden=hidden: None if name == hidden else find(name)
        )
        with pytest.raises(SparkMissingError) as error:
            require_spark(is_remote=True)
        message = f"this needs {hidden}, which is not installed: pip install 'evenlag[spark]'"
        assert str(error.value) == message
    # A PySpark without its client.
    (tmp_path / "sql").mkdir()
    spec = importlib.machinery.ModuleSpec("pyspark", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(job_runner, "find_spec", lambda name: spec if name == "pyspark" else find(name))
    with pytest.raises(SparkMissingError, match=r"this needs pyspark\.sql\.connect, which is not installed"):
        require_spark(is_remote=True)
