"""Reads a table's Delta log without a JVM: the table's files, or an error of one line.

A table without log and data does not exist yet. If the log of a table is missing, damaged or incomplete, the
table contains rows that no reader would return, which is an error.

Each process keeps its tables open: to bring one up to date takes a request, and one for each new commit. A
thread has an open table for itself while it uses it.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa

from evenlag.errors import JobError, LakeError, SchemaError
from evenlag.lake.file_pruning import in_range
from evenlag.lake.location import LOG_FOLDER, LakePaths
from evenlag.lake.schema_evolution import PROTOCOL
from evenlag.lake.small_files import forget_files
from evenlag.lake.tables import Table

_TODO: Final = "restore the table ('The lake is lost' in docs/runbook.md)"
_TODO_ELSEWHERE: Final = f"check the address and the credentials of the storage, else {_TODO}"
_MESSAGE_LENGTH: Final = 300
# A write of Spark creates files all the time; the last ones are this old when it commits, at most.
_FIRST_WRITE_S: Final = 3600.0
# Colours and stack frames in Rust's error messages.
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_FRAME: Final = re.compile(r"^\s*\d+: |^\s*at |^stack backtrace:")


class _Idle(NamedTuple):
    """A table that no thread uses, or None: with what it was opened, when, and with which version.

    commit: Which file its newest commit is, in a local lake: there, another lake may take a folder's place.
    """

    address: Any
    delta: Any
    looked_at: float
    commit: tuple[int, ...] | None = None
    opened: int = -1


_IDLE: Final[dict[str, _Idle]] = {}
_RETURN_LOCK: Final = threading.Lock()
_IN_USE: ContextVar[Mapping[str, Any]] = ContextVar("tables that a thread uses", default=MappingProxyType({}))
_LOOK: ContextVar[Look | None] = ContextVar("how new tables have to be", default=None)
# Attribute of an open table: its data files, and of which version they are.
_ACTIONS: Final = "_evenlag_actions"
# When this process knows of a commit that no open table of its has.
_WRITTEN: Final[dict[str, float]] = {}
# Of a few lakes.
_MAX_IDLE: Final = 128
# The steps of a cycle follow each other faster.
_MAX_LOOK_AGE_S: Final = 10.0
# `deltalake` reads all commits since the opening again for each new one, also those before a checkpoint; not
# those before a compaction.
_MAX_COMMITS: Final = 100
# Maintenance removes files of a log once in minutes.
_MAX_OPENINGS: Final = 5


@dataclass(slots=True)
class Look:
    """A block of :func:`one_look`: since when a table is new enough, and to which it has appended."""

    since: float
    written: set[Table] = field(default_factory=set)


@contextmanager
def open_table(
    paths: LakePaths, table: Table, *, for_write: bool = False, max_age_s: float = 0.0
) -> Iterator[Any | None]:
    """Open a table for a block, at its newest version; None if it does not exist yet.

    What the thread reads in the block is of the same version, so that a write is refused if another one came
    after what it depends on. In a block of :func:`one_look`, it may be the version of an earlier opening.

    max_age_s: So many seconds ago it may have been looked for in any case: for a commit that is refused then.
    """
    folder, in_use = paths.table(table), _IN_USE.get()
    if folder in in_use and not for_write:
        yield in_use[folder]
        return
    began = time.monotonic()
    with lake_errors(paths, table, "its log"):
        found = _newest(paths, folder, _IDLE.pop(folder, None), began - max_age_s)
    version = _version(found)
    is_missing = found.delta is None and paths.is_local
    delta = _log_that_came_late(paths, table) if is_missing else found.delta
    token = _IN_USE.set({**in_use, folder: delta})
    try:
        yield delta
    finally:
        _IN_USE.reset(token)
    # Not after an error: what it knows may be wrong, e.g. after a conflict.
    if found.delta is not None or not paths.is_local:
        if _version(found) != version:
            # Of a commit, `deltalake` has looked for the ones before it.
            found = found._replace(looked_at=began, commit=_newest_commit(paths, folder, found.delta))
        with _RETURN_LOCK:
            # Another thread may have returned one with commits that this one lacks, of its own even.
            _IDLE[folder] = max(found, _IDLE.pop(folder, found), key=_version)
            while len(_IDLE) > _MAX_IDLE:
                _IDLE.pop(next(iter(_IDLE)), None)


@contextmanager
def one_look(max_age_s: float = _MAX_LOOK_AGE_S) -> Iterator[Look]:
    """Look for new commits of a table once in a block, besides after conflicts and after Spark's writes.

    max_age_s: So many seconds before the block an earlier look may have been.
    """
    look = Look(time.monotonic() - max_age_s)
    token = _LOOK.set(look)
    try:
        yield look
    finally:
        _LOOK.reset(token)


def note_write(paths: LakePaths, table: Table, *, is_known: bool = False) -> None:
    """Note a write; one that the open table does not have is looked for at the next opening."""
    if (look := _LOOK.get()) is not None:
        look.written.add(table)
    if not is_known:
        _WRITTEN[paths.table(table)] = time.monotonic()


def _begin_in_child() -> None:
    _IDLE.clear()
    _RETURN_LOCK.release()


# No other thread returns a table meanwhile: the copy of its lock would never be released.
os.register_at_fork(
    before=_RETURN_LOCK.acquire, after_in_parent=_RETURN_LOCK.release, after_in_child=_begin_in_child
)


def forget_tables() -> None:
    """Close the tables that this process keeps open, and release the files that it has in memory."""
    _IDLE.clear()
    forget_files()


def _newest(paths: LakePaths, folder: str, idle: _Idle | None, since: float) -> _Idle:
    """Return the table as it is, or as it was since a time, or when the block of :func:`one_look` allows."""
    deltalake = _deltalake()
    now, address, look = time.monotonic(), _address(), _LOOK.get()
    if look is not None:
        since = min(since, look.since)
    if idle is not None and idle.address == address and _version(idle) - idle.opened <= _MAX_COMMITS:
        if not paths.is_local and idle.looked_at >= max(since, _WRITTEN.get(folder, 0.0)):
            return idle
        if idle.delta is not None and idle.commit == _newest_commit(paths, folder, idle.delta):
            with suppress(deltalake.exceptions.DeltaError):
                idle.delta.update_incremental()
                return idle._replace(looked_at=now, commit=_newest_commit(paths, folder, idle.delta))
    delta = _open_anew(paths, folder)
    found = _Idle(address, delta, now, _newest_commit(paths, folder, delta))
    return found._replace(opened=_version(found))


def _open_anew(paths: LakePaths, folder: str, num_openings: int = _MAX_OPENINGS) -> Any | None:
    """Open a table without what is known of it; None without one.

    Again if the log of a local one changed meanwhile: maintenance may have removed what was to be read.
    """
    deltalake, files = _deltalake(), _log_files(paths, folder)
    try:
        return deltalake.DeltaTable(folder)
    except deltalake.exceptions.DeltaError as error:
        if num_openings > 1 and _log_files(paths, folder) != files:
            return _open_anew(paths, folder, num_openings - 1)
        if isinstance(error, deltalake.exceptions.TableNotFoundError):
            return None
        raise


def _log_files(paths: LakePaths, folder: str) -> set[Path]:
    """Return the files in the log of a local table, as far as they can be listed."""
    try:
        return set(Path(folder, LOG_FOLDER).iterdir()) if paths.is_local else set()
    except OSError:
        return set()


def _version(idle: _Idle) -> int:
    return -1 if idle.delta is None else int(idle.delta.version())


def _newest_commit(paths: LakePaths, folder: str, delta: Any) -> tuple[int, ...] | None:
    """Return which file the newest commit of a local table is; of a file that is gone, none like another."""
    if delta is None or not paths.is_local:
        return None
    try:
        stat = Path(folder, LOG_FOLDER, f"{delta.version():020}.json").stat()
    except FileNotFoundError:
        return (time.monotonic_ns(),)
    # Copies and links change the time of the inode, which no one can set.
    return stat.st_ino, stat.st_ctime_ns, stat.st_size


def _address() -> Any:
    """What a table is opened with: address and key of the storage."""
    return sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))


def read_actions(delta: Any, paths: LakePaths, table: Table) -> pa.Table:
    """Read the data files of a table, one per row: path, size, partition values and statistics.

    A value that Python does not have is null. An open table is read once in each of its versions.
    """
    version, known = delta.version(), getattr(delta, _ACTIONS, None)
    if known is not None and known[0] == version:
        return cast("pa.Table", known[1])
    with lake_errors(paths, table, "its log"):
        actions = in_range(pa.table(delta.get_add_actions(flatten=True)))
        if paths.is_local:
            _check_complete(paths.local_root / table.name / LOG_FOLDER, version, actions.num_rows)
    setattr(delta, _ACTIONS, (version, actions))
    return actions


@contextmanager
def lake_errors(paths: LakePaths, table: Table, part: str) -> Iterator[None]:
    """Convert any exception of a read to an error of one line that names the table and its lake."""
    try:
        yield
    except JobError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        # It may be of a table that was replaced: in an object store, no update shows that.
        _IDLE.pop(paths.table(table), None)
        todo = _TODO if paths.is_local else _TODO_ELSEWHERE
        raise LakeError(
            f"table {table.name} of {paths.root} cannot be read: {part}: {one_line(error)}: {todo}"
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
    if (delta := _open_anew(paths, paths.table(table))) is None:
        raise _lost_log(paths, table)
    return delta


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
