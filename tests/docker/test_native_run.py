"""Each service's own command as a native process, its health check, and a cycle of the demo's policy."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from docker.configure import make_settings
from sandbox.airflow.rest import AirflowError, DagRun, DagRunClient
from sandbox.demo.result import DemoLake
from sandbox.demo.run import GROUP, TOPIC
from sandbox.workload.evidence import OwnerTracker
from tests.support.containers.compose_file import (
    ENV_EXAMPLE,
    SUBMIT_FILE,
    read_services,
    read_variables,
)
from tests.support.containers.native import NativeStack, postgres_binaries
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

CLUSTER = "main"
DAG_ID = f"lag_rebalance__{CLUSTER}"
USER = "ada"
# What configure.py writes, with a password that the tests know.
VARIABLES = read_variables(make_settings([f"{USER}:admin", "bob:viewer"], ENV_EXAMPLE.read_text("utf-8")))
PASSWORD = dict(pair.split(":") for pair in VARIABLES["AIRFLOW_PASSWORDS"].split(","))[USER]
EXTRA = {
    # The test starts the run itself; a scheduled one beside it would only make it wait.
    "EVENLAG_CLUSTER__MAIN__SCHEDULE": "0 0 1 1 *",
    # Nobody changes the DAG files: parsed every 30 s, they would take half a core.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
}

# A task of the DAG, without a scheduler: the connection is in its environment.
SUBMIT_A_STEP = """
import os, sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from evenlag.airflow.spark_task import spark_step
task = spark_step("observe", config=Path(os.environ["EVENLAG_CONFIG"]), cluster=sys.argv[1])
slot = datetime.fromisoformat(sys.argv[2])
run = SimpleNamespace(run_type="scheduled", data_interval_end=slot, run_after=slot)
context = {"dag_run": run, "run_id": "manual__1"}
task.application_args = task.render_template(task.application_args, context)
task.pre_execute(context)
type(task).execute.__wrapped__(task, context)
"""

pytestmark = [
    pytest.mark.extended,
    pytest.mark.airflow,
    pytest.mark.broker,
    pytest.mark.jvm,
]


@pytest.fixture(scope="module")
def unstarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeStack]:
    postgres = postgres_binaries()
    if postgres is None:
        why = "Debian's postgresql is not installed: .ci/postgres does that"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("containers")
    with NativeStack(folder, VARIABLES, postgres=postgres, extra=EXTRA) as stack:
        yield stack


@pytest.fixture(scope="module")
def verdicts_before(unstarted: NativeStack) -> dict[str, bool]:
    return {
        name: unstarted.is_well(name, timeout_s=60)
        for name, service in unstarted.services.items()
        if service.health
    }


@pytest.fixture(scope="module")
def stack(unstarted: NativeStack, verdicts_before: dict[str, bool]) -> NativeStack:
    assert verdicts_before
    unstarted.start()
    return unstarted


@pytest.fixture(scope="module")
def airflow(stack: NativeStack) -> DagRunClient:
    return DagRunClient(f"http://127.0.0.1:{stack.port('airflow-api-server', 8080)}", USER, PASSWORD)


@pytest.fixture(scope="module")
def cycle(airflow: DagRunClient) -> DagRun:
    airflow.wait_for_dag(DAG_ID)
    return airflow.wait(airflow.trigger(DAG_ID))


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=600) as answer:  # noqa: S310  # our own http address
        return json.load(answer)


def test_no_health_check_passes_without_its_service(verdicts_before: dict[str, bool]) -> None:
    assert len(verdicts_before) >= 9
    assert not any(verdicts_before.values())


def test_every_service_starts_by_its_own_command_and_gets_well(stack: NativeStack) -> None:
    # A single check may exceed its time on a busy machine; Docker also repeats it before it gives up.
    for name in [name for name, service in stack.services.items() if service.health]:
        wait_until(partial(stack.is_well, name), what=f"{name} is not well")


def test_airflow_is_whole_and_its_database_is_postgres(stack: NativeStack, airflow: DagRunClient) -> None:
    assert airflow.is_healthy()
    assert not list(stack.folder.rglob("airflow.db"))


def test_a_cycle_of_the_demo_s_policy_runs_on_the_connect_server(
    stack: NativeStack, airflow: DagRunClient, cycle: DagRun
) -> None:
    assert cycle.state == "success"
    assert set(cycle.task_states.values()) == {"success"}
    server = f"at sc://127.0.0.1:{stack.port('spark-connect', 15002)}"
    assert all(server in airflow.log(cycle, step, lines=500) for step in ("observe", "decide"))
    master = ask(f"http://127.0.0.1:{stack.port('spark-master', 8080)}/json/")
    assert not [*master["activeapps"], *master["completedapps"]]


def test_the_lake_is_open_to_its_group_and_to_nobody_else(stack: NativeStack, cycle: DagRun) -> None:
    assert cycle.state == "success"
    paths = list((stack.folder / "volumes" / "lake").rglob("*"))
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in paths}
    assert modes == {(True, 0o2770), (False, 0o660)}


def test_the_server_refuses_a_client_without_the_token(stack: NativeStack, cycle: DagRun) -> None:
    assert cycle.state == "success"
    server = stack.services["spark-connect"]
    environment = stack.environment(server) | {"EVENLAG_SPARK_TOKEN": "x" * 43}
    check = [sys.executable, "-m", "spark_jobs.connect_server", "--check"]
    done = subprocess.run(
        check, env=environment, capture_output=True, text=True, timeout=600, check=False, cwd=stack.folder
    )
    assert done.returncode == 3
    assert "token" in done.stderr
    assert environment["EVENLAG_SPARK_TOKEN"] not in done.stderr


def test_each_user_logs_in_with_a_password_of_their_own(stack: NativeStack) -> None:
    passwords = dict(pair.split(":") for pair in VARIABLES["AIRFLOW_PASSWORDS"].split(","))
    url = f"http://127.0.0.1:{stack.port('airflow-api-server', 8080)}"
    assert DagRunClient(url, "bob", passwords["bob"]).get("dags")["total_entries"] > 0
    with pytest.raises(AirflowError, match="401"):
        DagRunClient(url, "bob", passwords["ada"]).get("dags")


def test_the_demo_s_consumers_take_up_the_published_plan(stack: NativeStack, cycle: DagRun) -> None:
    assert cycle.state == "success"
    plan = DemoLake(stack.folder / "volumes" / "lake", CLUSTER, GROUP).published_plan()
    assert plan.head["moves"] > 0
    tracker, journals = OwnerTracker(), sorted((stack.folder / "volumes" / "workload").glob("*.jsonl"))

    def is_taken_up() -> bool:
        owners = tracker.read(journals)
        return {name: {(TOPIC, number) for number in held} for name, held in plan.owners.items()} == {
            name: owners.get(name) for name in plan.owners
        }

    wait_until(is_taken_up, what="the consumers did not take up the hint")


# A master and two workers beside everything else: minutes, for a way that spark-submit's own tests cover.
@pytest.mark.soak
def test_with_the_other_compose_file_a_step_is_submitted_to_the_two_workers(
    stack: NativeStack, cycle: DagRun
) -> None:
    assert cycle.state == "success"
    stack.make_executor_python()
    scheduler = read_services(VARIABLES, SUBMIT_FILE)["airflow-scheduler"]
    # The scheduler's own command, with the step in place of Airflow.
    code = [
        *stack.command(scheduler)[:3],
        sys.executable,
        "-c",
        SUBMIT_A_STEP,
        CLUSTER,
        datetime.now(UTC).isoformat(),
    ]
    environment = stack.environment(scheduler)
    environment["PYTHONPATH"] += f"{os.pathsep}{environment['AIRFLOW__CORE__DAGS_FOLDER']}"
    done = subprocess.run(
        code, env=environment, capture_output=True, text=True, timeout=1_200, check=False, cwd=stack.folder
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    master = ask(f"http://127.0.0.1:{stack.port('spark-master', 8080)}/json/")
    assert [app["name"] for app in master["completedapps"]] == [f"evenlag observe {CLUSTER}"]
    for worker in ("spark-worker-1", "spark-worker-2"):
        message = ask(f"http://127.0.0.1:{stack.port(worker, 8081)}/json/")
        assert message["finishedexecutors"], message
