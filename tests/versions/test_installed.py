"""The extras allow what an installed Airflow and our own lock have, and pin no package that others bring."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.versions.installed import pins
from tests.versions.suites import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
AIRFLOW = ("apache-airflow", "apache-airflow-providers-apache-spark", "apache-airflow-providers-standard")
# The Python package and the jar of Delta must have one version: see ADR 72.
EXACT = {"delta-spark"}


def requirements(*extras: str) -> dict[str, Requirement]:
    found = (Requirement(line) for extra in extras for line in EXTRAS[extra])
    return {str(canonicalize_name(requirement.name)): requirement for requirement in found}


def test_the_extras_allow_the_pins_of_an_installed_airflow() -> None:
    """Airflow's constraints pin all that Airflow needs: a pin outside of a range refuses the installation."""
    pinned = pins(AIRFLOW)
    assert {"pydantic", "croniter", "rich", "typer", "sqlalchemy", "pyspark-client"} <= pinned.keys()
    assert len(pinned) > 100
    ours = requirements("airflow", "consumer")
    shared = ours.keys() & pinned.keys()
    assert {*AIRFLOW, "pydantic", "pyyaml", "rich", "typer"} <= shared
    assert [
        f"{ours[name]}, not {pinned[name]}"
        for name in sorted(shared)
        if not ours[name].specifier.contains(pinned[name])
    ] == []


@pytest.mark.parametrize("extra", ["airflow", "cli", "consumer", "executor", "spark"])
def test_an_extra_has_ranges_that_contain_what_the_tests_run_with(extra: str) -> None:
    for name, requirement in requirements(extra).items():
        operators = {part.operator for part in requirement.specifier}
        assert operators, f"{name} has no lower bound"
        assert (operators == {"=="}) == (name in EXACT), requirement
        assert requirement.specifier.contains(version(name)), requirement


def test_extras_agree_on_the_range_of_a_package() -> None:
    ranges: dict[str, set[str]] = {}
    for extra in ("airflow", "cli", "consumer", "executor", "spark"):
        for name, requirement in requirements(extra).items():
            ranges.setdefault(name, set()).add(str(requirement.specifier))
    assert {name: found for name, found in ranges.items() if len(found) > 1} == {}
    assert ranges["pyspark"] == ranges["pyspark-client"]


def test_the_page_has_the_ends_of_the_ranges() -> None:
    """The lowest versions of the extras, and the newest ones of the lock."""
    page, lock = (ROOT / "docs" / "versions.md").read_text("utf-8"), (ROOT / "requirements.lock").read_text()
    rows = re.findall(r"^\| ([a-z, -]+) \| ([\d., ]+) \| ([\d.]+|as locked) \|$", page, re.MULTILINE)
    ours = requirements("airflow", "cli", "consumer", "executor") | {
        "numpy": Requirement(PROJECT["dependencies"][0])
    }
    named = set()
    for names, lowest, newest in rows:
        for name, end in zip(names.split(", "), lowest.split(", "), strict=True):
            [bound] = [part.version for part in ours[name].specifier if part.operator == ">="]
            assert Version(bound) == Version(end), name
            locked = re.findall(rf"^{re.escape(name)}==(\S+)", lock, re.MULTILINE)
            assert newest in {"as locked", *locked}, name
            named.add(name)
    assert {*AIRFLOW, "deltalake", "kafka-python", "numpy", "pyarrow", "pydantic"} == named
