"""The page of the tables says what the contracts say."""

from __future__ import annotations

import re

from evenlag.lake.tables import TABLES, Column, Table
from tests.reference_pages import render_tables


def test_every_table_and_column_is_listed() -> None:
    page = render_tables()
    common = _columns(page.partition("\n## Common columns\n")[2].partition("\n## ")[0])
    for table in TABLES.values():
        section = page.partition(f"\n## {table.name}\n")[2].partition("\n## ")[0]
        assert f"One row is {table.doc}." in section
        if table.name == "continuous_replays":
            assert "The columns are those of [replays](#replays)." in section
            assert table.stored_columns == TABLES["replays"].stored_columns
            continue
        shared = re.findall(
            r"`(\w+)`", (re.search(r"^Common columns: (.*)\.$", section, re.MULTILINE) or [""])[0]
        )
        assert set(shared) <= set(common)
        listed = _columns(section)
        assert not set(shared) & set(listed)
        assert sorted([*shared, *listed]) == sorted(column.name for column in table.stored_columns)


def test_a_common_column_is_the_same_in_every_table_that_refers_to_it() -> None:
    page = render_tables()
    rows = {
        line.split("`")[1]: line
        for line in page.partition("\n## Common columns\n")[2].partition("\n## ")[0].splitlines()
        if line.startswith("| `")
    }
    for table in TABLES.values():
        section = page.partition(f"\n## {table.name}\n")[2].partition("\n## ")[0]
        for column in table.stored_columns:
            if (
                column.name in rows
                and f"| `{column.name}` " not in section
                and table.name != "continuous_replays"
            ):
                assert rows[column.name].endswith(f"| {column.doc} |")
                assert ("NOT NULL" in rows[column.name]) is not column.nullable


def test_a_bar_in_a_text_does_not_split_its_cell() -> None:
    column = Column("state", "STRING", "open | closed", nullable=False)
    page = render_tables([Table("doors", "a door", ("state",), (column,), writer="direct")])
    assert "| `state` `STRING NOT NULL` | open \\| closed |" in page
    assert "Key: `state`. Written by `deltalake`. Kept: permanently." in page


def _columns(section: str) -> list[str]:
    return [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
