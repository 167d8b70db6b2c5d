"""Deletes orphans: rows of snapshots without a marker.

A snapshot that was killed leaves rows under its own id. Delta's log shows which files contain only one
snapshot, and files are compacted only if every snapshot in them has its marker (``compaction``). So orphans
are complete files, and are found without reading a row.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from evenlag.lake.tables import SNAPSHOT_TABLES, SNAPSHOTS
from evenlag.lake.upkeep.plan_attempts import find_attempts, remove_attempts
from spark_jobs.runtime.sql_text import days_condition, text_list

if TYPE_CHECKING:
    from datetime import date, datetime

    from evenlag.lake.table_metadata import TableFiles
    from evenlag.lake.tables import Table
    from spark_jobs.maintenance.maintenance_run import MaintenanceRun

# Number of ids in one statement.
_BATCH: Final = 500


def unfinished_snapshots(files: TableFiles, cluster: str, start: date) -> dict[str, datetime]:
    """Return when each snapshot with a file of its own was last written; the caller checks for markers.

    Returns time of the last write by snapshot id.
    """
    found: dict[str, datetime] = {}
    for file in files.by_part.get((cluster, start), ()):
        snapshot = file.only_snapshot
        if snapshot is not None:
            found[snapshot] = max(file.written_at, found.get(snapshot, file.written_at))
    return found


def markers(work: MaintenanceRun, cluster: str, day: date | None = None) -> set[str]:
    """Read the ids of the finished snapshots of a cluster."""
    filters = [("cluster", "=", cluster)] + ([] if day is None else [("day", "=", day)])
    return set(
        work.reader.read(SNAPSHOTS, columns=["snapshot_id"], filters=filters)["snapshot_id"].to_pylist()
    )


def remove_orphans(work: MaintenanceRun) -> None:
    """Delete unfinished snapshots' rows older than the policy's ``orphan_days``, of any day."""
    for part in find_attempts(work.reader):
        if work.includes(part[0]):
            what = f"remove earlier attempts at plans of {part[0]} from {part[1]} on"
            work.run(what, "orphans", partial(remove_attempts, work.reader, part))
    if work.settings.orphan_days is None:
        return
    limit = work.age_limit(work.settings.orphan_days)
    for table in SNAPSHOT_TABLES:
        files = work.files(table)
        if files is None:
            continue
        for cluster, day in filter(lambda part: work.includes(part[0]), files.by_part):
            # The markers are read after the log, so that a marker that is written in between counts.
            candidates = {
                name for name, at in unfinished_snapshots(files, cluster, day).items() if at < limit
            }
            if candidates:
                found = sorted(candidates - markers(work, cluster, day))
                _remove(work, table, (cluster, day), found)


def _remove(work: MaintenanceRun, table: Table, part: tuple[str, date], ids: list[str]) -> None:
    cluster, day = part
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        work.run(
            f"delete {len(batch)} unfinished from {table.name} of {cluster} on {day}",
            "orphans",
            partial(delete_rows, work, table, part, batch),
            len(batch),
        )


def delete_rows(
    work: MaintenanceRun,
    table: Table,
    part: tuple[str, date],
    only_snapshots: list[str] | None = None,
    *,
    except_snapshots: list[str] | None = None,
) -> None:
    """Delete rows of a (cluster, day); without a condition Delta drops complete files unread."""
    cluster, day = part
    condition = days_condition(table, cluster, [day])
    if only_snapshots is not None:
        condition += f" AND snapshot_id IN {text_list(only_snapshots)}"
    if except_snapshots is not None:
        condition += f" AND snapshot_id NOT IN {text_list(except_snapshots)}"
    # All names and values in it are quoted by `sql_text`.
    statement = f"DELETE FROM {work.lake.sql_name(table)} WHERE {condition}"  # noqa: S608  # as said above
    work.lake.write(table, lambda: work.lake.spark.sql(statement).collect())
