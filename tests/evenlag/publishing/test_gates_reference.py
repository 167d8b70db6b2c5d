"""The page of gates is the one that the entries generate."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from evenlag.policy.gate_contract import GateSetting
from evenlag.policy.gates import GATES
from evenlag.publishing.gates_reference import render_gates

PAGE = Path(__file__).resolve().parents[3] / "docs" / "gates.md"


def test_the_committed_page_is_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_gates(), (
        "python -m evenlag.publishing.gates_reference > docs/gates.md"
    )


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({"ge": 1, "le": 86_400}, "1 to 86,400 s"),
        ({"gt": 0, "le": 1}, "above 0 to 1 s"),
        ({"ge": 0, "lt": 0.5}, "0 to below 0.5 s"),
    ],
)
def test_the_bounds_of_a_limit_are_written_with_their_unit(bounds: dict[str, float], text: str) -> None:
    gate = dataclasses.replace(GATES[0], limit=GateSetting("made_up_s", 1, "a limit", "s", **bounds))
    assert f"| `made_up_s` | `1` | {text} | a limit |" in render_gates([gate])
