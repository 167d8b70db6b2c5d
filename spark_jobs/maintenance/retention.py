"""What leaves the lake besides replaced files: orphans, expired rows, and most snapshots of old days.

**Expired rows** are older than their retention. Of complete partitions only the log changes; in the partition
at the limit its older days are deleted. What a partition still has to lose is known from its files'
statistics, so a repeat finds nothing to do, and a killed run is continued by the next.

**Downsampling**: on a day older than the policy's ``raw_days``, the first snapshot of each hour keeps its
marker and lag. The other markers are deleted first, which hides their snapshots at once, then their lag, then
the day's offsets, commits and members. Before that, clients' ids and hosts in ``memberships`` and
``ownership`` are set to null. These two keep partition ownership permanently, so a day is downsampled only
after all its snapshots are audited. ``downsampled_days`` records these days before anything is deleted: the
audit, comparisons and the report use it. If a run is killed, the next run continues it.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.rebalances import find_returned
from evenlag.lake.filters import date_literal
from evenlag.lake.tables import (
    AUDITED_SNAPSHOTS,
    COMMITS,
    DOWNSAMPLED_DAYS,
    LAG,
    MEMBERS,
    MEMBERSHIPS,
    OFFSETS,
    OWNERSHIP,
    SNAPSHOT_TABLES,
    SNAPSHOTS,
    TABLES,
    Table,
)
from evenlag.lake.tables.month_partitions import end_of_part, month_of
from evenlag.lake.upkeep.direct_tables import delete_part, delete_snapshots
from evenlag.lake.upkeep.orphans import find_orphans
from spark_jobs.runtime.sql_text import days_condition, part_condition, text_list
from spark_jobs.steps.audit_ownership import audit_assignments

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from spark_jobs.maintenance.maintenance_run import MaintenanceRun

# Number of ids in one statement.
_BATCH: Final = 500


def remove_orphans(work: MaintenanceRun) -> None:
    """Delete unfinished snapshots' rows older than the policy's ``orphan_days``, of any day."""
    if work.settings.orphan_days is None:
        return
    limit = work.age_limit(work.settings.orphan_days)
    for table in SNAPSHOT_TABLES:
        files = work.files(table)
        for cluster in filter(work.includes, files.clusters if files is not None else ()):
            found = {} if files is None else find_orphans(work.reader, table, files, cluster, limit)
            for day, rows in found.items():
                _remove_batches(work, table, (cluster, day), sorted(rows))


def _remove_batches(work: MaintenanceRun, table: Table, part: tuple[str, date], ids: list[str]) -> None:
    cluster, day = part
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        what = f"delete {len(batch)} unfinished from {table.name} of {cluster} on {day}"
        condition = f"snapshot_id IN {text_list(batch)}"
        work.run(what, "orphans", partial(delete_rows, work, table, part, condition), len(batch))


def delete_rows(
    work: MaintenanceRun, table: Table, part: tuple[str, date], condition: str | None = None
) -> None:
    """Delete rows of a partition by a condition of its writer's SQL; without one, complete files unread."""
    if table.writer == "direct":
        delete_part(work.lake.paths, table, part, condition)
        return
    where = part_condition(table, *part)
    work.lake.delete(table, where if condition is None else f"{where} AND {condition}")


# Members' values, written as they were in the contract, with null for the client's names.
_NAMELESS_MEMBERS: Final = (
    "transform(members, m -> named_struct('member_id', m.member_id, "
    "'group_instance_id', m.group_instance_id, 'client_id', CAST(NULL AS STRING), "
    "'client_host', CAST(NULL AS STRING), 'subscription', m.subscription, 'assignment', m.assignment))"
)
_NAMED: Final = {
    OWNERSHIP.name: "client_id IS NOT NULL OR client_host IS NOT NULL",
    MEMBERSHIPS.name: "exists(members, m -> m.client_id IS NOT NULL OR m.client_host IS NOT NULL)",
}
_NAMELESS: Final = {
    OWNERSHIP.name: "client_id = NULL, client_host = NULL",
    # Who returned is a result of the audit, which stays the same without the names.
    MEMBERSHIPS.name: f"members = {_NAMELESS_MEMBERS}, returned = coalesce(returned, array())",
}
_RETURNED: Final = (
    "group_id STRING, first_snapshot_id STRING, "
    "returned ARRAY<STRUCT<member_id: STRING, next_member_id: STRING>>"
)


