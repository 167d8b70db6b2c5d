"""Checks of a table in the lake against its contract.

Evolution only adds nullable columns. So an earlier version of evenlag still reads and writes a table to which
a later version added columns, and the later version reads rows without its columns as null. A table that
lacks a required column or has a column of another type is rejected before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import OldLakeError, SchemaError
from evenlag.lake.tables import CLUSTER_AND_DAY, DECISIONS, REMOVED_TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from evenlag.lake.tables import Column, Table

# Minimum reader and writer versions of Delta: all readers support them.
PROTOCOL: Final = (1, 2)
_OLD_LAKE: Final = (
    "a development version of evenlag wrote it. It cannot be read or migrated: set `lake` in the policy to a "
    "new, empty location (docs/upgrade.md)"
)
# Names of types in Delta's log, where they differ from Spark SQL's.
_SQL_NAMES: Final = {"integer": "int", "long": "bigint"}


def simple_type(ddl: str) -> str:
    """Convert a type to the form that Spark prints: lower case, no spaces.

    Parameters
    ----------
    ddl
        The type in Spark SQL's DDL.

    Returns
    -------
    str
        The type, comparable to the types of Spark and of :func:`type_of_log`.

    Examples
    --------
    >>> simple_type("ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>")
    'array<struct<topic:string,partitions:array<int>>>'
    """
    return ddl.lower().replace(" ", "")


def type_of_log(kind: Any) -> str:
    """Convert a type of Delta's log, parsed from JSON, to the form of :func:`simple_type`.

    Parameters
    ----------
    kind
        A name, or a mapping for a nested type.

    Returns
    -------
    str
        The type.

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


def refuse_old_lake(root: str, find_columns: Callable[[str], Collection[str] | None]) -> None:
    """Reject a lake that a development version wrote.

    A lake of such a version has a removed table, or ``decisions`` with a removed column: every run that plans
    writes that table. Tables that need not be opened here are checked by :func:`check_types`. A table with a
    removed table's name but without evenlag's partition columns does not belong to evenlag.

    Parameters
    ----------
    root
        The lake, for the message.
    find_columns
        Returns the column names of the Delta table in a folder under the root; None if there is none.

    Raises
    ------
    OldLakeError
        Names the lake, the table and the remedy.
    """
    for name in REMOVED_TABLES:
        if set(CLUSTER_AND_DAY) <= set(find_columns(name) or ()):
            raise OldLakeError(f"the lake {root} has the table {name}: {_OLD_LAKE}")
    refuse_removed_columns(DECISIONS, find_columns(DECISIONS.name) or ())


def refuse_removed_columns(table: Table, actual: Collection[str]) -> None:
    """Reject a table that has a column which development versions wrote.

    Parameters
    ----------
    table
        The contract.
    actual
        Names of the columns in the lake.

    Raises
    ------
    OldLakeError
        Names the table, the column and the remedy.
    """
    for name in table.removed_columns:
        if name in actual:
            raise OldLakeError(f"table {table.name} has the column {name}: {_OLD_LAKE}")


def check_types(table: Table, actual: Mapping[str, str]) -> None:
    """Reject a table with a column of another type than in its contract.

    Parameters
    ----------
    table
        The contract.
    actual
        Types by column in the lake, in the form of :func:`simple_type`.

    Raises
    ------
    OldLakeError
        If the table has a column that development versions wrote.
    SchemaError
        Names the table, the column, both types and the remedy.
    """
    refuse_removed_columns(table, actual)
    for column in table.columns:
        found = actual.get(column.name)
        if found is not None and found != simple_type(column.type):
            raise SchemaError(
                f"table {table.name}: column {column.name} is {found} in the lake and "
                f"{simple_type(column.type)} in its contract. A column never changes its type: restore the "
                "table, or move its folder away to create it again (docs/upgrade.md)"
            )


def missing_columns(table: Table, actual: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the columns of the contract that a table lacks, e.g. a table of an earlier version.

    Parameters
    ----------
    table
        The contract.
    actual
        Types by column in the lake, in the form of :func:`simple_type`.

    Returns
    -------
    tuple of Column
        In the contract's order; each is nullable.

    Raises
    ------
    SchemaError
        If a column has another type, or a required column is missing.
    """
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
    """Return the columns that the contract does not have, sorted, e.g. those of a later version.

    Parameters
    ----------
    table
        The contract.
    columns
        Names of columns.
    """
    return sorted(set(columns) - set(table.column_names))


def refuse_unknown(table: Table, columns: Collection[str]) -> None:
    """Reject rows with columns that the contract does not have: their values would be lost.

    Parameters
    ----------
    table
        The contract.
    columns
        Names of the rows' columns.

    Raises
    ------
    SchemaError
        Names the table and the columns.
    """
    if unknown := unknown_columns(table, columns):
        raise SchemaError(
            f"table {table.name}: rows have columns that its contract does not have: {', '.join(unknown)}"
        )
