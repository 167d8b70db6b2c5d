"""Types of a table contract: columns with types and descriptions, key, writer.

Without Spark, so that the CLI, the DAG files and the documentation use the same contracts as the jobs. All
moments are UTC timestamps. Units are part of the name: `_ms`, `_records`. Evolution only adds columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CLUSTER_AND_DAY: Final = ("cluster", "day")
CLUSTER_AND_MONTH: Final = ("cluster", "month")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: name, type in Spark SQL's DDL, description, and whether it may be null."""

    name: str
    type: str
    doc: str
    nullable: bool = True


MONTH: Final = Column(
    "month",
    "DATE",
    "first day of the month of `day`, filled by the writers",
    nullable=False,
)


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
        Columns of a row, as jobs build it and readers return it.
    writer
        ``"spark"`` or ``"direct"`` (``deltalake``): who appends to the table, compacts it and cleans it up.
    partition_by
        The columns that partition the table: :data:`CLUSTER_AND_DAY` for tables that grow by millions of rows
        a day, else :data:`CLUSTER_AND_MONTH`.
    """

    name: str
    doc: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    writer: str = "spark"
    partition_by: tuple[str, ...] = CLUSTER_AND_MONTH

    @property
    def ddl(self) -> str:
        """The schema in Spark SQL's DDL.

        Spark treats every column as nullable: add-only evolution and outer joins both need it. The jobs'
        tests check the nullability of the contract.
        """
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)

    @property
    def is_by_month(self) -> bool:
        """Whether the table is partitioned by month instead of day."""
        return self.partition_by == CLUSTER_AND_MONTH

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        """The columns as they are in the lake: those of a row, and ``month`` before ``day``."""
        if not self.is_by_month:
            return self.columns
        names = self.column_names
        place = names.index("day") if "day" in names else len(names)
        return (*self.columns[:place], MONTH, *self.columns[place:])

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns in order."""
        return tuple(column.name for column in self.columns)


def partition_columns() -> tuple[Column, ...]:
    """Return the columns of every table's rows that decide their partition."""
    return (
        Column("cluster", "STRING", "the cluster's name in the policy", nullable=False),
        Column("day", "DATE", "UTC day of the slot", nullable=False),
    )


def snapshot_columns() -> tuple[Column, ...]:
    """Return the columns of every table whose rows come from one snapshot."""
    return (
        *partition_columns(),
        Column("snapshot_id", "STRING", "the attempt at a snapshot", nullable=False),
    )


def partition_key_columns() -> tuple[Column, ...]:
    """Return the columns that identify a partition of a topic."""
    return (
        Column("topic_id", "STRING", "Kafka's topic id, as `Uuid.toString()`", nullable=False),
        Column("topic", "STRING", "name of the topic", nullable=False),
        Column("partition", "INT", "number of the partition", nullable=False),
    )