def expire_rows(work: MaintenanceRun) -> None:
    """Delete what is older than its retention."""
    settings = work.settings
    if settings.raw_days is not None and settings.hourly_days is not None:
        _expire_hourly(work, work.today - timedelta(days=settings.hourly_days))
    for name, days in settings.retention_days.items():
        if days is not None:
            _expire_table(work, TABLES[name], work.today - timedelta(days=days))


def _expire_table(work: MaintenanceRun, table: Table, before: date) -> None:
    files = work.files(table)
    for (cluster, start), parts in files.by_part.items() if files is not None else ():
        if work.includes(cluster) and any(file.first_day < before for file in parts):
            what, condition = f"delete rows of {table.name} of {cluster} from {start} on", None
            if end_of_part(table, start) >= before:
                what, condition = f"{what}, older than {before}", f"day < {date_literal(before)}"
            work.run(what, "expired", partial(delete_rows, work, table, (cluster, start), condition))


def _expire_hourly(work: MaintenanceRun, before: date) -> None:
    """Delete the hourly snapshots of old days: their markers first, which hides them, then their lag."""
    markers, lag = work.files(SNAPSHOTS), work.files(LAG)
    clusters = {cluster for files in (markers, lag) if files is not None for cluster in files.clusters}
    for cluster in sorted(filter(work.includes, clusters)):
        filters = [("cluster", "=", cluster), ("day", "<", before)]
        rows = work.reader.read(DOWNSAMPLED_DAYS, columns=["day", "downsampled_at"], filters=filters)
        # Days that are not downsampled are not audited either: they wait.
        days = {row["day"] for row in rows.to_pylist() if row["downsampled_at"] is not None}
        left = set(work.reader.read(SNAPSHOTS, columns=["day"], filters=filters)["day"].to_pylist()) & days
        for month in sorted({month_of(day) for day in left}):
            chosen = sorted(day for day in left if month_of(day) == month)
            what = f"delete the hourly snapshots of {len(chosen)} days of {cluster} of {month:%Y-%m}"
            condition = f"day IN ({', '.join(map(date_literal, chosen))})"
            delete = partial(delete_rows, work, SNAPSHOTS, (cluster, month), condition)
            work.run(what, "expired", delete, len(chosen))
        for name, day in lag.by_part if lag is not None else ():
            if name == cluster and day in days:
                what = f"delete the hourly lag of {cluster} on {day}"
                work.run(what, "expired", partial(delete_rows, work, LAG, (cluster, day)))


def remove_clients(work: MaintenanceRun, cluster: str, days: Collection[date]) -> None:
    """Set the clients' ids and hosts to null in a cluster's ``memberships`` and ``ownership`` of some days.

    Idempotent: it changes no file whose rows have none. Which clients returned under another member id is
    written down before. The days are those on which snapshots started.
    """
    for table in (MEMBERSHIPS, OWNERSHIP):
        if not days or not work.lake.exists(table):
            continue
        if table is MEMBERSHIPS:
            _keep_returned(work, cluster, days)
        condition = f"{days_condition(table, cluster, days)} AND ({_NAMED[table.name]})"
        work.lake.update(table, _NAMELESS[table.name], condition)


