"""What a person sees of commands that start Spark: our own lines, and errors; no chatter of the libraries."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.tables import COMMITS, LAG, SNAPSHOTS
from spark_jobs.runtime.delta_lake import Lake
from tests.support.lakes.snapshots import append_rows, commit, marker
from tests.support.processes import jvms, processes_with, wait_until_gone
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.extended, pytest.mark.jvm]

ROOT = Path(__file__).resolve().parents[3]
POLICY = """\
lake: {lake}
data_docs: {lake}-docs
clusters: {{c: {{bootstrap_servers: "localhost:9092"}}}}
"""


@pytest.fixture(scope="module")
def one_snapshot(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of one snapshot, written once: each test gets a copy."""
    lake = Lake(spark, str(tmp_path_factory.mktemp("one-snapshot") / "lake"))
    append_rows(lake.paths.root, COMMITS, [commit(0, 5)])
    append_rows(lake.paths.root, SNAPSHOTS, [marker()])
    lake.append(LAG, spark.createDataFrame([], LAG.ddl))
    return Path(lake.paths.root)


@pytest.fixture
def policy(one_snapshot: Path, tmp_path: Path) -> Path:
    """A policy, and a lake of one snapshot."""
    lake = shutil.copytree(one_snapshot, tmp_path / "lake")
    file = tmp_path / "evenlag.yaml"
    file.write_text(POLICY.format(lake=lake), encoding="utf-8")
    return file


def call(tmp_path: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Call a module of ours as a process of its own, with its own folder for temporary files."""
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)} | environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=1_500,
    )


def test_the_audit_says_its_step_and_one_line(policy: Path, tmp_path: Path) -> None:
    done = call(tmp_path, "evenlag", "audit", "build", "--config", str(policy))
    assert (done.returncode, done.stderr) == (0, "starting Spark\naudit: days\n")
    assert done.stdout == "Audited c: 2026-03-01\n"
    assert not list((tmp_path / "scratch").glob("evenlag-*.log")), "Spark's own output is kept after an error"


def test_maintenance_says_its_steps(policy: Path, tmp_path: Path) -> None:
    done = call(tmp_path, "evenlag", "lake", "maintain", "--config", str(policy), "--only", "compact")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Done: ")
    assert done.stderr.splitlines() == ["starting Spark", "maintenance: compact"], done.stderr


def test_data_docs_say_their_own_lines(policy: Path, tmp_path: Path) -> None:
    done = call(tmp_path, "spark_jobs.data_docs", "--config", str(policy), "--cluster", "c")
    assert (done.returncode, done.stdout) == (0, "")
    [line] = done.stderr.splitlines()
    assert " INFO " in line
    assert 'data_docs: {"num_runs": 0, "folder": ' in line


def test_great_expectations_is_silent_where_jobs_log(tmp_path: Path) -> None:
    code = """
import pandas as pd
from evenlag.logging_setup import set_up_logging
from spark_jobs.steps.expectations import import_great_expectations
set_up_logging()
gx = import_great_expectations()
gx.get_context(mode="ephemeral")
import logging
logging.getLogger("great_expectations.data_context").warning("this is heard")
"""
    script = tmp_path / "judge.py"
    script.write_text(code, encoding="utf-8")
    done = call(tmp_path, "judge")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.endswith("this is heard")


def test_what_keeps_spark_from_starting_is_told(policy: Path, tmp_path: Path) -> None:
    done = call(
        tmp_path, "evenlag", "audit", "build", "--config", str(policy), JAVA_HOME=str(tmp_path / "no-java")
    )
    assert done.returncode == 1
    assert done.stdout == ""
    started, line = done.stderr.splitlines()
    assert started == "starting Spark"
    assert "is Java 17 or newer on the PATH?" in line
    kept = Path(line.rpartition(" is in ")[2])
    assert "no-java" in kept.read_text(encoding="utf-8")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_command_leaves_neither_job_nor_jvm(
    how: signal.Signals, policy: Path, tmp_path: Path
) -> None:
    marker = f"EVENLAG_TEST_MARKER={tmp_path}"
    command = subprocess.Popen(
        [sys.executable, "-m", "evenlag", "audit", "build", "--config", str(policy)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "EVENLAG_TEST_MARKER": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(
            lambda: jvms(processes_with(marker)) or command.poll() is not None,
            what="the job has not started its JVM",
        )
        assert command.poll() is None
        command.send_signal(how)
        _, stderr = command.communicate(timeout=600)
        assert command.returncode == (130 if how is signal.SIGINT else -how)
        if how is signal.SIGINT:
            assert stderr.splitlines()[-1] == "error: stopped"
        wait_until_gone(marker)
    finally:
        command.kill()
