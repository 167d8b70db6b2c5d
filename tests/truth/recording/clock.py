"""A clock that a recording sets: it is midnight when the script wants it.

A library that is preloaded (``clock.c``) shifts the wall clock of Python processes: the driver, which
notes when it reads, and the consumers, which note what they own. JVMs (Spark, the brokers) keep the machine's
clock; no column of a table comes from it. The shift is a day at most: no broker's retention sees it.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PRELOAD, _FILE = "LD_PRELOAD", "RECORD_CLOCK"
_SOURCE: Final = Path(__file__).with_suffix(".c")
_LIBRARY: Final = "librecord_clock.so"


def start_shifted(argv: Sequence[str]) -> None:
    """Start this program again with a clock that can be set; does nothing when it has one."""
    if _FILE in os.environ:
        # What is started from here on has the machine's clock, but within `shifted_children`.
        del os.environ[_PRELOAD]
        return
    folder = Path(tempfile.mkdtemp(prefix="record-clock-"))
    (folder / "shift").write_bytes(struct.pack("=q", 0))
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / _LIBRARY, _SOURCE], check=True)
    clock = {_PRELOAD: str(folder / _LIBRARY), _FILE: str(folder / "shift")}
    os.execve(  # noqa: S606  # itself
        sys.executable, [sys.executable, "-m", "tests.truth.record", *argv], os.environ | clock
    )


def remove_clock() -> None:
    """Remove the files of the clock, which this process has in its memory."""
    folder = Path(os.environ[_FILE]).parent
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def last_midnight() -> datetime:
    """Return the UTC midnight before now, by the machine's clock."""
    now = datetime.fromtimestamp((time.time_ns() - _shift_ns()) / 1e9, UTC)
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def set_clock(moment: datetime | None) -> None:
    """Let it be this moment now, or the machine's time, for this process and `shifted_children`."""
    real_ns = time.time_ns() - _shift_ns()
    shift_ns = 0 if moment is None else round(moment.timestamp() * 1e9) - real_ns
    with Path(os.environ[_FILE]).open("r+b") as file:
        file.write(struct.pack("=q", shift_ns))
    if moment is not None and abs((datetime.now(UTC) - moment).total_seconds()) > 5:
        raise RuntimeError(f"the clock is {datetime.now(UTC)}, not {moment}")


def wait_until(moment: datetime) -> None:
    """Wait for a moment of the clock; a busy machine may be late, as a scheduler may."""
    time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds()))


@contextmanager
def shifted_children() -> Iterator[None]:
    """Let processes that are started meanwhile, none of them a JVM, have this process's clock."""
    os.environ[_PRELOAD] = str(Path(os.environ[_FILE]).with_name(_LIBRARY))
    try:
        yield
    finally:
        del os.environ[_PRELOAD]


def _shift_ns() -> int:
    (found,) = struct.unpack("=q", Path(os.environ[_FILE]).read_bytes())
    return int(found)
