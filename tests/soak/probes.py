"""What a process and a driver's JVM take at a moment, read from the kernel and from the JVM itself."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.java_tools import find_tool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MIB = 1024 * 1024


@dataclass(frozen=True)
class Taken:
    """What processes take: memory that is resident in MiB, threads, open files, and how many they are."""

    rss_mib: float
    threads: int
    files: int
    processes: int

    def measures(self, who: str) -> dict[str, float]:
        """The figures by name, as ``<who>_rss_mib``."""
        return {
            f"{who}_rss_mib": self.rss_mib,
            f"{who}_threads": self.threads,
            f"{who}_files": self.files,
        }


def taken_by(pid: int, *, with_children: bool = False) -> Taken:
    """Read a process, or a process and all that it started."""
    pids = _descendants(pid) if with_children else [pid]
    rss, threads, files, num = 0.0, 0, 0, 0
    for each in pids:
        # One that ended meanwhile takes nothing.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            folder = Path(f"/proc/{each}")
            status = dict(
                line.split(":", 1) for line in (folder / "status").read_text(encoding="utf-8").splitlines()
            )
            if "VmRSS" not in status:
                continue  # ended, and not waited for yet
            opened = sum(1 for _ in (folder / "fd").iterdir())
            rss += int(status["VmRSS"].split()[0]) / 1024
            threads += int(status["Threads"])
            files += opened
            num += 1
    return Taken(round(rss, 1), threads, files, num)


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and of all that it started, also of its children that have ended."""
    ticks = 0
    for each in _descendants(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            stat = Path(f"/proc/{each}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            # utime, stime, cutime, cstime
            ticks += sum(map(int, stat[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def driver_measures(spark: SparkSession) -> dict[str, float]:
    """Read the driver's JVM: heap in use right after a collection, threads, frames that are still cached.

    Delta keeps a frame for each table that it has read: those stay.
    """
    jvm: Any = spark.sparkContext._jvm
    java_context: Any = spark.sparkContext._jsc
    runtime = jvm.java.lang.Runtime.getRuntime()
    # What the first finds unused, broadcast tables above all, Spark releases a moment later.
    jvm.java.lang.System.gc()
    time.sleep(0.5)
    jvm.java.lang.System.gc()
    heap = (runtime.totalMemory() - runtime.freeMemory()) / _MIB
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    # Its children are Spark's Python workers.
    whole = taken_by(pid, with_children=True)
    return {
        "driver_heap_mib": round(heap, 1),
        **whole.measures("driver"),
        "cached_frames": int(java_context.getPersistentRDDs().size()),
        "kept_plans": kept_plans(spark),
    }


def broker_measures(pid: int) -> dict[str, float]:
    """Read the broker's JVM: heap in use right after a collection, then what its process takes.

    Left alone, it fills what it may have with garbage before it collects any: for hours its resident memory
    rises whoever works with it, and tells nothing.
    """
    _ask_jvm(pid, "GC.run")
    spaces = re.findall(r"generation +total \d+K, used (\d+)K", _ask_jvm(pid, "GC.heap_info"))
    assert len(spaces) == 2, "the sandbox's broker has a young and an old generation"
    return {"broker_heap_mib": round(sum(map(int, spaces)) / 1024, 1), **taken_by(pid).measures("broker")}


def _ask_jvm(pid: int, command: str) -> str:
    jcmd = [find_tool("jcmd"), "-J-XX:TieredStopAtLevel=1", str(pid), command]
    return subprocess.run(jcmd, capture_output=True, text=True, check=True, timeout=60).stdout


def kept_plans(spark: SparkSession) -> int:
    """How many frames are kept, computed or not: each is planned again when one of its tables is written."""
    session: Any = spark._jsparkSession
    return int(session.sharedState().cacheManager().numCachedEntries())


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (folder / "stat").read_text(encoding="utf-8")
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(folder.name))
    found, left = [], [pid]
    while left:
        each = left.pop()
        found.append(each)
        left += children.get(each, [])
    return found
