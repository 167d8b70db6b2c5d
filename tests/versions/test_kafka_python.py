"""The consumer client works with each version of kafka-python that its extra allows, not only at import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evenlag.consumer import TESTED_KAFKA_PYTHON
from tests.versions.suites import ROOT

# There is no 3.0.3.
VERSIONS = tuple(f"3.0.{number}" for number in (1, 2, *range(4, 13)))
_FOLDER = Path("tests", "evenlag", "consumer")
_TESTS = (
    *("test_kafka_contract.py", "test_kafka_coordinator.py", "rebalances/test_current_join.py"),
    "rebalances/test_polling_during_a_join.py",
    "test_following_hints.py::test_a_published_hint_is_followed_in_two_phases_and_nothing_is_read_twice",
)
_TIMEOUT_S = 900


def _output(*arguments: str, packages: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(packages)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_versions_are_those_from_the_lowest_to_the_newest() -> None:
    assert (VERSIONS[0], VERSIONS[-1]) == TESTED_KAFKA_PYTHON


@pytest.mark.extended
@pytest.mark.broker
@pytest.mark.parametrize("version", VERSIONS)
def test_a_consumer_follows_and_returns_records_during_a_join(tmp_path: Path, version: str) -> None:
    packages = tmp_path / "packages"
    wanted = ("--no-deps", "--target", str(packages), f"kafka-python=={version}")
    _output("-m", "uv", "pip", "install", "--quiet", *wanted, packages=packages)
    assert _output("-c", "print(__import__('kafka').__version__)", packages=packages).strip() == version
    options = ("-n0", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'pytest'}")
    printed = _output("-m", "pytest", *options, *(str(_FOLDER / each) for each in _TESTS), packages=packages)
    assert " skipped" not in printed.splitlines()[-1]
