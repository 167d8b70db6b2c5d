"""Run a command and leave none of its descendants behind: ``subreaper.py COMMAND…``.

Airflow puts each task into a process group of its own, and a task starts a JVM, so killing the group of
what we started is not enough. This process adopts every orphan below it (Linux: a "child subreaper"), hears
when its own parent dies, and then ends all that is left. On other systems it only ends the command's group.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Airflow's scheduler waits for its tasks when it is asked to stop; a sandbox does not, and its tests less.
_PATIENCE_S = float(os.environ.get("EVENLAG_KEEPER_PATIENCE_S", "6"))
_LOOK_S = 0.05


def main(command: list[str]) -> int:
    """Run the command; at its end, at SIGTERM or when the parent dies, end all its descendants."""
    # The handler only notes it: an exception could break into starting the command or, when SIGTERM comes
    # twice, into the cleaning up, and leave all that runs below this process.
    asked_to_stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked_to_stop.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # Until now the guard's SIGKILL held; from here on there is something to clean up first.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    process = subprocess.Popen(command, start_new_session=True)
    while (status := process.poll()) is None:
        if asked_to_stop:
            status = 128 + signal.SIGTERM
            break
        time.sleep(_LOOK_S)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    _end_descendants(process.pid)
    return status


def _end_descendants(group: int) -> None:
    """Wait a while for what was asked to stop, then kill until nothing is left."""
    deadline = time.monotonic() + _PATIENCE_S
    while _reap() and time.monotonic() < deadline:
        time.sleep(0.05)
    while left := _reap():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _reap() -> list[int]:
    """Collect the children that ended and return the living descendants."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return _descendants(os.getpid())


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # "pid (name with anything) state ppid ...": the name may hold spaces and parentheses.
            parent = int(entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    found: list[int] = []
    unseen = [root]
    while unseen:
        below = children.get(unseen.pop(), [])
        found += below
        unseen += below
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
