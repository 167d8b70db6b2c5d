"""The first fifteen minutes of a new user: docs/airflow.md, from the installation to a published hint.

Commands and files are those of the page, and of the pages that it links to. Only their placeholders are
replaced, by `Walk.values`. The wheel is installed in an environment of its own, from uv's cache if that has
the packages; Airflow, the Spark Connect server and all commands run there. The broker and its consumers are
the sandbox's. Each step prints the time that it took, which nothing limits (``-s`` shows it).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from kafka import KafkaConsumer

from assignor_core.hint import Hint, decode_hint, hint_key
from evenlag.policy.cluster_settings import DEFAULT_HINT_TOPIC
from release.project import ROOT, Project
from sandbox.airflow.instance import Airflow
from sandbox.airflow.rest import AirflowError, DagRun
from sandbox.jars import cache_dir
from sandbox.kafka.broker import Broker
from sandbox.processes import KEEPER, free_ports, start_process, stop_process
from sandbox.workload.workload import Workload
from tests.dags.test_report_view import fetch
from tests.dags.test_whole_airflow import answer, wait_until_asked
from tests.release.test_packages import build
from tests.support.pages.markdown import Page
from tests.support.processes import wait_until_gone
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.extended,
    pytest.mark.airflow,
    pytest.mark.broker,
    pytest.mark.jvm,
    pytest.mark.timeout(5_400),
]

PAGE: Final = Page(ROOT / "docs" / "airflow.md")
POLICY_PAGE: Final = Page(ROOT / "docs" / "reference" / "policy-file.md")
SERVER_PAGE: Final = Page(ROOT / "docs" / "spark-connect.md")
APPROVALS_PAGE: Final = Page(ROOT / "docs" / "reference" / "approvals.md")
# Of mode approve in the page's policy.
GROUP: Final = "payments-eu"
BACKLOG: Final = 9_000
# Slow enough that the backlog exists until the plan is published.
RECORDS_PER_S: Final = 5.0


class CommandError(AirflowError):
    """Raised when a command of a page fails; the message is what it printed."""


@dataclass
class Walk:
    """A user who follows the page.

    folder: For everything that the walk writes.
    values: What the user writes in place of each placeholder of the pages.
    environment: Of the user's shell.
    used: The placeholders that were on a page.
    """

    folder: Path
    values: dict[str, str]
    environment: dict[str, str]
    used: set[str] = field(default_factory=set)

    @property
    def home(self) -> Path:
        """Airflow's home, in which the user works."""
        return self.folder / "airflow"

    @property
    def python(self) -> str:
        """The interpreter of the environment with the wheel."""
        return str(self.folder / "environment" / "bin" / "python")

    def fill(self, text: str) -> str:
        """Replace the placeholders of a text of a page."""

        def value_of(found: re.Match[str]) -> str:
            self.used.add(found[0])
            return self.values[found[0]]

        longest_first = sorted(self.values, key=len, reverse=True)
        filled = re.sub("|".join(map(re.escape, longest_first)), value_of, text)
        assert "…" not in filled, f"a placeholder without a value: {text}"
        return filled

    def run(self, lines: str, **variables: str) -> str:
        """Run lines of a page in the user's shell, and return what they print."""
        done = subprocess.run(
            ["bash", "-eu", "-c", self.fill(lines)],
            cwd=self.home,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=1_200,
        )
        if done.returncode != 0:
            raise CommandError(f"{lines}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"[-5_000:])
        return done.stdout


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print how long a step took."""
    began = time.monotonic()
    yield
    sys.stdout.write(f"{name}: {time.monotonic() - began:.0f} s\n")


def span(page: Page, begin: str) -> str:
    """Return the only text in backquotes that begins so."""
    [found] = {text for text in page.spans if text.startswith(begin)}
    return found


def make_walk(folder: Path) -> Walk:
    home = folder / "user"
    home.mkdir()
    programs = folder / "environment" / "bin"
    walk = Walk(
        folder,
        values={
            "/srv/evenlag/lake": str(folder / "lake"),
            "15002": str(free_ports(1)[0]),
        },
        environment=dict(os.environ),
    )
    walk.environment |= {
        "HOME": str(home),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        # The code is that of the wheel: nothing is imported from the checkout, or from the current folder.
        "PYTHONPATH": "",
        "PYTHONSAFEPATH": "1",
        "EVENLAG_JARS": str(cache_dir()),
        "EVENLAG_CONFIG": "",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return walk


def install(walk: Walk) -> None:
    """Build the wheel and install it as the page says: on one machine, which is a worker, too."""
    built, uv = walk.folder / "built", shlex.join([sys.executable, "-m", "uv"])
    build(ROOT, built)
    wheel = f"evenlag-{Project().version}-py3-none-any.whl"
    walk.values |= {
        f"file:///…/{wheel}": (built / wheel).as_uri(),
        "YOUR_AIRFLOW_CONSTRAINTS": str(ROOT / "requirements.lock"),
        "evenlag[airflow]": "evenlag[airflow,spark]",
        "pip install": f"{uv} pip install --quiet --python {walk.python}",
    }
    environment = str(walk.folder / "environment")
    subprocess.run(
        [sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, environment], check=True
    )
    [line] = PAGE.code_blocks("1. Install")
    settings = {name: os.environ.get(name, "") for name in ("HOME", "PYTHONPATH")}
    try:
        walk.run(line, **settings, UV_OFFLINE="1")
    except CommandError:
        walk.run(line, **settings)
    where = walk.run("python -c 'import evenlag; print(evenlag.__file__)'")
    assert where.startswith(environment), where


def write_files(walk: Walk, broker: Broker) -> str:
    """Write policy and DAG file into the DAG folder, check the policy, and return the name of its cluster."""
    walk.values["kafka-1:9092,kafka-2:9092"] = broker.bootstrap_servers
    policy = walk.fill(POLICY_PAGE.code_blocks("The policy file")[0])
    [dag_file] = PAGE.code_blocks("3. The DAG file")
    dags = walk.home / "dags"
    dags.mkdir()
    (dags / "orders.yaml").write_text(policy, encoding="utf-8")
    (dags / "orders.py").write_text(dag_file, encoding="utf-8")
    assert "is valid" in walk.run(span(PAGE, "evenlag policy check"))
    [cluster] = yaml.safe_load(policy)["clusters"]
    return str(cluster)


def start_server(walk: Walk, stack: ExitStack) -> None:
    """Start the Spark Connect server, on a port that no other test has."""
    walk.values["--memory 2g"] = f"--memory 1g --port {walk.values['15002']}"
    start, *_ = SERVER_PAGE.code_blocks("A Spark Connect server")[0].splitlines()
    _, *arguments = shlex.split(walk.fill(start), comments=True)
    with (walk.folder / "server.log").open("ab") as log:
        process = start_process([*KEEPER, walk.python, *arguments], log=log, env=walk.environment)
    stack.callback(stop_process, process, timeout_s=60)


def wait_for_server(walk: Walk) -> None:
    """Wait until the server's own check finds it usable."""
    check, remote = span(SERVER_PAGE, "python -m spark_jobs.connect_server --check"), walk.values["15002"]

    def is_usable() -> bool:
        try:
            walk.run(check, EVENLAG_SPARK_REMOTE=f"sc://127.0.0.1:{remote}")
        except CommandError:
            return False
        return True

    log = walk.folder / "server.log"
    wait_until(is_usable, what=lambda: log.read_text(encoding="utf-8")[-3_000:])


