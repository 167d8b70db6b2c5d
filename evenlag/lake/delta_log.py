"""Reads a table's Delta log without a JVM: the table's files, or an error of one line.

A table without log and data does not exist yet. If the log of a table is missing, damaged or incomplete, the
table contains rows that no reader would return, which is an error.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import JobError, LakeError, SchemaError
from evenlag.lake.location import LOG_FOLDER
from evenlag.lake.schema_evolution import PROTOCOL, refuse_old_lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from evenlag.lake.location import LakePaths
    from evenlag.lake.tables import Table

_TODO: Final = "restore the table ('The lake is lost' in docs/runbook.md)"
_TODO_ELSEWHERE: Final = f"check the address and the credentials of the storage, else {_TODO}"
_MESSAGE_LENGTH: Final = 300
# A write of Spark creates files all the time; the last ones are this old when it commits, at most.
_FIRST_WRITE_S: Final = 3600.0
# Colours and stack frames in Rust's error messages.
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_FRAME: Final = re.compile(r"^\s*\d+: |^\s*at |^stack backtrace:")


def open_log(paths: LakePaths, table: Table) -> Any | None:
    """Open a table at its newest version; None if it does not exist yet."""
    _check_lake(paths)
    deltalake = _deltalake()
    with lake_errors(paths, table.name, "its log"):
        try:
            delta = deltalake.DeltaTable(paths.table(table))
        except deltalake.exceptions.TableNotFoundError:
            delta = None
        if delta is None:
            return _log_that_came_late(paths, table) if paths.is_local else None
    return delta


def table_version(paths: LakePaths, table: Table) -> int | None:
    """Return the version of a table, None without one: as long as it is the same, a read returns the same."""
    delta = open_log(paths, table)
    return None if delta is None else int(delta.version())


@cache
def _check_lake(paths: LakePaths) -> None:
    """Check once per process that no development version wrote a lake; an error is not cached."""
    refuse_old_lake(paths.root, lambda name: _find_columns(paths, name))


def _find_columns(paths: LakePaths, name: str) -> list[str] | None:
    if not paths.may_have_log(name):
        return None
    deltalake = _deltalake()
    # A damaged or unreachable table is reported when it is opened for its rows.
    with suppress(LakeError), lake_errors(paths, name, "its log"):
        return [field.name for field in deltalake.DeltaTable(paths.folder(name)).schema().fields]
    return None


def read_actions(delta: Any, paths: LakePaths, table: Table) -> pa.Table:
    """Read the data files of a table, one per row: path, size, partition values and statistics."""
    import pyarrow as pa

    with lake_errors(paths, table.name, "its log"):
        actions = pa.table(delta.get_add_actions(flatten=True))
        if paths.is_local:
            _check_complete(paths.local_root / table.name / LOG_FOLDER, delta.version(), actions.num_rows)
    return actions


@contextmanager
def lake_errors(paths: LakePaths, table_name: str, part: str) -> Iterator[None]:
    """Convert any exception of a read to an error of one line that names the table and its lake."""
    try:
        yield
    except JobError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        todo = _TODO if paths.is_local else _TODO_ELSEWHERE
        raise LakeError(
            f"table {table_name} of {paths.root} cannot be read: {part}: {one_line(error)}: {todo}"
        ) from error


def one_line(error: BaseException) -> str:
    r"""Return an error message on one line: without colours and stack frames, limited in length.

    Examples
    --------
    >>> one_line(OSError("no way\n  \x1b[31m↳\x1b[0m closed\n   0: <unknown>"))
    'no way: closed'
    """
    parts: list[str] = []
    for line in _COLOUR.sub("", str(error)).splitlines():
        if _FRAME.match(line):
            break
        text = line.strip().removeprefix("↳").strip()
        if text:
            parts.append("".join(sign if sign.isprintable() else "?" for sign in text))
    # Debug output of Rust objects does not help users.
    message = ": ".join(parts).partition(": ParsedLogPath")[0] or type(error).__name__
    return message if len(message) <= _MESSAGE_LENGTH else f"{message[:_MESSAGE_LENGTH]}..."


def check_log_is_there(paths: LakePaths, table: Table) -> None:
    """Reject a local table with data files but no log folder: a first write creates that before any data."""
    if not paths.is_local:
        return
    folder = paths.local_root / table.name
    if not (folder / LOG_FOLDER).is_dir() and _has_data(folder):
        raise _lost_log(paths, table)


def _log_that_came_late(paths: LakePaths, table: Table) -> Any | None:
    """Return None for a local table that does not exist yet; raise an error if its log is missing."""
    folder = paths.local_root / table.name
    if not _has_data(folder) or _may_be_first_write(folder):
        return None
    # The first write may have finished since the log was opened.
    deltalake = _deltalake()
    try:
        return deltalake.DeltaTable(paths.table(table))
    except deltalake.exceptions.TableNotFoundError as error:
        raise _lost_log(paths, table) from error


def _lost_log(paths: LakePaths, table: Table) -> LakeError:
    folder = paths.local_root / table.name
    return LakeError(
        f"table {table.name} of {paths.root} cannot be read: it has data files, but its log "
        f"{folder / LOG_FOLDER} is gone: {_TODO}, or move {folder} away to create the table again"
    )


def _has_data(folder: Path) -> bool:
    return next(folder.rglob("*.parquet"), None) is not None


def _may_be_first_write(folder: Path) -> bool:
    """Whether data beside an empty log may be of Spark's first write, which makes data files first."""
    log = folder / LOG_FOLDER
    if not log.is_dir() or next(log.glob("*.json"), None) is not None:
        return False
    newest = max((file.stat().st_mtime for file in folder.rglob("*.parquet")), default=0.0)
    return time.time() - newest < _FIRST_WRITE_S


