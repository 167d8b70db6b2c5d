"""Reads and writes of the lake by Spark: the only place where a job touches Delta.

Every append that can come twice can be repeated: it carries Delta's transaction id (application, version),
and Delta skips a transaction that it has seen. The application id names job, cluster, snapshot and table and
the version is constant, because one id with a growing version drops what arrives late.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from evenlag.errors import LakeError
from evenlag.lake.delta_log import check_log_is_there
from evenlag.lake.location import LakePaths
from evenlag.lake.schema_evolution import (
    PROTOCOL,
    check_types,
    missing_columns,
    refuse_old_lake,
    refuse_unknown,
)
from evenlag.lake.snapshot_ids import slot_day
from evenlag.lake.table_properties import DEFAULT_VACUUM_DAYS, retention
from evenlag.lake.tables import CLUSTER_AND_DAY, CONTROL_EVENTS, PLAN_EVENTS, SNAPSHOTS, Table
from spark_jobs.runtime.contract_columns import conform
from spark_jobs.runtime.delta_errors import as_lake_error, write_again_on_conflict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import date

    from pyspark.sql import Column, DataFrame, SparkSession

_TXN_VERSION: Final = 1

TABLE_PROPERTIES: Final = {
    "delta.minReaderVersion": str(PROTOCOL[0]),
    "delta.minWriterVersion": str(PROTOCOL[1]),
    **retention(DEFAULT_VACUUM_DAYS),
}


class Lake:
    """The tables of one lake, for jobs.

    Parameters
    ----------
    spark
        The session.
    root
        Root folder: a local path or any URI that Hadoop's file systems know.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.paths = LakePaths(root)
        self._existing: set[str] = set()
        self._checked: set[str] = set()
        self._is_checked = False

    def exists(self, table: Table) -> bool:
        """Whether a table has been written yet.

        Raises
        ------
        OldLakeError
            When a development version wrote the lake.
        LakeError
            When it has data and no log: a new one would hide what is there.
        """
        from delta.tables import DeltaTable

        self._check()
        if table.name not in self._existing:
            if DeltaTable.isDeltaTable(self.spark, self.paths.table(table)):
                self._existing.add(table.name)
            else:
                check_log_is_there(self.paths, table)
        return table.name in self._existing

    def read(self, table: Table) -> DataFrame:
        """Read a table by its contract: a table not yet written is empty, a column not yet there is null.

        Raises
        ------
        OldLakeError
            When a development version wrote the lake.
        SchemaError
            When a column has another type in the lake than in the contract.
        """
        from pyspark.sql import functions as sf

        if not self.exists(table):
            return self.spark.createDataFrame([], table.ddl)
        frame = self.spark.read.format("delta").load(self.paths.table(table))
        present = dict(frame.dtypes)
        check_types(table, present)
        return frame.select(
            *(
                sf.col(column.name)
                if column.name in present
                else sf.lit(None).cast(column.type).alias(column.name)
                for column in table.columns
            )
        )

    def read_snapshot(self, table: Table, cluster: str, snapshot_id: str) -> DataFrame:
        """The rows of one snapshot."""
        from pyspark.sql import functions as sf

        return self.read(table).where(
            (sf.col("cluster") == cluster)
            & (sf.col("day") == sf.lit(slot_day(snapshot_id)))
            & (sf.col("snapshot_id") == snapshot_id)
        )

    def read_events(self) -> DataFrame:
        """Everything that happened to plans, whoever told it."""
        return self.read(PLAN_EVENTS).unionByName(self.read(CONTROL_EVENTS))

    def append(
        self,
        table: Table,
        frame: DataFrame,
        app_id: str | None,
        *,
        files: int = 1,
        sort_by: tuple[str, ...] = (),
    ) -> None:
        """Append rows; a repeat with the same ``app_id`` does nothing.

        Parameters
        ----------
        table
            The contract; ``frame`` is brought into its columns and types.
        frame
            The rows.
        app_id
            What tells this write from all others, e.g. ``lag/orders/<snapshot>``; None when the rows carry
            an id that no other attempt has. Looking for a transaction makes Delta replay the table's log,
            which is half of a small append.
        files
            How many files to write at the most.
        sort_by
            Columns that the rows of a file stand in the order of, so that readers can skip.

        Raises
        ------
        SchemaError
            When the rows have a column that the contract does not know, or the table in the lake lacks one
            that every row must have, or has it in another type.
        LakeError
            When the table belongs to another kind of writer, or the write failed.
        """
        refuse_unknown(table, frame.columns)
        rows = conform(frame, table).coalesce(files)
        if sort_by:
            rows = rows.sortWithinPartitions(*sort_by)
        self.write(table, partial(self._append, table, rows, app_id))

    def insert_missing(self, table: Table, frame: DataFrame, key: tuple[str, ...], app_id: str) -> None:
        """Insert the rows whose ``key`` is not there yet, atomically: of two writers one wins.

        Parameters
        ----------
        key
            Columns that tell rows apart; give the partition columns too, so that the search stays small.
        app_id
            As in :meth:`append`, for the write that makes the table.
        """
        refuse_unknown(table, frame.columns)
        rows = conform(frame, table).coalesce(1)
        self.write(table, partial(self._insert_missing, table, rows, key, app_id))

    def replace_days(
        self,
        table: Table,
        frame: DataFrame,
        cluster: str,
        days: Collection[date],
        *,
        sort_by: tuple[str, ...] = (),
    ) -> None:
        """Put rows in the place of all that a table has of a cluster's days, in one commit.

        It can be repeated, and conflicts with nothing but another replacing of the same days.

        Parameters
        ----------
        frame
            The rows; none may be of another cluster or day. A day without rows is emptied.
        days
            The UTC days, as the table is partitioned by them; nothing is written when there are none.
        sort_by
            As in :meth:`append`.

        Raises
        ------
        SchemaError, LakeError
            As in :meth:`append`.
        """
        refuse_unknown(table, frame.columns)
        if not days:
            return
        # A file a day: whole partitions are replaced, so nothing is left over to be compacted.
        rows = conform(frame, table).repartition("day").sortWithinPartitions("day", *sort_by)
        listed = ", ".join(f"DATE '{day.isoformat()}'" for day in sorted(days))
        name = cluster.replace("\\", "\\\\").replace("'", "\\'")
        condition = f"cluster = '{name}' AND day IN ({listed})"
        self.write(table, partial(self._replace, table, rows, condition))

    def write(self, table: Table, work: Callable[[], object]) -> None:
        """Do one piece of writing to a table: alone on a local lake, again after a conflict on others.

        A table that an older evenlag made is first given the columns that it lacks.

        Parameters
        ----------
        work
            The whole of it; it may be called several times.

        Raises
        ------
        SchemaError
            When the table in the lake is not what its contract says.
        LakeConflictError
            When other writers' commits kept coming in between.
        LakeError
            When the table belongs to another kind of writer, or the write failed.
        """
        if table.writer != "spark":
            raise LakeError(f"table {table.name} is not written by Spark")
        self._check()

        def attempt() -> None:
            self._evolve(table)
            work()

        if table.name not in self._existing:
            # Before the lock: who holds it is taken for the one that writes the log.
            check_log_is_there(self.paths, table)
        with self.paths.lock(table):
            write_again_on_conflict(f"table {table.name} of {self.paths.root} cannot be written", attempt)

    def sql_name(self, table: Table) -> str:
        """A table as Spark SQL names it."""
        path = self.paths.table(table).replace("`", "``")
        return f"delta.`{path}`"

    def find_snapshot(self, cluster: str, slot_ms: int) -> str | None:
        """The id of the finished snapshot of a slot, None when there is none."""
        from pyspark.sql import functions as sf

        rows = (
            self.read(SNAPSHOTS)
            .where((sf.col("cluster") == cluster) & (sf.col("slot") == timestamp_of_ms(slot_ms)))
            .select("snapshot_id")
            .take(1)
        )
        return str(rows[0].snapshot_id) if rows else None

    def _check(self) -> None:
        """Refuse a lake that a development version wrote; the lake is checked once."""
        if not self._is_checked:
            refuse_old_lake(self.paths.root, self._find_columns)
            self._is_checked = True

    def _find_columns(self, name: str) -> list[str] | None:
        from delta.tables import DeltaTable

        if not self.paths.may_have_log(name):
            return None
        folder = self.paths.folder(name)
        # A table that is damaged is reported when it is opened for its rows.
        with suppress(LakeError), as_lake_error(folder):
            if DeltaTable.isDeltaTable(self.spark, folder):
                return self.spark.read.format("delta").load(folder).columns
        return None

    def _evolve(self, table: Table) -> None:
        """Add the columns that a table of an older evenlag lacks; looked at once per table and lake."""
        if table.name in self._checked or not self.exists(table):
            return
        actual = dict(self.spark.read.format("delta").load(self.paths.table(table)).dtypes)
        added = missing_columns(table, actual)
        if added:
            columns = ", ".join(f"`{column.name}` {column.type}" for column in added)
            self.spark.sql(f"ALTER TABLE {self.sql_name(table)} ADD COLUMNS ({columns})")
        self._checked.add(table.name)

    def _insert_missing(self, table: Table, rows: DataFrame, key: tuple[str, ...], app_id: str) -> None:
        from delta.tables import DeltaTable

        if not self.exists(table):
            self._append(table, rows, app_id)
            return
        match = " AND ".join(f"old.{name} <=> new.{name}" for name in key)
        # By name: the table may have columns of a newer evenlag, which stay null.
        values: dict[str, str | Column] = {f"`{name}`": f"new.`{name}`" for name in table.column_names}
        (
            DeltaTable.forPath(self.spark, self.paths.table(table))
            .alias("old")
            .merge(rows.alias("new"), match)
            .whenNotMatchedInsert(values=values)
            .execute()
        )

    def _replace(self, table: Table, rows: DataFrame, condition: str) -> None:
        writer = rows.write.format("delta").mode("overwrite").partitionBy(*CLUSTER_AND_DAY)
        writer = writer.option("replaceWhere", condition)
        if not self.exists(table):
            writer = writer.options(**TABLE_PROPERTIES)
        writer.save(self.paths.table(table))

    def _append(self, table: Table, rows: DataFrame, app_id: str | None) -> None:
        """Append; the first write makes the table, with its properties, in the same commit."""
        writer = rows.write.format("delta").mode("append").partitionBy(*CLUSTER_AND_DAY)
        if app_id is not None:
            writer = writer.option("txnAppId", f"{app_id}/{table.name}").option("txnVersion", _TXN_VERSION)
        if not self.exists(table):
            writer = writer.options(**TABLE_PROPERTIES)
        writer.save(self.paths.table(table))


def timestamp_of_ms(epoch_ms: int) -> Column:
    """A moment in milliseconds since the epoch, as a column."""
    from pyspark.sql import functions as sf

    return sf.timestamp_millis(sf.lit(epoch_ms))
