"""Checks of a table in the lake against its contract.

Evolution only adds nullable columns. So an earlier version of evenlag still reads and writes a table to which
a later version added columns, and the later version reads rows without its columns as null. A table that
lacks a required column or has a column of another type is rejected before anything is written.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

import pyarrow as pa

from evenlag.errors import SchemaError
from evenlag.lake.arrow_schema import stored_schema
from evenlag.lake.tables import Column, Table
from evenlag.lake.tables.contract import MONTH

# Minimum reader and writer versions of Delta: all readers support them.
PROTOCOL: Final = (1, 2)
# Names of types in Delta's log, where they differ from Spark SQL's.
_SQL_NAMES: Final = {"integer": "int", "long": "bigint"}


def simple_type(ddl: str) -> str:
    """Convert a type to the form that Spark prints: lower case, no spaces.

    Examples
    --------
    >>> simple_type("ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>")
    'array<struct<topic:string,partitions:array<int>>>'
    """
    return ddl.lower().replace(" ", "")


def type_of_log(kind: Any) -> str:
    """Convert a type of Delta's log, parsed from JSON, to the form of :func:`simple_type`.

    Examples
    --------
    >>> type_of_log({"type": "array", "elementType": "long", "containsNull": True})
    'array<bigint>'
    """
    if isinstance(kind, str):
        return _SQL_NAMES.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{type_of_log(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{type_of_log(kind['keyType'])},{type_of_log(kind['valueType'])}>"
    fields = ",".join(f"{field['name']}:{type_of_log(field['type'])}" for field in kind["fields"])
    return f"struct<{fields}>"


def check_types(table: Table, actual: Mapping[str, str]) -> None:
    """Reject a table with a column of another type, as :func:`simple_type` has it, than in its contract."""
    if table.is_by_month and MONTH.name not in actual:
        raise SchemaError(
            f"table {table.name} has no column {MONTH.name}: move its folder away to create it again "
            "(docs/upgrade.md)"
        )
    for column in table.stored_columns:
        found = actual.get(column.name)
        if found is not None and found != simple_type(column.type):
            raise SchemaError(
                f"table {table.name}: column {column.name} is {found} in the lake and "
                f"{simple_type(column.type)} in its contract. A column never changes its type: restore the "
                "table, or move its folder away to create it again (docs/upgrade.md)"
            )


def missing_columns(table: Table, actual: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the nullable columns of the contract that a table lacks, e.g. a table of an earlier version."""
    check_types(table, actual)
    missing = tuple(column for column in table.columns if column.name not in actual)
    for column in missing:
        if not column.nullable:
            raise SchemaError(
                f"table {table.name}: column {column.name} is not in the lake, but required: it "
                "was removed or renamed. Restore the table, or move its folder away to create it again "
                "(docs/upgrade.md)"
            )
    return missing


def unknown_columns(table: Table, columns: Collection[str]) -> list[str]:
    """Return the columns that the contract does not have, sorted, e.g. those of a later version."""
    return sorted(set(columns) - {column.name for column in table.stored_columns})


def refuse_unknown(table: Table, columns: Collection[str]) -> None:
    """Reject rows with columns that the contract does not have: their values would be lost."""
    if unknown := sorted(set(columns) - set(table.column_names)):
        raise SchemaError(
            f"table {table.name}: rows have columns that its contract does not have: {', '.join(unknown)}"
        )


def log_schema(delta: Any, table: Table) -> pa.Schema:
    """Return the schema of an open table: of its contract, and of columns that the contract does not know."""
    known = stored_schema(table)
    fields = pa.schema(delta.schema())
    return pa.schema([known.field(one.name) if one.name in known.names else one for one in fields])


def log_types(delta: Any) -> dict[str, str]:
    """Return the types of a table, in the form of :func:`simple_type`."""
    fields = json.loads(delta.schema().to_json())["fields"]
    return {field["name"]: type_of_log(field["type"]) for field in fields}
