"""evenlag in an Airflow that exists: two policies in one DAG file of a bundle, with prefixes and a pool.

A real broker with consumers, a real Spark Connect server, and an Airflow with all of its parts.
"""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.airflow_rest import TOKEN_VARIABLE
from evenlag.doctor.airflow_checks import airflow_checks
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.lake.tables import PLANS, SNAPSHOTS
from evenlag.policy.loader import read_policy
from sandbox.airflow.rest import AirflowError
from tests.support.airflow_faults import kill_scheduler, returned
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sandbox.airflow.instance import Airflow
    from sandbox.airflow.rest import DagRun, DagRunClient
    from sandbox.workload.workload import Workload

# Eight minutes on a busy machine: a whole Airflow, a Spark Connect server and twenty comparisons.
pytestmark = [
    pytest.mark.airflow, pytest.mark.broker, pytest.mark.jvm, pytest.mark.soak,
]  # fmt: skip

POOL = "evenlag"
SLOTS = 2
DAYS = 10
DAG_FILE = """\
from pathlib import Path
from evenlag.airflow import make_dags

HERE = Path(__file__).parent
ours = {"pool": "evenlag", "background_pool": "evenlag", "spark_conn_id": "team_spark"}
make_dags(HERE / "a.yaml", dag_prefix="a_", **ours)
# No limit but the pool's.
make_dags(HERE / "b.yaml", dag_prefix="b_", max_active_tis_per_dag=16, **ours)
"""
CONSUMER_FILE = """\
from airflow.sdk import DAG, Asset
from airflow.providers.standard.operators.empty import EmptyOperator

for what in ("snapshots", "plans", "hints"):
    with DAG(f"after_{what}", schedule=[Asset(f"evenlag://a_main/{what}")]):
        EmptyOperator(task_id="nothing")
"""
POLICY = """\
lake: {lake}
audit_schedule: null
maintenance: {{schedule: null}}
comparison: {{schedule: "30 0 * * *"}}
clusters:
  main: {{bootstrap_servers: "{servers}", schedule: null, hint_topic: {hint_topic}}}
groups:
  - {{match: billing, mode: {mode}, reset_policy: earliest}}
"""


@dataclass
class Team:
    """What runs for the tests of this module."""

    airflow: Airflow
    work: Workload
    folder: Path

    def lake(self, name: str) -> LakeReader:
        return LakeReader(str(self.folder / f"lake-{name}"))

    def snapshots(self, name: str) -> list[dict[str, Any]]:
        lake = self.lake(name)
        if not lake.exists(SNAPSHOTS):
            return []
        rows = lake.read(SNAPSHOTS, columns=["snapshot_id", "slot"], filters=[("cluster", "=", "main")])
        return sorted(rows.to_pylist(), key=lambda row: str(row["slot"]))

    def num_plans(self, name: str) -> int:
        lake = self.lake(name)
        return lake.count(PLANS, filters=[("cluster", "=", "main")]) if lake.exists(PLANS) else 0

    def runs(self, dag_id: str, run_type: str | None = None) -> list[dict[str, Any]]:
        answer = self.airflow.rest.get(f"dags/{dag_id}/dagRuns", limit=100)
        return [run for run in answer["dag_runs"] if run_type in {None, run["run_type"]}]


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    from sandbox.airflow.instance import Airflow
    from sandbox.demo.run import NUM_CONSUMERS, make_workload
    from sandbox.demo.services import start_demo_broker
    from sandbox.spark.connect_server import ConnectServer

    folder = tmp_path_factory.mktemp("existing-airflow")
    with ExitStack() as stack:
        server = stack.enter_context(ConnectServer.start(folder / "spark"))
        broker = stack.enter_context(start_demo_broker(folder, "classic"))
        bundle = folder / "bundle"
        write_version(
            bundle / "v1",
            {
                name: POLICY.format(
                    lake=folder / f"lake-{name}",
                    servers=broker.bootstrap_servers,
                    hint_topic=topic,
                    mode=mode,
                )
                for name, topic, mode in (("a", "evenlag-hints", "auto"), ("b", "hints-b", "shadow"))
            },
        )
        (bundle / "current").symlink_to("v1")
        work = stack.enter_context(make_workload(broker.bootstrap_servers, folder / "workload"))
        work.start_consumers(NUM_CONSUMERS)
        work.wait_until_owned()
        server.wait_until_ready()
        bundles = [
            {
                "name": "team",
                "classpath": "tests.support.versioned_bundle.VersionedBundle",
                "kwargs": {"folder": str(bundle), "refresh_interval": 2},
            }
        ]
        environment = {
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
            "AIRFLOW__CORE__PARALLELISM": "8",
            "AIRFLOW_CONN_TEAM_SPARK": server.connection(),
            "AIRFLOW_CONN_SPARK_DEFAULT": "",
            "EVENLAG_CONFIG": "",
            "EVENLAG_REPORT_LAKES": json.dumps({f"{name}_": str(folder / f"lake-{name}") for name in "ab"}),
        }
        airflow = stack.enter_context(
            Airflow.start(folder / "airflow", policy=bundle / "v1" / "a.yaml", environment=environment)
        )
        for prefix in "ab":
            airflow.rest.wait_for_dag(f"{prefix}_lag_rebalance__main")
        airflow.rest.wait_for_dag("after_hints")
        yield Team(airflow, work, folder)