def start_airflow(walk: Walk, stack: ExitStack, cluster: str) -> Airflow:
    """Start an Airflow with its defaults where the page relies on them, and set up pools and connection."""
    set_up, by_submit = PAGE.code_blocks("4. The pools and the connection")
    # The alternative to the Connect server.
    assert by_submit.startswith("AIRFLOW_CONN_SPARK_DEFAULT=")
    [lakes] = shlex.split(walk.fill(span(PAGE, "EVENLAG_REPORT_LAKES=")))
    name, _, value = lakes.partition("=")
    with pytest.MonkeyPatch.context() as patch:
        # Its processes run in the environment with the wheel.
        patch.setattr(sys, "executable", walk.python)
        airflow = Airflow.start(
            walk.home,
            policy=walk.home / "dags" / "orders.yaml",
            environment=walk.environment
            | {
                name: value,
                span(PAGE, "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT"): "600",
                "AIRFLOW_CONN_SPARK_DEFAULT": "",
                "AIRFLOW__CORE__DAGS_FOLDER": str(walk.home / "dags"),
                "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            },
        )
    stack.enter_context(airflow)
    walk.environment = airflow._environment
    walk.run(set_up)
    token = airflow.rest.log_in()
    walk.values |= {
        "CLUSTER": cluster,
        "https://airflow.example": airflow.url,
        "https://airflow.example.com": airflow.url,
        "EVENLAG_AIRFLOW_TOKEN=…": f"EVENLAG_AIRFLOW_TOKEN={token}",
        "EVENLAG_AIRFLOW_TOKEN=$(…)": f"EVENLAG_AIRFLOW_TOKEN={token}",
    }
    return airflow


def start_consumers(broker: Broker, folder: Path, stack: ExitStack) -> None:
    """Start a group of two consumers, and put a backlog on the two partitions of one of them."""
    work = stack.enter_context(
        Workload(
            {"bootstrap_servers": broker.bootstrap_servers},
            folder / "workload",
            topic="payments",
            num_partitions=4,
            group_id=GROUP,
            consumer={"records_per_s": RECORDS_PER_S, "session_timeout_ms": 120_000},
        )
    )
    work.start_consumers(2)
    owners = work.wait_until_owned(condition=lambda held: all(len(numbers) == 2 for numbers in held.values()))
    work.fill(dict.fromkeys(min(owners.values(), key=min), BACKLOG))


def run_cycle(walk: Walk, airflow: Airflow, cluster: str) -> None:
    """Unpause and trigger as the page says, and wait until the triggered run has succeeded."""
    dag_id, rest = f"orders_lag_rebalance__{cluster}", airflow.rest
    rest.wait_for_dag(dag_id)
    unpause_and_trigger, _ = PAGE.code_blocks("5. Unpause, trigger, and check")
    walk.run(unpause_and_trigger)
    runs = rest.get(f"dags/{dag_id}/dagRuns", limit=10)["dag_runs"]
    [run_id] = [run["dag_run_id"] for run in runs if run["run_type"] == "manual"]
    run = rest.wait(DagRun(dag_id, run_id))
    assert {run.task_states[task] for task in ("observe", "decide", "publish", "report")} == {"success"}


def open_page(airflow: Airflow) -> None:
    """Open the entry of Airflow's navigation as a user who is logged in: it shows the group."""
    plugins = airflow.rest.get("plugins")["plugins"]
    views = {view["name"]: view for plugin in plugins for view in plugin["external_views"]}
    assert views["evenlag"]["destination"] == "nav"
    url = f"{airflow.url}{views['evenlag']['href']}"
    assert fetch(url)[0] == 401
    status, text, _ = fetch(url, airflow.rest.log_in())
    assert status == 200, text
    assert f">{GROUP}</a>" in text


def approve_plan(walk: Walk, airflow: Airflow) -> str:
    """Find the request as *Required Actions* lists it, approve its plan by the command, and return its id."""

    def open_requests() -> list[DagRun]:
        found = airflow.rest.get("dags/~/dagRuns/~/hitlDetails")["hitl_details"]
        tasks = [request["task_instance"] for request in found if not request["response_received"]]
        return [DagRun(task["dag_id"], task["dag_run_id"]) for task in tasks]

    [run] = wait_until(open_requests, what="nobody is asked about a plan")
    assert run.dag_id == "orders_plan_approval"
    plan_id = run.run_id.removeprefix("approval__")
    wait_until_asked(airflow, run)
    assert read_hint_values(walk) == []

    walk.values["3f2a91c04b7e"] = plan_id[:12]
    [lines] = APPROVALS_PAGE.code_blocks("Deciding by command")

    def send() -> None:
        assert "is APPROVED by" in walk.run(lines, EVENLAG_CONFIG="dags/orders.yaml")

    answer(airflow, run, "Approve", "after the release", send=send)
    assert run.task_states["publish"] == "success"
    return plan_id


def read_hint_values(walk: Walk) -> list[bytes]:
    """Return all values that the hint topic has for the group, as any consumer of the topic reads them."""
    servers = walk.values["kafka-1:9092,kafka-2:9092"]
    with closing(
        KafkaConsumer(
            DEFAULT_HINT_TOPIC,
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            consumer_timeout_ms=5_000,
        )
    ) as consumer:
        return [record.value for record in consumer if record.key == hint_key(GROUP)]


def read_hint(walk: Walk) -> Hint:
    # A busy broker may answer later than a reader waits for more.
    [value] = wait_until(lambda: read_hint_values(walk), what="there is no hint")
    return decode_hint(value, group_id=GROUP)


def test_the_page_leads_a_new_user_to_a_published_hint(tmp_path: Path) -> None:
    began = time.monotonic()
    walk = make_walk(tmp_path)
    walk.home.mkdir()
    with ExitStack() as stack:
        stack.callback(wait_until_gone, str(tmp_path))
        with step("a broker, and a group with lag"):
            broker = stack.enter_context(Broker.start(tmp_path / "broker"))
            start_consumers(broker, tmp_path, stack)
        with step("1. the wheel is built and installed"):
            install(walk)
        with step("2., 3. policy and DAG file"):
            cluster = write_files(walk, broker)
        with step("4. Spark Connect server, Airflow, pools and connection"):
            start_server(walk, stack)
            airflow = start_airflow(walk, stack, cluster)
            wait_for_server(walk)
        with step("5. a cycle"):
            run_cycle(walk, airflow, cluster)
        with step("the page in Airflow's navigation"):
            open_page(airflow)
        with step("the plan is approved and published"):
            plan_id = approve_plan(walk, airflow)
            assert read_hint(walk).plan_id == plan_id
        with step("5. evenlag doctor"):
            _, check = PAGE.code_blocks("5. Unpause, trigger, and check")
            walk.run(check)
        assert walk.used == walk.values.keys()
    sys.stdout.write(f"all of it: {time.monotonic() - began:.0f} s\n")
