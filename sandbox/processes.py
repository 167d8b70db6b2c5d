"""Child processes that never outlive their parent and stop as whole groups."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_GUARD = str(Path(__file__).with_name("die_with_parent.py"))


def start_process(
    command: Sequence[str], *, log: IO[bytes], env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own that dies when this process dies.

    Its output goes to `log`. Ctrl-C in the terminal does not reach it: who starts it stops it.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", _GUARD, str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=None if env is None else dict(env),
        start_new_session=True,
    )


def stop_process(process: subprocess.Popen[bytes], *, timeout_s: float = 20.0) -> int:
    """Ask the process to end, kill its whole group when it does not, and return its status."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)  # a paused process hears no SIGTERM
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout_s)
    return kill_process(process)


def kill_process(process: subprocess.Popen[bytes]) -> int:
    """Kill the process and all that it started, at once, and return its status."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def free_ports(count: int) -> list[int]:
    """Return distinct TCP ports of the loopback interface that nobody listens on at this moment.

    They lie below the range from which systems take ports for outgoing connections, so a server that is
    down for a while finds its port still free.
    """
    found: list[int] = []
    while len(found) < count:
        port = 15_000 + secrets.randbelow(17_000)
        with contextlib.suppress(OSError), socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found
