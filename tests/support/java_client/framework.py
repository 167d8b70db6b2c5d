"""What runs consumers of Kafka's Java client for its users: a process with a log and a file of records."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from sandbox.java_tools import java_command
from sandbox.processes import start_process, stop_process

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Framework"]

_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Framework(ABC):
    """A framework that writes the values of a topic's records to a file; ends with the context.

    class_path: Jars and folders, the first one first.
    arguments: JVM options, the main class and its arguments.
    """

    def __init__(
        self, log: Path, file: Path, class_path: Sequence[Path | str], arguments: Sequence[str]
    ) -> None:
        self.log, self.file = log, file
        joined = os.pathsep.join(map(str, class_path))
        with log.open("wb") as output:
            self._process = start_process([java_command(), *_OPTIONS, "-cp", joined, *arguments], log=output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, as its users do: its consumers commit what they have."""
        stop_process(self._process)

    @abstractmethod
    def wait_until_running(self) -> None:
        """Wait until all its consumers run."""

    def read_log(self) -> str:
        """Return the log; the process has not ended."""
        text = self.log.read_text(encoding="utf-8")
        assert self._process.poll() is None, text[-3000:]
        return text

    def records(self) -> list[str]:
        """Return the values of the records."""
        return self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
