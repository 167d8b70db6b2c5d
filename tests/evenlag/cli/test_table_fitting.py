"""Tables in terminals of any width: a number is shown whole or not at all, and nothing runs past the edge."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from evenlag.cli.console import fit, table

NUMBERS = ("1,234,567", "≥ 2,469,134", "12.34", "4 min 10 s")
GROUP = "payments-eu-west-1.a-rather-long-group-name"


def shown(width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    columns = ("group", "lag", "most loaded member", "skew", "behind by", "statuses")
    made = table("Lag", columns, right=columns[1:5], caption="As seen")
    made.add_row(GROUP, *NUMBERS, "14 OK, 10 UNKNOWN")
    with console.capture() as captured:
        console.print(fit(console, made, ("statuses", "skew")))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [60, 70, 80, 100, 120, 200])
def test_a_number_is_never_cut(width: int) -> None:
    lines = shown(width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    is_skew_left_out = "statuses, skew" in text
    for number in NUMBERS:
        assert number in text or (number == "12.34" and is_skew_left_out)
    # Of a long name every character is there, on as many lines as it takes.
    first = "".join(line.split("│")[1].strip() for line in lines if line.startswith("│"))
    assert first == GROUP


def test_what_is_left_out_is_said_and_only_on_a_narrow_terminal() -> None:
    assert "As seen. A wider terminal or --json shows more: statuses" in " ".join(
        line.strip() for line in shown(60)
    )
    wide = "\n".join(shown(200))
    assert "A wider terminal" not in wide
    assert "most loaded member" in wide
    assert "14 OK, 10 UNKNOWN" in wide
