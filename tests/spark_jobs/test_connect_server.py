"""The program of the Spark Connect server: its check, its address, and clients that it refuses."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sandbox.processes import free_ports
from tests.support.connect_jobs import copy_code, job_environment, run_module

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox.spark.connect_server import ConnectServer

pytestmark = pytest.mark.extended

TOKEN = "s3cret-of-the-test"
CHECK = "spark_jobs.connect_server"


def test_a_server_that_is_not_there_is_told() -> None:
    """Spark's own client would try for ten minutes, longer than the process may take."""
    (port,) = free_ports(1)
    done = run_module(f"sc://127.0.0.1:{port}/;token={TOKEN}", CHECK, "--check")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"the Spark Connect server localhost:{port} does not answer")


@pytest.mark.parametrize("url", [f"http://h;token={TOKEN}", f"sc://h:1/x;token={TOKEN}", "sc://:15002"])
def test_what_is_no_address_is_refused_without_its_token(url: str) -> None:
    done = run_module(url, CHECK, "--check")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "write sc://HOST:PORT" in line
    assert TOKEN not in line


def test_another_address_than_loopback_needs_a_token() -> None:
    done = run_module(None, CHECK, "--host", "0.0.0.0")  # noqa: S104  # it is refused
    assert done.returncode == 2
    assert "Set EVENLAG_SPARK_TOKEN, or bind 127.0.0.1" in done.stderr


def test_the_check_passes_and_the_answer_is_of_this_code(connect_server: ConnectServer) -> None:
    done = run_module(connect_server.url, CHECK, "--check")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.endswith("the server answers, and runs this code")


def test_a_client_with_other_code_is_refused(connect_server: ConnectServer, tmp_path: Path) -> None:
    copied = copy_code(tmp_path / "other")
    with (copied / "evenlag" / "errors.py").open("a", encoding="utf-8") as file_:
        file_.write("# newer\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", CHECK, "--check"],
        env=job_environment(connect_server.url, PYTHONPATH=str(copied)),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=tmp_path,
    )
    assert done.returncode == 2, done.stderr
    assert "runs other code of evenlag than this process" in done.stderr
