"""Spark's own Connect server, as somebody else runs it: it gets evenlag's code with each session."""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.spark_storage import lake_storage_conf
from evenlag.lake.tables import OWNERSHIP
from evenlag.spark_installation import delta_jars
from sandbox.processes import free_ports, start_process, stop_process
from spark_jobs.runtime.session_conf import EMBEDDED_CONF, LOCAL_CONF, SESSION_CONF
from tests.support.connect_jobs import ROOT, copy_code, run_module
from tests.support.lakes.audit_histories import make_readings
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

# A server of its own, and a second one without Delta: half a minute each.
pytestmark = pytest.mark.soak

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def stock_server(folder: Path, *, has_delta: bool) -> Iterator[str]:
    """Start Spark's server; it knows nothing of evenlag."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    (connect,) = jars.glob("spark-connect_*.jar")
    (port,) = free_ports(1)
    folder.mkdir()
    conf = EMBEDDED_CONF | LOCAL_CONF | (SESSION_CONF | lake_storage_conf() if has_delta else {})
    conf["spark.connect.grpc.binding.port"] = str(port)
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    delta = ["--jars", ",".join(delta_jars())] if has_delta else []
    # In another folder: from that of the checkout, Python workers would import evenlag.
    submit = ["env", "-C", str(folder), "spark-submit", "--master", "local[2]"]
    command = [*submit, *delta, *settings, "--class", SERVER, f"local:{connect}"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with (folder / "server.log").open("wb") as log:
        process = start_process(command, log=log, env=environment)
    try:
        wait_until(lambda: _listens(port, process), what="the server does not listen")
        yield f"sc://127.0.0.1:{port}"
    finally:
        stop_process(process)


def _listens(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
        return True
    return False


def test_jobs_run_on_it_with_the_code_that_they_send(tmp_path: Path) -> None:
    text = f"""
from evenlag.lake.tables import MEMBERS, OFFSETS, SNAPSHOTS
from evenlag.lake.writer import append_once
from spark_jobs.runtime.session import num_task_slots, open_session
from tests.support.lakes.audit_histories import make_readings

def double(batches):
    import evenlag.only_here
    from evenlag.planning import plan_output
    yield from batches

with open_session("test") as spark:
    assert num_task_slots(spark) == 2
    assert spark.range(5).mapInArrow(double, "id BIGINT").count() == 5
    readings = make_readings(7)
    lake = {str(tmp_path / "lake")!r}
    append_once(lake, MEMBERS, [row for one in readings for row in one.members], None)
    append_once(lake, OFFSETS, [row for one in readings for row in one.offsets], None)
    append_once(lake, SNAPSHOTS, [one.marker for one in readings], None)
"""
    script = tmp_path / "scripts" / "write_history.py"
    script.parent.mkdir()
    script.write_text(text, encoding="utf-8")
    with stock_server(tmp_path / "server", has_delta=True) as url:
        # A module that no installation has: the client has sent it.
        code = copy_code(tmp_path / "code")
        (code / "evenlag" / "only_here.py").touch()
        path = os.pathsep.join([str(code), str(ROOT), str(script.parent)])
        done = run_module(url, "write_history", PYTHONPATH=path)
        assert done.returncode == 0, done.stderr
        lake = str(tmp_path / "lake")
        done = run_module(url, "spark_jobs.audit", "--lake", lake, "--cluster", "c")
        assert done.returncode == 0, done.stderr
    assert LakeReader(lake).read(OWNERSHIP).num_rows > len(make_readings(7))


def test_without_delta_it_is_refused(tmp_path: Path) -> None:
    assert shutil.which("spark-submit")
    with stock_server(tmp_path / "server", has_delta=False) as url:
        done = run_module(url, "spark_jobs.connect_server", "--check")
    assert done.returncode == 2
    assert "has no Delta" in done.stderr
