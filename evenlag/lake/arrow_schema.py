"""Table contracts as Arrow schemas, for reads and writes without a JVM."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from evenlag.lake.tables import Column, Table

_NESTED: Final = re.compile(r"^(ARRAY|STRUCT)<(.*)>$", re.DOTALL)


@cache
def arrow_schema(table: Table) -> pa.Schema:
    """Build the Arrow schema of a table's rows: columns in the contract's order, all nullable."""
    return _schema_of(table.columns)


@cache
def stored_schema(table: Table) -> pa.Schema:
    """Build the Arrow schema of a table in the lake: a row's columns, and ``month`` where it partitions."""
    return _schema_of(table.stored_columns)


def with_head(body: pa.Table, table: Table, head: Mapping[str, Any]) -> pa.Table:
    """Return rows of a table: the columns of the body, and others with the same value in all rows."""
    schema = arrow_schema(table)
    columns = [
        body[column.name].cast(column.type)
        if column.name in body.column_names
        else pa.repeat(pa.scalar(head[column.name], column.type), len(body))
        for column in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _schema_of(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])


def arrow_type(ddl: str) -> pa.DataType:
    """Convert a type of a contract, in Spark SQL's DDL, to Arrow's type."""
    simple = {
        "STRING": pa.string(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    }
    if ddl in simple:
        return simple[ddl]
    nested = _NESTED.match(ddl)
    if nested is None:
        raise ValueError(f"no contract uses the type {ddl!r}")
    kind, inner = nested.groups()
    if kind == "ARRAY":
        return pa.list_(arrow_type(inner))
    fields = [field.split(":", 1) for field in _split_fields(inner)]
    return pa.struct([(name.strip(), arrow_type(kind.strip())) for name, kind in fields])


def _split_fields(inner: str) -> list[str]:
    """Split at the commas outside of nested types."""
    fields, depth, start = [], 0, 0
    for position, character in enumerate(inner):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            fields.append(inner[start:position])
            start = position + 1
    return [*fields, inner[start:]]
