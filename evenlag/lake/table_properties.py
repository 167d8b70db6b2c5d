"""Delta table properties: how long a table's log and its replaced files are kept.

A step may be repeated for :data:`REPEAT_DAYS`. Until then the log knows the transaction ids of its writes, so
that a repeat writes nothing twice. Older ids and log entries are removed with the next checkpoint: an append
reads all ids that the log has.
"""

from __future__ import annotations

from typing import Final

DEFAULT_VACUUM_DAYS: Final = 7
# A step may be repeated until then. Later its rows may be written twice, unless the table's key prevents it.
REPEAT_DAYS: Final = 2
# How long a table's log keeps the transaction ids of its writes. A day more, as clocks of machines differ.
TRANSACTION_DAYS: Final = REPEAT_DAYS + 1
# How long a table's log is kept beyond its last checkpoint: versions that old cannot be read again.
LOG_DAYS: Final = 3
# Commits between two checkpoints: an open table reads at most so many files after the checkpoint.
COMMITS_PER_CHECKPOINT: Final = 10


def wanted_properties(vacuum_days: int = DEFAULT_VACUUM_DAYS) -> dict[str, str]:
    """Return the properties that every table of the lake has."""
    return {
        "delta.logRetentionDuration": f"interval {LOG_DAYS} days",
        "delta.deletedFileRetentionDuration": f"interval {vacuum_days} days",
        "delta.setTransactionRetentionDuration": f"interval {TRANSACTION_DAYS} days",
        "delta.checkpointInterval": str(COMMITS_PER_CHECKPOINT),
    }