def write_version(folder: Path, policies: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    (folder / "evenlag_of_our_teams.py").write_text(DAG_FILE, encoding="utf-8")
    (folder / "consumers_dag.py").write_text(CONSUMER_FILE, encoding="utf-8")
    for name, text in policies.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def cycle(team: Team, prefix: str, **how: Any) -> DagRun:
    run = team.airflow.rest.trigger(f"{prefix}lag_rebalance__main", **how)
    return team.airflow.rest.wait(run)


def task_instances(team: Team, dag_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for run in team.runs(dag_id, "backfill"):
        path = f"dags/{dag_id}/dagRuns/{run['dag_run_id']}/taskInstances"
        found += team.airflow.rest.get(path)["task_instances"]
    return found


def create_backfill(rest: DagRunClient, body: dict[str, Any]) -> None:
    """Create a backfill, again while another writer has locked the database."""

    def is_created() -> bool:
        try:
            rest.request("POST", "backfills", body)
        except AirflowError as error:
            if "Database is locked" not in str(error):
                raise
            return False
        return True

    wait_until(is_created, what=f"no backfill: {body}")


def most_at_once(tasks: list[dict[str, Any]]) -> int:
    """Return how many task instances ran at once at most, by Airflow's own record."""
    ends = sorted(
        change for task in tasks for change in ((task["start_date"], 1), (task["end_date"], -1))
    )  # at the same time, an end counts before a start
    running = [0]
    for _, change in ends:
        running.append(running[-1] + change)
    return max(running)


def test_doctor_finds_a_pool_that_does_not_exist(team: Team) -> None:
    rest = team.airflow.rest
    policy = read_policy(team.folder / "bundle" / "v1" / "a.yaml").policy

    def find(name: str, prefix: str = "a_") -> tuple[str, str]:
        environ = {TOKEN_VARIABLE: str(rest.token)}
        checks = {check.name: check for check in airflow_checks(policy, rest.url, environ, dag_prefix=prefix)}
        [*_, found] = checks[name].look()
        return found.verdict.value, f"{found.message} {found.remedy}"

    assert find("dags")[0] == "ok"
    assert find("dags", prefix="")[0] == "failed"
    verdict, shown = find("pools")
    assert verdict == "failed"
    assert "the pool evenlag does not exist" in shown
    assert "airflow pools set evenlag" in shown
    rest.request("POST", "pools", {"name": POOL, "slots": SLOTS})
    verdict, shown = find("pools")
    assert (verdict, "cycles wait in the pool evenlag" in shown) == ("warning", True)


def test_a_trigger_with_a_logical_date_takes_a_new_snapshot_and_nothing_fires_without_a_plan(
    team: Team,
) -> None:
    run = cycle(team, "a_", logical_date=datetime.now(UTC).isoformat())
    [first] = team.snapshots("a")
    assert team.num_plans("a") == 0
    due = team.airflow.rest.get(f"dags/{run.dag_id}/dagRuns/{run.run_id}")["run_after"]
    assert first["slot"] == floor_to_ms(datetime.fromisoformat(due))
    wait_until(lambda: len(team.runs("after_snapshots")) == 1, what="no asset event")

    cycle(team, "a_", logical_date=datetime.now(UTC).isoformat())
    assert len({row["snapshot_id"] for row in team.snapshots("a")}) == 2
    wait_until(lambda: len(team.runs("after_snapshots")) == 2, what="no asset event")
    assert team.runs("after_plans") == team.runs("after_hints") == []
    # The other policy has a cluster of the same name, and a lake of its own.
    assert team.snapshots("b") == []


def test_a_plan_and_its_hint_update_their_assets(team: Team) -> None:
    from sandbox.demo.run import skewed_backlog

    team.work.fill(skewed_backlog(team.work.wait_until_owned()))
    run = cycle(team, "a_")
    assert returned(team.airflow, run, "publish")["published"] == 1
    assert team.num_plans("a") == 1
    for what in ("plans", "hints"):
        wait_until(lambda what=what: len(team.runs(f"after_{what}")) == 1, what=what)  # type: ignore[misc]  # a default binds the loop's variable
    events = team.airflow.rest.get("assets/events", limit=100)["asset_events"]
    hint = next(event for event in events if event["uri"] == "evenlag://a_main/hints")
    assert hint["extra"]["count"] == 1
    assert hint["source_dag_id"] == "a_lag_rebalance__main"


def test_backfills_never_run_more_spark_tasks_than_the_pool_has_slots(team: Team) -> None:
    rest = team.airflow.rest
    until = datetime(2026, 11, 11, tzinfo=UTC)
    dags = ["a_plan_comparison", "b_plan_comparison"]
    # On SQLite a backfill cannot be created while the scheduler writes. So both wait for it, too.
    kill_scheduler(team.airflow)
    for dag_id in dags:
        between = {"from_date": (until - timedelta(days=DAYS)).isoformat(), "to_date": until.isoformat()}
        create_backfill(rest, {"dag_id": dag_id, "max_active_runs": DAYS, **between})
    team.airflow.start_scheduler()

    def are_over() -> bool:
        runs = [run for dag_id in dags for run in team.runs(dag_id, "backfill")]
        return len(runs) == 2 * DAYS and all(run["state"] in {"success", "failed"} for run in runs)

    between_them = cycle(team, "a_")
    wait_until(are_over, what="the backfills")
    of_dag = {dag_id: task_instances(team, dag_id) for dag_id in dags}
    assert [len(tasks) for tasks in of_dag.values()] == [DAYS, DAYS]
    assert {task["pool"] for tasks in of_dag.values() for task in tasks} == {POOL}
    path = f"dags/{between_them.dag_id}/dagRuns/{between_them.run_id}/taskInstances"
    steps = [task for task in rest.get(path)["task_instances"] if task["pool"] == POOL]
    assert {task["task_id"] for task in steps} == {"observe", "decide"}
    everything = [task for tasks in of_dag.values() for task in tasks]
    assert most_at_once([*everything, *steps]) == SLOTS
    # The default: one instance of a task, however many runs a backfill has.
    assert most_at_once(of_dag["a_plan_comparison"]) == 1
    # The cycle does not wait for the backfills.
    assert max(task["end_date"] for task in steps) < max(task["end_date"] for task in everything)


def test_the_report_of_each_policy_is_read_from_its_lake(team: Team) -> None:
    from tests.dags.test_report_view import fetch, token_of

    cycle(team, "b_")
    token, url = token_of(team.airflow), f"{team.airflow.url}/evenlag/report"
    status, page, _ = fetch(f"{url}?cluster=a_main", token)
    assert (status, "billing on main" in page) == (200, True)
    assert "?cluster=b_main" in page
    assert fetch(f"{url}?cluster=b_main", token)[0] == 200
    assert fetch(f"{url}?cluster=main", token)[0] == 403


def test_a_run_uses_the_policy_of_its_version_of_the_bundle(team: Team) -> None:
    rest, bundle, dag_id = team.airflow.rest, team.folder / "bundle", "a_lag_rebalance__main"
    old = cycle(team, "a_")
    before = team.snapshots("a")
    shutil.copytree(bundle / "v1", bundle / "v2")
    policy = bundle / "v2" / "a.yaml"
    policy.write_text(policy.read_text().replace("lake-a", "lake-new"), encoding="utf-8")
    (bundle / "next").symlink_to("v2")
    (bundle / "next").rename(bundle / "current")
    wait_until(
        lambda: rest.get(f"dags/{dag_id}/details")["bundle_version"] == "v2",
        what="the new version of the bundle",
    )
    new = cycle(team, "a_")
    assert f"--config {bundle / 'v2' / 'a.yaml'}" in rest.log(new, "observe", lines=500)
    assert len(team.snapshots("new")) == 1

    again = {"dag_run_id": old.run_id, "task_ids": ["observe"], "dry_run": False, "only_failed": False}
    rest.request("POST", f"dags/{dag_id}/clearTaskInstances", again | {"run_on_latest_version": False})
    path = f"dags/{dag_id}/dagRuns/{old.run_id}/taskInstances/observe"
    wait_until(
        lambda: (found := rest.get(path))["try_number"] == 2 and found["state"] == "success",
        what="the repeated task",
    )
    assert f"--config {bundle / 'v1' / 'a.yaml'}" in rest.log(old, "observe", lines=500)
    # The repeat finds what the first attempt wrote.
    assert team.snapshots("a") == before
    assert len(team.snapshots("new")) == 1
