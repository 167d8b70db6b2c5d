"""Processes by what their command line or environment names: to see that nothing was left running."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path


def processes_with(text: str) -> list[int]:
    """Processes whose command line or environment names `text`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        for part in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                if text.encode() in (folder / part).read_bytes() and int(folder.name) != os.getpid():
                    found.append(int(folder.name))
                    break
    return found


def wait_until_gone(text: str, timeout_s: float = 60.0) -> list[int]:
    """Wait until there are none; what is left then."""
    deadline = time.monotonic() + timeout_s
    while (left := processes_with(text)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def tree(root: int) -> list[int]:
    """Return a process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [root]
    for process in found:
        found += parents.get(process, [])
    return found


def num_threads(processes: list[int], *, besides: str) -> int:
    """Count threads without those whose name begins with `besides`; one that ends meanwhile may be missed."""
    count = 0
    for process in processes:
        for task in Path(f"/proc/{process}/task").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                count += not (task / "comm").read_text().startswith(besides)
    return count
