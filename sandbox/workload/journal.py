"""The journal of one process: one JSON object per line, each flushed, so that a kill loses no event."""

import json
import os
import threading
import time
from pathlib import Path
from typing import IO, Any


class Journal:
    """Writes events with the time of the system's monotonic clock, which all processes share.

    Every event has ``at_s`` (monotonic seconds), ``wall_ms`` (milliseconds since the epoch), ``event``,
    ``name`` and ``pid``. It is thread-safe.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._name, self._pid = name, os.getpid()
        self._lock = threading.Lock()
        self._file: IO[str] = path.open("a", encoding="utf-8", buffering=1)

    def write(self, event: str, **fields: Any) -> None:
        """Append one event with further fields."""
        with self._lock:
            line = {
                "at_s": time.monotonic(),
                "wall_ms": time.time_ns() // 1_000_000,
                "event": event,
                "name": self._name,
                "pid": self._pid,
                **fields,
            }
            self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_journal(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Read the whole lines of a journal from a byte offset; a line still being written is left."""
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        whole, _, _ = file.read().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole) + bool(whole)
