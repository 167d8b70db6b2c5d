"""Delta table properties: how long a table's log and what it says of replaced files are kept.

A table may get a commit each minute from each cluster: a checkpoint has what the log keeps, and a log of days
would be mostly checkpoints. Delta itself removes a log by whole days; so the writers of the lake remove it
(:mod:`evenlag.lake.upkeep.open_day`).
"""

from __future__ import annotations

from typing import Final

# How long a table's log is kept beyond its last checkpoint, and the names of replaced files, which VACUUM
# deletes no sooner: a query may take that long.
LOG_HOURS: Final = 3
# The log may not need a commit any more that took longer: nobody may rely on it.
LONGEST_COMMIT_S: Final = LOG_HOURS * 3_600 / 2
# Commits between two checkpoints: an open table reads at most so many files after the checkpoint.
COMMITS_PER_CHECKPOINT: Final = 10
# Where nothing else writes a checkpoint: one takes Spark seconds, and `deltalake`, which does at the end of a
# step, milliseconds.
_SPARK_COMMITS: Final = 50


def wanted_properties(writer: str) -> dict[str, str]:
    """Return the properties of a table of the lake, by its writer."""
    commits = _SPARK_COMMITS if writer == "spark" else COMMITS_PER_CHECKPOINT
    return {
        "delta.logRetentionDuration": f"interval {LOG_HOURS} hours",
        "delta.deletedFileRetentionDuration": f"interval {LOG_HOURS} hours",
        "delta.setTransactionRetentionDuration": f"interval {2 * LOG_HOURS} hours",
        "delta.checkpointInterval": str(commits),
        "delta.enableExpiredLogCleanup": "false",
    }
