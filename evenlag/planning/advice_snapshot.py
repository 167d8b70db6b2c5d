"""Advise how many members the groups of a snapshot need: rows of ``advice``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import ADVICE, FORECASTS, LAG, MEMBERS
from evenlag.planning.advice_rows import (
    FORECAST_COLUMNS,
    LAG_COLUMNS,
    MEMBER_COLUMNS,
    STATE_COLUMNS,
    AdviceRows,
    build_advice,
)
from evenlag.planning.group_steps import GroupStep, guarded_step, read_measured, rows_before, write_groups

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.policy.settings import Policy

# What was advised longer ago is forgotten.
_OLDEST: Final = timedelta(days=1)


def advise_snapshot(rows: SnapshotReader, policy: Policy) -> dict[str, Any]:
    """Advise the groups of a snapshot, each once; return their number for the step's summary.

    An error costs neither the snapshot nor the step, and one of a group only the advice of this group.
    """
    return guarded_step(rows, "advised", lambda: _advise_groups(rows, policy), "there is no advice by %s: %s")


def _advise_groups(rows: SnapshotReader, policy: Policy) -> int:
    def target_of(group_id: str) -> int | None:
        return policy.group_settings(rows.cluster, group_id).target_wait_s

    def build(before: SnapshotReader | None, group_ids: list[str]) -> pa.Table:
        previous = rows_before(before, rows, ADVICE, STATE_COLUMNS, group_ids)
        return build_advice(read_groups(rows, group_ids), previous, rows.marker, target_of)

    return write_groups(rows, GroupStep(ADVICE, build, _OLDEST, "there is no advice for group %s: %s"))


def read_groups(rows: SnapshotReader, group_ids: list[str]) -> AdviceRows:
    """Read what is known of some groups of a snapshot."""
    lag, members = read_measured(
        rows,
        rows.rows_of_groups(LAG, LAG_COLUMNS, group_ids),
        rows.rows_of_groups(MEMBERS, MEMBER_COLUMNS, group_ids),
    )
    return AdviceRows(lag, members, rows.rows_of_groups(FORECASTS, FORECAST_COLUMNS, group_ids))
