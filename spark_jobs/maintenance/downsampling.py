"""Downsampling of old days: one snapshot an hour remains.

On a day older than the policy's ``raw_days``, the first snapshot of each hour keeps its marker and lag. The
other markers are deleted first, which hides their snapshots at once, then their lag, then the day's offsets,
commits and members. Before that, clients' ids and hosts in ``memberships`` and ``ownership`` are set to null.
These two keep partition ownership permanently, so a day is downsampled only after all its snapshots are
audited. ``downsampled_days`` records these days before anything is deleted: the audit, comparisons and the
report use it. If a run is killed, the next run continues it.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.tables import AUDITED_SNAPSHOTS, COMMITS, DOWNSAMPLED_DAYS, LAG, MEMBERS, OFFSETS, SNAPSHOTS
from evenlag.lake.tables.month_partitions import month_of
from evenlag.lake.upkeep.direct_tables import DirectUpkeep
from spark_jobs.maintenance.expiry import remove_clients
from spark_jobs.maintenance.orphans import delete_rows
from spark_jobs.steps.audit_ownership import audit_assignments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spark_jobs.maintenance.maintenance_run import MaintenanceRun

_DROPPED: Final = (OFFSETS, COMMITS, MEMBERS)
# Minimum age of deleted files if the policy does not delete orphans.
_SAFE_DAYS: Final = 3
# Slot, snapshot id, start.
_Snapshot = tuple[datetime, str, datetime]


def hourly(snapshots: Iterable[tuple[datetime, str]]) -> list[str]:
    """Choose the snapshots whose lag is kept: the first of each hour, by slot.

    Returns snapshot ids, oldest first. Idempotent: a second call with the result chooses the same ids.
    snapshots: (slot, snapshot id) pairs in any order.

    Examples
    --------
    >>> day = datetime(2026, 3, 1, tzinfo=UTC)
    >>> hourly([(day.replace(minute=5), "b"), (day, "a"), (day.replace(hour=1), "c")])
    ['a', 'c']
    """
    first: dict[datetime, str] = {}
    for slot, snapshot_id in sorted(snapshots):
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
    return {day: found for day, found in days.items() if day not in done or len(found) > len(_kept(found))}


def read_downsampled(work: MaintenanceRun, cluster: str) -> list[dict[str, Any]]:
    """Read a cluster's rows of ``downsampled_days``.

    Returns one per day; ``downsampled_at`` is null for a day whose downsampling is not finished.
    """
    found: list[dict[str, Any]] = work.reader.read(
        DOWNSAMPLED_DAYS, filters=[("cluster", "=", cluster)]
    ).to_pylist()
    return found


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


def _kept(snapshots: Iterable[_Snapshot]) -> list[str]:
    return hourly((slot, name) for slot, name, _ in snapshots)


def _row(work: MaintenanceRun, cluster: str, day: date, snapshots: Sequence[_Snapshot]) -> dict[str, Any]:
    before = {row["day"]: row["num_snapshots"] for row in read_downsampled(work, cluster)}
    kept = _kept(snapshots)
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
    DirectUpkeep(work.lake.paths.root, SNAPSHOTS).delete_snapshots(cluster, day, kept)
    delete_rows(work, LAG, (cluster, day), except_snapshots=kept)
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
