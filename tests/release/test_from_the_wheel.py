"""A user's first hour: the wheel in an environment of its own, without a checkout.

It needs the package index, and minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata

from release.project import ROOT, Project
from tests.release.test_packages import build
from tests.support.commits import commit_offsets

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox.kafka.broker import Broker

pytestmark = [pytest.mark.soak, pytest.mark.broker, pytest.mark.timeout(2_400)]

VALIDATE = """
import sys
from pathlib import Path
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for path in sys.argv[1:]:
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(path).read_text())
    if error is not None:
        sys.exit(f"{path}: {str(error)[:2000]}")
"""


class Installed:
    """An environment with the wheel, and a home of its own: no checkout, no jars, no settings."""

    def __init__(self, folder: Path, *what: str) -> None:
        self.folder = folder
        self.home, self.work = folder / "home", folder / "work"
        for path in (self.home, self.work):
            path.mkdir(parents=True)
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(folder / "env")], check=True)
        python = str(folder / "env" / "bin" / "python")
        command = [*uv, "pip", "install", "--quiet", "--python", python, *what]
        subprocess.run([*command, "-c", str(ROOT / "requirements.lock")], check=True)

    def run(self, *command: str, timeout_s: float = 900) -> subprocess.CompletedProcess[str]:
        kept = {
            name: os.environ[name] for name in ("JAVA_HOME", "SSL_CERT_FILE", "LANG") if name in os.environ
        }
        path = f"{self.folder / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            command,
            cwd=self.work,
            env=kept | {"HOME": str(self.home), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built")
    build(ROOT, out)
    return out / f"evenlag-{Project().version}-py3-none-any.whl"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    return Installed(folder, f"evenlag[airflow,cli,consumer,spark] @ {wheel.as_uri()}")


def test_dags_are_installed_and_parse(installed: Installed) -> None:
    (installed.work / "dags").mkdir()
    done = installed.run("evenlag", "dags", "install", "dags")
    assert done.returncode == 0, done.stderr
    assert (installed.work / "dags" / "evenlag_dags" / "lag_rebalance.py").is_file()


def test_a_cycle_runs_and_fetches_what_it_needs(installed: Installed, broker: Broker, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
        admin.create_topics([NewTopic("from-the-wheel", 1, 1)])
        commit = {TopicPartition("from-the-wheel", 0): OffsetAndMetadata(0, "", -1)}
        commit_offsets(admin, "g", commit)
    run = ("evenlag", "run", "-b", broker.bootstrap_servers, "--lake", str(lake))
    done = installed.run(*run)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "jars: all" in done.stderr
    jars = installed.home / ".cache" / "evenlag" / "jars" / "spark"
    assert list(jars.glob("evenlag-log-store-*.jar"))
    lag = installed.run("evenlag", "lag", "--lake", str(lake), "--json")
    assert lag.returncode == 0, lag.stderr
    assert "g" in {group["group_id"] for group in json.loads(lag.stdout)["groups"]}
    # A group without members has no plan.
    plans = installed.run("evenlag", "plans", "--lake", str(lake), "--json")
    assert plans.returncode == 0, plans.stderr
    assert json.loads(plans.stdout)["plans"] == []


def test_the_demo_runs(installed: Installed) -> None:
    done = installed.run("evenlag", "demo", timeout_s=1_500)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6_000:]
    assert (installed.work / ".demo" / "index.html").is_file()


def test_two_clones_give_the_same_release_and_cyclonedx_accepts_its_bills(tmp_path: Path) -> None:
    folders = []
    for name in ("one", "another/place"):
        clone = tmp_path / name
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "release", "build", "--unchecked", "a test"),
                *("--out", str(clone / "dist" / "release")),
            ],
            cwd=clone,
            env=os.environ | {"PYTHONPATH": str(clone), "EVENLAG_JARS": str(ROOT / ".cache" / "jars")},
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        folders.append(clone / "dist" / "release")
    files = [
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in folders
    ]
    assert sorted(files[0]) == sorted(files[1])
    assert b"for this release**: a test" in (folders[0] / "RELEASE_NOTES.md").read_bytes()
    assert [str(name) for name in files[0] if files[0][name] != files[1][name]] == []
    checked = subprocess.run(
        ["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folders[0], check=False, capture_output=True
    )
    assert checked.returncode == 0
    (tmp_path / "cyclonedx").mkdir()
    tool = Installed(tmp_path / "cyclonedx" / "env", "cyclonedx-python-lib[json-validation]")
    done = tool.run("python", "-c", VALIDATE, *map(str, sorted((folders[0] / "sbom").glob("*.json"))))
    assert done.returncode == 0, done.stdout + done.stderr
