"""Generates ``docs/tables.md`` from the table contracts: ``python -m evenlag.lake.tables_reference``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from evenlag.lake.tables import CLUSTER_AND_DAY, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlag.lake.tables import Column, Table

_INTRODUCTION: Final = """\
# The tables

evenlag stores all snapshots, plans and results in these Delta tables, one folder each under the lake root.
This page is generated from `evenlag/lake/tables/`, by `python -m evenlag.lake.tables_reference`, and a test
compares them.

- All moments are UTC. Units are part of the name: `_ms`, `_records`, `_records_per_s`.
- All tables are partitioned by {partitions}. Filter by both in a query: they prune files.
- Use a snapshot's rows only if `snapshots` has its marker, and a plan's rows only if `plans` has its head.
  Other rows are left over from a run that was killed.
- The jobs enforce `null: no`. For Spark every column is nullable, so that columns can be added later.
- `Kept` is the retention, by the policy's `maintenance`:
  [maintenance of the lake](operations.md#maintenance-of-the-lake).
- New versions of evenlag only add nullable columns: [upgrade](upgrade.md).
"""

_KEPT: Final = {
    **dict.fromkeys(("offsets", "commits", "members"), "`raw_days`"),
    **dict.fromkeys(("snapshots", "lag"), "`raw_days`, then the first snapshot of each hour"),
}
_WRITERS: Final = {
    "spark": "Spark",
    "direct": "`deltalake`, without Spark",
}


def render_tables(tables: Iterable[Table] | None = None) -> str:
    """Render the page.

    Parameters
    ----------
    tables
        Contracts in the order of the page; all tables of the lake if None.

    Returns
    -------
    str
        Markdown with a trailing newline.
    """
    chosen = tuple(TABLES.values() if tables is None else tables)
    partitions = " and ".join(f"`{name}`" for name in CLUSTER_AND_DAY)
    parts = [_INTRODUCTION.format(partitions=partitions), "\n".join(_contents(chosen))]
    parts += ["\n".join(_section(table)) for table in chosen]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def main() -> None:
    """Print the page."""
    sys.stdout.write(render_tables())


def _contents(tables: Iterable[Table]) -> Iterator[str]:
    yield "| table | one row is |"
    yield "| --- | --- |"
    for table in tables:
        yield f"| [{table.name}](#{table.name}) | {_cell(table.doc)} |"


def _section(table: Table) -> Iterator[str]:
    yield f"## {table.name}"
    yield ""
    yield f"One row is {table.doc}."
    yield ""
    yield (
        f"Key: {', '.join(f'`{name}`' for name in table.key)}. Written by {_WRITERS[table.writer]}. "
        f"Kept: {_KEPT.get(table.name, 'permanently')}."
    )
    yield ""
    yield "| column | type | null | description |"
    yield "| --- | --- | --- | --- |"
    for column in table.columns:
        yield _row(column)


def _row(column: Column) -> str:
    null = "yes" if column.nullable else "no"
    return f"| `{column.name}` | `{_cell(column.type)}` | {null} | {_cell(column.doc)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