def check_protocol(delta: Any, table: Table) -> None:
    """Reject a table that needs a newer reader, e.g. to skip deleted rows."""
    needed = delta.protocol().min_reader_version
    if needed > PROTOCOL[0]:
        raise SchemaError(
            f"table {table.name}: a table feature was enabled, it needs a reader of version "
            f"{needed}; evenlag reads version {PROTOCOL[0]}: {_TODO}"
        )


def _check_complete(log: Path, version: int, num_files: int) -> None:
    """Compare with Spark's checksum file of the commit: a log truncated between two lines still parses."""
    note = log / f"{version:020d}.crc"
    try:
        noted = json.loads(note.read_text(encoding="utf-8"))["numFiles"]
    except (OSError, ValueError, KeyError, TypeError):
        # deltalake writes no checksum file, and Spark does not require one.
        _check_beginning(log)
        _check_counts(log / f"{version:020d}.json")
        return
    if noted != num_files:
        raise ValueError(f"it lists {num_files} data files where {note.name} counts {noted}")


def _check_counts(commit: Path) -> None:
    """Compare a commit of deltalake to the count in its first line."""
    try:
        # Not by splitlines(): names and texts in the statistics may have other ends of lines, such as U+2028.
        lines = commit.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        # A checkpoint has replaced it.
        return
    actions = [json.loads(line) for line in lines if line]
    found = sum("add" in action for action in actions)
    for action in actions:
        metrics = action.get("commitInfo", {}).get("operationMetrics") or {}
        counted = metrics.get("num_added_files", found)
        if counted != found:
            raise ValueError(f"{commit.name} lists {found} new data files where it counts {counted}")


def _check_beginning(log: Path) -> None:
    """Check that a log begins with version 0 or with a checkpoint."""
    if (log / f"{0:020d}.json").is_file() or (log / "_last_checkpoint").is_file():
        return
    if next(log.glob("*.checkpoint*"), None) is None:
        raise ValueError("it begins with neither its first commit nor a checkpoint")


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ModuleNotFoundError as error:
        raise JobError("reading the lake without Spark needs: pip install 'evenlag[cli]'") from error
    return deltalake
