"""The job's end of the event pipe: writes events, and ends the job when the reader ends."""

import contextlib
import os
import select
import signal
import threading
import time
from typing import Final, Self

from evenlag.job_events import JobEvent, encode_event

# Seconds that an interrupted job has to end its JVM before its process group is killed.
_PATIENCE_S: Final = 15.0


class EventChannel:
    """Writes events to a file descriptor; does nothing without one.

    When the process that reads the events ends, even by SIGKILL, the job interrupts itself: a job that a
    command started must not outlive the command.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._is_abandoned = threading.Event()

    @property
    def is_open(self) -> bool:
        """Whether events are written."""
        return self._descriptor is not None

    def __enter__(self) -> Self:
        if self._descriptor is not None:
            # The JVM and Spark's workers must not keep the pipe open.
            os.set_inheritable(self._descriptor, False)
            threading.Thread(target=self._end_with_reader, args=(self._descriptor,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_abandoned.is_set():
            _kill_group()

    def send(self, event: JobEvent) -> None:
        """Write an event; may be called from any thread."""
        if self._descriptor is None:
            return
        data = encode_event(event).encode()
        # The watching thread handles the end of the reader.
        with self._lock, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._descriptor, data) :]

    def _end_with_reader(self, descriptor: int) -> None:
        """Wait for the end of the pipe's reader, then interrupt this process as Ctrl-C does."""
        watch = select.poll()
        # No event is requested: errors and hang-ups are always reported, and never for a regular file.
        watch.register(descriptor, 0)
        watch.poll()
        self._is_abandoned.set()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(_PATIENCE_S)
        _kill_group()
        os.kill(os.getpid(), signal.SIGKILL)


def _kill_group() -> None:
    """Kill this process and all its children, if it leads its own process group."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
