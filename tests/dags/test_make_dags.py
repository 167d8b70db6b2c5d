"""``make_dags`` in DAG files of somebody's own: what it builds, and what it refuses."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from evenlag.airflow import tasks
from evenlag.airflow.spark_task import SparkJobOperator
from evenlag.airflow.tasks import Product, cluster_asset, product_alias, update_asset

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import DAG, Context

REPOSITORY = Path(__file__).resolve().parents[2]
POLICY = """\
lake: s3a://{lake}/lake
storage:
  endpoint: "http://{lake}:9000"
  access_key_id: {{env: KEY_OF_{lake}}}
  secret_access_key: {{env: SECRET_OF_{lake}}}
comparison: {{}}
clusters:
  Main.1-x_y: {{bootstrap_servers: "{lake}:9092"}}
groups:
  - {{match: refunds, mode: approve}}
"""
TWO = """\
from pathlib import Path
from evenlag.airflow import make_dags

HERE = Path(__file__).parent
make_dags(HERE / "a.yaml", dag_prefix="a_")
make_dags(
    HERE / "b.yaml", dag_prefix="b.", pool="heavy jobs", queue="spark", spark_conn_id="team_spark",
    executor_config={"pod_override": "of the team"}, approvers=["7", "ada"], tags=["billing"],
    default_args={"owner": "billing", "retries": 5}, max_active_tis_per_dag=3,
)
"""
KINDS = [
    "assignment_audit",
    "lag_rebalance__Main.1-x_y",
    "plan_approval",
    "plan_comparison",
    "table_maintenance",
]


def parse(folder: Path, text: str) -> DagBag:
    from airflow.dag_processing.dagbag import DagBag

    for name in "ab":
        (folder / f"{name}.yaml").write_text(POLICY.format(lake=name), encoding="utf-8")
    (folder / "our_dags.py").write_text(text, encoding="utf-8")
    return DagBag(dag_folder=str(folder))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, DAG]]:
    """Return the DAGs of two policies in one file, and its folder."""
    folder = tmp_path_factory.mktemp("bundle")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("EVENLAG_CONFIG", raising=False)
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        patch.setenv("KEY_OF_a", "s3cret")
        bag = parse(folder, TWO)
        # What a process has parsed must not decide where its tasks write.
        assert "AWS_ENDPOINT_URL" not in os.environ
        assert "s3cret" not in os.environ.get("AWS_ACCESS_KEY_ID", "")
    assert bag.import_errors == {}
    return folder, dict(bag.dags)


def spark_tasks(dags: dict[str, DAG], prefix: str) -> list[SparkJobOperator]:
    return [
        task
        for dag_id, dag in dags.items()
        for task in dag.tasks
        if dag_id.startswith(prefix) and isinstance(task, SparkJobOperator)
    ]


def test_two_policies_with_clusters_of_one_name_share_an_airflow(two: tuple[Path, dict[str, DAG]]) -> None:
    folder, dags = two
    assert sorted(dags) == [f"{prefix}{kind}" for prefix in ("a_", "b.") for kind in KINDS]
    for prefix, name in (("a_", "a"), ("b.", "b")):
        ask: Any = dags[f"{prefix}lag_rebalance__Main.1-x_y"].get_task("ask")
        assert ask.partial_kwargs["trigger_dag_id"] == f"{prefix}plan_approval"
        for task in spark_tasks(dags, prefix):
            assert task.application_args is not None
            assert str(folder / f"{name}.yaml") in task.application_args


def test_what_a_dag_file_sets_reaches_the_tasks_that_it_is_for(two: tuple[Path, dict[str, DAG]]) -> None:
    _, dags = two
    tasks = [task for dag_id, dag in dags.items() for task in dag.tasks if dag_id.startswith("b.")]
    assert {(task.queue, task.owner, task.retries) for task in tasks} == {("spark", "billing", 5)}
    assert all(task.executor_config == {"pod_override": "of the team"} for task in tasks)
    of_spark = spark_tasks(dags, "b.")
    pools = {task.task_id: task.pool for task in tasks if task.pool != "default_pool"}
    assert pools.keys() == {task.task_id for task in of_spark}
    # What takes minutes delays no cycle.
    assert {name for name, pool in pools.items() if pool == "heavy jobs"} == {"observe", "decide"}
    assert set(pools.values()) == {"heavy jobs", "heavy jobs_background"}
    assert {task.spark_conn_id for task in of_spark} == {"team_spark"}
    assert {task.max_active_tis_per_dag for task in of_spark} == {3}
    approve: Any = dags["b.plan_approval"].get_task("approve_plan")
    assert list(approve.approvers) == ["7", "ada"]
    assert all("billing" in dag.tags for dag_id, dag in dags.items() if dag_id.startswith("b."))


GROUPED = """\
lake: {lake}
group_clusters: true
clusters:
  north: {{bootstrap_servers: "north:9092", schedule: "* * * * *"}}
  south: {{bootstrap_servers: "south:9092", schedule: "{schedule}"}}
groups:
  - {{match: refunds, mode: approve, clusters: [south]}}
