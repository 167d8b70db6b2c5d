"""The sandbox's Airflow comes up whole, on the loopback only, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandbox.airflow.rest import AirflowError, DagRunClient
from tests.support.processes import processes_with, wait_until_gone
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from sandbox.airflow.instance import Airflow
    from tests.support.live_plan import LiveGroup

pytestmark = pytest.mark.extended

REPOSITORY = Path(__file__).resolve().parents[2]
KEEPER = REPOSITORY / "sandbox" / "subreaper.py"
# How long the keeper waits for the deaf.
PATIENCE = {"EVENLAG_KEEPER_PATIENCE_S": "1"}

# A grandchild in a session of its own, deaf to SIGTERM, whose parent is gone: as a task's JVM may be.
DEAF = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").close()
time.sleep(300)
"""
STARTER = """
import subprocess, sys, time
code = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
subprocess.run([sys.executable, "-c", code, sys.executable, *sys.argv[1:]], check=True)
time.sleep(300)
"""
PARENT = """
import signal, sys, time
from sandbox.processes import start_process, stop_process
keeper, *rest = sys.argv[1:]
process = start_process([sys.executable, keeper, sys.executable, *rest], log=open("/dev/null", "wb"))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(stop_process(process, timeout_s=600) and 0))
time.sleep(300)
"""


@pytest.mark.airflow
def test_it_is_healthy_and_has_the_dag(airflow: Airflow) -> None:
    assert airflow.rest.is_healthy()
    airflow.rest.wait_for_dag("lag_rebalance__sandbox")


@pytest.mark.airflow
def test_nobody_logs_in_with_a_password_that_can_be_guessed(airflow: Airflow) -> None:
    with pytest.raises(AirflowError, match="401"):
        DagRunClient(airflow.url, airflow.username, airflow.username).get("dags")


@pytest.mark.airflow
def test_it_listens_on_the_loopback_only(airflow: Airflow) -> None:
    port = int(airflow.url.rpartition(":")[2])
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        probe.connect(("192.0.2.1", 9))  # a datagram socket sends nothing here: it only picks an address
        address = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no other address than the loopback")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((address, port), timeout=60)


@pytest.mark.airflow
def test_a_run_without_a_spark_connection_fails_at_once_and_says_what_to_set(
    airflow: Airflow, live_group: LiveGroup
) -> None:
    airflow.rest.wait_for_dag("lag_rebalance__sandbox")
    run = airflow.rest.trigger("lag_rebalance__sandbox")
    with pytest.raises(AirflowError, match=r"task observe of .* failed") as caught:
        airflow.rest.wait(run)
    assert "AIRFLOW_CONN_SPARK_DEFAULT" in str(caught.value)
    assert run.task_states["publish"] == "upstream_failed"
    # The fault is still reported, by the notifier that the environment names; the run stays failed.
    assert run.task_states["report"] == "success"
    assert live_group.notified.read_text().startswith(
        "sandbox 1: INCOMPLETE_SNAPSHOT sandbox: 90.0% of the partitions could be read"
    )


@pytest.mark.airflow
def test_a_task_that_is_marked_as_failed_leaves_no_process_of_its_job(airflow: Airflow) -> None:
    rest, python = airflow.rest, airflow.directory.parent / "jobs-python"
    mark = airflow.directory.parent / "job-started"
    # The job and its child; the child does not react to SIGTERM.
    python.write_text(
        f"#!/bin/sh\nsh -c \"trap '' TERM; echo up > {mark}; sleep 301; sleep 302\" {mark} &\nwait\n",
        encoding="utf-8",
    )
    python.chmod(0o755)
    stored = {"connection_id": "spark_default", "conn_type": "spark_connect", "host": "localhost"}
    rest.request("POST", "connections", stored | {"port": 15002, "password": "s3cret/token"})
    try:
        rest.wait_for_dag("lag_rebalance__sandbox")
        run = rest.trigger("lag_rebalance__sandbox")
        wait_until(mark.exists, what="the job did not start")
        assert processes_with(str(mark))
        path = f"dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/observe"
        rest.request("PATCH", path, {"new_state": "failed"})
        wait_until_gone(str(mark))
        with pytest.raises(AirflowError, match="task observe"):
            rest.wait(run)
        log = rest.log(run, "observe", lines=200)
        assert "spark_jobs.cycle observe --config" in log
        assert "at sc://localhost:15002" in log
        assert "s3cret" not in log
    finally:
        rest.request("DELETE", "connections/spark_default")


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["asked to stop", "parent killed"])
def test_the_keeper_ends_even_what_left_its_process_group(how: signal.Signals, tmp_path: Path) -> None:
    marker = str(tmp_path / "mark")
    scripts = {name: tmp_path / f"{name}.py" for name in ("deaf", "starter", "parent")}
    for name, text in (("deaf", DEAF), ("starter", STARTER), ("parent", PARENT)):
        scripts[name].write_text(text, encoding="utf-8")
    arguments = [str(KEEPER), str(scripts["starter"]), str(scripts["deaf"]), marker]
    process = subprocess.Popen(
        [sys.executable, str(scripts["parent"]), *arguments],
        env=os.environ | PATIENCE | {"PYTHONPATH": str(REPOSITORY)},
    )
    try:
        wait_until(Path(marker).exists)
        assert len(processes_with(marker)) >= 2

        process.send_signal(how)
        process.wait(600)

        wait_until_gone(marker)
    finally:
        process.kill()
        for pid in processes_with(marker):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_the_keeper_cleans_up_however_often_it_is_asked(tmp_path: Path) -> None:
    marker = str(tmp_path / "mark")
    scripts = {name: tmp_path / f"{name}.py" for name in ("deaf", "starter")}
    for name, text in (("deaf", DEAF), ("starter", STARTER)):
        scripts[name].write_text(text, encoding="utf-8")
    keeper = subprocess.Popen(
        [sys.executable, str(KEEPER), sys.executable, str(scripts["starter"]), str(scripts["deaf"]), marker],
        env=os.environ | PATIENCE,
    )
    try:
        wait_until(Path(marker).exists)
        # Asked again and again, not now and then: nothing between two signals.
        deadline = time.monotonic() + 600
        while keeper.poll() is None and time.monotonic() < deadline:
            keeper.terminate()
        assert keeper.returncode == 128 + signal.SIGTERM
        wait_until_gone(marker)
    finally:
        keeper.kill()
        for pid in processes_with(marker):
            os.kill(pid, signal.SIGKILL)
