"""DataFrames of the steps: cached, with the columns of a contract, and several written in parallel."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from evenlag.lake.tables import Table
from evenlag.lake.tables.contract import MONTH
from spark_jobs.runtime.sql_text import identifier

if TYPE_CHECKING:
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame


class CachedFrames(ExitStack):
    """The DataFrames that a step uses more than once; used in a ``with`` statement.

    A session outlives a step, and so does a cached DataFrame that is not unpersisted: it uses memory, and
    Spark plans it again after each write to a table that it reads.
    """

    def cache(self, frame: DataFrame, level: StorageLevel | None = None) -> DataFrame:
        """Cache the rows of a DataFrame from their first use to the end of the block."""
        self.callback(frame.unpersist)
        return frame.cache() if level is None else frame.persist(level)


def conform(frame: DataFrame, table: Table) -> DataFrame:
    """Select the columns of a contract, in its order and types; the last step of every transform."""
    # As text: of each column object, PySpark looks up the call site, for milliseconds.
    columns = ((identifier(column.name), column.type) for column in table.columns)
    return frame.selectExpr(*(f"CAST({name} AS {kind}) AS {name}" for name, kind in columns))


def with_month(frame: DataFrame, table: Table) -> DataFrame:
    """Add ``month`` to rows of a table, if it partitions the table; the last step before a write."""
    from pyspark.sql import functions as sf

    if not table.is_by_month:
        return frame
    rows = frame.withColumn(MONTH.name, sf.trunc("day", "month"))
    return rows.select(*(column.name for column in table.stored_columns))


def run_in_parallel(*calls: Callable[[], Any]) -> list[Any]:
    """Run each call in its own thread and wait for all of them.

    Two calls never write to the same table, and none writes to a table whose DataFrame another one caches and
    unpersists (``docs/adr/0052``).
    """
    with ThreadPoolExecutor(len(calls), thread_name_prefix="evenlag") as pool:
        # Each call keeps the fields of the caller's log records. A context can be used in one thread only.
        running = [pool.submit(copy_context().run, call) for call in calls]
    return [call.result() for call in running]
