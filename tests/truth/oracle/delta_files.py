"""An independent reader of Delta tables: the log's JSON and checkpoints, then complete Parquet files.

It uses no statistics and no filters, so neither can make it lose a row. It reads tables of reader version 1
only: no deletion vectors, no column mapping. Source: "Delta Transaction Log Protocol", published by Delta.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

LOG_FOLDER: Final = "_delta_log"
# Delta's file name for version 0 has twenty digits.
_VERSION_DIGITS: Final = 20
# The other partition columns are strings.
_DATES: Final = frozenset({"day", "month"})


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the table's current version, with the values of its partition columns."""

    path: Path
    partition_values: dict[str, str | None]
    num_rows_in_log: int | None


def table_names(lake: Path) -> list[str]:
    """Return the names of the tables of a lake, sorted."""
    return sorted(folder.parent.name for folder in lake.glob(f"*/{LOG_FOLDER}"))


def live_files(folder: Path) -> list[LiveFile]:
    """Return the data files of a table's current version, by path."""
    live: dict[str, dict[str, Any]] = {}
    for action in _actions(folder / LOG_FOLDER):
        if action.get("remove"):
            live.pop(action["remove"]["path"], None)
        elif action.get("add"):
            live[action["add"]["path"]] = action["add"]
    files = []
    for path, add in sorted(live.items()):
        values = add["partitionValues"] or {}
        stats = json.loads(add["stats"]) if add.get("stats") else {}
        files.append(LiveFile(folder / unquote(path), dict(values), stats.get("numRecords")))
    return files


def read_arrow(lake: Path, table: str) -> pa.Table:
    """Return all rows of a table; a table that does not exist has no rows and no columns.

    Columns that a file lacks are null; of the partition columns ``day`` and ``month`` are dates, the others
    strings.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = lake / table
    if not (folder / LOG_FOLDER).is_dir():
        return pa.table({})
    parts = []
    for file in live_files(folder):
        part = _aware(pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us").read())
        for name, text in file.partition_values.items():
            value = _partition_value(name, text)
            kind = pa.date32() if name in _DATES else pa.string()
            if name in part.column_names:  # Spark writes it into the file, too; deltalake does not
                part = part.drop_columns([name])
            part = part.append_column(name, pa.array([value] * part.num_rows, kind))
        parts.append(part)
    return pa.concat_tables(parts, promote_options="default") if parts else pa.table({})


def _aware(rows: pa.Table) -> pa.Table:
    """Return rows with moments in UTC: Spark's files (INT96) do not say so."""
    import pyarrow as pa

    moment = pa.timestamp("us", "UTC")
    fields = [
        field.with_type(moment) if pa.types.is_timestamp(field.type) else field for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def read_rows(lake: Path, table: str) -> list[dict[str, Any]]:
    """Return all rows of a table as dicts; timestamps are aware and in UTC."""
    rows: list[dict[str, Any]] = read_arrow(lake, table).to_pylist()
    return [{name: _in_utc(value) for name, value in row.items()} for row in rows]


def _actions(log: Path) -> Iterator[dict[str, Any]]:
    """Yield all actions in order: those of the last checkpoint, then those of each later commit."""
    import pyarrow.parquet as pq

    if not log.is_dir():
        raise FileNotFoundError(log)
    start = -1
    pointer = log / "_last_checkpoint"
    if pointer.is_file():
        checkpoint = json.loads(pointer.read_text(encoding="utf-8"))
        start = int(checkpoint["version"])
        stem = f"{start:0{_VERSION_DIGITS}d}.checkpoint"
        for path in sorted(log.glob(f"{stem}*.parquet")):
            for action in pq.ParquetFile(path).read().to_pylist():
                add = action.get("add")
                if add and isinstance(add["partitionValues"], list):
                    action["add"] = add | {"partitionValues": dict(add["partitionValues"])}
                yield action
    for path in sorted(log.glob("*.json")):
        if path.stem.isdigit() and int(path.stem) > start:
            for line in path.read_text(encoding="utf-8").split("\n"):
                if line.strip():
                    yield json.loads(line)


def _partition_value(name: str, text: str | None) -> date | str | None:
    if text is None or text == "":
        return None
    return date.fromisoformat(text) if name in _DATES else text


def _in_utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, list):
        return [_in_utc(each) for each in value]
    return value
