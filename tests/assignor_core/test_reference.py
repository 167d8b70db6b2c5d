"""The table of assignors on its page is the one that the classes declare."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from assignor_core.assignors import Assignor, assignor_names
from assignor_core.group import Group
from assignor_core.members import Member
from assignor_core.reference import render_assignors, replace_table
from assignor_core.verify import find_violations

PAGE = Path(__file__).resolve().parents[2] / "docs" / "assignors.md"


def test_the_page_has_the_table_of_the_classes() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert replace_table(page) == page, "run: python -m assignor_core.reference docs/assignors.md"
    assert all(f"| `{name}` | " in page for name in assignor_names())


def test_a_row_has_the_declarations() -> None:
    rows = {line.split("`")[1]: line for line in render_assignors().splitlines()[2:]}
    assert rows["lag-aware-sticky"].endswith(
        "| `max_moves`, `count_slack`, `min_gain`, `effort` | load | cooperative |"
    )
    assert rows["range"].endswith("| | | eager |")


def test_a_page_without_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no table between"):
        replace_table("# Another page")


def test_the_assignor_that_the_page_adds_is_a_valid_one(monkeypatch: pytest.MonkeyPatch) -> None:
    example = PAGE.read_text(encoding="utf-8").split("## Add an assignor")[1].split("```")[1]
    module = ModuleType("first_member")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(example.removeprefix("python\n"), vars(module))  # noqa: S102 - the page's own example
    assignor: Assignor = module.FirstMemberAssignor()
    members = [Member("a", ("t", "gone")), Member("b", ("t", "u")), Member("c", ("u",))]
    group = Group.from_members({"t": 3, "u": 2, "nobody": 2}, members)
    assignment = assignor.assign(group)
    assert not find_violations(group, assignment)
    assert group.to_mapping(assignment)["a"] == [("t", 0), ("t", 1), ("t", 2)]
    assert group.to_mapping(assignment)["b"] == [("u", 0), ("u", 1)]
