"""Airflow's scheduler killed during a cycle: ``python -m tests.chaos.scheduler_faults [--tries N]``.

The scheduler goes with the task that it runs, and comes back. Airflow takes the task for dead when its
heartbeats have been missing for ``task_instance_heartbeat_timeout`` and tries it again: the run has to end
well by itself, and so has the next one. What was seen goes to docs/bench/faults.json.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.airflow.instance import Airflow
from tests.chaos.spark_faults import STEPS, keep
from tests.chaos.spark_world import CLUSTER, World, say
from tests.support.airflow_faults import kill_scheduler, returned
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from sandbox.airflow.rest import DagRun

DAG_ID = f"lag_rebalance__{CLUSTER}"
# Airflow's own default is 300 s, for which a DAG of one run at a time would stand still.
HEARTBEAT_TIMEOUT_S = 20
ENVIRONMENT = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(HEARTBEAT_TIMEOUT_S),
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "5",
}


def scheduler_killed(world: World, airflow: Airflow, step: str, within_s: float) -> dict[str, Any]:
    """Kill the scheduler some seconds into a step, start it again, and see two runs to their end."""
    run = airflow.rest.trigger(DAG_ID)
    _wait_until_running(airflow, run, step)
    time.sleep(within_s)
    kill_scheduler(airflow)
    found = world.violations()
    killed = time.monotonic()
    airflow.start_scheduler()
    airflow.rest.wait(run)
    recovered_s = time.monotonic() - killed
    found += world.violations()
    following = airflow.rest.trigger(DAG_ID)
    started = time.monotonic()
    airflow.rest.wait(following)
    found += world.violations()
    num_published = returned(airflow, following, "publish")["published"]
    return {
        "after_s": round(within_s, 1),
        "run_ended_s": round(recovered_s, 1),
        "next_cycle": {"published": num_published, "seconds": round(time.monotonic() - started, 1)},
        "violations": found,
    }


def _wait_until_running(airflow: Airflow, run: DagRun, step: str) -> None:
    wait_until(
        lambda: airflow.rest.refresh(run).task_states.get(step) == "running",
        what=f"{step} did not begin: {run}",
    )


def main(argv: list[str] | None = None) -> int:
    """Kill it in each step, and write what was seen; status 1 when anything was half-visible."""
    parser = argparse.ArgumentParser(prog="tests.chaos.scheduler_faults", description=__doc__)
    parser.add_argument("--tries", type=int, default=2, help="in each step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for lake and logs, to look at")
    arguments = parser.parse_args(argv)
    when = random.Random(arguments.seed)  # noqa: S311 - when to kill is no secret
    seen: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        directory = arguments.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        with (
            World(directory, num_workers=0) as world,
            Airflow.start(directory / "airflow", policy=world.policy, environment=ENVIRONMENT) as airflow,
        ):
            airflow.rest.wait_for_dag(DAG_ID)
            for _ in range(arguments.tries):
                for step in STEPS:
                    entry = scheduler_killed(world, airflow, step, when.uniform(2, 20))
                    seen.setdefault(f"scheduler killed in {step}", []).append(entry)
                    say(f"scheduler killed in {step}: {json.dumps(entry)}")
                    keep("airflow", seen, arguments.seed)
    return int(any(entry["violations"] for entries in seen.values() for entry in entries))


if __name__ == "__main__":
    raise SystemExit(main())
