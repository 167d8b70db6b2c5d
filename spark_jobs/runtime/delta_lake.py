"""Reads and writes of Delta tables by Spark.

An append has no transaction id: to look one up, Delta replays the table's log with Spark, which costs more
than a small append, and more with each commit. Only lag of snapshots is appended: its rows have the id of the
attempt to take it, and count only if its marker follows, which ``deltalake`` writes once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import LakeConflictError, LakeError
from evenlag.lake import conflicts
from evenlag.lake.delta_log import check_log_is_there, note_write, open_table
from evenlag.lake.location import LakePaths
from evenlag.lake.schema_evolution import (
    PROTOCOL,
    check_types,
    log_types,
    missing_columns,
    refuse_unknown,
)
from evenlag.lake.spark_storage import check_log_store
from evenlag.lake.table_properties import wanted_properties
from evenlag.lake.tables import Table
from spark_jobs.runtime.frames import conform, with_month
from spark_jobs.runtime.sql_text import days_condition, identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession


TABLE_PROPERTIES: Final = {
    "delta.minReaderVersion": str(PROTOCOL[0]),
    "delta.minWriterVersion": str(PROTOCOL[1]),
    **wanted_properties("spark"),
}

_CONFLICT: Final = re.compile(r"DELTA_(CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED)")
_CONFLICT_CLASS: Final = re.compile(r"\.(Concurrent\w+|MetadataChanged|ProtocolChanged)(Write)?Exception")
_MAX_CAUSES: Final = 20
_PYTHON_TRACE: Final = "Traceback (most recent call last):"
# The form of a server's errors: "(class) message", then the stack trace with its causes.
_TRACE: Final = "JVM stacktrace:"
_CLASS_BEFORE_MESSAGE: Final = re.compile(r"^\([\w.$]+\) ")
_TRACE_BEGIN: Final = re.compile(r"[\w.$]+")
_CAUSED_BY: Final = re.compile(r"^Caused by: (?P<name>[\w.$]+)(?:: (?P<text>.*))?$", re.MULTILINE)


class Lake:
    """The tables of one lake, for jobs; refused if the session would lose commits of other drivers."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        check_log_store(root, lambda key: spark.conf.get(key, None))
        self.spark = spark
        self.paths = LakePaths(root)
        self._existing: set[str] = set()
        self._checked: set[str] = set()

    def exists(self, table: Table) -> bool:
        """Return whether a table exists."""
        return table.name in self._existing or self._types(table) is not None

    def read(self, table: Table) -> DataFrame:
        """Read a table by its contract; a missing table is empty, a missing nullable column is null."""
        from pyspark.sql import functions as sf

        present = self._types(table)
        if present is None:
            return self.spark.createDataFrame([], table.ddl)
        check_types(table, present)
        return (
            self.spark.read.format("delta")
            .load(self.paths.table(table))
            .select(
                *(
                    sf.col(column.name)
                    if column.name in present
                    else sf.lit(None).cast(column.type).alias(column.name)
                    for column in table.columns
                )
            )
        )

    def read_days(
        self,
        table: Table,
        cluster: str,
        days: Collection[date],
        snapshot_ids: Collection[str] | None = None,
    ) -> DataFrame:
        """Return a cluster's rows of some days; of the finished snapshots only, if they are given."""
        from pyspark.sql import functions as sf

        # As literals they let Delta skip files; a join would not.
        rows = self.read(table).where(
            (sf.col("cluster") == cluster) & sf.col("day").isin(list(days) or [None])
        )
        return rows if snapshot_ids is None else rows.where(sf.col("snapshot_id").isin(list(snapshot_ids)))

    def append(
        self,
        table: Table,
        frame: DataFrame,
        *,
        files: int = 1,
        sort_by: tuple[str, ...] = (),
    ) -> None:
        """Append rows, which have the id of an attempt: a repeat appends others.

        sort_by: Columns that rows are sorted by within a file, so that readers can skip row groups.
        """
        refuse_unknown(table, frame.columns)
        rows = with_month(conform(frame, table), table).coalesce(files)
        if sort_by:
            rows = rows.sortWithinPartitions(*sort_by)
        self.write(table, partial(self._save, table, rows.write.mode("append")))

    def replace_days(
        self,
        table: Table,
        frame: DataFrame,
        cluster: str,
        days: Collection[date],
        *,
        sort_by: tuple[str, ...] = (),
    ) -> None:
        """Replace all rows of a cluster's days in one commit.

        Idempotent. It conflicts only with another change of the same partitions: the days, or their months.

        frame: The rows, all of this cluster and these days. A day without rows is emptied.
        """
        refuse_unknown(table, frame.columns)
        if not days:
            return
        # One file per day: there is nothing to compact where whole partitions are replaced.
        rows = conform(frame, table).repartition("day").sortWithinPartitions("day", *sort_by)
        condition = days_condition(table, cluster, days)
        writer = with_month(rows, table).write.mode("overwrite").option("replaceWhere", condition)
        self.write(table, partial(self._save, table, writer))

    def write(self, table: Table, work: Callable[[], object]) -> None:
        """Add new columns, and write to a table; repeat the write after a conflict with another writer's."""
        if table.writer != "spark":
            raise LakeError(f"table {table.name} is not written by Spark")

        def attempt() -> None:
            with as_lake_error(f"table {table.name} of {self.paths.root} cannot be written"):
                self._evolve(table)
                # After the check above: a lake of a development version is left as it is.
                self.paths.make_log_folder(table)
                try:
                    work()
                finally:
                    note_write(self.paths, table)

        # Data beside an empty log is of a first write that was killed, and is written again.
        check_log_is_there(self.paths, table)
        # Writes conflict that depend on the table's content (a replaced or compacted day). Appends conflict
        # only with a change of columns or properties.
        conflicts.retry_on_conflict(attempt)

    def change(self, table: Table, statement: str) -> None:
        """Run a statement of SQL that changes a table, as :meth:`write` does."""
        self.write(table, lambda: self.spark.sql(statement).collect())

    def delete(self, table: Table, condition: str) -> None:
        """Delete rows by a condition whose names and values :mod:`spark_jobs.runtime.sql_text` has quoted."""
        self.change(table, f"DELETE FROM {self.sql_name(table)} WHERE {condition}")  # noqa: S608  # as said above

    def update(self, table: Table, values: str, condition: str) -> None:
        """Update rows; values and condition as for :meth:`delete`."""
        self.change(table, f"UPDATE {self.sql_name(table)} SET {values} WHERE {condition}")  # noqa: S608

    def sql_name(self, table: Table) -> str:
        """Return the table's name in Spark SQL."""
        return f"delta.{identifier(self.paths.table(table))}"

    def _types(self, table: Table) -> Mapping[str, str] | None:
        """Return the types of a table's columns, from its log; None if it does not exist yet."""
        # Some milliseconds; a query by Spark takes ten times as long.
        with open_table(self.paths, table) as delta:
            if delta is None:
                return None
            self._existing.add(table.name)
            return log_types(delta)

    def _evolve(self, table: Table) -> None:
        """Add nullable columns of the contract that a table lacks; checked once per table and lake."""
        if table.name in self._checked:
            return
        actual = self._types(table)
        if actual is None:
            return
        added = missing_columns(table, actual)
        if added:
            columns = ", ".join(f"{identifier(column.name)} {column.type}" for column in added)
            self.spark.sql(f"ALTER TABLE {self.sql_name(table)} ADD COLUMNS ({columns})").collect()
        self._checked.add(table.name)

    def _save(self, table: Table, writer: DataFrameWriter) -> None:
        """Write; the first write creates the table and its properties in the same commit."""
        writer = writer.format("delta").partitionBy(*table.partition_by)
        if not self.exists(table):
            writer = writer.options(**TABLE_PROPERTIES)
        writer.save(self.paths.table(table))


