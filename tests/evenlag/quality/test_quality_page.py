"""The tables of docs/quality.md are those of the checks."""

from __future__ import annotations

from evenlag.policy.gates import Comparison
from evenlag.quality.checks import CHECKS, Check
from tests.support.pages.markdown import ROOT, cells

SIGNS = {Comparison.AT_LEAST: "at least ", Comparison.AT_MOST: "at most "}


def limit_of(check: Check) -> str:
    if isinstance(check.limit, str):
        return f"{SIGNS[check.comparison]}`{check.limit}`"
    return f"`{check.limit}`"


def test_the_page_has_each_check_in_its_suite() -> None:
    page = (ROOT / "docs/quality.md").read_text(encoding="utf-8")
    found = {
        (part.partition("`")[0], *cells(line))
        for part in page.split("\n## The suite `")[1:]
        for line in part.partition("\n## ")[0].splitlines()
        if line.startswith("| `")
    }
    assert found == {
        (check.suite.value, f"`{check.name}`", f"`{check.table}`", check.fails_when, limit_of(check))
        for check in CHECKS
    }
