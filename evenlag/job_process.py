"""A job as a child process: ``python -m spark_jobs.<job>``, read line by line.

It ends with its parent: by signals to it and its process group, or when the parent was killed, by itself,
because the reader of its events is gone (``--events-fd``).
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Final, NamedTuple, cast

from evenlag.job_events import JobEvent, decode_event

# The system ends what is killed a moment after the signal, on a busy machine later.
KILLED_S: Final = 0.5
POLL_S: Final = 0.2
_CHUNK: Final = 1 << 16


class Ending(NamedTuple):
    """A step of ending a job, before it is killed: a signal, and how long to wait for what has got it.

    number: The signal; 0 for none.
    is_for_group: Whether it is for the whole process group.
    """

    number: int
    is_for_group: bool
    patience_s: float


class JobProcess:
    """One run of a job. Its arguments are no secrets: other users can read the command line.

    on_output, on_event: Called with each line of its output, and each event. What they raise ends the job.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_output: Callable[[str], object],
        on_event: Callable[[JobEvent], object],
        endings: Sequence[Ending],
    ) -> None:
        self._command, self._environment = command, environment
        self._on_output, self._on_event = on_output, on_event
        self._endings = endings
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def run(self) -> int:
        """Run the job and wait for it."""
        reading, writing = os.pipe()
        try:
            try:
                process = subprocess.Popen(
                    [*self._command, f"--events-fd={writing}"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self._environment},
                    pass_fds=(writing,),
                    process_group=0,
                )
            finally:
                os.close(writing)
            self._process = process
            try:
                self._follow(process, reading)
                while process.poll() is None and not self._is_stopped:
                    time.sleep(POLL_S)
            finally:
                self._end(process)
            return process.returncode
        finally:
            os.close(reading)

    def stop(self) -> None:
        """Ask the job to end; a signal's handler may call it: it takes no lock and does not wait."""
        self._is_stopped = True
        if self._process is not None:
            _signal_group(self._process, signal.SIGTERM)

    def _follow(self, process: subprocess.Popen[bytes], events: int) -> None:
        """Read the output and the events until both have ended, or the job has."""
        output = cast("IO[bytes]", process.stdout)  # a pipe, see run
        with selectors.DefaultSelector() as selector, output:
            selector.register(output, selectors.EVENT_READ, _Lines(self._on_output))
            selector.register(events, selectors.EVENT_READ, _Lines(self._receive))
            while selector.get_map() and not self._is_stopped:
                ready = selector.select(POLL_S)
                for key, _ in ready:
                    data = os.read(key.fd, _CHUNK)
                    key.data.add(data)
                    if not data:
                        selector.unregister(key.fileobj)
                # A process that the job left behind may keep the output open.
                if not ready and process.poll() is not None:
                    break

    def _receive(self, line: str) -> None:
        if (event := decode_event(line)) is not None:
            self._on_event(event)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End what is left of the job and its process group."""
        # A second Ctrl-C skips the waits.
        with contextlib.suppress(KeyboardInterrupt):
            for number, is_for_group, patience_s in self._endings:
                if is_for_group:
                    _signal_group(process, number)
                    _wait_while(lambda: _is_group_alive(process), patience_s)
                else:
                    process.send_signal(number)
                    _wait_while(lambda: process.poll() is None, patience_s)
        _signal_group(process, signal.SIGKILL)
        _wait_while(lambda: _is_group_alive(process), KILLED_S)
        process.wait()


class _Lines:
    """Cuts a stream of bytes into lines; empty data is its end."""

    def __init__(self, take: Callable[[str], object]) -> None:
        self._take = take
        self._rest = b""

    def add(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            lines, self._rest = [self._rest], b""
        for line in lines:
            self._take(line.decode(errors="replace").rstrip("\r"))


def _wait_while(holds: Callable[[], bool], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while holds() and time.monotonic() < deadline:
        time.sleep(POLL_S / 4)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _is_group_alive(process: subprocess.Popen[bytes]) -> bool:
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