def _keep_returned(work: MaintenanceRun, cluster: str, days: Collection[date]) -> None:
    """Write down which clients of some days' intervals returned, up to the first audited day after them."""
    later = [("cluster", "=", cluster), ("day", ">", max(days))]
    after = work.reader.read_newest(AUDITED_SNAPSHOTS, "day", columns=["day"], filters=later, is_oldest=True)
    last = max([*days, *after["day"].to_pylist()])
    filters = [("cluster", "=", cluster), ("day", ">=", min(days)), ("day", "<=", last)]
    found = find_returned(work.reader.read(MEMBERSHIPS, filters=filters))
    if not found:
        return
    view = "returned_clients"
    work.lake.spark.createDataFrame(found, _RETURNED).createOrReplaceTempView(view)
    # All names and values in it are quoted by `sql_text`.
    work.lake.change(
        MEMBERSHIPS,
        f"MERGE INTO {work.lake.sql_name(MEMBERSHIPS)} AS t USING {view} AS s "  # as said above
        f"ON {days_condition(MEMBERSHIPS, cluster, days)} AND t.group_id = s.group_id "
        "AND t.first_snapshot_id = s.first_snapshot_id WHEN MATCHED THEN UPDATE SET t.returned = s.returned",
    )


_DROPPED: Final = (OFFSETS, COMMITS, MEMBERS)
# Minimum age of deleted files if the policy does not delete orphans.
_SAFE_DAYS: Final = 3
# Slot, snapshot id, start.
_Snapshot = tuple[datetime, str, datetime]


def hourly(snapshots: Iterable[tuple[Any, ...]]) -> list[str]:
    """Choose the snapshots whose lag is kept: the first of each hour, by slot.

    Idempotent: a second call with the result chooses the same ids.
    """
    first: dict[datetime, str] = {}
    for slot, snapshot_id, *_ in sorted(snapshots):
        first.setdefault(slot.replace(minute=0, second=0, microsecond=0), snapshot_id)
    return list(first.values())


def downsample_days(work: MaintenanceRun) -> None:
    """Downsample the days that are old enough."""
    raw_days = work.settings.raw_days
    files = work.files(SNAPSHOTS)
    if raw_days is None or files is None:
        return
    for cluster in files.clusters:
        if work.includes(cluster):
            _downsample_cluster(work, cluster, work.today - timedelta(days=raw_days))


def _downsample_cluster(work: MaintenanceRun, cluster: str, before: date) -> None:
    days = _days_to_downsample(work, cluster, before)
    audited = _audited(work, cluster, days)
    days = {day: snapshots for day, snapshots in days.items() if day in audited}
    if not days:
        return
    rows = {day: _row(work, cluster, day, snapshots) for day, snapshots in sorted(days.items())}
    what = f"record {len(rows)} days of {cluster} as downsampled"
    if not work.run(what, "begun", partial(_record_days, work, cluster, list(rows.values()))):
        if work.is_dry_run:
            work.done["downsampled"] += len(rows)
        return
    for month in sorted({month_of(day) for day in rows}):
        chosen = {day: row for day, row in rows.items() if month_of(day) == month}
        # The audit's days are those on which snapshots started.
        seen_on = {day for name in chosen for day in (name, *(at.date() for _, _, at in days[name]))}
        what = f"remove the clients' ids and hosts of {len(chosen)} days of {cluster} of {month:%Y-%m}"
        if not work.run(what, "nameless", partial(remove_clients, work, cluster, seen_on), len(chosen)):
            continue
        for day, row in chosen.items():
            what = f"downsample {day} of {cluster} from {row['num_snapshots']} snapshots to {row['kept']}"
            work.run(what, "downsampled", partial(_downsample_day, work, cluster, day, row))


def _days_to_downsample(work: MaintenanceRun, cluster: str, before: date) -> dict[date, list[_Snapshot]]:
    """Snapshots by day of the slot, for days that are not or not completely downsampled."""
    rows = work.reader.read(
        SNAPSHOTS,
        columns=["day", "slot", "snapshot_id", "started_at"],
        filters=[("cluster", "=", cluster), ("day", "<", before)],
    ).to_pylist()
    # A snapshot may be taken long after its slot: its day is kept until that snapshot is old enough.
    young_from = datetime.combine(before, time(), UTC)
    young = {row["day"] for row in rows if row["started_at"] >= young_from}
    days: dict[date, list[_Snapshot]] = {}
    for row in rows:
        if row["day"] not in young:
            started_at = row["started_at"].astimezone(UTC)
            days.setdefault(row["day"], []).append((row["slot"], row["snapshot_id"], started_at))
    done = {row["day"] for row in read_downsampled(work, cluster) if row["downsampled_at"] is not None}
    return {day: found for day, found in days.items() if day not in done or len(found) > len(hourly(found))}


