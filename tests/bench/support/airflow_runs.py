"""DAG runs of one cycle through a complete Airflow; prints a JSON object for each.

A benchmark runs it as a process of its own: ``python airflow_runs.py WAY RUNS``. Ways: ``submit``,
``connect``, ``imports`` (the same tasks, which only import).
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sandbox.airflow.instance import Airflow
from sandbox.demo.run import (
    CLUSTER,
    DAG_ID,
    GROUP,
    NUM_CONSUMERS,
    make_workload,
    prepare_folder,
    skewed_backlog,
)
from sandbox.demo.services import start_demo_broker, write_policy

if TYPE_CHECKING:
    from sandbox.workload.workload import Workload

_SUBMIT: Final = {"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}}
_DAGS: Final = {
    "cycle.py": '''"""The airflow dag of the checkout."""
from evenlag.airflow import make_dags

make_dags(only=["lag_rebalance"])
''',
    "imports.py": '''"""An airflow dag of the same shape, whose tasks only import."""
import sys
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import dag, task

@dag(dag_id="imports", schedule=None, catchup=False)
def imports():
    def step(name):
        return BashOperator(task_id=name, bash_command=f"{sys.executable} -P -c 'import spark_jobs.cycle'")

    @task
    def publish():
        import evenlag.publishing.publish

    @task
    def report():
        import evenlag.monitoring.alerts

    step("observe") >> step("decide") >> [publish(), report()]

imports()
''',
}


def main(way: str, num_runs: int) -> int:
    """Start everything, run the DAG, and print the seconds of each run and of its tasks."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    dag_id = DAG_ID if way in {"submit", "connect"} else way
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = prepare_folder(Path(temporary) / "runs")
        dags = Path(temporary) / "dags"
        dags.mkdir()
        for name in {"cycle.py", f"{way}.py"} & _DAGS.keys():
            (dags / name).write_text(_DAGS[name], encoding="utf-8")
        broker = stack.enter_context(start_demo_broker(folder, "classic"))
        policy = write_policy(folder, broker, CLUSTER, GROUP)
        work = stack.enter_context(make_workload(broker.bootstrap_servers, folder / "workload"))
        work.start_consumers(NUM_CONSUMERS)
        work.wait_until_owned()
        environment = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(_SUBMIT),
        }
        if way == "connect":
            environment["AIRFLOW_CONN_SPARK_DEFAULT"] = _start_server(stack, folder)
        airflow = stack.enter_context(
            Airflow.start(folder / "airflow", policy=policy, environment=environment)
        )
        airflow.rest.wait_for_dag(dag_id)
        for _ in range(num_runs):
            sys.stdout.write(f"{json.dumps(_run(airflow, work, dag_id))}\n")
            sys.stdout.flush()
    return 0


def _start_server(stack: ExitStack, folder: Path) -> str:
    """Start a Spark Connect server, and return Airflow's connection to it."""
    from sandbox.spark.connect_server import ConnectServer

    server = stack.enter_context(ConnectServer.start(folder / "spark"))
    server.wait_until_ready()
    return server.connection()


def _run(airflow: Airflow, work: Workload, dag_id: str) -> dict[str, Any]:
    """Run the DAG once, on a group that needs a plan."""
    work.fill(skewed_backlog(work.wait_until_owned()))
    begin = time.perf_counter()
    run = airflow.rest.wait(airflow.rest.trigger(dag_id))
    seconds = time.perf_counter() - begin
    if run.state != "success":
        sys.exit(f"the run ended as {run.state}: {run.task_states}")
    path = f"dags/{dag_id}/dagRuns/{run.run_id}/taskInstances"
    found = airflow.rest.get(path)["task_instances"]
    tasks = {one["task_id"]: round(one["duration"] or 0, 2) for one in found}
    return {"seconds": round(seconds, 2), "tasks": tasks}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
