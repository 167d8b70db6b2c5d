"""Rows that nobody will ever see: readings without a marker, plans without a head.

A reading that was killed leaves rows under a snapshot id of its own. A file that holds one snapshot says so
in Delta's log, and files are compacted only when every snapshot in them has its marker (``compaction``): so
orphans are whole files, and are found without reading a row.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from evenlag.lake.tables import PLAN_ASSIGNMENTS, PLANS, SNAPSHOT_TABLES, SNAPSHOTS

if TYPE_CHECKING:
    from datetime import date, datetime

    from evenlag.lake.table_metadata import TableFiles
    from evenlag.lake.tables import Table
    from spark_jobs.maintenance.maintenance_run import Upkeep

_LOOKED_THROUGH: Final = timedelta(days=30)
# As many ids as one statement names.
_BATCH: Final = 500


def unfinished_readings(files: TableFiles, cluster: str, day: date) -> dict[str, datetime]:
    """When each snapshot that a file is all of was last written; the marker is for the caller to look up."""
    found: dict[str, datetime] = {}
    for file in files.by_day.get((cluster, day), ()):
        snapshot = file.only_snapshot
        if snapshot is not None:
            found[snapshot] = max(file.written_at, found.get(snapshot, file.written_at))
    return found


def markers(work: Upkeep, cluster: str, day: date | None = None) -> set[str]:
    """Ids of the finished readings of a cluster, of a slot's day or of all."""
    filters = [("cluster", "=", cluster)] + ([] if day is None else [("day", "=", day)])
    return set(
        work.reader.read(SNAPSHOTS, columns=["snapshot_id"], filters=filters)["snapshot_id"].to_pylist()
    )


def headless_plans(work: Upkeep, cluster: str, day: date) -> dict[str, None]:
    """Plans of a day that have rows and no head, in the order of their ids."""
    filters = [("cluster", "=", cluster), ("day", "=", day)]
    rows = work.reader.read(PLAN_ASSIGNMENTS, columns=["plan_id"], filters=filters)["plan_id"].unique()
    heads = work.reader.read(PLANS, columns=["plan_id"], filters=filters)["plan_id"].unique()
    return dict.fromkeys(sorted(set(rows.to_pylist()) - set(heads.to_pylist())))


def remove_orphans(work: Upkeep) -> None:
    """Remove what is older than the policy's ``orphan_days`` and was never finished, of any day.

    The open day's too: what is that old was written for an old slot, or the day is not open any more.

    Raises
    ------
    LakeError
        When a table's log or the markers cannot be read; what cannot be written is set aside.
    """
    if work.settings.orphan_days is None:
        return
    limit = work.age_limit(work.settings.orphan_days)
    for table in SNAPSHOT_TABLES:
        for files, cluster, day in _days(work, table):
            # The markers are read after the log: one that was written in between counts.
            candidates = {name for name, at in unfinished_readings(files, cluster, day).items() if at < limit}
            if candidates:
                found = sorted(candidates - markers(work, cluster, day))
                _remove(work, table, (cluster, day), "snapshot_id", found)
    for files, cluster, day in _days(work, PLAN_ASSIGNMENTS):
        written_at = max(file.written_at for file in files.by_day[cluster, day])
        # A day's plans are looked through as long as it is young, and are compacted without orphans only.
        if limit - _LOOKED_THROUGH < written_at < limit:
            _remove(
                work, PLAN_ASSIGNMENTS, (cluster, day), "plan_id", list(headless_plans(work, cluster, day))
            )


def _days(work: Upkeep, table: Table) -> list[tuple[TableFiles, str, date]]:
    files = work.files(table)
    if files is None:
        return []
    return [(files, cluster, day) for cluster, day in files.by_day if work.wants(cluster)]


def _remove(work: Upkeep, table: Table, part: tuple[str, date], column: str, ids: list[str]) -> None:
    cluster, day = part
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        work.do(
            f"remove {len(batch)} unfinished from {table.name} of {cluster} on {day}",
            "orphans",
            partial(delete_rows, work, table, part, column, batch),
            len(batch),
        )


def delete_rows(
    work: Upkeep, table: Table, part: tuple[str, date], column: str, values: list[str], *, keep: bool = False
) -> None:
    """Delete the rows of a (cluster, day) whose column is among the values, or with `keep` all others.

    Raises
    ------
    LakeError
        When the table cannot be written.
    """
    from delta.tables import DeltaTable
    from pyspark.sql import functions as sf

    cluster, day = part
    among = sf.col(column).isin(values)
    condition = (sf.col("cluster") == cluster) & (sf.col("day") == sf.lit(day)) & (~among if keep else among)
    path = work.lake.paths.table(table)
    work.lake.write(table, lambda: DeltaTable.forPath(work.lake.spark, path).delete(condition))
