"""Tables of test lakes, each written by the writer that its contract names.

Spark and ``deltalake`` write different statistics into a Delta log, and readers skip files by them. A table
from the wrong writer says nothing about real lakes. So tests write tables only here: those of writer
``spark`` by Spark, with the properties that jobs set, and those of writer ``direct`` by the product's own
writer without a JVM.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import CLUSTER_AND_DAY
from evenlag.lake.tables.month_partitions import with_month
from evenlag.lake.writer import append_once
from spark_jobs.runtime.delta_lake import TABLE_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from evenlag.lake.tables import Table

# A small append is mostly the driver's own work: more threads than cores still save time.
_THREADS: Final = 8

_Write = tuple[str, "Table", "pa.Table"]


class _State:
    """What the tests of one process share: the session, and the writes that `together` collects."""

    session: SparkSession | None = None
    collected: list[_Write] | None = None


def use_session(session: SparkSession | None) -> None:
    """Set the session that writes; the fixture ``spark`` does it for all tests."""
    _State.session = session


@contextmanager
def spark_writing() -> Iterator[None]:
    """Start a session for a process that has none, as benches have it, and stop it at the end."""
    from spark_jobs.runtime.classic_session import build_session

    session = build_session("evenlag-fixtures", is_large=True)
    use_session(session)
    try:
        yield
    finally:
        use_session(None)
        session.stop()


def write_rows(root: Path | str, table: Table, rows: Sequence[Mapping[str, Any]] | pa.Table) -> None:
    """Append rows to a table of a lake, by the table's own writer.

    rows: What a row lacks is null, what the contract does not know is left out. None: nothing is written.
    """
    import pyarrow as pa

    data = (
        rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), schema=arrow_schema(table))
    )
    if data.num_rows == 0:
        return
    if _State.collected is None:
        _write(str(root), table, data)
    else:
        _State.collected.append((str(root), table, data))


@contextmanager
def together(session: SparkSession | None = None) -> Iterator[None]:
    """Collect the writes inside, then do them at the same time, one append for each table.

    session: The session that writes; that of :func:`use_session` when not given.
    """
    import pyarrow as pa

    if _State.collected is not None:
        yield
        return
    if session is not None:
        use_session(session)
    collected: list[_Write] = []
    _State.collected = collected
    try:
        yield
    finally:
        _State.collected = None
    parts: dict[tuple[str, str], list[_Write]] = {}
    for write in collected:
        parts.setdefault((write[0], write[1].name), []).append(write)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="tables") as pool:
        running = [
            pool.submit(_write, writes[0][0], writes[0][1], pa.concat_tables([data for _, _, data in writes]))
            for writes in parts.values()
        ]
        for write_ in running:
            write_.result()


def append_with_id(root: Path | str, table: Table, rows: DataFrame, app_id: str) -> None:
    """Append to a table of Spark's as versions of evenlag did that gave the write a transaction id."""
    _append(root, table, rows, {"txnAppId": app_id, "txnVersion": "1"})


def delete_rows(root: Path | str, table: Table, condition: str) -> None:
    """Delete the rows of a table that fulfil a condition in SQL, by the table's own writer."""
    if table.writer == "direct":
        from deltalake import DeltaTable

        DeltaTable(str(Path(root) / table.name)).delete(condition)
    else:
        _spark_table(root, table).delete(condition)


def update_rows(root: Path | str, table: Table, values: Mapping[str, str], condition: str) -> None:
    """Set columns, to values in Spark SQL, in the rows that fulfil a condition; of writer ``spark`` only."""
    _spark_table(root, table).update(condition, dict(values))


def unset_properties(root: Path | str, table: Table) -> None:
    """Take away the properties that a table of writer ``spark`` was made with: no job does that."""
    names = ", ".join(f"'{name}'" for name in TABLE_PROPERTIES if not name.startswith("delta.min"))
    _session(table).sql(f"ALTER TABLE delta.`{Path(root) / table.name}` UNSET TBLPROPERTIES ({names})")


def _write(root: str, table: Table, data: pa.Table) -> None:
    if table.writer == "direct":
        append_once(root, table, data, None)
        return
    ddl = ", ".join(f"{column.name} {column.type}" for column in table.stored_columns)
    frame = _session(table).createDataFrame(with_month(data, table), ddl).coalesce(1)
    _append(root, table, frame, {})


def _append(root: Path | str, table: Table, frame: DataFrame, options: Mapping[str, str]) -> None:
    """Append by Spark; the first write makes the table with its properties."""
    path = Path(root) / table.name
    writer = frame.write.format("delta").mode("append").partitionBy(*table.partition_by).options(**options)
    if not (path / "_delta_log").is_dir():
        writer = writer.options(**TABLE_PROPERTIES)
    writer.save(str(path))


def _spark_table(root: Path | str, table: Table) -> Any:
    from delta.tables import DeltaTable

    session = _session(table)
    return DeltaTable.forPath(session, str(Path(root) / table.name))


def _session(table: Table) -> SparkSession:
    if table.writer != "spark":
        raise RuntimeError(f"table {table.name} is not written by Spark but by the direct writer")
    if _State.session is None:
        raise RuntimeError(
            f"table {table.name} is written by Spark: let the test ask for the fixture `spark`"
        )
    return _State.session


def write_foreign_table(
    folder: Path, rows: list[dict[str, Any]], partition_by: Sequence[str] = CLUSTER_AND_DAY
) -> None:
    """Write a Delta table that evenlag did not write: for what is refused by its names alone."""
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(str(folder), pa.Table.from_pylist(rows), partition_by=list(partition_by) or None)
