"""Orphans: rows of snapshots that were never finished. A snapshot counts only once it has a marker.

They are found by their ids, whoever has compacted the files: the log has the id of a file with one snapshot,
the column those of another one.
"""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from evenlag.lake.filters import Filter, matching
from evenlag.lake.tables import SNAPSHOTS, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lake.reader import LakeReader
    from evenlag.lake.table_metadata import DataFile, TableFiles

_SNAPSHOT: Final = "snapshot_id"
# A daily maintenance has read the column of files that were written before.
_READ_FOR: Final = timedelta(days=7)


def find_orphans(
    reader: LakeReader, table: Table, files: TableFiles, cluster: str, limit: datetime
) -> dict[date, Counter[str]]:
    """Return the number of rows by snapshot of those that were written before a limit, by day."""
    found: dict[date, Counter[str]] = {}
    for (name, day), parts in files.by_part.items():
        if name != cluster:
            continue
        of_day = matching(cluster=cluster, day=day)
        if not (rows := _count_rows(reader, table, parts, of_day, limit)):
            continue
        # The markers are read after the log, so that a marker that is written in between counts.
        for marked in reader.read(SNAPSHOTS, columns=[_SNAPSHOT], filters=of_day)[_SNAPSHOT].to_pylist():
            rows.pop(marked, None)
        if rows:
            found[day] = rows
    return found


def _count_rows(
    reader: LakeReader, table: Table, parts: Sequence[DataFile], of_day: Sequence[Filter], limit: datetime
) -> Counter[str]:
    """Count a day's rows by snapshot, of those that nobody writes any more, without files read long ago."""
    rows: Counter[str] = Counter()
    since = limit - _READ_FOR
    if of_day[-1][2] < limit.date() and any(
        file.only_snapshot is None and file.written_at >= since for file in parts
    ):
        rows += reader.count_values(table, _SNAPSHOT, filters=of_day, written_since=since)
    for file in parts:
        if file.only_snapshot is not None and file.written_at < limit:
            rows[file.only_snapshot] = max(rows[file.only_snapshot], file.num_rows, 1)
    for file in parts:
        if file.only_snapshot is not None and file.written_at >= limit:
            rows.pop(file.only_snapshot, None)
    return rows
