"""Measure the speeds of members by a snapshot and the one before it: rows of ``speeds``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.lag.speed_rows import (
    COMMIT_COLUMNS,
    LAG_COLUMNS,
    MEMBER_COLUMNS,
    SnapshotGroups,
    build_speeds,
)
from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, SPEEDS
from evenlag.planning.group_steps import GroupStep, guarded_step, rows_before, write_groups

if TYPE_CHECKING:
    import pyarrow as pa


# Speeds that were not measured for so long are forgotten.
_OLDEST: Final = timedelta(days=7)


def measure_speeds(rows: SnapshotReader) -> dict[str, Any]:
    """Measure the speeds of a snapshot's groups, each once; return their number for the step's summary.

    An error costs neither the snapshot nor the step, and one of a group only the speeds of this group.
    """
    failure = "the speeds of %s were not measured: %s"
    return guarded_step(rows, "speeds", lambda: _measure_groups(rows), failure)


def _measure_groups(rows: SnapshotReader) -> int:
    def build(before: SnapshotReader | None, group_ids: list[str]) -> pa.Table:
        previous = rows_before(before, rows, SPEEDS, SPEEDS.column_names, group_ids)
        previous_lag = rows_before(before, rows, LAG, LAG_COLUMNS, group_ids)
        now = SnapshotGroups(
            rows.rows_of_groups(LAG, LAG_COLUMNS, group_ids),
            rows.rows_of_groups(MEMBERS, MEMBER_COLUMNS, group_ids),
            rows.rows_of_groups(COMMITS, COMMIT_COLUMNS, group_ids),
        )
        has_reports = now.commits["busy_ms"].null_count < now.commits.num_rows
        previous_commits = rows_before(
            before if has_reports else None, rows, COMMITS, COMMIT_COLUMNS, group_ids
        )
        return build_speeds(now, previous, previous_lag, previous_commits, rows.marker)

    failure = "the speeds of group %s were not measured: %s"
    return write_groups(rows, GroupStep(SPEEDS, build, _OLDEST, failure))
