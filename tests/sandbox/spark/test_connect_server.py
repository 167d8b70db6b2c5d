"""The sandbox's Spark Connect server: ready when it says so, and gone when it is stopped."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from evenlag.spark_connect import REMOTE_VARIABLE
from sandbox.spark.connect_server import ConnectServer, ConnectServerError
from tests.support.processes import processes_with, wait_until_gone

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.extended, pytest.mark.jvm]


def test_it_is_usable_when_it_is_ready_and_leaves_no_process(tmp_path: Path) -> None:
    with ConnectServer.start(tmp_path / "spark") as server:
        server.wait_until_ready()
        connection = json.loads(server.connection())
        assert (connection["conn_type"], connection["port"]) == ("spark_connect", server.port)
        command = [sys.executable, "-m", "spark_jobs.connect_server", "--check"]
        done = subprocess.run(
            command, env=os.environ | {REMOTE_VARIABLE: server.url}, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        # The JVM's log settings name the folder.
        assert processes_with(str(tmp_path))
    wait_until_gone(str(tmp_path))


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    server = ConnectServer(tmp_path / "spark")
    with socket.create_server(("127.0.0.1", server.port)):
        server.launch()
        with pytest.raises(ConnectServerError, match="cannot listen on") as found, server:
            server.wait_until_ready()
    (line,) = (line for line in str(found.value).splitlines() if "ERROR" in line)
    assert f"127.0.0.1:{server.port} (Address already in use)" in line
    assert "Traceback" not in str(found.value)
