"""Train a class archive: ``python -m sandbox.spark.jvm_class_archive_training POLICY CLUSTER KIND FOLDER``.

The environment has the JVM's options. Two cycles run, of the jobs as Airflow starts them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from evenlag.spark_connect import REMOTE_VARIABLE
from sandbox.spark.connect_server import ConnectServer
from spark_jobs.runtime.classic_session import build_session, end_session
from spark_jobs.steps.decide import run_decide
from spark_jobs.steps.observe import run_observe

_NUM_CYCLES: Final = 2
# The JVM writes the archive after SIGTERM.
_END_TIMEOUT_S: Final = "120"


def main(argv: list[str]) -> None:
    """Run two cycles in one JVM, which writes the archive at its exit."""
    policy, cluster, kind, folder = argv
    if kind == "connect":
        _train_server(policy, cluster, Path(folder))
    else:
        _train_driver(policy, cluster)


def _train_server(policy: str, cluster: str, folder: Path) -> None:
    environment = {**os.environ, "EVENLAG_KEEPER_PATIENCE_S": _END_TIMEOUT_S}
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


def _train_driver(policy: str, cluster: str) -> None:
    from evenlag.policy.loader import load_policy

    loaded = load_policy(policy)
    spark = build_session("evenlag training")
    with end_session(spark):
        for number in range(_NUM_CYCLES):
            slot = datetime.now(UTC)
            run_observe(spark, loaded, cluster, slot, f"training-{number}")
            run_decide(spark, loaded, cluster, slot, f"training-{number}")


if __name__ == "__main__":
    main(sys.argv[1:])
