"""Generates ``docs/tables.md`` from the table contracts: ``python -m evenlag.lake.tables_reference``."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

from evenlag.lake.tables import TABLES
from evenlag.policy.settings import RETENTION_DAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlag.lake.tables import Column, Table

_INTRODUCTION: Final = """\
# The tables

Query evenlag's snapshots, plans and results with any reader of Delta tables: one folder each under the lake
root. This page is generated from `evenlag/lake/tables/` by `python -m evenlag.lake.tables_reference`.

- Timestamps are UTC. Units are part of the name: `_ms`, `_records`, `_records_per_s`.
- {by_day} are partitioned by `cluster` and `day`, all other tables by `cluster` and `month`. Filter by
  `cluster` and `day`: both prune files.
- Use rows of `offsets`, `commits`, `members` and `lag` only if `snapshots` has their marker: others are from
  a run that was killed. All other tables have each row once.
- The jobs enforce `NOT NULL`. For Spark every column is nullable. New versions only
  [add nullable columns](upgrade.md).
- *Kept* is the [retention](how-to/maintain-the-lake.md) by `maintenance` of the policy.
"""

_KEPT: Final = {
    **dict.fromkeys(("offsets", "commits", "members"), "`raw_days`"),
    **dict.fromkeys(("snapshots", "lag"), "`raw_days`, then hourly `hourly_days`"),
    **{
        name: f"`retention_days` ({'permanently' if days is None else f'{days} days'})"
        for name, days in RETENTION_DAYS.items()
    },
}
_COMMON_FROM: Final = 3
"""Columns of at least this many tables are described once."""
_WRITERS: Final = {"spark": "Spark", "direct": "`deltalake`"}


def render_tables(tables: Iterable[Table] | None = None) -> str:
    """Render the page.

    tables: Contracts in the order of the page; all tables of the lake if None.
    """
    chosen = tuple(TABLES.values() if tables is None else tables)
    by_day = [f"`{table.name}`" for table in TABLES.values() if not table.is_by_month]
    named = f"{', '.join(by_day[:-1])} and {by_day[-1]}"
    common = _common_columns(chosen)
    parts = [_INTRODUCTION.format(by_day=named), " · ".join(f"[{one.name}](#{one.name})" for one in chosen)]
    if common:
        parts += ["## Common columns", _table_of(common)]
    for table in chosen:
        parts += _section(table, common, chosen)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def main() -> None:
    """Print the page."""
    sys.stdout.write(render_tables())


def _common_columns(tables: Iterable[Table]) -> list[Column]:
    """Return the columns that several tables have with the same name, type and description."""
    counts = Counter(column for table in tables for column in table.stored_columns).most_common()
    most_used = {column.name: column for column, _ in reversed(counts)}
    return [column for column, count in counts if count >= _COMMON_FROM and most_used[column.name] == column]


def _section(table: Table, common: Iterable[Column], tables: Iterable[Table]) -> Iterator[str]:
    yield f"## {table.name}"
    yield (
        f"One row is {table.doc}.\n\n"
        f"Key: {', '.join(f'`{name}`' for name in table.key)}. Written by {_WRITERS[table.writer]}. "
        f"Kept: {_KEPT.get(table.name, 'permanently')}."
    )
    same = next((one for one in tables if one.stored_columns == table.stored_columns), table)
    if same is not table:
        yield f"The columns are those of [{same.name}](#{same.name})."
        return
    shared = [column for column in table.stored_columns if column in common]
    if shared:
        yield f"Common columns: {', '.join(f'`{column.name}`' for column in shared)}."
    yield _table_of(column for column in table.stored_columns if column not in shared)


def _table_of(columns: Iterable[Column]) -> str:
    return "\n".join(["| column | type | description |", "| --- | --- | --- |", *map(_row, columns)])


def _row(column: Column) -> str:
    required = "" if column.nullable else " NOT NULL"
    return f"| `{column.name}` | `{_cell(column.type)}{required}` | {_cell(column.doc)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
