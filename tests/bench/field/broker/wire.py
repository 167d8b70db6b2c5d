"""What producer, consumers and measures share: the value of a record, and the journal of records."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

VALUE: Final = struct.Struct(">qd")
"""Scheduled send in nanoseconds of the machine's monotonic clock, and cost in units of work."""

ENTRY: Final = struct.Struct(">iqqq")
"""Partition, offset, scheduled send, start of work; all consumers append these to their ``.records``."""

_ENTRIES: Final = np.dtype(
    [("partition", ">i4"), ("offset", ">i8"), ("scheduled_ns", ">i8"), ("started_ns", ">i8")]
)


def read_entries(folder: Path, pattern: str = "*.records") -> NDArray[np.void]:
    """Return the whole entries of the journals of records in a folder."""
    found = [np.empty(0, _ENTRIES)]
    for path in sorted(folder.glob(pattern)):
        content = path.read_bytes()
        found.append(np.frombuffer(content, _ENTRIES, count=len(content) // ENTRY.size))
    return np.concatenate(found)
