"""The ends of the ranges, in environments of their own: they need the package index and minutes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.versions.suites import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.soak

_TIMEOUT_S: Final = 1_200
_TOOLS: Final = (
    "cryptography",
    "hypothesis",
    "jsonschema",
    "packaging",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
)
_QUICK: Final = (
    "tests/assignor_core/test_hint.py",
    "tests/evenlag/consumer",
    "tests/evenlag/policy",
    "tests/evenlag/lake",
)
_IMPORT: Final = """
try:
    import evenlag.consumer
except ImportError as error:
    print(error)
else:
    raise SystemExit("evenlag.consumer was imported")
"""
_NO_REAL_PART: Final = "not broker and not jvm and not airflow and not soak"
_DAGS: Final = ["assignment_audit", "lag_rebalance__orders", "plan_approval", "table_maintenance"]
# Airflow needs the packages of its time: newer ones of others break it, and its constraints pin them. The day
# is shortly after the release.
_AIRFLOWS: Final = (("3.1.0", "2025-10-01"), ("3.1.8", "2026-03-15"))


class Environment:
    """A virtual environment of uv, with commands that fail with their output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uv("venv", "--quiet", "--python", sys.executable, str(folder))

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def uv(self, *arguments: str) -> str:
        return _output([sys.executable, "-m", "uv", *arguments])

    def install(self, *arguments: str) -> None:
        self.uv("pip", "install", "--quiet", "--python", self.python, *arguments)

    def run(self, *arguments: str) -> str:
        return _output([self.python, *arguments], PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}")

    def run_quick_tests(self) -> str:
        summary = self.run(
            "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "-m", _NO_REAL_PART, *_QUICK
        )
        return summary.splitlines()[-1]

    def parse_dags(self, home: Path) -> list[str]:
        home.mkdir()
        printed = self.run(str(ROOT / "tests" / "versions" / "parse_dags.py"), str(home))
        return [line for line in printed.splitlines() if line.isidentifier()]


def _output(command: list[str], **variables: str) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "AIRFLOW", "VIRTUAL"))
    }
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-8_000:]}"
    return done.stdout


def test_the_lowest_versions(tmp_path: Path) -> None:
    """Without Airflow, which breaks with newer packages of others than those of its time."""
    environment = Environment(tmp_path / "lowest")
    lowest = tmp_path / "lowest.txt"
    extras = ("--extra", "cli", "--extra", "consumer", "--extra", "executor")
    resolution = ("--resolution", "lowest-direct", "--no-header", "--no-annotate")
    environment.uv("pip", "compile", "--quiet", *resolution, *extras, "pyproject.toml", "-o", str(lowest))
    # PySpark is 400 MB, and no quick test needs it.
    some = [
        line for line in lowest.read_text("utf-8").splitlines() if not line.startswith(("pyspark", "py4j"))
    ]
    lowest.write_text("\n".join(some), "utf-8")
    assert "kafka-python==3.0.1" in some
    environment.install("-r", str(lowest), *_TOOLS)
    assert " failed" not in environment.run_quick_tests()


@pytest.mark.parametrize(("airflow", "day"), _AIRFLOWS)
def test_into_an_airflow_that_exists(tmp_path: Path, airflow: str, day: str) -> None:
    environment = Environment(tmp_path / "airflow")
    roots = ("apache-airflow-providers-apache-spark", "apache-airflow-providers-standard")
    environment.install(f"--exclude-newer={day}", f"apache-airflow=={airflow}", *roots, "packaging")
    constraints = tmp_path / "constraints.txt"
    installed = str(ROOT / "tests" / "versions" / "installed.py")
    constraints.write_text(environment.run(installed, "apache-airflow", *roots), "utf-8")
    assert f"apache-airflow=={airflow}" in constraints.read_text("utf-8")
    environment.install(
        "-c", str(constraints), "-r", "pyproject.toml", "--extra", "airflow", "--extra", "consumer"
    )
    assert environment.run(installed, "apache-airflow", *roots) == constraints.read_text("utf-8")
    environment.install("-c", str(constraints), *_TOOLS)
    assert sorted(environment.parse_dags(tmp_path / "home")) == _DAGS
    assert " failed" not in environment.run_quick_tests()


def test_an_older_airflow_runs_a_cycle_and_takes_an_answer(tmp_path: Path) -> None:
    """Its own scheduler, triggerer and API, with Spark and a broker."""
    airflow, day = _AIRFLOWS[-1]
    environment = Environment(tmp_path / "airflow")
    roots = ("apache-airflow-providers-apache-spark", "apache-airflow-providers-standard")
    environment.install(f"--exclude-newer={day}", f"apache-airflow=={airflow}", *roots, "packaging")
    constraints = tmp_path / "constraints.txt"
    installed = environment.run(str(ROOT / "tests" / "versions" / "installed.py"), "apache-airflow", *roots)
    pins = [line for line in installed.splitlines() if not line.startswith(("pyspark", "py4j"))]
    constraints.write_text("\n".join(pins), "utf-8")
    extras = [part for extra in ("airflow", "cli", "consumer", "spark") for part in ("--extra", extra)]
    environment.install("-c", str(constraints), "-r", "pyproject.toml", *extras)
    environment.install("-c", str(constraints), *_TOOLS)
    temporary = f"--basetemp={tmp_path / 'tests'}"
    chosen = ("-m", "airflow and not soak", "tests/dags/test_whole_airflow.py")
    printed = environment.run("-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", temporary, *chosen)
    assert " passed" in printed.splitlines()[-1]


@pytest.mark.parametrize("version", ["2.3.3"])
def test_an_unsuitable_kafka_python_is_refused(tmp_path: Path, version: str) -> None:
    environment = Environment(tmp_path / "old")
    environment.install("numpy", f"kafka-python=={version}")
    done = environment.run("-c", _IMPORT)
    assert done.startswith(f"evenlag.consumer cannot work with kafka-python {version}: ")
    assert done.rstrip().endswith("Install a tested version: kafka-python>=3.0.1,<=3.0.12")
