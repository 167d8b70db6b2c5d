"""What the contract of a table is made of: columns with types and meaning, key, writer.

No Spark here, so that the command, the DAG files and the documentation read the same contracts as the
jobs. All moments are UTC timestamps; all durations are milliseconds and say so; all counts of records say
so. Evolution adds columns only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CLUSTER_AND_DAY: Final = ("cluster", "day")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its type in Spark SQL's DDL, what it means, and whether it may be null."""

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
        What one row is.
    key
        Columns that tell rows apart.
    columns
        In the order in which they are written.
    writer
        ``"spark"`` or ``"direct"``; a table has one kind of writer only, because appends by Spark and by
        ``deltalake`` side by side on a local folder can lose a commit.
    removed_columns
        Names of columns that development versions wrote. A table that has one of them is refused.
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

        Every column is nullable to Spark: add-only evolution and outer joins both need it, and the
        contract's own nullability is checked by the jobs' tests.
        """
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns in order."""
        return tuple(column.name for column in self.columns)


def partition_columns() -> tuple[Column, ...]:
    """Columns that every table is partitioned by."""
    return (
        Column("cluster", "STRING", "the cluster's name in the policy", nullable=False),
        Column("day", "DATE", "UTC day of the slot", nullable=False),
    )


def snapshot_columns() -> tuple[Column, ...]:
    """Columns of every table whose rows come from one reading."""
    return (
        *partition_columns(),
        Column("snapshot_id", "STRING", "the attempt to read that this row came from", nullable=False),
    )


def partition_key_columns() -> tuple[Column, ...]:
    """Columns that name a partition of a topic."""
    return (
        Column("topic_id", "STRING", "Kafka's topic id, as Uuid.toString() prints it", nullable=False),
        Column("topic", "STRING", "name of the topic", nullable=False),
        Column("partition", "INT", "number of the partition", nullable=False),
    )
