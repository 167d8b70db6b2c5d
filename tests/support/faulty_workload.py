"""The sandbox's workload with faults of its processes, and with groups that do not use evenlag's assignor."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any, ClassVar

from sandbox.processes import kill_process
from sandbox.workload.journal import read_journal
from sandbox.workload.workload import Workload, WorkloadError
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping


class FaultyWorkload(Workload):
    """A workload whose consumers also log what they assign as leaders (`tests.support.workload_consumer`)."""

    modules: ClassVar[Mapping[str, str]] = {**Workload.modules, "classic": "tests.support.workload_consumer"}

    def num_processed(self) -> dict[str, int]:
        """Return the number of records that each consumer has processed."""
        self._tracker.read(self.journals)
        return dict(self._tracker.num_processed)

    def wait_until_processed(self, num_records: int) -> None:
        """Wait until the consumers have processed a number of records in total."""
        last, since = 0, time.monotonic()
        while (done := sum(self.num_processed().values())) < num_records:
            self.check()
            if done > last:
                last, since = done, time.monotonic()
            if time.monotonic() - since > 600.0:
                raise WorkloadError(f"{done} of {num_records} records are processed, and no more")
            time.sleep(0.1)

    def wait_until_committing(self) -> None:
        """Wait until each owner has committed all its partitions from now on.

        What it gives up before is processed twice. Needs traffic on all partitions.
        """
        read = {path: read_journal(path)[1] for path in self.journals}
        committed: set[tuple[str, int]] = set()

        def left() -> list[tuple[str, int]]:
            for path in self.journals:
                events, read[path] = read_journal(path, read.get(path, 0))
                for event in events:
                    if event["event"] == "committed":
                        committed.update((event["name"], partition) for _, partition, _ in event["offsets"])
            owned = {(name, number) for name, held in self.owners().items() for number in held}
            return sorted(owned - committed)

        what = "these partitions are not committed"
        wait_until(lambda: not left(), what=lambda: f"{what}: {left()}", progress=lambda: len(committed))

    def note(self, event: str, **fields: Any) -> None:
        """Write an event of the caller to the workload's journal."""
        self._journal.write(event, **fields)

    def pause(self, name: str) -> None:
        """Stop a process with SIGSTOP, like a long garbage collection or a suspended machine."""
        process = self._processes[name]
        os.kill(process.pid, signal.SIGSTOP)
        self._journal.write("paused", victim=name, victim_pid=process.pid)

    def resume(self, name: str) -> None:
        """Continue a paused process."""
        process = self._processes[name]
        self._journal.write("resumed", victim=name, victim_pid=process.pid)
        os.kill(process.pid, signal.SIGCONT)

    def pid(self, name: str) -> int:
        """Return the process id of a running consumer or producer."""
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """Kill a process immediately (SIGKILL)."""
        process = self._processes.pop(name)
        kill_process(process)
        self._journal.write("killed", victim=name, victim_pid=process.pid)
