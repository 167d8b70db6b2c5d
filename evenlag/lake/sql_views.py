"""SQL that makes the tables of a lake views in which every row counts, for DuckDB, Spark and Trino."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenlag.lake.filters import sql_literal
from evenlag.lake.tables import PLAN_ASSIGNMENTS, PLANS, SNAPSHOT_TABLES, SNAPSHOTS, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlag.lake.reader import LakeReader
    from evenlag.lake.tables import Table

SCHEMA: Final = "evenlag"
# Rows that were written before a job was killed have no row of the same id in the table that is written last.
_WRITTEN_LAST: Final = {
    **dict.fromkeys(SNAPSHOT_TABLES, (SNAPSHOTS, "snapshot_id")),
    PLAN_ASSIGNMENTS: (PLANS, "plan_id"),
}


class SqlEngine(StrEnum):
    """Engines with their own words for a Delta table."""

    DUCKDB = "duckdb"
    SPARK = "spark"
    TRINO = "trino"


def view_statements(reader: LakeReader, engine: SqlEngine) -> Iterator[str]:
    """Yield the statements that create a view of each table that the lake has, without ``;`` at the end.

    Spark and Trino register the tables first, in the schema ``evenlag_tables``; of Trino's catalog ``delta``.
    """
    catalog = "delta." if engine is SqlEngine.TRINO else ""
    tables = [table for table in TABLES.values() if reader.exists(table)]
    if engine is SqlEngine.DUCKDB:
        sources = {table: f"delta_scan({sql_literal(_uri(reader, table))})" for table in tables}
    else:
        sources = {table: f"{catalog}{SCHEMA}_tables.{table.name}" for table in tables}
        yield f"CREATE SCHEMA IF NOT EXISTS {catalog}{SCHEMA}_tables"
        for table in tables:
            yield _registration(reader, table, engine)
    yield f"CREATE SCHEMA IF NOT EXISTS {catalog}{SCHEMA}"
    for table in tables:
        rows = f"SELECT * FROM {sources[table]}"  # noqa: S608 - the names are ours
        if table in _WRITTEN_LAST:
            last, key = _WRITTEN_LAST[table]
            # Without the table that is written last, no row counts yet.
            finished = f"{key} IN (SELECT {key} FROM {sources[last]})" if last in sources else "false"  # noqa: S608 - the names are ours
            rows += f" WHERE {finished}"
        yield f"CREATE OR REPLACE VIEW {catalog}{SCHEMA}.{table.name} AS {rows}"


def _registration(reader: LakeReader, table: Table, engine: SqlEngine) -> str:
    if engine is SqlEngine.TRINO:
        place = f"'{SCHEMA}_tables', '{table.name}', {sql_literal(_uri(reader, table))}"
        return f"CALL delta.system.register_table({place})"
    path = reader.paths.table(table).replace("\\", "\\\\").replace('"', '\\"')
    return f'CREATE TABLE IF NOT EXISTS {SCHEMA}_tables.{table.name} USING delta LOCATION "{path}"'


def _uri(reader: LakeReader, table: Table) -> str:
    """Return the URI of a table, quoted, and with the scheme of S3 that others than Hadoop know."""
    path = reader.paths.table(table)
    return Path(path).as_uri() if reader.paths.is_local else path.replace("s3a://", "s3://", 1)
