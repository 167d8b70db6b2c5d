"""Deletes orphans: rows of snapshots without a marker, and of attempts at plans that no head names.

A snapshot that was killed leaves rows under its own id. Delta's log shows which files contain only one
snapshot, and files are compacted only if every snapshot in them has its marker (``compaction``). So orphans
are complete files, and are found without reading a row.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from evenlag.lake.snapshot_ids import slot_day
from evenlag.lake.tables import PLAN_ASSIGNMENTS, PLANS, SNAPSHOT_TABLES, SNAPSHOTS
from spark_jobs.runtime.sql_text import days_condition, text_list

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import date, datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.table_metadata import TableFiles
    from evenlag.lake.tables import Table
    from spark_jobs.maintenance.maintenance_run import MaintenanceRun

_CHECKED_FOR: Final = timedelta(days=30)
# A plan and an attempt at it as one text, in Spark SQL; an earlier version wrote no attempt.
_PLAN_ATTEMPT: Final = "concat_ws('/', plan_id, attempt_id)"
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


def unnamed_attempts(
    work: MaintenanceRun, cluster: str, snapshot_ids: Collection[str]
) -> dict[date, list[str]]:
    """Return the attempts at plans of snapshots that have rows, and that the plan's head does not name.

    Returns by UTC day, sorted: each plan's id, ``/``, and the id of the attempt, if it has one.
    """
    days: dict[date, list[str]] = {}
    for name in sorted(snapshot_ids):
        days.setdefault(slot_day(name), []).append(name)
    found = {}
    for day, names in days.items():
        filters: list[Filter] = [("cluster", "=", cluster), ("day", "=", day), ("snapshot_id", "in", names)]
        # Heads are read later, so that one that is written in between counts.
        written = _attempts(work, PLAN_ASSIGNMENTS, filters)
        named = _attempts(work, PLANS, filters)
        # A head that names no attempt, of an earlier version, has all rows of its plan.
        if unnamed := sorted(each for each in written if named.isdisjoint((each, each.partition("/")[0]))):
            found[day] = unnamed
    return found


def _attempts(work: MaintenanceRun, table: Table, filters: Sequence[Filter]) -> set[str]:
    """Each plan and attempt of a table, as :data:`_PLAN_ATTEMPT`."""
    import pyarrow.compute as pc

    columns = ("plan_id", "attempt_id")
    parts = work.reader.read(table, columns=columns, filters=filters).group_by(columns).aggregate([])
    joined = pc.binary_join_element_wise(*(parts[name] for name in columns), "/", null_handling="skip")
    return set(joined.to_pylist())


def remove_orphans(work: MaintenanceRun) -> None:
    """Delete unfinished snapshots' and attempts' rows older than the policy's ``orphan_days``, of any day."""
    if work.settings.orphan_days is None:
        return
    limit = work.age_limit(work.settings.orphan_days)
    for table in SNAPSHOT_TABLES:
        for files, cluster, day in _parts(work, table):
            # The markers are read after the log, so that a marker that is written in between counts.
            candidates = {
                name for name, at in unfinished_snapshots(files, cluster, day).items() if at < limit
            }
            if candidates:
                found = sorted(candidates - markers(work, cluster, day))
                _remove(work, table, (cluster, day), "snapshot_id", found)
    for files, cluster, month in _parts(work, PLAN_ASSIGNMENTS):
        # Old plans are not checked again: they are compacted only without orphans.
        alone = unfinished_snapshots(files, cluster, month).items()
        old = [name for name, at in alone if limit - _CHECKED_FOR < at < limit]
        for day, unnamed in unnamed_attempts(work, cluster, old).items():
            _remove(work, PLAN_ASSIGNMENTS, (cluster, day), _PLAN_ATTEMPT, unnamed)


def _parts(work: MaintenanceRun, table: Table) -> list[tuple[TableFiles, str, date]]:
    files = work.files(table)
    if files is None:
        return []
    return [(files, cluster, start) for cluster, start in files.by_part if work.includes(cluster)]


def _remove(work: MaintenanceRun, table: Table, part: tuple[str, date], column: str, ids: list[str]) -> None:
    cluster, day = part
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        work.run(
            f"delete {len(batch)} unfinished from {table.name} of {cluster} on {day}",
            "orphans",
            partial(delete_rows, work, table, part, (column, batch)),
            len(batch),
        )


def delete_rows(
    work: MaintenanceRun,
    table: Table,
    part: tuple[str, date],
    only: tuple[str, list[str]] | None = None,
    *,
    except_snapshots: list[str] | None = None,
) -> None:
    """Delete rows of a (cluster, day). Without a condition Delta drops complete files without reading them.

    only: A column, or an expression, and texts: deletes only rows with one of them.
    """
    cluster, day = part
    condition = days_condition(table, cluster, [day])
    if only is not None:
        condition += f" AND {only[0]} IN {text_list(only[1])}"
    if except_snapshots is not None:
        condition += f" AND snapshot_id NOT IN {text_list(except_snapshots)}"
    # All names and values in it are quoted by `sql_text`.
    statement = f"DELETE FROM {work.lake.sql_name(table)} WHERE {condition}"  # noqa: S608  # as said above
    work.lake.write(table, lambda: work.lake.spark.sql(statement).collect())
