"""The page of the tables says what the contracts say."""

from __future__ import annotations

from pathlib import Path

from evenlag.lake.tables import TABLES, Column, Table
from evenlag.lake.tables_reference import render_tables

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tables.md"


def test_the_committed_page_is_the_printed_one() -> None:
    printed = render_tables()
    assert PAGE.read_text(encoding="utf-8") == printed, (
        "python -m evenlag.lake.tables_reference > docs/tables.md"
    )


def test_every_table_and_column_is_told() -> None:
    page = render_tables()
    for table in TABLES.values():
        section = page.partition(f"\n## {table.name}\n")[2].partition("\n## ")[0]
        assert f"One row is {table.doc}." in section
        lines = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
        assert lines == [column.name for column in table.stored_columns]
        assert table.is_by_month == ("month" in lines)


def test_a_bar_in_a_text_does_not_split_its_cell() -> None:
    column = Column("state", "STRING", "open | closed", nullable=False)
    page = render_tables([Table("doors", "a door", ("state",), (column,), writer="direct")])
    assert "| `state` | `STRING` | no | open \\| closed |" in page
    assert "Key: `state`. Written by `deltalake`, without Spark. Kept: permanently." in page