@contextmanager
def as_lake_error(message: str) -> Iterator[None]:
    """Convert Spark's exceptions into one error: the message, then the cause."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        names, texts = _remote_causes(error) if _is_remote(error) else _causes(error)
        explained = f"{message}: {_cause(texts)}"
        if any(_CONFLICT_CLASS.search(name) for name in names) or _CONFLICT.search("\n".join(texts)):
            raise LakeConflictError(explained) from error
        raise LakeError(explained) from error


def _causes(error: Any) -> tuple[list[str], list[str]]:
    """Return class names and messages of a Java exception and its causes, outermost first."""
    names, texts = [type(error).__name__], [str(error)]
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None and len(names) < _MAX_CAUSES:
        names.append(str(cause.getClass().getName()))
        texts.append(str(cause.getMessage() or cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return names, texts


def _is_remote(error: BaseException) -> bool:
    """Whether an error comes from a Spark Connect server: its stack trace is text, not Java objects."""
    return type(error).__module__ == "pyspark.errors.exceptions.connect"


def _remote_causes(error: Any) -> tuple[list[str], list[str]]:
    """Return class names and messages of a server's error and its causes, outermost first."""
    message, _, trace = str(error).partition(_TRACE)
    names, texts = [type(error).__name__], [_CLASS_BEFORE_MESSAGE.sub("", message.strip())]
    if first := _TRACE_BEGIN.match(trace.strip()):
        names.append(first.group())
    for found in _CAUSED_BY.finditer(trace):
        names.append(found["name"])
        texts.append(found["text"] or found["name"].rpartition(".")[2])
    return names[:_MAX_CAUSES], texts[:_MAX_CAUSES]


def _cause(texts: list[str]) -> str:
    for text in texts:
        if found := conflicts.SYSTEM_CAUSES.search(text):
            return found.group()
    text = next(text.strip() for text in (texts[-1], texts[0], "unknown") if text.strip())
    lines = text.splitlines()
    # Of an error in a Python worker, the last line of its traceback tells the cause.
    return lines[-1] if _PYTHON_TRACE in text else lines[0]