def read_downsampled(work: MaintenanceRun, cluster: str) -> list[dict[str, Any]]:
    """Read ``downsampled_days``: ``downsampled_at`` is null for a day that is not finished."""
    rows = work.reader.read(DOWNSAMPLED_DAYS, filters=[("cluster", "=", cluster)])
    return list(rows.to_pylist())


def _audited(work: MaintenanceRun, cluster: str, days: Mapping[date, Sequence[_Snapshot]]) -> set[date]:
    """Return the days whose snapshots are all audited; updates the audit if necessary."""
    missing = _not_audited(work, cluster, days)
    if missing and not work.is_dry_run:
        # Only the days that are needed here: the rest of a long backlog is for the audit itself.
        audit = partial(audit_assignments, work.lake, cluster, slot_days=sorted(missing))
        work.run(f"audit {cluster}", "audited", audit)
        missing = _not_audited(work, cluster, days)
        for day in sorted(missing):
            work.defer(f"downsample {day} of {cluster}: not all of its snapshots are audited")
    return set(days) - (set() if work.is_dry_run else missing)


def _not_audited(work: MaintenanceRun, cluster: str, days: Mapping[date, Sequence[_Snapshot]]) -> set[date]:
    if not days:
        return set()
    filters = [("cluster", "=", cluster), ("day", ">=", min(days) - timedelta(days=1))]
    rows = work.reader.read(AUDITED_SNAPSHOTS, columns=["snapshot_id"], filters=filters)
    known = set(rows["snapshot_id"].to_pylist())
    return {day for day, snapshots in days.items() if any(name not in known for _, name, _ in snapshots)}


def _row(work: MaintenanceRun, cluster: str, day: date, snapshots: Sequence[_Snapshot]) -> dict[str, Any]:
    before = {row["day"]: row["num_snapshots"] for row in read_downsampled(work, cluster)}
    kept = hourly(snapshots)
    return {
        "cluster": cluster,
        "day": day,
        "num_snapshots": max(len(snapshots), before.get(day, 0)),
        "kept_snapshot_ids": kept,
        "kept": len(kept),
    }


def _record_days(
    work: MaintenanceRun,
    cluster: str,
    rows: Sequence[Mapping[str, Any]],
    downsampled_at: datetime | None = None,
) -> None:
    found = [
        (row["cluster"], row["day"], row["num_snapshots"], row["kept_snapshot_ids"], downsampled_at)
        for row in rows
    ]
    frame = work.lake.spark.createDataFrame(found, DOWNSAMPLED_DAYS.ddl)
    work.lake.replace_days(DOWNSAMPLED_DAYS, frame, cluster, [row["day"] for row in rows])


def _downsample_day(work: MaintenanceRun, cluster: str, day: date, row: Mapping[str, Any]) -> None:
    kept = list(row["kept_snapshot_ids"])
    delete_snapshots(work.lake.paths, SNAPSHOTS, cluster, day, kept)
    delete_rows(work, LAG, (cluster, day), f"snapshot_id NOT IN {text_list(kept)}")
    limit = work.age_limit(work.settings.orphan_days or _SAFE_DAYS)
    recent = []
    for table in _DROPPED:
        files = work.files(table)
        parts = () if files is None else files.by_part.get((cluster, day), ())
        if not parts:
            continue
        # Recent files may belong to a snapshot that is being written. Or they were compacted, or written
        # again by an erasure: only the next runs of this step can delete those.
        if max(file.written_at for file in parts) < limit:
            delete_rows(work, table, (cluster, day))
        else:
            recent.append(table.name)
    if recent:
        work.defer(f"finish downsampling {day} of {cluster}: files of {', '.join(recent)} are recent")
    else:
        _record_days(work, cluster, [row], work.now)
