"""Metadata of a table from Delta's log: files, schema, properties, protocol. Without a JVM, reads no data."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import LakeError
from evenlag.lake.delta_log import lake_errors, one_line, open_table, read_actions
from evenlag.lake.location import LOG_FOLDER
from evenlag.lake.schema_evolution import log_types
from evenlag.lake.tables.month_partitions import end_of_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.lake.reader import LakeReader
    from evenlag.lake.tables import Table

_SNAPSHOT: Final = "snapshot_id"
# Longer strings are truncated in the statistics, and the maximum is rounded up.
_WHOLE_BELOW: Final = 32


@dataclass(frozen=True, slots=True)
class DataFile:
    """One current data file of a table; -1 rows if the log does not contain their number.

    written_at: When it was written, or compacted.
    first_day, last_day: By the partition, else by the statistics, which every file with rows has.
    first_snapshot, last_snapshot: None without such a column, or if the bounds are not exact: missing,
        truncated or only one known, or rows without a snapshot.
    """

    size_bytes: int
    num_rows: int
    written_at: datetime
    first_day: date
    last_day: date
    first_snapshot: str | None
    last_snapshot: str | None

    @property
    def only_snapshot(self) -> str | None:
        """The snapshot of all its rows; None if there are several or it is unknown."""
        return self.first_snapshot if self.first_snapshot == self.last_snapshot else None


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Metadata of a table, with its files by cluster, and day or first day of the month.

    types: Types by column, in the form of :func:`~evenlag.lake.schema_evolution.simple_type`.
    protocol: Minimum reader and writer versions.
    commits_since_checkpoint, log_bytes: None if the lake is not local.
    """

    by_part: Mapping[tuple[str, date], tuple[DataFile, ...]]
    types: Mapping[str, str]
    properties: Mapping[str, str]
    protocol: tuple[int, int]
    version: int
    commits_since_checkpoint: int | None
    log_bytes: int | None

    @property
    def clusters(self) -> tuple[str, ...]:
        """Clusters with rows in the table, sorted."""
        return tuple(sorted({cluster for cluster, _ in self.by_part}))


def read_table_files(reader: LakeReader, table: Table) -> TableFiles | None:
    """Read a table's log, by its name and partitioning only; None if the table does not exist yet."""
    with open_table(reader.paths, table) as delta:
        if delta is None:
            return None
        actions = read_actions(delta, reader.paths, table)
        with lake_errors(reader.paths, table, "its log"):
            protocol, properties, version = delta.protocol(), delta.metadata().configuration, delta.version()
            types = log_types(delta)
    commits, log_bytes = _log_size(reader, table, version)
    return TableFiles(
        by_part=_files(actions, table),
        types=types,
        properties=properties,
        protocol=(protocol.min_reader_version, protocol.min_writer_version),
        version=version,
        commits_since_checkpoint=commits,
        log_bytes=log_bytes,
    )


def _files(actions: Any, table: Table) -> dict[tuple[str, date], tuple[DataFile, ...]]:
    size = actions.num_rows

    def column(name: str) -> list[Any]:
        return actions[name].to_pylist() if name in actions.column_names else [None] * size

    found: dict[tuple[str, date], list[DataFile]] = {}
    names = [f"partition.{name}" for name in table.partition_by]
    names += ["size_bytes", "num_records", "modification_time", "min.day", "max.day"]
    names += [f"min.{_SNAPSHOT}", f"max.{_SNAPSHOT}", f"null_count.{_SNAPSHOT}"]
    for cluster, start, size_bytes, rows, written, first_day, last_day, *bounds in zip(
        *(column(name) for name in names), strict=True
    ):
        file = DataFile(
            size_bytes,
            -1 if rows is None else rows,
            datetime.fromtimestamp(written / 1000, UTC),
            first_day or start,
            last_day or end_of_part(table, start),
            *certain_bounds(*bounds),
        )
        found.setdefault((cluster, start), []).append(file)
    return {key: tuple(files) for key, files in sorted(found.items())}


def certain_bounds(
    least: str | None, greatest: str | None, num_nulls: int | None
) -> tuple[str | None, str | None]:
    """Return a file's smallest and largest string if the statistics are exact for all rows; else None.

    Examples
    --------
    >>> certain_bounds("a", "b", 0)
    ('a', 'b')
    >>> certain_bounds("a", "a", 1), certain_bounds("a", None, 0), certain_bounds("a", "b" * 32, 0)
    ((None, None), (None, None), (None, None))
    """
    if least is None or greatest is None or num_nulls != 0:
        return None, None
    return (None, None) if max(len(least), len(greatest)) >= _WHOLE_BELOW else (least, greatest)


def _log_size(reader: LakeReader, table: Table, version: int) -> tuple[int | None, int | None]:
    """Commits since the last checkpoint, and bytes of the log; None if the lake is not local."""
    if not reader.paths.is_local:
        return None, None
    folder = reader.paths.local_root / table.name / LOG_FOLDER
    last, size = -1, 0
    try:
        for path in folder.iterdir():
            # Maintenance may just remove it.
            with suppress(FileNotFoundError):
                size += path.stat().st_size if path.is_file() else 0
        pointer = folder / "_last_checkpoint"
        if pointer.is_file():
            last = int(json.loads(pointer.read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError) as error:
        raise LakeError(
            f"the log of table {table.name} of {reader.paths.root} cannot be read: {one_line(error)}"
        ) from error
    return version - last, size
