"""Commands that start a job, with a runner that starts none: its arguments, its result, its error."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from evenlag.cli import job_runner
from evenlag.cli.app import app
from evenlag.cli.job_runner import JobFailedError
from evenlag.job_events import CycleEnded, JobNotice
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, RUNS
from tests.support.each import for_each
from tests.support.processes import wait_until_gone
from tests.truth.recorded_lakes import RecordedLake, extract

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer.testing import Result

CLUSTER = "north"
ROOT = Path(__file__).resolve().parents[3]


class Runner:
    """Records its arguments, and returns or raises the answer that it was created with."""

    def __init__(self, answer: dict[str, Any] | BaseException | None) -> None:
        self.answer = answer
        self.job = ""
        self.arguments: list[str] = []
        self.policy = ""
        self.lake_variable: str | None = None
        self.remote: str | None = None
        self.events: Sequence[CycleEnded | JobNotice] = ()

    def __call__(
        self,
        job: str,
        arguments: Sequence[str],
        _report: Any,
        /,
        *,
        remote: str | None = None,
        receive: Any = None,
    ) -> dict[str, Any] | None:
        self.job, self.arguments, self.remote = job, list(arguments), remote
        self.lake_variable = os.environ.get("EVENLAG_LAKE")
        for event in self.events:
            receive(event)
        for argument in arguments:
            name, _, value = argument.partition("=")
            if name == "--config":
                self.policy = Path(value).read_text(encoding="utf-8")
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedLake:
    """Extract a recorded lake."""
    return extract("hints", tmp_path_factory.mktemp("hints"))


@pytest.fixture
def policy(recorded: RecordedLake, tmp_path: Path) -> Path:
    """Write the policy of the recorded lake."""
    return recorded.write_policy(tmp_path / "policy.yaml")


def call(runner: Runner, *arguments: object) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_runner, "run_job", runner)
        return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_cycle_is_one_job_of_two_steps(policy: Path, recorded: RecordedLake) -> None:
    snapshot_id = LakeReader(str(recorded.root)).read(RUNS, columns=["snapshot_id"])["snapshot_id"][0].as_py()
    summaries = {"observe": {"snapshot_id": snapshot_id, "num_groups": 3}, "decide": {"plans": 0}}
    runner = Runner(summaries)
    answer = call(runner, "run", "--config", policy, "--cluster", CLUSTER, "--json")
    assert answer.exit_code == 0, answer.output
    content = json.loads(answer.stdout)
    assert (content["observe"], content["decide"]) == (summaries["observe"], summaries["decide"])
    names = [argument.partition("=")[0] for argument in runner.arguments]
    assert runner.job == "cycle"
    assert names == ["observe", "decide", "--cluster", "--slot", "--run-id", "--config"]


@for_each(("--config", "-b"))
def test_the_lake_of_a_command_line_wins_and_is_the_jobs_too(
    form: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENLAG_LAKE", "/of/the/caller")
    monkeypatch.chdir(tmp_path)
    runner = Runner({"observe": {}, "decide": {}})
    where = ("--config", policy, "--cluster", CLUSTER) if form == "--config" else ("-b", "kafka:9092")
    answer = call(runner, "run", *where, "--lake", "other", "--json")
    assert answer.exit_code == 0, answer.output
    lake = str(tmp_path / "other")
    assert (json.loads(answer.stdout)["lake"], runner.lake_variable) == (lake, lake)
    assert os.environ["EVENLAG_LAKE"] == "/of/the/caller"


def test_the_password_of_a_cluster_without_policy_file_reaches_no_file_and_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    login = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "PLAIN", "SASL_PLAIN_USERNAME": "evenlag"}
    for name, value in {**login, "SASL_PLAIN_PASSWORD": "s3cret"}.items():
        monkeypatch.setenv(f"EVENLAG_KAFKA_{name}", value)
    runner = Runner({"observe": {}, "decide": {}})
    answer = call(runner, "run", "-b", "kafka:9092", "--lake", tmp_path / "lake", "--json")
    assert answer.exit_code == 0, answer.output
    assert "EVENLAG_KAFKA_SASL_PLAIN_PASSWORD" in runner.policy
    assert "s3cret" not in runner.policy + " ".join(runner.arguments)
    [config] = [argument for argument in runner.arguments if argument.startswith("--config=")]
    assert not Path(config.partition("=")[2]).exists()


def test_the_error_of_a_job_is_the_commands(policy: Path) -> None:
    runner = Runner(JobFailedError("no broker answered", 3))
    answer = call(runner, "run", "--config", policy, "--cluster", CLUSTER)
    assert (answer.exit_code, answer.stdout) == (3, "")
    assert answer.stderr.splitlines()[-1] == "error: no broker answered"


def test_options_become_the_jobs_arguments(policy: Path) -> None:
    runner = Runner({"compared": ["2026-03-01"]})
    options = ("--day", "2026-03-01", "--force", "--continuous", "--assignor", "range")
    answer = call(runner, "compare", "run", "--config", policy, "--cluster", CLUSTER, *options)
    assert answer.exit_code == 0, answer.output
    assert (runner.job, runner.arguments) == (
        "compare",
        [
            *(f"--cluster={CLUSTER}", "--day=2026-03-01", "--to=2026-03-01", f"--config={policy}"),
            *("--assignor=range", "--continuous", "--force"),
        ],
    )


def test_the_context_of_the_suites_is_a_job_of_the_data_docs(policy: Path, tmp_path: Path) -> None:
    runner = Runner({"num_runs": 3, "folder": str(tmp_path)})
    into = tmp_path / "context"
    answer = call(
        runner, "quality", "context", "--into", into, "--runs", 5, "--config", policy, "--cluster", CLUSTER
    )
    assert answer.exit_code == 0, answer.output
    assert "".join(answer.stdout.split()) == f"Wrotethecontextof3runsto{tmp_path}"
    arguments = [f"--config={policy}", f"--cluster={CLUSTER}", "--runs=5", f"--context={into}"]
    assert (runner.job, runner.arguments) == ("data_docs", arguments)


def test_what_maintenance_did_is_shown_although_part_of_it_failed(policy: Path) -> None:
    result = {"done": {"compacted": 2}, "left": ["lag: busy"], "failures": ["x"], "unhealthy": []}
    runner = Runner(JobFailedError("1 pieces failed; the first: x", 3, result))
    answer = call(runner, "lake", "maintain", "--config", policy, "--only", "compact", "--dry-run")
    assert answer.exit_code == 3
    assert answer.stdout == "Would do: compacted 2\nlag: busy\n"
    assert answer.stderr.splitlines()[-1] == "error: 1 pieces failed; the first: x"
    assert (runner.job, runner.arguments) == (
        "maintain",
        ["--only=compact", f"--config={policy}", "--dry-run"],
    )


def test_a_job_that_ends_well_without_a_result_is_an_error_where_no_table_has_it(policy: Path) -> None:
    answer = call(Runner(None), "audit", "build", "--config", policy, "--cluster", CLUSTER)
    assert answer.exit_code == 1
    assert answer.stderr.splitlines()[-1] == "error: the job audit ended well and sent no result"


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "--watch"),
        ("audit", "build"),
        ("compare", "run"),
        ("lake", "maintain"),
    ],
    ids=" ".join,
)
def test_every_command_that_starts_a_job_passes_the_server_on(words: tuple[str, ...], policy: Path) -> None:
    runner = Runner(JobFailedError("reached", 1))
    answer = call(
        runner, *words, "--config", policy, "--cluster", CLUSTER, "--remote", "sc://spark/;use_ssl=true"
    )
    assert answer.stderr.splitlines()[-1] == "error: reached"
    assert runner.remote == "sc://spark/;use_ssl=true"
    assert "sc://" not in " ".join(runner.arguments)


def _cycle(recorded: RecordedLake, minute: int, **more: Any) -> CycleEnded:
    """A cycle with the summaries of one run of the recorded lake."""
    runs = LakeReader(str(recorded.root)).read(RUNS, filters=[("cluster", "=", CLUSTER)]).to_pylist()
    run_id = next(row["run_id"] for row in runs if row["step"] == "decide")
    summaries = {row["step"]: json.loads(row["summary"]) for row in runs if row["run_id"] == run_id}
    head = {"cluster": CLUSTER, "lake": str(recorded.root), "run_id": f"watch-{minute}", "duration_s": 3.21}
    slots = {
        name: f"2026-03-01T12:0{at}:00+00:00" for name, at in (("slot", minute), ("next_slot", minute + 1))
    }
    return CycleEnded(head | slots | summaries | more)


def _failed(minute: int) -> CycleEnded:
    slots = {
        name: f"2026-03-01T12:0{at}:00+00:00" for name, at in (("slot", minute), ("next_slot", minute + 2))
    }
    head = {"cluster": CLUSTER, "lake": "/none", "run_id": "w", "duration_s": 1.0}
    return CycleEnded(head | slots | {"error": "no broker answered", "exit_code": 3})


def test_a_watch_is_one_job_and_prints_a_line_per_cycle(policy: Path, recorded: RecordedLake) -> None:
    runner = Runner(KeyboardInterrupt())
    published = {"published": 1, "expired": 0, "held": 0, "not_taken_up": 0, "loads": 0, "loads_removed": 0}
    first = _cycle(recorded, 0, publish=published)
    runner.events = [first, JobNotice("the policy file has changed"), _failed(1), _cycle(recorded, 3)]
    answer = call(
        runner, "run", "--config", policy, "--cluster", CLUSTER, "--watch", "--every", "1.5min", "--publish"
    )
    assert (runner.job, runner.arguments) == (
        "watch",
        [f"--cluster={CLUSTER}", "--every=90", f"--config={policy}", "--publish"],
    )
    assert answer.exit_code == 130
    headings, *lines = answer.stdout.splitlines()
    assert headings.split() == ["slot", "groups", "lag", "change", "plans", "passed", "published", "took"]
    snapshot_id = first.cycle["observe"]["snapshot_id"]
    rows = LakeReader(str(recorded.root)).read(LAG, filters=[("cluster", "=", CLUSTER)]).to_pylist()
    lags = [row["lag_records"] for row in rows if row["snapshot_id"] == snapshot_id]
    total = f"{sum(lag for lag in lags if lag is not None):,}"
    groups = str(first.cycle["observe"]["num_groups"])
    decided = first.cycle["decide"]
    plans, passed = str(decided["plans"]), str(decided["plans"] - decided["rejected"])
    lag = [total] if None not in lags else ["≥", total]
    assert lines[0].split() == ["2026-03-01", "12:00:00Z", groups, *lag, plans, passed, "1", "3.2", "s"]
    assert lines[1].split() == ["2026-03-01", "12:03:00Z", groups, *lag, "+0", plans, passed, "-", "3.2", "s"]
    assert answer.stderr.splitlines() == [
        "the policy file has changed",
        "2026-03-01 12:01:00Z  no broker answered; next try: 2026-03-01 12:03:00Z",
        "stopped after 3 cycles, 1 failed",
    ]


def test_a_watch_without_a_cluster_is_of_all_and_names_them(recorded: RecordedLake, tmp_path: Path) -> None:
    policy = tmp_path / "many.yaml"
    servers = "{bootstrap_servers: 'kafka:9092', schedule: null}"
    policy.write_text(
        f"lake: {recorded.root}\nclusters: {{{CLUSTER}: {servers}, southwest: {servers}}}\n", encoding="utf-8"
    )
    runner = Runner(KeyboardInterrupt())
    of_other = {**_failed(1).cycle, "cluster": "southwest"}
    runner.events = [_cycle(recorded, 0), CycleEnded(of_other), _cycle(recorded, 1)]
    answer = call(runner, "run", "--config", policy, "--watch")
    assert (runner.job, runner.arguments) == ("watch", ["--every=60", f"--config={policy}"])
    headings, *lines = answer.stdout.splitlines()
    assert headings.split()[:3] == ["slot", "cluster", "groups"]
    assert [line.split()[:3] for line in lines] == [["2026-03-01", f"12:0{at}:00Z", CLUSTER] for at in (0, 1)]
    assert "+0" in lines[1].split()
    assert len({len(line) for line in answer.stdout.splitlines()}) == 1
    assert "2026-03-01 12:01:00Z  southwest  no broker answered; next try" in answer.stderr
    # Of one cycle it is not known which cluster is meant.
    answer = call(runner, "run", "--config", policy)
    assert answer.exit_code == 2
    assert "name one with --cluster" in answer.stderr


def test_a_watch_says_once_how_many_groups_could_not_be_read(policy: Path, recorded: RecordedLake) -> None:
    runner = Runner(KeyboardInterrupt())
    unread = {"num_groups": 300, "num_unread_groups": 30, "unread_group": "bad: assignment of 'm-1': null"}
    cycles = [_cycle(recorded, number) for number in range(4)]
    for cycle in cycles[1:3]:
        cycle.cycle["observe"].update(unread)
    runner.events = cycles
    answer = call(runner, "run", "--config", policy, "--cluster", CLUSTER, "--watch")
    shown, end = answer.stderr.splitlines()
    assert shown.startswith(
        "30 of 300 groups could not be read completely. One is bad: assignment of 'm-1': null."
    )
    assert end == "stopped after 4 cycles, 0 failed"


def test_a_watch_prints_one_json_object_a_line_failed_cycles_too(
    policy: Path, recorded: RecordedLake
) -> None:
    runner = Runner(JobFailedError("another cluster", 2))
    runner.events = [_cycle(recorded, 0), _failed(1)]
    answer = call(runner, "run", "--config", policy, "--cluster", CLUSTER, "--watch", "--json")
    assert answer.exit_code == 2
    first, failed = map(json.loads, answer.stdout.splitlines())
    assert first["slot"] == "2026-03-01T12:00:00+00:00"
    assert len(first["plans"]) == first["decide"]["plans"]
    assert (failed["error"], failed["exit_code"], failed["plans"]) == ("no broker answered", 3, [])
    assert failed["lag_records"] is None
    assert answer.stderr.splitlines() == ["error: another cluster"]


JOB = """
import json, os, signal, sys, time
fd = int([a for a in sys.argv if a.startswith("--events-fd=")][0].partition("=")[2])
slot = "2026-03-01T12:00:00+00:00"
cycle = {"cluster": "kafka", "lake": "/none", "slot": slot, "next_slot": slot, "duration_s": 1}
try:
    progress = {"event": "progress", "step": "observe: computing lag", "done": 0, "total": 1}
    os.write(fd, (json.dumps(progress) + "\\n").encode())
    while not os.path.exists("step-is-shown"):
        time.sleep(0.05)
    for number in range(CYCLES):
        event = {"event": "cycle", "cycle": cycle | {"observe": {}, "decide": {}}}
        os.write(fd, (json.dumps(event) + "\\n").encode())
        time.sleep(0.05)
    time.sleep(300)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def watch(tmp_path: Path) -> Any:
    """Start a watch with a job that sends some cycles without Spark, then waits."""
    started: list[subprocess.Popen[str]] = []
    package = tmp_path / "spark_jobs"
    package.mkdir()
    (package / "__init__.py").touch()
    # Else the job waits for it in the middle of its step.
    (tmp_path / "step-is-shown").touch()

    def start(num_cycles: int, pipe: str = "", output: int | None = None) -> subprocess.Popen[str]:
        (package / "watch.py").write_text(JOB.replace("CYCLES", str(num_cycles)), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
        form = "--json" if output is None else ""
        line = f"exec {sys.executable} -m evenlag run -b a:1 --lake {tmp_path}/lake --watch {form}"
        script = f"set -o pipefail; {line} {pipe}" if pipe else line
        command = subprocess.Popen(
            ["bash", "-c", script],
            env=environment | {"TERM": "xterm"},
            cwd=tmp_path,
            stdout=subprocess.PIPE if output is None else output,
            stderr=output,
            text=True,
        )
        started.append(command)
        return command

    yield start
    for command in started:
        command.kill()
        command.communicate()


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_watch_ends_cleanly_on_a_signal(how: signal.Signals, code: int, watch: Any, tmp_path: Path) -> None:
    command = watch(1)
    assert json.loads(command.stdout.readline())["cluster"] == "kafka"
    command.send_signal(how)
    assert command.wait(600) == code
    wait_until_gone(str(tmp_path))


@pytest.mark.parametrize("num_cycles", [2, 500], ids=["before the next line", "at the next line"])
def test_a_watch_ends_with_the_reader_of_its_output(num_cycles: int, watch: Any, tmp_path: Path) -> None:
    command = watch(num_cycles, "| head -2")
    lines = command.communicate(timeout=600)[0].splitlines()
    assert [json.loads(line)["cluster"] for line in lines] == ["kafka", "kafka"]
    assert command.returncode == 1
    wait_until_gone(str(tmp_path))


def test_a_terminal_shows_the_lines_above_the_current_step(watch: Any, tmp_path: Path) -> None:
    """The line of the step is erased before a line is printed, and drawn again below it."""
    terminal, side = os.openpty()
    (tmp_path / "step-is-shown").unlink()
    command = watch(2, output=side)
    os.close(side)
    shown = ""
    while "observe: computing lag" not in shown:
        shown += os.read(terminal, 65_536).decode()
    (tmp_path / "step-is-shown").touch()
    while shown.count("1.0 s") < 2:
        shown += os.read(terminal, 65_536).decode()
    command.send_signal(signal.SIGINT)
    # A terminal that nobody reads becomes full, and then the command waits for it. It ends with an error.
    with contextlib.suppress(OSError):
        while os.read(terminal, 65_536):
            continue
    assert command.wait(600) == 130
    os.close(terminal)
    assert "observe: computing lag" in shown
    assert re.search("\x1b\\[2Kslot +groups +lag", shown)
    assert re.search("\x1b\\[2K12:00:00Z +- +- ", shown)
