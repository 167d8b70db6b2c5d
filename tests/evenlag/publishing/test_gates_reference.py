"""The page of gates is the one that the entries generate."""

from __future__ import annotations

from pathlib import Path

from evenlag.publishing.gates_reference import render_gates

PAGE = Path(__file__).resolve().parents[3] / "docs" / "gates.md"


def test_the_committed_page_is_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_gates(), (
        "python -m evenlag.publishing.gates_reference > docs/gates.md"
    )
