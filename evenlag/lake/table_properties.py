"""Delta table properties: the log and replaced files have the same retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from evenlag.lake.tables import Table

DEFAULT_VACUUM_DAYS: Final = 7
# How long a table's log keeps the transaction ids of its writes; a step may be repeated for two days.
TRANSACTION_DAYS: Final = 7


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


def wanted_properties(table: Table, days: int) -> dict[str, str]:
    """Return the properties that a table of the lake has.

    Parameters
    ----------
    table
        The table.
    days
        Retention in days of the log and of replaced files.

    Returns
    -------
    dict of str to str
        Values by property name.
    """
    return retention(days) | (transaction_retention() if table.writer == "direct" else {})


def transaction_retention() -> dict[str, str]:
    """Return the property that removes old transaction ids from a table's log.

    Without it every id stays in the log and in each checkpoint permanently.

    Returns
    -------
    dict of str to str
        Value by property name.
    """
    return {"delta.setTransactionRetentionDuration": f"interval {TRANSACTION_DAYS} days"}
