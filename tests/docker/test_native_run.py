"""Each service's own command as a native process, its health check, and a cycle of the demo's policy."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import urllib.request
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from sandbox.airflow.rest import AirflowRest, DagRun
from sandbox.demo.result import DemoLake
from sandbox.demo.run import GROUP, TOPIC
from sandbox.workload.evidence import OwnerTracker
from tests.support.containers.compose_file import SUBMIT_FILE, read_services
from tests.support.containers.native import NativeStack, postgres_binaries
from tests.support.hints import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

CLUSTER = "main"
DAG_ID = f"lag_rebalance__{CLUSTER}"
USER, PASSWORD = "evenlag", secrets.token_urlsafe(16)
VARIABLES = {
    "POSTGRES_PASSWORD": secrets.token_urlsafe(24),
    "AIRFLOW_FERNET_KEY": urlsafe_b64encode(os.urandom(32)).decode(),
    "AIRFLOW_JWT_SECRET": secrets.token_urlsafe(32),
    "AIRFLOW_SECRET_KEY": secrets.token_urlsafe(32),
    "AIRFLOW_PASSWORD": PASSWORD,
}
# The test starts the run itself; a scheduled one beside it would only make it wait.
EXTRA = {"EVENLAG_CLUSTER__MAIN__SCHEDULE": "0 0 1 1 *"}

# A task of the DAG, without a scheduler: the connection is in its environment.
SUBMIT_A_STEP = """
import os, sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from evenlag_dags.dag_support.spark_task import spark_step
task = spark_step("observe", config=Path(os.environ["EVENLAG_CONFIG"]), cluster=sys.argv[1])
slot = datetime.fromisoformat(sys.argv[2])
context = {"dag_run": SimpleNamespace(data_interval_end=slot, run_after=slot), "run_id": "manual__1"}
task.application_args = task.render_template(task.application_args, context)
task.pre_execute(context)
type(task).execute.__wrapped__(task, context)
"""

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.jvm, pytest.mark.timeout(900)]


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
    return {name: unstarted.is_well(name) for name, service in unstarted.services.items() if service.health}


@pytest.fixture(scope="module")
def stack(unstarted: NativeStack, verdicts_before: dict[str, bool]) -> NativeStack:
    assert verdicts_before
    unstarted.start()
    return unstarted


@pytest.fixture(scope="module")
def airflow(stack: NativeStack) -> AirflowRest:
    return AirflowRest(f"http://127.0.0.1:{stack.port('airflow-api-server', 8080)}", USER, PASSWORD)


@pytest.fixture(scope="module")
def cycle(airflow: AirflowRest) -> DagRun:
    airflow.wait_for_dag(DAG_ID, timeout_s=120)
    return airflow.wait(airflow.trigger(DAG_ID), timeout_s=400)


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310  # our own http address
        return json.load(answer)


def test_no_health_check_passes_without_its_service(verdicts_before: dict[str, bool]) -> None:
    assert len(verdicts_before) >= 9
    assert not any(verdicts_before.values())


def test_every_service_starts_by_its_own_command_and_gets_well(stack: NativeStack) -> None:
    checked = [name for name, service in stack.services.items() if service.health]
    # A single check may exceed its time on a busy machine; Docker also repeats it before it gives up.
    wait_until(lambda: all(stack.is_well(name) for name in checked), timeout_s=180, what="not all are well")


def test_airflow_is_whole_and_its_database_is_postgres(stack: NativeStack, airflow: AirflowRest) -> None:
    assert airflow.is_healthy()
    assert not list(stack.folder.rglob("airflow.db"))


def test_a_cycle_of_the_demo_s_policy_runs_on_the_connect_server(
    stack: NativeStack, airflow: AirflowRest, cycle: DagRun
) -> None:
    assert cycle.state == "success"
    assert set(cycle.task_states.values()) == {"success"}
    server = f"at sc://127.0.0.1:{stack.port('spark-connect', 15002)}"
    assert all(server in airflow.log(cycle, step, lines=500) for step in ("observe", "decide"))
    master = ask(f"http://127.0.0.1:{stack.port('spark-master', 8080)}/json/")
    assert not [*master["activeapps"], *master["completedapps"]]


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

    wait_until(is_taken_up, timeout_s=180, what="the consumers did not take up the hint")


def test_with_the_other_compose_file_a_step_is_submitted_to_the_two_workers(
    stack: NativeStack, cycle: DagRun
) -> None:
    assert cycle.state == "success"
    scheduler = read_services(VARIABLES, SUBMIT_FILE)["airflow-scheduler"]
    code = [sys.executable, "-c", SUBMIT_A_STEP, CLUSTER, datetime.now(UTC).isoformat()]
    environment = stack.environment(scheduler)
    environment["PYTHONPATH"] += f"{os.pathsep}{environment['AIRFLOW__CORE__DAGS_FOLDER']}"
    done = subprocess.run(
        code, env=environment, capture_output=True, text=True, timeout=400, check=False, cwd=stack.folder
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    master = ask(f"http://127.0.0.1:{stack.port('spark-master', 8080)}/json/")
    assert [app["name"] for app in master["completedapps"]] == [f"evenlag observe {CLUSTER}"]
    for worker in ("spark-worker-1", "spark-worker-2"):
        told = ask(f"http://127.0.0.1:{stack.port(worker, 8081)}/json/")
        assert told["finishedexecutors"], told
