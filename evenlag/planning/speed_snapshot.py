"""Measure the speeds of members by a snapshot and the one before it: rows of ``speeds``."""

from __future__ import annotations

import hashlib
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
from evenlag.lake.writer import append_once
from evenlag.logging_setup import named_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter

_LOG = named_logger(__name__)
_HEAD: Final = ("cluster", "day", "snapshot_id", "end_read_at")
# Speeds that were not measured for so long are forgotten.
_OLDEST: Final = timedelta(days=7)


def measure_speeds(rows: SnapshotReader) -> dict[str, Any]:
    """Measure the speeds of a snapshot's groups, each once; return their number for the step's summary.

    An error costs neither the snapshot nor the step, and one of a group only the speeds of this group.
    """
    try:
        return {"speeds": _measure_groups(rows)}
    except Exception as error:  # noqa: BLE001 - speeds that cannot be measured must not fail the snapshot
        _LOG.error("the speeds of %s were not measured: %s", rows.snapshot_id, error, exc_info=error)
        return {"speeds": 0}


def _measure_groups(rows: SnapshotReader) -> int:
    """The driver has a batch of groups at once, however large the snapshot is."""
    reader = rows.reader
    done = reader.read(SPEEDS, columns=["group_id"], filters=rows.filters)["group_id"].to_pylist()
    wanted = set(rows.rows(MEMBERS, ["group_id"])["group_id"].unique().to_pylist()) - set(done)
    head = _previous(rows) if wanted else None
    num_groups = 0
    for group_ids in rows.group_batches(wanted):
        for found in _build(rows, head, group_ids):
            # A repeat has the same batches, or the last ones of them.
            first = hashlib.sha256(found["group_id"][0].as_py().encode()).hexdigest()[:16]
            append_once(reader.paths.root, SPEEDS, found, f"speeds/{rows.cluster}/{rows.snapshot_id}/{first}")
            num_groups += found.num_rows
    return num_groups


def _build(rows: SnapshotReader, head: dict[str, Any] | None, group_ids: list[str]) -> Iterator[pa.Table]:
    """Build the rows of groups, where one of them fails those of the others alone."""
    try:
        found = _build_together(rows, head, group_ids)
        if found.num_rows:
            yield found
    except Exception as error:  # noqa: BLE001 - the next groups are measured
        if len(group_ids) > 1:
            middle = len(group_ids) // 2
            for half in (group_ids[:middle], group_ids[middle:]):
                yield from _build(rows, head, half)
            return
        _LOG.error(
            "the speeds of group %s were not measured: %s",
            group_ids[0],
            error,
            extra={"group_id": group_ids[0]},
            exc_info=error,
        )


def _build_together(rows: SnapshotReader, head: dict[str, Any] | None, group_ids: list[str]) -> pa.Table:
    before = rows if head is None else SnapshotReader(rows.reader, head)
    previous = before.rows_of_groups(SPEEDS, [column.name for column in SPEEDS.columns], group_ids)
    previous_lag = before.rows_of_groups(LAG, LAG_COLUMNS, group_ids)
    if head is None:
        previous, previous_lag = previous.slice(0, 0), previous_lag.slice(0, 0)
    now = SnapshotGroups(
        rows.rows_of_groups(LAG, LAG_COLUMNS, group_ids),
        rows.rows_of_groups(MEMBERS, MEMBER_COLUMNS, group_ids),
        rows.rows_of_groups(COMMITS, COMMIT_COLUMNS, group_ids),
    )
    return build_speeds(now, previous, previous_lag, rows.marker)


def _previous(rows: SnapshotReader) -> dict[str, Any] | None:
    """The head of the newest snapshot before this one that has speeds."""
    before = rows.marker["end_read_at"]
    filters: list[Filter] = [
        ("cluster", "=", rows.cluster),
        ("day", ">=", (before - _OLDEST).date()),
        ("end_read_at", "<", before),
    ]
    found = rows.reader.read_newest(SPEEDS, "end_read_at", columns=_HEAD, filters=filters)
    return next(iter(found.slice(0, 1).to_pylist()), None)
