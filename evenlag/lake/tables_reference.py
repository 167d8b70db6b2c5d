"""Generate ``docs/tables.md`` from the table contracts: ``python -m evenlag.lake.tables_reference``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from evenlag.lake.tables import CLUSTER_AND_DAY, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlag.lake.tables import Column, Table

_INTRODUCTION: Final = """\
# The tables

Everything evenlag saw and decided is in these Delta tables, one folder each under the lake root. This page
is printed from `evenlag/lake/tables/` by `python -m evenlag.lake.tables_reference`; a test compares the two.

- All moments are UTC. A unit stands in the name: `_ms`, `_records`, `_records_per_s`.
- All tables are partitioned by {partitions}. Give both in a query: they prune files.
- A snapshot's rows count only when `snapshots` has its marker, and a plan's only when `plans` has its head.
  Rows without are left over from a run that was killed.
- `null: no` is what the jobs keep to. To Spark every column is nullable, so that columns can be added later.
- `Kept` says for how long, by the policy's `maintenance`:
  [upkeep of the lake](operations.md#upkeep-of-the-lake).
- Versions of evenlag add columns that may be null, and change nothing else: [upgrade](upgrade.md).
- What happened to a plan is the union of `plan_events` and `control_events`, which have the same columns.
"""

_KEPT: Final = {
    **dict.fromkeys(("offsets", "commits", "members"), "`raw_days`"),
    **dict.fromkeys(("snapshots", "lag"), "`raw_days`, then the first reading of each hour"),
}
_WRITERS: Final = {
    "spark": "Spark jobs",
    "direct": "processes without a JVM, by `deltalake`",
}


def render_tables(tables: Iterable[Table] | None = None) -> str:
    """Render the page.

    Parameters
    ----------
    tables
        Contracts in the order of the page; all of the lake's when not given.

    Returns
    -------
    str
        Markdown, with a newline at its end.
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
        f"Kept: {_KEPT.get(table.name, 'for good')}."
    )
    yield ""
    yield "| column | type | null | meaning |"
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
