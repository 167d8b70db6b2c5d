"""Reads and writes of the lake by Spark: the only place where a job touches Delta.

Every append that can come twice can be repeated: it carries Delta's transaction id (application, version),
and Delta skips a transaction that it has seen. The application id names job, cluster, snapshot and table and
the version is constant, because one id with a growing version drops what arrives late.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import LakeError
from spark_jobs.lake_paths import LakePaths
from spark_jobs.tables import CLUSTER_AND_DAY, CONTROL_EVENTS, PLAN_EVENTS, SNAPSHOTS, Table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import date

    from pyspark.sql import Column, DataFrame, SparkSession

_TXN_VERSION: Final = 1

# Readers of any age (deltalake included) can read reader 1 / writer 2.
_TABLE_PROPERTIES: Final = {
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
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

    def exists(self, table: Table) -> bool:
        """Whether a table has been written yet."""
        from delta.tables import DeltaTable

        if table.name not in self._existing and DeltaTable.isDeltaTable(self.spark, self.paths.table(table)):
            self._existing.add(table.name)
        return table.name in self._existing

    def read(self, table: Table) -> DataFrame:
        """Read a table by its contract: a table not yet written is empty, a column not yet there is null."""
        from pyspark.sql import functions as sf

        if not self.exists(table):
            return self.spark.createDataFrame([], table.ddl)
        frame = self.spark.read.format("delta").load(self.paths.table(table))
        present = set(frame.columns)
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
            & (sf.col("day") == snapshot_day(snapshot_id))
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
        LakeError
            When the table belongs to another kind of writer, or the write failed.
        """
        if table.writer != "spark":
            raise LakeError(f"table {table.name} is not written by Spark")
        rows = conform(frame, table).coalesce(files)
        if sort_by:
            rows = rows.sortWithinPartitions(*sort_by)
        with self.paths.lock(table), _as_lake_error(f"table {table.name} cannot be written"):
            self._append(table, rows, app_id)

    def insert_missing(self, table: Table, frame: DataFrame, key: tuple[str, ...], app_id: str) -> None:
        """Insert the rows whose ``key`` is not there yet, atomically: of two writers one wins.

        Parameters
        ----------
        key
            Columns that tell rows apart; give the partition columns too, so that the search stays small.
        app_id
            As in :meth:`append`, for the write that makes the table.
        """
        from delta.tables import DeltaTable

        match = " AND ".join(f"old.{name} <=> new.{name}" for name in key)
        with self.paths.lock(table), _as_lake_error(f"table {table.name} cannot be written"):
            rows = conform(frame, table).coalesce(1)
            if not self.exists(table):
                self._append(table, rows, app_id)
                return
            (
                DeltaTable.forPath(self.spark, self.paths.table(table))
                .alias("old")
                .merge(rows.alias("new"), match)
                .whenNotMatchedInsertAll()
                .execute()
            )

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
        LakeError
            When the table belongs to another kind of writer, or the write failed.
        """
        if table.writer != "spark":
            raise LakeError(f"table {table.name} is not written by Spark")
        if not days:
            return
        # A file a day: whole partitions are replaced, so nothing is left over to be compacted.
        rows = conform(frame, table).repartition("day").sortWithinPartitions("day", *sort_by)
        listed = ", ".join(f"DATE '{day.isoformat()}'" for day in sorted(days))
        name = cluster.replace("\\", "\\\\").replace("'", "\\'")
        with self.paths.lock(table), _as_lake_error(f"table {table.name} cannot be written"):
            writer = rows.write.format("delta").mode("overwrite").partitionBy(*CLUSTER_AND_DAY)
            writer = writer.option("replaceWhere", f"cluster = '{name}' AND day IN ({listed})")
            if not self.exists(table):
                writer = writer.options(**_TABLE_PROPERTIES)
            writer.save(self.paths.table(table))

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

    def _append(self, table: Table, rows: DataFrame, app_id: str | None) -> None:
        """Append; the first write makes the table, with its properties, in the same commit."""
        writer = rows.write.format("delta").mode("append").partitionBy(*CLUSTER_AND_DAY)
        if app_id is not None:
            writer = writer.option("txnAppId", f"{app_id}/{table.name}").option("txnVersion", _TXN_VERSION)
        if not self.exists(table):
            writer = writer.options(**_TABLE_PROPERTIES)
        writer.save(self.paths.table(table))


def conform(frame: DataFrame, table: Table) -> DataFrame:
    """Select a contract's columns in order, in its types; the last step of every transform."""
    from pyspark.sql import functions as sf

    return frame.select(
        *(sf.col(column.name).cast(column.type).alias(column.name) for column in table.columns)
    )


def snapshot_day(snapshot_id: str) -> Column:
    """The UTC day that a snapshot's rows are stored under: its id begins with its slot."""
    from pyspark.sql import functions as sf

    return sf.to_date(sf.lit(snapshot_id[:8]), "yyyyMMdd")


def timestamp_of_ms(epoch_ms: int) -> Column:
    """A moment in milliseconds since the epoch, as a column."""
    from pyspark.sql import functions as sf

    return sf.timestamp_millis(sf.lit(epoch_ms))


@contextmanager
def _as_lake_error(message: str) -> Iterator[None]:
    """Turn what Spark raises while writing into one error that names the table."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise LakeError(f"{message}: {first_line}") from error
