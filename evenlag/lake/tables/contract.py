"""Types of a table contract, and the columns that several tables have."""

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
    "month", "DATE", "first day of the month of `day`, filled by the writers", nullable=False
)


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the lake.

    name, doc: Folder under the lake root, and description of one row.
    key: Columns that identify a row.
    columns: Columns of a row, as jobs build it and readers return it.
    writer: Who writes the table, compacts it and cleans it up: ``"direct"`` (``deltalake``) or ``"spark"``.
    partition_by: :data:`CLUSTER_AND_DAY` for tables that grow by millions of rows a day.
    """

    name: str
    doc: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    writer: str = "direct"
    partition_by: tuple[str, ...] = CLUSTER_AND_MONTH

    @property
    def ddl(self) -> str:
        """The schema in Spark SQL's DDL, all nullable for add-only evolution and outer joins."""
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


def table(
    name: str,
    doc: str,
    *columns: Column,
    key: tuple[str, ...],
    writer: str = "direct",
    partition_by: tuple[str, ...] = CLUSTER_AND_MONTH,
) -> Table:
    """Return a table with its columns in line."""
    return Table(name, doc, key, columns, writer, partition_by)


# The columns of every table's rows that decide their partition.
PARTITION_COLUMNS: Final = (
    Column("cluster", "STRING", "the cluster's name in the policy", nullable=False),
    Column("day", "DATE", "UTC day of the slot", nullable=False),
)
# Of every table whose rows come from one snapshot.
SNAPSHOT_COLUMNS: Final = (
    *PARTITION_COLUMNS,
    Column("snapshot_id", "STRING", "the attempt at a snapshot", nullable=False),
)
# Of every table with rows of groups, from one snapshot.
GROUP_COLUMNS: Final = (
    *SNAPSHOT_COLUMNS,
    Column("slot", "TIMESTAMP", "the snapshot's slot", nullable=False),
    Column("group_id", "STRING", "group.id", nullable=False),
)
PLAN_COLUMNS: Final = (
    Column("plan_id", "STRING", "the plan", nullable=False),
    Column("group_id", "STRING", "group.id", nullable=False),
)
# They identify a partition of a topic.
TOPIC_PARTITION_COLUMNS: Final = (
    Column("topic_id", "STRING", "Kafka's topic id, as `Uuid.toString()`", nullable=False),
    Column("topic", "STRING", "name of the topic", nullable=False),
    Column("partition", "INT", "number of the partition", nullable=False),
)
CLIENT_COLUMNS: Final = (
    Column("group_instance_id", "STRING", "group.instance.id of a static member"),
    Column("client_id", "STRING", "client.id"),
    Column("client_host", "STRING", "host, by the coordinator"),
)
