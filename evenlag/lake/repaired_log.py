"""A copy of a table's log without malformed statistics.

deltalake does not open a table with a boolean column if the statistics of one file are malformed. Only then
the copy is made, for one read. A file without statistics is never pruned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from evenlag.lake.location import LOG_FOLDER

if TYPE_CHECKING:
    from evenlag.lake.tables import Table

_VERSION_LENGTH: Final = 20
_MAX_INT64: Final = 2**63


@contextmanager
def repaired_log(filesystem: Any, table: Table) -> Iterator[Any | None]:
    """Provide the table as opened from a copy of its log; None if no statistics have to be left out.

    filesystem: Arrow's file system of the table's folder.
    """
    import deltalake

    with TemporaryDirectory(prefix="evenlag-log-") as folder:
        target = Path(folder) / LOG_FOLDER
        target.mkdir()
        yield deltalake.DeltaTable(folder) if _copy(filesystem, target, table) else None


def _copy(filesystem: Any, target: Path, table: Table) -> bool:
    """Copy what the newest version needs of a log; return whether any statistics were left out."""
    import pyarrow.fs as pa_fs

    names = [file.base_name for file in filesystem.get_file_info(pa_fs.FileSelector(LOG_FOLDER))]
    start = max((name[:_VERSION_LENGTH] for name in names if ".checkpoint" in name), default="")
    columns = {column.name: column.type for column in table.columns}
    is_repaired = False
    for name in names:
        if not name[:_VERSION_LENGTH].isdecimal() or name[:_VERSION_LENGTH] < start:
            continue
        with filesystem.open_input_stream(f"{LOG_FOLDER}/{name}", compression=None) as stream:
            content = stream.read()
        if name.endswith(".json"):
            new = b"\n".join(_without_broken(line, columns) for line in content.split(b"\n"))
        elif name.endswith(".parquet"):
            new = _checkpoint_without_broken(content, columns)
        else:
            continue
        is_repaired |= new != content
        (target / name).write_bytes(new)
    return is_repaired


def _without_broken(line: bytes, columns: Mapping[str, str]) -> bytes:
    if b'"add"' not in line:
        return line
    action = json.loads(line)
    add = action.get("add")
    if not isinstance(add, dict) or add.get("stats") is None or _is_sound(add["stats"], columns):
        return line
    del add["stats"]
    return json.dumps(action).encode()


def _checkpoint_without_broken(content: bytes, columns: Mapping[str, str]) -> bytes:
    import pyarrow.parquet as pq

    actions = pq.read_table(pa.BufferReader(content))
    rows = actions.to_pylist()
    broken = [
        row["add"]
        for row in rows
        if (row.get("add") or {}).get("stats") is not None and not _is_sound(row["add"]["stats"], columns)
    ]
    if not broken:
        return content
    for add in broken:
        add["stats"] = None
    new = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=actions.schema), new)
    return bytes(new.getvalue())


def _is_sound(stats: Any, columns: Mapping[str, str]) -> bool:
    """Whether a text is statistics as Delta writes them, by the types of a table's columns."""
    try:
        found = json.loads(stats, parse_constant=_refuse)
    except (TypeError, ValueError, RecursionError):
        return False
    if not isinstance(found, dict) or not _is_integer(found.get("numRecords", 0)):
        return False
    parts = [found.get(name, {}) for name in ("minValues", "maxValues", "nullCount")]
    if not all(isinstance(part, dict) for part in parts):
        return False
    *limits, null_counts = parts
    return all(_is_count(value) for value in null_counts.values()) and all(
        value is None or _has_type(value, columns.get(name, ""))
        for limit in limits
        for name, value in limit.items()
    )


def _has_type(value: Any, kind: str) -> bool:
    if kind == "BOOLEAN":
        return isinstance(value, bool)
    if kind in ("INT", "BIGINT"):
        return _is_integer(value)
    if kind == "DOUBLE":
        return _is_number(value)
    if kind.startswith("STRUCT"):
        return isinstance(value, dict) and all(one is None or _is_number(one) for one in value.values())
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return all(map(_is_count, value.values())) if isinstance(value, dict) else _is_integer(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_MAX_INT64 <= value < _MAX_INT64


def _is_number(value: Any) -> bool:
    return _is_integer(value) or isinstance(value, float)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
