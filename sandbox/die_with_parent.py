"""Run a command that dies with the process that started it: ``die_with_parent.py PARENT_PID COMMAND…``.

It is a script, not a ``preexec_fn``: that would run Python between fork and exec, which may deadlock in a
parent with threads. Linux sends the signal when the *thread* that started the process ends, so start
long-lived processes from a long-lived thread. On other systems the command runs without this protection.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Ask the kernel for SIGKILL at the parent's death, then replace this process with the command."""
    parent = int(argv[0])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the call
            raise SystemExit(1)
    os.execvp(argv[1], argv[1:])  # noqa: S606  # running the given command is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
