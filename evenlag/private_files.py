"""Who may read the files of a local lake: nobody but their owner, or a group where the lake's folder says so.

The folder of the lake decides. With the set-group-id bit (mode 2770, or 2750 for a group that only reads),
several users share the lake through the folder's group. Otherwise all files belong to one user.
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWNER_ONLY: Final = 0o077
"""The umask of a lake that one user writes: folders get mode 0700, files 0600."""
_OTHERS: Final = 0o007
_GROUP: Final = 0o070

_LOCK: Final = threading.Lock()
_APPLIED: Final[list[int]] = []
_BEFORE: Final[list[int]] = []


def lake_umask(root: Path) -> int:
    """Return the umask with which files of a local lake are created.

    Parameters
    ----------
    root
        The lake's folder; it need not exist.

    Returns
    -------
    int
        :data:`OWNER_ONLY`, or for a folder with the set-group-id bit what its group lacks. Others never get
        access.
    """
    try:
        mode = root.stat().st_mode
    except OSError:
        return OWNER_ONLY
    return _OTHERS | (~mode & _GROUP) if mode & stat.S_ISGID else OWNER_ONLY


@contextmanager
def applied_umask(mask: int) -> Iterator[None]:
    """Create files with a umask during a block.

    The umask belongs to the process. Blocks of several threads may overlap: the strictest one applies to all,
    and the process gets its own umask back after the last one.

    Parameters
    ----------
    mask
        The umask.

    Yields
    ------
    None
        It applies during the block.
    """
    with _LOCK:
        _APPLIED.append(mask)
        before = os.umask(reduce(or_, _APPLIED))
        if len(_APPLIED) == 1:
            _BEFORE[:] = [before]
    try:
        yield
    finally:
        with _LOCK:
            _APPLIED.remove(mask)
            os.umask(reduce(or_, _APPLIED) if _APPLIED else _BEFORE[0])
