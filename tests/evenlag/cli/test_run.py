"""Commands that start a job, with a runner that starts none: its arguments, its result, its error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from evenlag.cli.app import app
from evenlag.cli.cluster_target import Target
from evenlag.cli.job_runner import JobFailedError
from evenlag.cli.run import _recorded_summaries
from evenlag.errors import JobError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import RUNS
from evenlag.policy.loader import load_policy
from tests.truth.recorded_lakes import RecordedLake, extract

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer.testing import Result

CLUSTER = "north"


class Runner:
    """Records its arguments, and returns or raises the answer that it was created with."""

    def __init__(self, answer: dict[str, Any] | Exception | None) -> None:
        self.answer = answer
        self.job = ""
        self.arguments: list[str] = []
        self.policy = ""

    def __call__(self, job: str, arguments: Sequence[str], _report: Any, /) -> dict[str, Any] | None:
        self.job, self.arguments = job, list(arguments)
        for argument in arguments:
            name, _, value = argument.partition("=")
            if name == "--config":
                self.policy = Path(value).read_text(encoding="utf-8")
        if isinstance(self.answer, Exception):
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
    return CliRunner().invoke(app, [str(argument) for argument in arguments], obj=runner)


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


def test_the_password_of_a_cluster_without_policy_file_reaches_no_file_and_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENLAG_KAFKA_SASL_PLAIN_PASSWORD", "s3cret")
    runner = Runner({"observe": {}, "decide": {}})
    answer = call(runner, "run", "-b", "kafka:9092", "--lake", tmp_path / "lake", "--json")
    assert answer.exit_code == 0, answer.output
    assert "EVENLAG_KAFKA_SASL_PLAIN_PASSWORD" in runner.policy
    assert "s3cret" not in runner.policy + " ".join(runner.arguments)
    [config] = [argument for argument in runner.arguments if argument.startswith("--config=")]
    assert not Path(config.partition("=")[2]).exists()


def test_without_a_result_the_summaries_are_those_of_the_table_runs(
    policy: Path, recorded: RecordedLake
) -> None:
    rows = LakeReader(str(recorded.root)).read(RUNS, filters=[("cluster", "=", CLUSTER)]).to_pylist()
    run_id = next(row["run_id"] for row in rows if row["step"] == "decide")
    expected = {row["step"]: json.loads(row["summary"]) for row in rows if row["run_id"] == run_id}
    target = Target(load_policy(policy), CLUSTER)
    assert _recorded_summaries(target, run_id) == expected
    with pytest.raises(JobError, match="recorded no observe and no decide of run other"):
        _recorded_summaries(target, "other")


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
