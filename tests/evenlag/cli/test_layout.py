"""Tables on terminals of any width: what identifies a row and a number are never cut."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from evenlag.cli.layout import Column, Table, key, numbers, wide_tables

NUMBERS = ("1,234,567", "≥ 2,469,134", "12.34", "4 min 10 s")
GROUP = "payments-eu-west-1.a-rather-long-group-name"
MEMBER = "consumer-2-99c75108-8390-4d6e-b779-6ff2409b99d7"
LAG = numbers("lag")
COLUMNS = (
    Column("group"),
    *map(numbers, ("lag", "most loaded member", "skew", "behind by")),
    Column("statuses"),
)


def printed(shown: Table, width: int, *, is_terminal: bool = True) -> list[str]:
    console = Console(
        file=io.StringIO(), width=width, highlight=False, force_terminal=is_terminal, color_system=None
    )
    console.print(shown, crop=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def lag_table(**more: Any) -> Table:
    made = Table("Lag", COLUMNS, optional=("statuses", "skew"), caption="As seen", **more)
    made.add_row(GROUP, *NUMBERS, "14 OK, 10 UNKNOWN")
    return made


def moves_table() -> Table:
    columns = (Column("topic"), numbers("partition"), key("from"), key("to"), Column("why"))
    made = Table("Moves", columns)
    made.add_row("orders", "7", MEMBER, MEMBER.replace("2", "3"), "the last hint is 180 s old")
    return made


@pytest.mark.parametrize("width", [70, 80, 100, 120, 200])
def test_a_name_and_a_number_are_complete_in_one_line(width: int) -> None:
    lines = printed(lag_table(), width)
    assert max(map(cell_len, lines)) <= width
    text = "\n".join(lines)
    assert GROUP in text
    is_skew_left_out = "statuses, skew" in text
    for figure in NUMBERS:
        assert figure in text or (figure == "12.34" and is_skew_left_out)


def test_what_is_left_out_is_reported_and_only_on_a_narrow_terminal() -> None:
    assert "As seen. Left out: statuses" in " ".join(line.strip() for line in printed(lag_table(), 90))
    wide = "\n".join(printed(lag_table(), 200))
    assert "Left out" not in wide
    assert "most loaded member" in wide
    assert "14 OK, 10 UNKNOWN" in wide


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_row_that_does_not_fit_is_shown_on_several_lines_with_its_headings(width: int) -> None:
    lines = printed(moves_table(), width)
    assert max(map(cell_len, lines)) <= width
    text = "".join(lines) if width < len(MEMBER) + 5 else "\n".join(lines)
    for shown in ("Moves", "topic orders", "partition 7", MEMBER, MEMBER.replace("2", "3"), "180 s old"):
        assert shown in text
    assert "┃" not in text


def test_output_that_goes_to_no_terminal_stays_a_table_however_wide() -> None:
    lines = printed(moves_table(), 80, is_terminal=False)
    assert sum(MEMBER in line and "│ orders" in line for line in lines) == 1


def test_wide_output_has_all_columns_and_wraps_nothing() -> None:
    with wide_tables():
        lines = printed(lag_table(), 40)
    (row,) = [line for line in lines if line.startswith("│")]
    assert all(cell in row for cell in (GROUP, *NUMBERS, "14 OK, 10 UNKNOWN"))
    assert printed(lag_table(), 40) != lines


def test_words_of_a_text_are_not_broken() -> None:
    made = Table("", [Column(heading) for heading in ("plan", "at", "why")])
    made.add_row("0e594f56b77d", "2026-11-23 02:32:11..02:32:32Z", "the group held something else")
    lines = printed(made, 60)
    for word in ("2026-11-23", "02:32:11..02:32:32Z", "something"):
        assert any(word in line for line in lines)


@pytest.mark.parametrize(
    ("names", "is_cut"),
    [
        (["a" * 100 + "x" * 149], True),
        (["a" * 100 + "x" * 149, "a" * 101 + "x" * 148], False),
        (["a" * 249, "a" * 249], True),
    ],
)
def test_a_very_long_name_is_cut_in_the_middle_unless_names_become_equal(
    names: list[str], is_cut: bool
) -> None:
    made = Table("Lag", (Column("group"), LAG, Column("why")))
    made.add_row("orders", "12", "")
    for name in names:
        made.add_row(name, "34", "")
    lines = printed(made, 100)
    assert max(map(cell_len, lines)) <= 100
    assert any("orders" in line and "12" in line for line in lines)
    num_letters = sum(line.count("a") + line.count("x") for line in lines)
    assert ("…" in "".join(lines)) is is_cut
    assert num_letters == (47 if is_cut else 249) * len(names) + "Lag".count("a") + "lag".count("a")
    with wide_tables():
        assert all(name in "\n".join(printed(made, 100)) for name in names)


def test_names_are_literal_and_colours_of_a_status_stay() -> None:
    made = Table("[/x]", (Column("group"), Column("status")), caption="[bold]\x1b[2J")
    made.add_row("[/x][link=http://x]\x1b]8;;", Text("APPLIED\x1b[2J", style="green"))
    text = "\n".join(printed(made, 80))
    assert "[/x][link=http://x]\\x1b]8;;" in text
    assert "[bold]\\x1b[2J" in text
    assert "\x1b" not in text
    assert any(line.strip() == "[/x]" for line in text.splitlines())


@pytest.mark.parametrize("width", [40, 120])
def test_a_line_feed_in_a_name_makes_no_row(width: int) -> None:
    made = Table("Groups", (Column("group"), LAG))
    made.add_row("orders\n\u2502 forged \u2502 0", "7")
    text = "\n".join(printed(made, width))
    assert "orders\\n\u2502 forged \u2502 0" in text


def test_a_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        Table("", (Column("group"), LAG)).add_row("orders")
    made = lag_table()
    assert made.optional == ("statuses", "skew")
