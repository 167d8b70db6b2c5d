"""Train a class archive: ``python -m sandbox.spark.jvm_class_archive_training POLICY CLUSTER KIND FOLDER``.

The environment has the JVM's options. Two cycles run, of the jobs as Airflow starts them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from evenlag.spark_connect import REMOTE_VARIABLE
from sandbox.spark.connect_server import ConnectServer
from spark_jobs.runtime.classic_session import build_session
from spark_jobs.steps.decide import run_decide
from spark_jobs.steps.observe import run_observe

_NUM_CYCLES: Final = 2
# The JVM writes the archive at its exit, which takes longer than those who started it wait.
_JVM_END_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.2
_ARCHIVE_OPTION: Final = b"-XX:ArchiveClassesAtExit="


def main(argv: list[str]) -> None:
    """Run two cycles in one JVM, which writes the archive at its exit."""
    policy, cluster, kind, folder = argv
    if kind == "connect":
        _train_server(policy, cluster, Path(folder))
    else:
        _train_driver(policy, cluster)


def _train_server(policy: str, cluster: str, folder: Path) -> None:
    environment = dict(os.environ)
    with ConnectServer.start(folder / "server", environment=environment) as server:
        server.wait_until_ready()
        for number in range(_NUM_CYCLES):
            moment = datetime.now(UTC).isoformat()
            steps = ["observe", "decide", "--config", policy, "--cluster", cluster]
            run = ["--slot", moment, "--run-id", f"training-{number}"]
            subprocess.run(
                [sys.executable, "-m", "spark_jobs.cycle", *steps, *run],
                env=environment | {REMOTE_VARIABLE: server.url},
                check=True,
            )

        _end_jvm()


def _end_jvm() -> None:
    """End the JVM of this training and wait for it: the server's program would kill it after ten seconds."""
    option = next(
        word for word in os.environ["SPARK_SUBMIT_OPTS"].encode().split() if _ARCHIVE_OPTION in word
    )
    deadline = time.monotonic() + _JVM_END_TIMEOUT_S
    is_asked = False
    while (pids := _processes_with(option)) and time.monotonic() < deadline:
        for pid in () if is_asked else pids:
            os.kill(pid, signal.SIGTERM)
        is_asked = True
        time.sleep(_POLL_S)


def _processes_with(option: bytes) -> list[int]:
    """Return the processes with this option on their command lines; none where there is no ``/proc``."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if option in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
    return found


def _train_driver(policy: str, cluster: str) -> None:
    from evenlag.policy.loader import load_policy

    loaded = load_policy(policy)
    spark = build_session("evenlag training")
    for number in range(_NUM_CYCLES):
        slot = datetime.now(UTC)
        run_observe(spark, loaded, cluster, slot, f"training-{number}")
        run_decide(spark, loaded, cluster, slot, f"training-{number}")
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001  # only it has the JVM's process
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_JVM_END_TIMEOUT_S)


if __name__ == "__main__":
    main(sys.argv[1:])
