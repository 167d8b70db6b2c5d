"""Processes by what their command line or environment names: to see that nothing was left running."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tests.support.waiting import wait_until


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


def wait_until_gone(text: str) -> None:
    """Wait until there are none, or fail the test with what is left."""
    wait_until(lambda: not processes_with(text), what=lambda: f"left running: {processes_with(text)}")


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


def jvms(processes: list[int]) -> list[int]:
    """Return those of some processes that run Java; one that ends meanwhile may be missed."""
    found = []
    for process in processes:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process}/exe").readlink().name == "java":
                found.append(process)
    return found


def num_threads(processes: list[int], *, besides: str) -> int:
    """Count threads without those whose name begins with `besides`; one that ends meanwhile may be missed."""
    count = 0
    for process in processes:
        for task in Path(f"/proc/{process}/task").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                count += not (task / "comm").read_text().startswith(besides)
    return count
