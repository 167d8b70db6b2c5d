"""With the extra `cli` only, and without Java: every command that asks answers; what needs Spark says so.

The environment is a folder with nothing but the distributions that ``evenlag[cli]`` requires. The interpreter
runs without the site-packages of the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import SNAPSHOTS
from tests.truth.recorded_lakes import RecordedLake, extract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Ask = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "north"
OURS = ("assignor_core", "evenlag", "spark_jobs")
ABSENT = ("pyspark", "delta", "great_expectations", "airflow", "pandas", "spark_jobs", "sandbox", "dags")
COMMAND = "import sys; sys.path.append(sys.argv.pop(1)); sys.argv[0] = 'evenlag'; "
MAIN = COMMAND + "from evenlag.__main__ import main; main()"
PROBLEM = {
    "topics": {"t": 2},
    "members": [{"id": "a", "topics": ["t"]}, {"id": "b", "topics": ["t"]}],
    "lags": {"t": [9, 1]},
}


def _required(name: str, extras: Iterable[str], found: set[tuple[str, str]]) -> set[str]:
    """Names of all distributions that a distribution with extras requires, itself included."""
    wanted = {(name, extra) for extra in ("", *extras)} - found
    found |= wanted
    names = {name}
    for text in distribution(name).requires or () if wanted else ():
        requirement = Requirement(text)
        if any(
            requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for _, extra in wanted
        ):
            names |= _required(requirement.name, requirement.extras, found)
    return names


@pytest.fixture(scope="module")
def site_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a site-packages of `evenlag[cli]`."""
    folder = tmp_path_factory.mktemp("environment")
    for name in sorted(_required("evenlag", ["cli"], set())):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            source = Path(str(found.locate_file(top)))
            is_code = top != "__pycache__" and not top.endswith(".pth")
            if is_code and top not in OURS and not (folder / top).exists():
                (folder / top).symlink_to(source)
    for package in OURS[:2]:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedLake:
    """Extract a recorded lake with two clusters, hints and an audit."""
    return extract("hints", tmp_path_factory.mktemp("hints"))


@pytest.fixture
def ask(site_packages: Path, tmp_path: Path) -> Ask:
    """Return a function that runs the command in the environment."""

    def run(*arguments: object, code: str = MAIN) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, str(site_packages), *map(str, arguments)],
            env={
                "PATH": str(tmp_path / "empty"),
                "HOME": str(tmp_path),
                "MPLCONFIGDIR": str(tmp_path),
                "EVENLAG_KAFKA_BOOTSTRAP_TIMEOUT_MS": "300",
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    return run


def _json(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _ends(recorded: RecordedLake) -> tuple[str, str]:
    """When the cluster's first and last snapshots had ended."""
    rows = LakeReader(str(recorded.root)).read(SNAPSHOTS, filters=[("cluster", "=", CLUSTER)])
    moments = sorted(rows["finished_at"].to_pylist())
    return moments[0].isoformat(), moments[-1].isoformat()


def test_neither_spark_nor_java_can_be_found_there(ask: Ask) -> None:
    code = COMMAND + (
        "import shutil; from importlib.util import find_spec; "
        f"print([name for name in {ABSENT} if find_spec(name)], shutil.which('java'))"
    )
    assert ask(code=code).stdout == "[] None\n"


def test_every_command_that_asks_answers(ask: Ask, recorded: RecordedLake, tmp_path: Path) -> None:
    where = ("--lake", recorded.root, "--cluster", CLUSTER)
    groups = {row["group_id"] for row in _json(ask("lag", *where, "--json"))["groups"]}
    plans = _json(ask("plans", *where, "--json"))["plans"]
    plan_id, group = plans[0]["plan_id"], plans[0]["group_id"]
    assert group in groups
    policy = recorded.write_policy(tmp_path / "policy.yaml")
    (tmp_path / "problem.json").write_text(json.dumps(PROBLEM), encoding="utf-8")
    calls: tuple[tuple[object, ...], ...] = (
        ("lag", group, *where),
        ("plans", *where),
        ("plans", plan_id, *where),
        ("audit", "owner", group, *where),
        ("audit", "diff", group, *_ends(recorded), *where),
        ("audit", "churn", *where),
        ("audit", "adherence", *where),
        ("audit", "anomalies", *where),
        ("compare", *where),
        ("report", "--file", tmp_path / "report.html", *where),
        ("policy", "check", policy),
        ("policy", "explain", group, "--cluster", CLUSTER, "--config", policy),
        ("policy", "schema"),
        ("lake", "status", *where),
        ("assign", "--assignor", "lag-aware-sticky", "problem.json"),
        ("--help",),
        ("--version",),
    )
    for call in calls:
        done = ask(*call)
        assert (done.returncode, "error" in done.stderr) == (0, False), (call, done.stderr)
        assert done.stdout or (tmp_path / "report.html").is_file(), call
    checks = ask("doctor", "--only", "policy", "--only", "lake", "--config", policy, "--json")
    assert json.loads(checks.stdout)["checks"], checks.stderr
    unreachable = ask("hints", "-b", "127.0.0.1:1")
    assert unreachable.returncode == 3
    assert unreachable.stderr.splitlines()[-1].startswith("error: 127.0.0.1:1 refuses connections")


def test_what_needs_spark_says_what_to_install(ask: Ask, recorded: RecordedLake, tmp_path: Path) -> None:
    policy = recorded.write_policy(tmp_path / "policy.yaml")
    for call in (
        ("run", "--config", policy, "--cluster", CLUSTER),
        ("audit", "build", "--config", policy, "--cluster", CLUSTER),
        ("compare", "run", "--config", policy, "--cluster", CLUSTER),
        ("lake", "maintain", "--config", policy),
    ):
        done = ask(*call)
        assert (done.returncode, done.stdout) == (1, ""), call
        [line] = done.stderr.splitlines()
        assert "pip install 'evenlag[spark]'" in line
        assert "Java 17 or newer" in line


def test_the_consumer_package_loads_nothing_else_of_ours() -> None:
    code = (
        "import sys; import evenlag.consumer; "
        "print(*sorted(n for n in sys.modules if n.split('.')[0] in "
        "('evenlag', 'assignor_core', 'spark_jobs', 'sandbox', 'dags')), "
        "'|', *sorted({n.split('.')[0] for n in sys.modules} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    ours, others = (part.split() for part in done.stdout.split("|"))
    strangers = [
        name
        for name in ours
        if name != "evenlag" and not name.startswith(("evenlag.consumer", "assignor_core"))
    ]
    assert strangers == []
    assert "evenlag.consumer" in ours
    heavy = {"pyspark", "pyarrow", "pandas", "deltalake", "pydantic", "yaml", "rich", "typer", "airflow"}
    assert heavy & set(others) == set()
    assert {"numpy", "kafka"} <= set(others)
