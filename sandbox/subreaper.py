"""Run a command and end all of its descendants: ``subreaper.py COMMAND…``.

Airflow puts each task into its own process group, and a task starts a JVM. So it is not sufficient to kill
the group of the started process. This process adopts every orphan among its descendants (Linux: a "child
subreaper"), gets a signal when its own parent dies, and then ends all that are left. On other systems it only
ends the command's group.
"""

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
# Airflow's scheduler waits for its tasks when it is terminated; the sandbox does not, its tests even less.
_PATIENCE_S = float(os.environ.get("EVENLAG_KEEPER_PATIENCE_S", "6"))
_LOOK_S = 0.05


def main(command: list[str]) -> int:
    """Run the command; when it exits, at SIGTERM or when the parent dies, end all its descendants."""
    # The handler only records the signal: an exception could interrupt the start of the command or, at a
    # second SIGTERM, the cleanup, and leave descendants running.
    asked_to_stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked_to_stop.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # Replaces the SIGKILL of die_with_parent.py: from now on the descendants must be ended first.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    # The command inherits what this process has inherited on purpose.
    process = subprocess.Popen(command, start_new_session=True, close_fds=False)
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
    """Wait until terminated descendants exit, then kill those that are left.

    The children of a child that ends become children of this process.
    """
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
    """Reap the children that exited, and return the living ones."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            # "pid (name) state ppid ...": the name may contain spaces and parentheses.
            parent = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.append(int(entry.parent.name))
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
