"""Writes the rows of a snapshot's groups, each once, from those after an earlier snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evenlag.lake.filters import matching
from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import FORECASTS, MEMBERS, SPEEDS
from evenlag.lake.writer import append_once
from evenlag.logging_setup import named_logger
from evenlag.planning.measured_rows import FORECAST_COLUMNS, SPEED_COLUMNS, with_measures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime, timedelta

    import pyarrow as pa

    from evenlag.lake.reader import LakeReader
    from evenlag.lake.tables import Table

_LOG = named_logger(__name__)
_HEAD: Final = ("cluster", "day", "snapshot_id")


class GroupStep(NamedTuple):
    """What writes a table of groups.

    build: Builds the rows of some groups from an earlier snapshot, or from none.
    oldest: How old an earlier snapshot may be.
    failure: The message of a group whose rows cannot be built, with its id and the error.
    """

    table: Table
    build: Callable[[SnapshotReader | None, list[str]], pa.Table]
    oldest: timedelta
    failure: str


def guarded_step(rows: SnapshotReader, name: str, write: Callable[[], int], failure: str) -> dict[str, Any]:
    """Return how many rows a step has written, for the summary; an error must not fail the snapshot.

    failure: The message of an error, with the snapshot's id and the error.
    """
    try:
        return {name: write()}
    except Exception as error:  # noqa: BLE001 - lag, plans and hints need none of these steps
        _LOG.error(failure, rows.snapshot_id, error, exc_info=error)
        return {name: 0}


def read_measured(rows: SnapshotReader, lag: pa.Table, members: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Read what was measured of some groups, and add it to their rows of ``lag`` and ``members``."""
    group_ids = members["group_id"].unique().to_pylist()
    speeds = rows.rows_of_groups(SPEEDS, SPEED_COLUMNS, group_ids)
    return with_measures(lag, members, speeds, rows.rows_of_groups(FORECASTS, FORECAST_COLUMNS, group_ids))


def rows_before(
    before: SnapshotReader | None,
    rows: SnapshotReader,
    table: Table,
    columns: Sequence[str],
    group_ids: list[str],
) -> pa.Table:
    """Return the rows of groups in an earlier snapshot; without one no rows, of the same columns."""
    found = (before or rows).rows_of_groups(table, columns, group_ids)
    return found.slice(0, 0) if before is None else found


def write_groups(rows: SnapshotReader, step: GroupStep) -> int:
    """Write the rows of a snapshot's groups that are missing; return their number.

    The driver has a batch of groups at once, however large the snapshot is.
    """
    reader, table = rows.reader, step.table
    done = reader.read(table, columns=["group_id"], filters=rows.filters)["group_id"].to_pylist()
    wanted = set(rows.rows(MEMBERS, ["group_id"])["group_id"].unique().to_pylist()) - set(done)
    at = rows.marker["end_read_at"]
    head = newest_head(reader, rows.cluster, table, at, step.oldest) if wanted else None
    before = None if head is None else SnapshotReader(reader, head)
    num_groups = 0
    for group_ids in rows.group_batches(wanted):
        for found in _build(step, before, group_ids):
            # A repeat has the same batches, or the last ones of them.
            first = matching(group_id=found["group_id"][0].as_py())
            append_once(reader.paths.root, table, found, [*rows.filters, *first])
            num_groups += found.num_rows
    return num_groups


def _build(step: GroupStep, before: SnapshotReader | None, group_ids: list[str]) -> Iterator[pa.Table]:
    """Build the rows of groups, where one of them fails those of the others alone."""
    try:
        found = step.build(before, group_ids)
        if found.num_rows:
            yield found
    except Exception as error:  # noqa: BLE001 - the next groups have rows
        if len(group_ids) > 1:
            middle = len(group_ids) // 2
            for half in (group_ids[:middle], group_ids[middle:]):
                yield from _build(step, before, half)
            return
        name = group_ids[0]
        _LOG.error(step.failure, name, error, extra={"group_id": name}, exc_info=error)


def newest_head(
    reader: LakeReader, cluster: str, table: Table, before: datetime, oldest: timedelta
) -> dict[str, Any] | None:
    """Return the head of the newest snapshot before a moment that has rows of a table of groups."""
    at = "end_read_at" if "end_read_at" in table.column_names else "read_at"
    filters = [*matching(cluster=cluster, since=(before - oldest).date()), (at, "<", before)]
    found: list[dict[str, Any]] = (
        reader.read_newest(table, at, columns=(*_HEAD, at), filters=filters).slice(0, 1).to_pylist()
    )
    return found[0] if found else None