"""


def grouped(folder: Path, schedule: str) -> DagBag:
    from airflow.dag_processing.dagbag import DagBag

    policy = folder / "evenlag.yaml"
    policy.write_text(GROUPED.format(lake=folder / "lake", schedule=schedule), encoding="utf-8")
    text = f"from evenlag.airflow import make_dags\nmake_dags({str(policy)!r}, dag_prefix='team_')\n"
    (folder / "our_dags.py").write_text(text, encoding="utf-8")
    return DagBag(dag_folder=str(folder))


def test_grouped_clusters_have_one_dag_with_one_spark_task(tmp_path: Path) -> None:
    bag = grouped(tmp_path, "* * * * *")
    assert bag.import_errors == {}
    assert {name for name in bag.dags if "lag_rebalance" in name} == {"team_lag_rebalance"}
    dag = bag.dags["team_lag_rebalance"]
    assert {task.task_id for task in dag.tasks} == {
        "cycles",
        "report_all",
        "completed",
        "find_waiting",
        "ask",
    }
    cycles: Any = dag.get_task("cycles")
    given = cycles.application_args
    assert given[:3] == ["observe", "decide", "publish"]
    assert [given[at + 1] for at, word in enumerate(given) if word == "--cluster"] == ["north", "south"]
    # A cluster that hangs delays the others' next slot by one slot at most, one that fails by nothing.
    assert cycles.retries == 0
    assert given[given.index("--limit-s") + 1] == "60"
    # Where cycles fails for one cluster, the assets of the others are updated.
    assert (cycles.outlets, cycles.after_success) == ([], None)
    assert dag.get_task("report_all").outlets == [product_alias(dag.dag_id, each) for each in Product]
    waiting: Any = dag.get_task("find_waiting")
    assert waiting.trigger_rule == dag.get_task("report_all").trigger_rule == "all_done"
    assert list(waiting.op_args[1]) == ["south"]
    found = cycles.get_openlineage_facets_on_complete(SimpleNamespace(get_template_context=dict))
    assert {each.namespace for each in found.inputs} == {"file", "kafka://north:9092", "kafka://south:9092"}
    names = [each.name for each in found.outputs if each.namespace == "file"]
    assert len(names) == len(set(names))
    assert {f"{tmp_path / 'lake'}/{table}" for table in ("lag", "plans", "plan_events")} <= set(names)


def test_a_report_that_fails_keeps_no_update_of_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    updated = []

    def report(_config: str, cluster: str, _prefix: str) -> dict[str, int]:
        if cluster == "gone":
            raise RuntimeError("no such cluster")
        return {"standing": 0}

    monkeypatch.setattr(tasks, "get_current_context", dict)
    monkeypatch.setattr(tasks, "_report", report)
    monkeypatch.setattr(tasks, "update_assets", lambda _, _config, cluster, *__: updated.append(cluster))
    # Airflow takes up the updates of a task that succeeds.
    assert tasks.report_all.function("", ["gone", "south"], "") == {"south": {"standing": 0}}
    assert updated == ["south"]
    with pytest.raises(RuntimeError, match="no such cluster"):
        tasks.report_all.function("", ["gone"], "")


def test_grouped_clusters_have_one_schedule(tmp_path: Path) -> None:
    [error] = grouped(tmp_path, "@daily").import_errors.values()
    assert "group_clusters: north and south have different schedules: make them equal" in error


def test_by_default_one_instance_of_a_spark_task_runs_and_cycles_go_first(
    two: tuple[Path, dict[str, DAG]],
) -> None:
    weights = {task.task_id: task.priority_weight for task in spark_tasks(two[1], "a_")}
    cycle = {weights.pop("observe"), weights.pop("decide")}
    assert min(cycle) > max(weights.values())
    for task in spark_tasks(two[1], "a_"):
        assert (task.max_active_tis_per_dag, task.pool) == (1, "default_pool")


def test_the_assets_bear_the_prefix_and_keep_the_name_of_the_cluster(
    two: tuple[Path, dict[str, DAG]],
) -> None:
    dag = two[1]["b.lag_rebalance__Main.1-x_y"]
    [snapshots] = dag.get_task("observe").outlets
    assert snapshots == cluster_asset("b.", "Main.1-x_y", Product.SNAPSHOTS)
    # As a consumer writes it: Airflow normalizes a URI, and must find nothing to change.
    assert snapshots.uri == "evenlag://b.Main.1-x_y/snapshots"
    for task_id, product in (("decide", Product.PLANS), ("publish", Product.HINTS)):
        assert dag.get_task(task_id).outlets == [product_alias(dag.dag_id, product)]


@pytest.mark.parametrize(("count", "fires"), [(0, False), (2, True)])
def test_an_asset_is_updated_only_by_something_new(count: int, fires: bool) -> None:
    from airflow.sdk.execution_time.context import OutletEventAccessors

    events = OutletEventAccessors()
    slot = datetime(2026, 11, 23, 12, tzinfo=UTC)
    context = {"outlet_events": events, "dag": SimpleNamespace(dag_id="d")}
    update_asset(context, "", "c", Product.HINTS, count=count, slot=slot)
    shown = [event.extra for event in events[product_alias("d", Product.HINTS)].asset_alias_events]
    assert shown == ([{"count": 2, "slot": "2026-11-23T12:00:00+00:00"}] if fires else [])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('make_dags("evenlag.yaml")', "Path(__file__).with_name('evenlag.yaml')"),
        ('make_dags("/nowhere/evenlag.yaml")', "evenlag policy check /nowhere/evenlag.yaml"),
        ('make_dags(HERE / "a.yaml", dag_prefix="a b/")', "dag_prefix='a b/' is not usable"),
        ('make_dags(HERE / "a.yaml", pool=" ")', "a pool is empty"),
        ('make_dags(HERE / "a.yaml", background_pool="")', "a pool is empty"),
        ('make_dags(HERE / "a.yaml", max_active_tis_per_dag=0)', "give 1 or more"),
        ('make_dags(HERE / "a.yaml", approvers=["ada", ""])', "make_dags: approvers: '' is no approver"),
        ('make_dags(HERE / "a.yaml", approvers=[])', "make_dags: approvers is empty"),
        (
            'make_dags(HERE / "a.yaml", kafka_conn_ids={"Main.1": "kafka"})',
            "kafka_conn_ids: the policy has no cluster 'Main.1'; did you mean 'Main.1-x_y'?",
        ),
        ('make_dags(HERE / "a.yaml", only=["audit"])', "only='audit' is no DAG; there are: lag_rebalance,"),
        ('make_dags(HERE / "a.yaml"); make_dags(HERE / "b.yaml")', "is made twice in this file"),
    ],
)
def test_a_mistake_is_an_import_error_that_says_what_to_do(call: str, expected: str, tmp_path: Path) -> None:
    text = f"{TWO[: TWO.index('make_dags(HERE')]}{call}\n"
    [error] = parse(tmp_path, text).import_errors.values()
    assert expected in error
    assert "DagPolicyError" in error


def test_one_policy_may_be_split_over_calls_each_with_its_pool(tmp_path: Path) -> None:
    text = (
        "from pathlib import Path\nfrom evenlag.airflow import make_dags\n"
        'HERE = Path(__file__).with_name("a.yaml")\n'
        'make_dags(HERE, only=["lag_rebalance", "plan_approval"])\n'
        'make_dags(HERE, only=["plan_comparison"], background_pool="nightly")\n'
    )
    bag = parse(tmp_path, text)
    assert bag.import_errors == {}
    assert sorted(bag.dags) == ["lag_rebalance__Main.1-x_y", "plan_approval", "plan_comparison"]
    pools = {task.pool for task in spark_tasks(dict(bag.dags), "plan_comparison")}
    assert pools == {"nightly"}


def test_a_backfill_of_cycles_fails_where_airflow_cannot_refuse_it(two: tuple[Path, dict[str, DAG]]) -> None:
    from evenlag.airflow.compat import AirflowFailException

    observe = next(task for task in spark_tasks(two[1], "a_") if task.task_id == "observe")
    context = cast("Context", {"dag_run": SimpleNamespace(run_type="backfill")})
    with pytest.raises(AirflowFailException, match="has no backfill"):
        observe.pre_execute(context)


def private_names_of_others(path: Path) -> list[str]:
    """Return the private attributes that a class uses of itself and does not define: those of its base."""
    found = []
    for cls in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)):
        uses = [
            node
            for node in ast.walk(cls)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ]
        own = {node.name for node in cls.body if isinstance(node, ast.FunctionDef)}
        own |= {node.attr for node in uses if isinstance(node.ctx, ast.Store)}
        found += [
            f"{path.name}: {node.attr}" for node in uses if node.attr[0] == "_" and node.attr not in own
        ]
    return found


def test_operators_use_no_private_attribute_of_the_provider_s_classes() -> None:
    files = sorted((REPOSITORY / "evenlag" / "airflow").rglob("*.py"))
    assert "spark_task.py" in {file.name for file in files}
    assert [name for file in files for name in private_names_of_others(file)] == []


def test_the_wheel_builds_dags_without_a_checkout(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=REPOSITORY, check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = tmp_path.glob("*.whl")
    installed, folder = tmp_path / "installed", tmp_path / "dags"
    zipfile.ZipFile(wheel).extractall(installed)
    folder.mkdir()
    (folder / "a.yaml").write_text(POLICY.format(lake="a"), encoding="utf-8")
    (folder / "b.yaml").write_text(POLICY.format(lake="b"), encoding="utf-8")
    (folder / "our_dags.py").write_text(TWO, encoding="utf-8")
    code = (
        "import sys; from airflow.dag_processing.dagbag import DagBag\n"
        f"bag = DagBag(dag_folder={str(folder)!r})\n"
        "import evenlag\n"
        "print(bag.import_errors, len(bag.dags), evenlag.__file__, 'dags' in sys.modules)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"AIRFLOW_HOME": str(tmp_path / "home"), "PYTHONPATH": str(installed)},
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert answer.stdout.splitlines()[-1] == f"{{}} 10 {installed}/evenlag/__init__.py False"
