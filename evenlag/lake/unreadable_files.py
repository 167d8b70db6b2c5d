"""Finds the files of a table that cannot be read, after a read of all its files has failed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from evenlag.lake.delta_log import one_line

ERROR: Final = "error"
"""Column of an unreadable file: why it cannot be read."""
# Of the machine or a mount, not of one local file.
_OF_THE_MACHINE: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EINTR}
)


def scan_readable(
    files: pa.Table, scan: Callable[[pa.Table], pa.Table], check_storage: Callable[[pa.Table], None]
) -> tuple[list[pa.Table], pa.Table]:
    """Scan the files that can be read; find the others by halving, and return them with :data:`ERROR`.

    check_storage: Raises if one file could not be read for a reason that is not its own.
    """
    try:
        rows = scan(files)
        rows.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        if files.num_rows == 1:
            check_storage(files)
            return [], files.append_column(ERROR, pa.array([one_line(error)]))
        middle = files.num_rows // 2
        halves = [scan_readable(part, scan, check_storage) for part in (files[:middle], files[middle:])]
        return [rows for parts, _ in halves for rows in parts], pa.concat_tables([bad for _, bad in halves])
    return [rows], files[:0].append_column(ERROR, pa.array([], pa.string()))


def is_own_fault(error: OSError, *, is_local: bool) -> bool:
    """Whether an error of the file system is of the one file that was opened."""
    return is_local and error.errno not in _OF_THE_MACHINE
