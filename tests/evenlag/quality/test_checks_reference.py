"""The page of checks is the one that the entries generate."""

from __future__ import annotations

from pathlib import Path

from evenlag.quality.checks_reference import render_checks

PAGE = Path(__file__).resolve().parents[3] / "docs" / "quality.md"


def test_the_committed_page_is_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_checks(), (
        "python -m evenlag.quality.checks_reference > docs/quality.md"
    )
