"""The examples in docstrings run, and give what they show."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

from tests.structure import ROOT

PACKAGES = ("assignor_core", "evenlag", "spark_jobs", "sandbox", "dags", "tests")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8") and not path.name.startswith("test_")
)


def run(name: str) -> doctest.TestResults:
    return doctest.testmod(import_module(name), optionflags=OPTIONS)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_give_what_they_show(name: str) -> None:
    assert run(name).failed == 0


@pytest.mark.parametrize("package", ["assignor_core", "evenlag"])
def test_examples_are_found_and_not_all_skipped(package: str) -> None:
    assert sum(run(name).attempted for name in MODULES if name.partition(".")[0] == package) > 10
