"""Delta table properties: the log and replaced files have the same retention."""

from __future__ import annotations

from typing import Final

DEFAULT_VACUUM_DAYS: Final = 7


def retention(days: int) -> dict[str, str]:
    """Return the properties for a retention of the log and of replaced files.

    Parameters
    ----------
    days
        Retention in days.

    Returns
    -------
    dict of str to str
        Values by property name.
    """
    duration = f"interval {days} days"
    return {"delta.logRetentionDuration": duration, "delta.deletedFileRetentionDuration": duration}
