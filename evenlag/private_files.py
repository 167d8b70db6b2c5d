"""Who may read and write files: those of a local lake, and jars that nobody else may change.

Nobody but its owner has access to a local lake, or a group where the lake's folder says so. With the
set-group-id bit (mode 2770, or 2750 for a group that only reads), several users share the lake through the
folder's group. Otherwise all files belong to one user.
"""

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Final

OWNER_ONLY: Final = 0o077
"""The umask of a lake that one user writes: folders get mode 0700, files 0600."""
_OTHERS: Final = 0o007
_GROUP: Final = 0o070
_WRITABLE_BY_OTHERS: Final = 0o022

_LOCK: Final = threading.Lock()
# The copy of a lock that another thread holds at a fork would never be released in the child.
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)
_APPLIED: Final[list[int]] = []
_BEFORE: Final[list[int]] = []


def lake_umask(root: Path) -> int:
    """Return the umask of a local lake's files: its owner's alone unless its folder has the set-group-id bit.

    Others never get access. The folder need not exist.
    """
    try:
        mode = root.stat().st_mode
    except OSError:
        return OWNER_ONLY
    return _OTHERS | (~mode & _GROUP) if mode & stat.S_ISGID else OWNER_ONLY


@contextmanager
def applied_umask(mask: int) -> Iterator[None]:
    """Create files with a umask during a block.

    The umask is the process's. Of blocks that overlap in threads the strictest applies to all, until the last
    ends.
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


def is_safe_from_others(file: Path) -> bool:
    """Whether nobody but this user and root can replace or write a file, or the file that a link leads to.

    The file and its folder belong to one of the two, and neither group nor others may write them.
    """
    try:
        target = file.resolve(strict=True)
        found = [path.stat() for path in {target, target.parent, file.parent}]
    except (OSError, RuntimeError):
        return False
    return all(one.st_uid in (0, os.geteuid()) and not one.st_mode & _WRITABLE_BY_OTHERS for one in found)
