"""The processes of the sandbox's Airflow, its scheduler that is killed, and what its tasks returned."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.airflow.instance import Airflow
    from sandbox.airflow.rest import DagRun

_END_TIMEOUT_S = 600.0


def kill_scheduler(airflow: Airflow) -> None:
    """Kill the scheduler and its running tasks, as in a power failure."""
    keeper = airflow._processes.pop("scheduler")
    children = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text(encoding="ascii")
    for child in children.split():
        os.kill(int(child), signal.SIGKILL)
    # The subreaper kills the scheduler's orphans, and exits.
    keeper.wait(_END_TIMEOUT_S)


def pids(airflow: Airflow) -> dict[str, int]:
    """Return the process ids of the components by name; each is the root of a process tree."""
    return {name: process.pid for name, process in airflow._processes.items()}


def returned(airflow: Airflow, run: DagRun, task_id: str) -> Any:
    """Return what a task of a run has returned."""
    path = f"{run.path}/taskInstances/{task_id}/xcomEntries/return_value"
    return airflow.rest.get(path, deserialize="true")["value"]
