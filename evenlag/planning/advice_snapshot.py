"""Advise how many members the groups of a snapshot need: rows of ``advice``."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import ADVICE, FORECASTS, LAG, MEMBERS
from evenlag.lake.writer import append_once
from evenlag.logging_setup import named_logger
from evenlag.planning.advice_rows import (
    FORECAST_COLUMNS,
    LAG_COLUMNS,
    MEMBER_COLUMNS,
    STATE_COLUMNS,
    AdviceRows,
    build_advice,
)
from evenlag.planning.measured_rows import with_measures

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter
    from evenlag.policy.settings import Policy

_LOG = named_logger(__name__)
_HEAD: Final = ("cluster", "day", "snapshot_id", "end_read_at")
# What was advised longer ago is forgotten.
_OLDEST: Final = timedelta(days=1)


def advise_snapshot(rows: SnapshotReader, policy: Policy) -> dict[str, Any]:
    """Advise the groups of a snapshot, each once; return their number for the step's summary.

    An error costs neither the snapshot nor the step, and one of a group only the advice of this group.
    """
    try:
        return {"advised": _advise_groups(rows, policy)}
    except Exception as error:  # noqa: BLE001 - advice that fails must not fail the snapshot
        _LOG.error("there is no advice by %s: %s", rows.snapshot_id, error, exc_info=error)
        return {"advised": 0}


def _advise_groups(rows: SnapshotReader, policy: Policy) -> int:
    """The driver has a batch of groups at once, however large the snapshot is."""
    reader = rows.reader
    done = reader.read(ADVICE, columns=["group_id"], filters=rows.filters)["group_id"].to_pylist()
    wanted = set(rows.rows(MEMBERS, ["group_id"])["group_id"].unique().to_pylist()) - set(done)
    head = _previous(rows) if wanted else None
    num_groups = 0
    for group_ids in rows.group_batches(wanted):
        for found in _build(rows, head, group_ids, policy):
            # A repeat has the same batches, or the last ones of them.
            first = hashlib.sha256(found["group_id"][0].as_py().encode()).hexdigest()[:16]
            append_once(reader.paths.root, ADVICE, found, f"advice/{rows.cluster}/{rows.snapshot_id}/{first}")
            num_groups += found.num_rows
    return num_groups


def _build(
    rows: SnapshotReader, head: dict[str, Any] | None, group_ids: list[str], policy: Policy
) -> Iterator[pa.Table]:
    """Build the rows of groups, where one of them fails those of the others alone."""
    try:
        found = _build_together(rows, head, group_ids, policy)
        if found.num_rows:
            yield found
    except Exception as error:  # noqa: BLE001 - the next groups are advised
        if len(group_ids) > 1:
            middle = len(group_ids) // 2
            for half in (group_ids[:middle], group_ids[middle:]):
                yield from _build(rows, head, half, policy)
            return
        name = group_ids[0]
        extra = {"group_id": name}
        _LOG.error("there is no advice for group %s: %s", name, error, extra=extra, exc_info=error)


def _build_together(
    rows: SnapshotReader, head: dict[str, Any] | None, group_ids: list[str], policy: Policy
) -> pa.Table:
    """Build the rows of some groups, from those after an earlier snapshot."""
    before = rows if head is None else SnapshotReader(rows.reader, head)
    previous = before.rows_of_groups(ADVICE, STATE_COLUMNS, group_ids)

    def target_of(group_id: str) -> int | None:
        return policy.group_settings(rows.cluster, group_id).target_wait_s

    if head is None:
        previous = previous.slice(0, 0)
    return build_advice(read_groups(rows, group_ids), previous, rows.marker, target_of)


def read_groups(rows: SnapshotReader, group_ids: list[str]) -> AdviceRows:
    """Read what is known of some groups of a snapshot."""
    lag, members = with_measures(
        rows,
        rows.rows_of_groups(LAG, LAG_COLUMNS, group_ids),
        rows.rows_of_groups(MEMBERS, MEMBER_COLUMNS, group_ids),
    )
    return AdviceRows(lag, members, rows.rows_of_groups(FORECASTS, FORECAST_COLUMNS, group_ids))


def _previous(rows: SnapshotReader) -> dict[str, Any] | None:
    """The head of the newest snapshot before this one that has advice."""
    before = rows.marker["end_read_at"]
    filters: list[Filter] = [
        ("cluster", "=", rows.cluster),
        ("day", ">=", (before - _OLDEST).date()),
        ("end_read_at", "<", before),
    ]
    found = rows.reader.read_newest(ADVICE, "end_read_at", columns=_HEAD, filters=filters)
    return next(iter(found.slice(0, 1).to_pylist()), None)
