"""The table of assignors on its page is the one that the classes declare."""

from __future__ import annotations

from pathlib import Path

import pytest

from assignor_core.assignors import assignor_names
from assignor_core.reference import render_assignors, replace_table

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
