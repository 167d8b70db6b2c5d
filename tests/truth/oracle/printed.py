"""Parses the tables that the command prints into cells of text."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field


@dataclass(slots=True)
class PrintedTable:
    """A table on a terminal.

    title, caption: The lines above and below it.
    rows: Cells without surrounding space; the lines of a multi-line cell are joined by line ends.
    """

    title: str = ""
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    caption: str = ""

    def column(self, name: str) -> list[str]:
        """Return the cells of a column."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]


def parse_tables(text: str) -> list[PrintedTable]:
    """Find all tables in printed output that is wide enough for unwrapped cells.

    A table's title is the line above it, its caption the line below it. A line between two tables is
    the title of the second one if it is not directly below the last line of the first one.
    """
    tables: list[PrintedTable] = []
    above = ""
    table: PrintedTable | None = None
    has_ended = False
    for line in text.splitlines():
        start = line[:1]
        if start == "┏":
            table, has_ended = PrintedTable(title=above), False
            tables.append(table)
        elif start == "┃" and table is not None:
            table.columns = _cells(line, "┃")
        elif start == "│" and table is not None:
            _add(table, _cells(line, "│"))
        elif start == "└":
            has_ended = True
            above = ""
            continue
        elif start not in {"┡", "├"} and has_ended and table is not None and line.strip():
            table.caption = f"{table.caption} {line.strip()}".strip()
        above = line.strip()
    return _with_titles(tables)


def _with_titles(tables: list[PrintedTable]) -> list[PrintedTable]:
    """Correct titles that were parsed as the end of the previous table's caption."""
    for table, below in itertools.pairwise(tables):
        if below.title and table.caption.endswith(below.title):
            table.caption = table.caption[: -len(below.title)].strip()
    return tables


def _cells(line: str, bar: str) -> list[str]:
    return [cell.strip() for cell in line.split(bar)[1:-1]]


def _add(table: PrintedTable, cells: list[str]) -> None:
    """Add a row, or extend the last one: a continuation line has nothing in its first column."""
    if len(cells) != len(table.columns):
        raise ValueError(f"{len(cells)} cells below {len(table.columns)} headings: {cells}")
    if table.rows and not cells[0] and table.columns[0] and any(cells):
        table.rows[-1] = [
            f"{old}\n{new}" if new else old for old, new in zip(table.rows[-1], cells, strict=True)
        ]
        return
    table.rows.append(cells)
