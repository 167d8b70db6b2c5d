"""How busy the machine is, what processes take of it, and what the results were measured with."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from sandbox.jars import OWN_KAFKA
from sandbox.java_tools import java_command
from sandbox.java_tools import version as own_version
from tests.bench.field.results import used_versions
from tests.support.processes import tree

_TICKS: Final = os.sysconf("SC_CLK_TCK")
# The main thread, the producer's network thread, and the one that stops the others.
_SENDING: Final = ("java", "kafka-producer", "VM Thread")
_WINDOW_S: Final = 10.0


def cpu_s(pid: int) -> float:
    """Return the processor time of a process, without its children's."""
    return sum(_ticks(pid)[:2]) / _TICKS


def tree_cpu_s(root: int) -> float:
    """Return the processor time of a process and its descendants, those that have ended included."""
    total = 0
    for each in tree(root):
        with suppress(OSError):
            total += sum(_ticks(each))
    return total / _TICKS


def share_nice(pid: int) -> None:
    """Give the scheduler's group of a process that leads a session this process's nice value.

    Within its group a nice value compares a process only with its own threads (Linux's autogroups).
    """
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(os.nice(0)), encoding="ascii")


def _ticks(pid: int) -> list[int]:
    """Return a process's own ticks, as user and in the system, and those of its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return [int(each) for each in fields[11:15]]


def put_first(pid: int) -> None:
    """Let the threads of a JVM come first on a busy machine, where this user may.

    Those that send are before those that compile and collect garbage, which would keep a processor from them.
    """
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            name = (task / "comm").read_text(encoding="utf-8")
            priority = 2 if name.startswith(_SENDING) else 1
            os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(priority))


class BusyShare:
    """The share of the machine's processors that was busy, in windows of 10 s, until the block ends."""

    def __init__(self) -> None:
        self.shares: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        before = _machine_ticks()
        while not self._ended.wait(_WINDOW_S):
            now = _machine_ticks()
            idle, total = (after - one for one, after in zip(before, now, strict=True))
            self.shares.append(1 - idle / max(1, total))
            before = now


def _machine_ticks() -> tuple[int, int]:
    """Return the idle ticks and all ticks of the processors."""
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    fields = [int(each) for each in first.split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def versions() -> dict[str, str | int | None]:
    """Return what a result was measured with."""
    java = subprocess.run([java_command(), "-version"], check=True, capture_output=True, text=True).stderr
    return {
        "evenlag": own_version(),
        "kafka": OWN_KAFKA,
        "java": java.split('"')[1],
        **used_versions("confluent-kafka", "kafka-python", "pyspark"),
        "cpus": os.cpu_count(),
    }
