"""Generates ``docs/tables.md`` from the table contracts: ``python -m evenlag.lake.tables_reference``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from evenlag.lake.tables import TABLES
from evenlag.policy.settings import RETENTION_DAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlag.lake.tables import Column, Table

_INTRODUCTION: Final = """\
# The tables

evenlag stores all snapshots, plans and results in these Delta tables, one folder each under the lake root.
This page is generated from `evenlag/lake/tables/`, by `python -m evenlag.lake.tables_reference`, and a test
compares them.

- All moments are UTC. Units are part of the name: `_ms`, `_records`, `_records_per_s`.
- {by_day} are partitioned by `cluster` and `day`, all other tables by `cluster` and `month`. Filter by
  `cluster` and `day` in a query: they prune files, by the partition or by the files' statistics.
- Use a snapshot's rows only if `snapshots` has its marker, and a plan's rows only if `plans` has its head,
  with the same `attempt_id` or null. Other rows are left over from a run that was killed.
- The jobs enforce `null: no`. For Spark every column is nullable, so that columns can be added later.
- `Kept` is the retention, by the policy's `maintenance`:
  [maintenance of the lake](how-to/maintain-the-lake.md).
- New versions of evenlag only add nullable columns: [upgrade](upgrade.md).
"""

_KEPT: Final = {
    **dict.fromkeys(("offsets", "commits", "members"), "`raw_days`"),
    **dict.fromkeys(("snapshots", "lag"), "`raw_days`, then the first snapshot of each hour `hourly_days`"),
    **{
        name: f"`retention_days`, by default {'permanently' if days is None else f'{days} days'}"
        for name, days in RETENTION_DAYS.items()
    },
}
_WRITERS: Final = {
    "spark": "Spark",
    "direct": "`deltalake`, without Spark",
}


def render_tables(tables: Iterable[Table] | None = None) -> str:
    """Render the page.

    tables: Contracts in the order of the page; all tables of the lake if None.
    """
    chosen = tuple(TABLES.values() if tables is None else tables)
    by_day = [f"`{table.name}`" for table in TABLES.values() if not table.is_by_month]
    named = f"{', '.join(by_day[:-1])} and {by_day[-1]}"
    parts = [_INTRODUCTION.format(by_day=named), "\n".join(_contents(chosen))]
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
    for column in table.stored_columns:
        yield _row(column)


def _row(column: Column) -> str:
    null = "yes" if column.nullable else "no"
    return f"| `{column.name}` | `{_cell(column.type)}` | {null} | {_cell(column.doc)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
