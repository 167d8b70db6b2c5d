"""A table as it lies in the lake against its contract: what was added since, and what can never be.

Evolution adds columns only, and only ones that may be null. So an older evenlag goes on reading and writing a
table that a newer one has added to, and a newer one reads rows without its columns as null. Everything else,
a column that is gone or has another type, is not this table any more, and is refused before anything is
written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import OldLakeError, SchemaError
from evenlag.lake.tables import CLUSTER_AND_DAY, DECISIONS, REMOVED_TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from evenlag.lake.tables import Column, Table

# Least versions of a reader and a writer: what readers of any age can read.
PROTOCOL: Final = (1, 2)
_OLD_LAKE: Final = (
    "a development version of evenlag wrote it. It cannot be read or migrated: set `lake` in the policy to a "
    "new, empty location (docs/upgrade.md)"
)
# Delta's names in its log beside Spark SQL's.
_SQL_NAMES: Final = {"integer": "int", "long": "bigint"}


def simple_type(ddl: str) -> str:
    """Bring a type into the form that Spark prints: lower case, no spaces.

    Examples
    --------
    >>> simple_type("ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>")
    'array<struct<topic:string,partitions:array<int>>>'
    """
    return ddl.lower().replace(" ", "")


def type_of_log(kind: Any) -> str:
    """Translate a type as Delta's log has it, parsed from JSON, into the form of :func:`simple_type`.

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
    """Refuse a lake that a development version wrote.

    A lake of such a version has a removed table, or ``decisions`` with a removed column: every run that
    plans writes that table. Tables that need no opening here are checked by :func:`check_types`. A table
    that merely has a removed table's name is not evenlag's without evenlag's partition columns.

    Parameters
    ----------
    root
        The lake, for the message.
    find_columns
        Returns the column names of the Delta table in a folder under the root, None where there is none.

    Raises
    ------
    OldLakeError
        Naming lake, table and what to do.
    """
    for name in REMOVED_TABLES:
        if set(CLUSTER_AND_DAY) <= set(find_columns(name) or ()):
            raise OldLakeError(f"the lake {root} has the table {name}: {_OLD_LAKE}")
    refuse_removed_columns(DECISIONS, find_columns(DECISIONS.name) or ())


def refuse_removed_columns(table: Table, actual: Collection[str]) -> None:
    """Refuse a table that has a column which development versions wrote.

    Parameters
    ----------
    table
        The contract.
    actual
        Names of the columns in the lake.

    Raises
    ------
    OldLakeError
        Naming table, column and what to do.
    """
    for name in table.removed_columns:
        if name in actual:
            raise OldLakeError(f"table {table.name} has the column {name}: {_OLD_LAKE}")


def check_types(table: Table, actual: Mapping[str, str]) -> None:
    """Refuse a table of which a column has another type than its contract says.

    Parameters
    ----------
    table
        The contract.
    actual
        Types by column as they lie in the lake, in the form of :func:`simple_type`.

    Raises
    ------
    OldLakeError
        When the table has a column that development versions wrote.
    SchemaError
        Naming table, column, both types and what to do.
    """
    refuse_removed_columns(table, actual)
    for column in table.columns:
        found = actual.get(column.name)
        if found is not None and found != simple_type(column.type):
            raise SchemaError(
                f"table {table.name}: column {column.name} is {found} in the lake and "
                f"{simple_type(column.type)} to this evenlag. A column never changes its type: put the table "
                "back as it was, or move its folder away and let it begin anew (docs/upgrade.md)"
            )


def missing_columns(table: Table, actual: Mapping[str, str]) -> tuple[Column, ...]:
    """Tell which columns of the contract a table lacks, as one made by an older evenlag does.

    Returns
    -------
    tuple of Column
        In the contract's order; each may be null.

    Raises
    ------
    SchemaError
        When a column has another type, or one is missing that every row must have: no version of evenlag
        made such a table.
    """
    check_types(table, actual)
    missing = tuple(column for column in table.columns if column.name not in actual)
    for column in missing:
        if not column.nullable:
            raise SchemaError(
                f"table {table.name}: column {column.name} is not in the lake, and every row has it: "
                "somebody removed or renamed it. Put the table back as it was, or move its folder away and "
                "let it begin anew (docs/upgrade.md)"
            )
    return missing


def unknown_columns(table: Table, columns: Collection[str]) -> list[str]:
    """Tell which columns the contract does not know, sorted: a table that a newer evenlag wrote has some."""
    return sorted(set(columns) - set(table.column_names))


def refuse_unknown(table: Table, columns: Collection[str]) -> None:
    """Refuse rows with columns that the contract does not know: they would be lost.

    Raises
    ------
    SchemaError
        Naming table and columns.
    """
    if unknown := unknown_columns(table, columns):
        raise SchemaError(
            f"table {table.name}: rows have columns that its contract does not know: {', '.join(unknown)}"
        )
