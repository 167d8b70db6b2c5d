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

    Trino registers the tables first, in the schema ``evenlag_tables`` of its catalog ``delta``.
    """
    tables = [table for table in TABLES.values() if reader.exists(table)]
    schema, registered = SCHEMA, f"{SCHEMA}_tables"
    if engine is SqlEngine.TRINO:
        schema = f"delta.{SCHEMA}"
        yield f"CREATE SCHEMA IF NOT EXISTS delta.{registered}"
        for table in tables:
            place = f"'{registered}', '{table.name}', {sql_literal(_uri(reader, table))}"
            yield f"CALL delta.system.register_table({place})"
    yield f"CREATE SCHEMA IF NOT EXISTS {schema}"
    for table in tables:
        rows = f"SELECT * FROM {_source(reader, table, engine)}"  # noqa: S608 - the names are ours
        if table in _WRITTEN_LAST:
            last, key = _WRITTEN_LAST[table]
            finished = f"SELECT {key} FROM {_source(reader, last, engine)}"  # noqa: S608 - the names are ours
            rows += f" WHERE {key} IN ({finished})"
        yield f"CREATE OR REPLACE VIEW {schema}.{table.name} AS {rows}"


def _source(reader: LakeReader, table: Table, engine: SqlEngine) -> str:
    if engine is SqlEngine.TRINO:
        return f"delta.{SCHEMA}_tables.{table.name}"
    if engine is SqlEngine.SPARK:
        path = reader.paths.table(table).replace("`", "``")
        return f"delta.`{path}`"
    return f"delta_scan({sql_literal(_uri(reader, table))})"


def _uri(reader: LakeReader, table: Table) -> str:
    """Return the URI of a table, quoted, and with the scheme of S3 that others than Hadoop know."""
    path = reader.paths.table(table)
    return Path(path).as_uri() if reader.paths.is_local else path.replace("s3a://", "s3://", 1)
