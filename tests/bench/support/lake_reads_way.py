"""One way to read a Delta table, in a process of its own: a job comes as JSON, and the answer goes so.

Run as a script, by an interpreter that need not have evenlag: it imports what its way needs and no more. Each
query is asked twice and timed once: a library's start is not what is compared.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from datetime import UTC, date, datetime, timedelta
from importlib import import_module, metadata
from typing import Any

COLUMNS = ["group_id", "topic", "partition", "lag_records"]


def typed(kind: str, value: Any) -> Any:
    """Turn a value of the job into Python's."""
    if kind == "date":
        return date.fromisoformat(value)
    if kind == "moment":
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
    return value


def sql(filters: list[list[Any]]) -> str:
    """Write filters as SQL of DataFusion's."""
    parts = []
    for column, sign, kind, value in filters:
        text = "'" + str(value).replace("'", "''") + "'"
        moment = f"arrow_cast({value}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
        literal = {"text": text, "date": f"DATE {text}", "boolean": str(value).lower(), "moment": moment}[
            kind
        ]
        parts.append(f'"{column}" {sign} {literal}')
    return " AND ".join(parts)


def by_evenlag(root: str, table: str, filters: list[list[Any]]) -> Any:
    """Read by the product."""
    from evenlag.lake.reader import LakeReader
    from evenlag.lake.tables import TABLES

    wanted = [(column, sign, typed(kind, value)) for column, sign, kind, value in filters]
    return LakeReader(root).read(TABLES[table], columns=COLUMNS, filters=wanted)


def by_dataset(root: str, table: str, filters: list[list[Any]]) -> Any:
    """Read as evenlag did before: Arrow prunes by what deltalake makes of the statistics."""
    import pyarrow.dataset as ds
    import pyarrow.fs as pa_fs
    from deltalake import DeltaTable

    condition = None
    for column, sign, kind, value in filters:
        field, wanted = ds.field(column), typed(kind, value)
        part = field == wanted if sign == "=" else field >= wanted
        condition = part if condition is None else condition & part
    path = f"{root}/{table}"
    filesystem = pa_fs.SubTreeFileSystem(path, pa_fs.LocalFileSystem())
    dataset = DeltaTable(path).to_pyarrow_dataset(filesystem=filesystem)
    return dataset.to_table(columns=COLUMNS, filter=condition)


def by_scan(root: str, table: str, filters: list[list[Any]]) -> Any:
    """Read by deltalake's own engine."""
    import pyarrow as pa
    from deltalake import DeltaTable

    return pa.table(DeltaTable(f"{root}/{table}").scan(columns=COLUMNS, predicate=sql(filters)).read_all())


def by_query(root: str, table: str, filters: list[list[Any]]) -> Any:
    """Read by SQL."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    builder = QueryBuilder().register("t", DeltaTable(f"{root}/{table}"))
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    text = f"SELECT {names} FROM t WHERE {sql(filters)}"  # noqa: S608  # our own names
    return pa.table(builder.execute(text).read_all())


def by_polars(root: str, table: str, filters: list[list[Any]]) -> Any:
    """Read by Polars, lazily."""
    pl: Any = import_module("polars")
    frame = pl.scan_delta(f"{root}/{table}")
    for column, sign, kind, value in filters:
        wanted = pl.lit(typed(kind, value))
        frame = frame.filter(pl.col(column) == wanted if sign == "=" else pl.col(column) >= wanted)
    return frame.select(COLUMNS).collect().to_arrow()


def by_duckdb(root: str, table: str, filters: list[list[Any]]) -> Any:
    """Read by DuckDB's extension for Delta, which it downloads."""
    connection: Any = import_module("duckdb").connect()
    connection.execute("INSTALL delta; LOAD delta; SET TimeZone = 'UTC'")
    parts, values = [], []
    for column, sign, kind, value in filters:
        parts.append(f"{column} {sign} ?")
        values.append(typed(kind, value))
    names, condition = ", ".join(COLUMNS), " AND ".join(parts)
    text = f"SELECT {names} FROM delta_scan('{root}/{table}') WHERE {condition}"  # noqa: S608  # our own names
    return connection.execute(text, values).to_arrow_table()


# By the library whose version is reported.
WAYS = {
    "evenlag": (by_evenlag, "pyarrow"),
    "deltalake dataset": (by_dataset, "deltalake"),
    "deltalake scan": (by_scan, "deltalake"),
    "deltalake QueryBuilder": (by_query, "deltalake"),
    "polars": (by_polars, "polars"),
    "duckdb": (by_duckdb, "duckdb"),
}


def main() -> None:
    """Answer each query twice, and tell of the second answer."""
    # A script has its own folder on the path, and not the checkout.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100,PTH120
    job = json.load(sys.stdin)
    read, library = WAYS[job["way"]]
    answers: dict[str, dict[str, Any]] = {}
    for name, filters in job["queries"].items():
        try:
            read(job["root"], job["table"], filters)
            start = time.perf_counter()
            rows = read(job["root"], job["table"], filters)
            seconds = time.perf_counter() - start
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the answer
            answers[name] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
            continue
        total = sum(rows["lag_records"].to_pylist())
        answers[name] = {"rows": rows.num_rows, "total": total, "seconds": seconds}
    peak_mb = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    version = f"{library} {metadata.version(library)}"
    sys.stdout.write(json.dumps({"version": version, "peak_mb": peak_mb, "answers": answers}))


if __name__ == "__main__":
    main()
