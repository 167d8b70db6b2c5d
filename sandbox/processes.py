"""Child processes that never outlive their parent and that stop as process groups."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

_GUARD = str(Path(__file__).with_name("die_with_parent.py"))
KEEPER: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("subreaper.py")))
"""Before a command: ends all descendants of the command with it."""


class SandboxError(RuntimeError):
    """Raised when a part of the sandbox fails; the message says why, or ends with the tail of a log."""


def start_process(
    command: Sequence[str],
    *,
    log: IO[bytes],
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a command in its own process group; it dies when this process dies.

    Ctrl-C in the terminal does not reach it: the caller stops it.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", _GUARD, str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=None if env is None else dict(env),
        start_new_session=True,
        pass_fds=pass_fds,
    )


def stop_process(process: subprocess.Popen[bytes], *, timeout_s: float = 20.0) -> int:
    """Terminate a process, and kill its process group if it does not exit in time.

    timeout_s: How long to wait before it is killed, in seconds.
    """
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)  # a stopped process does not handle SIGTERM
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout_s)
    return kill_process(process)


def kill_process(process: subprocess.Popen[bytes]) -> int:
    """Kill a process and its process group, and return its exit status."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def log_tail(path: Path) -> str:
    """Return the last 20 lines of a log, indented."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return "\n".join(f"  {line}" for line in text.splitlines()[-20:])


def free_ports(count: int) -> list[int]:
    """Return distinct TCP ports of the loopback interface that are free now.

    They are below the ephemeral port range, so the port of a server that is down stays free.
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
