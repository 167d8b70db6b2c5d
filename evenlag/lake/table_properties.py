"""How long a table keeps its log and the files that were replaced: as long the one as the other."""

from __future__ import annotations

from typing import Final

DEFAULT_VACUUM_DAYS: Final = 7


def retention(days: int) -> dict[str, str]:
    """Properties of a table that keep its log and its replaced files for so many days."""
    duration = f"interval {days} days"
    return {"delta.logRetentionDuration": duration, "delta.deletedFileRetentionDuration": duration}
