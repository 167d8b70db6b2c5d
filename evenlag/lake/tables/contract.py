"""Types of a table contract: columns with types and descriptions, key, writer.

Without Spark, so that the CLI, the DAG files and the documentation use the same contracts as the jobs. All
moments are UTC timestamps. Units are part of the name: `_ms`, `_records`. Evolution only adds columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CLUSTER_AND_DAY: Final = ("cluster", "day")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: name, type in Spark SQL's DDL, description, and whether it may be null."""

    name: str
    type: str
    doc: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the lake.

    Attributes
    ----------
    name
        Folder under the lake root.
    doc
        Description of one row.
    key
        Columns that identify a row.
    columns
        In the order in which they are written.
    writer
        ``"spark"`` or ``"direct"``. A table has only one kind of writer, because concurrent appends by
        Spark and by ``deltalake`` to a local folder can lose a commit.
    removed_columns
        Names of columns that development versions wrote. A table that has one of them is rejected.
    """

    name: str
    doc: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    writer: str = "spark"
    removed_columns: tuple[str, ...] = ()

    @property
    def ddl(self) -> str:
        """The schema in Spark SQL's DDL.

        Spark treats every column as nullable: add-only evolution and outer joins both need it. The jobs'
        tests check the nullability of the contract.
        """
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns in order."""
        return tuple(column.name for column in self.columns)


def partition_columns() -> tuple[Column, ...]:
    """Return the partition columns of every table."""
    return (
        Column("cluster", "STRING", "the cluster's name in the policy", nullable=False),
        Column("day", "DATE", "UTC day of the slot", nullable=False),
    )


def snapshot_columns() -> tuple[Column, ...]:
    """Return the columns of every table whose rows come from one snapshot."""
    return (
        *partition_columns(),
        Column("snapshot_id", "STRING", "the attempt to take a snapshot that wrote this row", nullable=False),
    )


def partition_key_columns() -> tuple[Column, ...]:
    """Return the columns that identify a partition of a topic."""
    return (
        Column("topic_id", "STRING", "Kafka's topic id, as Uuid.toString() prints it", nullable=False),
        Column("topic", "STRING", "name of the topic", nullable=False),
        Column("partition", "INT", "number of the partition", nullable=False),
    )
