"""The extras allow what an installed Airflow and our own lock have, and pin no package that others bring."""

from __future__ import annotations

import tomllib
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.versions.installed import pins
from tests.versions.suites import ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
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
