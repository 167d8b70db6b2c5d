"""Old days: one lag an hour instead of every reading, and nothing that an answer rests on without saying so.

Of a day older than the policy's ``raw_days`` the first reading of each hour keeps its marker and its lag. The
other markers go first, which makes their readings invisible at once; then their lag, then the day's offsets,
commits and members: who held what is in ``memberships`` and ``ownership``, for good, so a day is thinned only
when all its readings are audited. ``downsampled_days`` says beforehand which days these are, and is what the
audit, comparisons and the report go by; a run that was killed in between is taken up by the next.
"""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.tables import AUDITED_SNAPSHOTS, COMMITS, DOWNSAMPLED_DAYS, LAG, MEMBERS, OFFSETS, SNAPSHOTS
from spark_jobs.maintenance.orphans import delete_rows
from spark_jobs.steps.audit_ownership import audit_assignments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from evenlag.lake.tables import Table
    from spark_jobs.maintenance.maintenance_run import Upkeep

_LOG = logging.getLogger(__name__)
_DROPPED: Final = (OFFSETS, COMMITS, MEMBERS)


def hourly(readings: Iterable[tuple[datetime, str]]) -> list[str]:
    """Choose the readings whose lag is kept: the first of each hour, by slot.

    Parameters
    ----------
    readings
        (slot, snapshot id), in any order.

    Returns
    -------
    list of str
        Snapshot ids, oldest first; of what was chosen once the same is chosen again.

    Examples
    --------
    >>> day = datetime(2026, 3, 1, tzinfo=UTC)
    >>> hourly([(day.replace(minute=5), "b"), (day, "a"), (day.replace(hour=1), "c")])
    ['a', 'c']
    """
    first: dict[datetime, str] = {}
    for slot, snapshot_id in sorted(readings):
        first.setdefault(slot.replace(minute=0, second=0, microsecond=0), snapshot_id)
    return list(first.values())


def thin_days(work: Upkeep) -> None:
    """Thin the days that are old enough.

    Raises
    ------
    LakeError
        When the markers cannot be read; what cannot be written is set aside.
    """
    raw_days = work.settings.raw_days
    files = work.files(SNAPSHOTS)
    if raw_days is None or files is None:
        return
    for cluster in files.clusters:
        if work.wants(cluster):
            _thin_cluster(work, cluster, work.today - timedelta(days=raw_days))


def _thin_cluster(work: Upkeep, cluster: str, before: date) -> None:
    days = _days_to_thin(work, cluster, before)
    days = {day: readings for day, readings in days.items() if day in _audited(work, cluster, days)}
    if not days:
        return
    rows = {day: _row(work, cluster, day, readings) for day, readings in sorted(days.items())}
    what = f"set down that {len(rows)} days of {cluster} are thinned"
    if not work.do(what, "begun", partial(_set_down, work, cluster, list(rows.values()))):
        if work.is_dry_run:
            work.done["thinned"] += len(rows)
        return
    for day, row in rows.items():
        what = f"thin {day} of {cluster} from {row['num_snapshots']} readings to {row['kept']}"
        work.do(what, "thinned", partial(_thin_day, work, cluster, day, row))


def _days_to_thin(work: Upkeep, cluster: str, before: date) -> dict[date, list[tuple[datetime, str]]]:
    """Readings by slot's day, of the days with more than is kept of them or with what was not finished."""
    rows = work.reader.read(
        SNAPSHOTS,
        columns=["day", "slot", "snapshot_id", "started_at"],
        filters=[("cluster", "=", cluster), ("day", "<", before)],
    ).to_pylist()
    # A reading may be made long after its slot: then its day stays until the reading is as old.
    young_from = datetime.combine(before, time(), UTC)
    young = {row["day"] for row in rows if row["started_at"] >= young_from}
    days: dict[date, list[tuple[datetime, str]]] = {}
    for row in rows:
        if row["day"] not in young:
            days.setdefault(row["day"], []).append((row["slot"], row["snapshot_id"]))
    done = {row["day"] for row in read_thinned(work, cluster) if row["downsampled_at"] is not None}
    return {day: found for day, found in days.items() if day not in done or len(found) > len(hourly(found))}


def read_thinned(work: Upkeep, cluster: str) -> list[dict[str, Any]]:
    """Rows of ``downsampled_days`` of a cluster."""
    found: list[dict[str, Any]] = work.reader.read(
        DOWNSAMPLED_DAYS, filters=[("cluster", "=", cluster)]
    ).to_pylist()
    return found


def _audited(work: Upkeep, cluster: str, days: Mapping[date, Sequence[tuple[datetime, str]]]) -> set[date]:
    """The days of which every reading is audited; the audit is brought up to date if it has to be."""
    missing = _not_audited(work, cluster, days)
    if missing and not work.is_dry_run:
        work.do(f"audit {cluster}", "audited", partial(audit_assignments, work.lake, cluster))
        missing = _not_audited(work, cluster, days)
        for day in sorted(missing):
            work.leave(f"thin {day} of {cluster}: not all of its readings are audited")
    return set(days) - (set() if work.is_dry_run else missing)


def _not_audited(
    work: Upkeep, cluster: str, days: Mapping[date, Sequence[tuple[datetime, str]]]
) -> set[date]:
    if not days:
        return set()
    rows = work.reader.read(AUDITED_SNAPSHOTS, columns=["snapshot_id"], filters=[("cluster", "=", cluster)])
    known = set(rows["snapshot_id"].to_pylist())
    return {day for day, readings in days.items() if any(name not in known for _, name in readings)}


def _row(work: Upkeep, cluster: str, day: date, readings: Sequence[tuple[datetime, str]]) -> dict[str, Any]:
    before = {row["day"]: row["num_snapshots"] for row in read_thinned(work, cluster)}
    kept = hourly(readings)
    return {
        "cluster": cluster,
        "day": day,
        "num_snapshots": max(len(readings), before.get(day, 0)),
        "kept_snapshot_ids": kept,
        "kept": len(kept),
    }


def _set_down(
    work: Upkeep, cluster: str, rows: Sequence[Mapping[str, Any]], downsampled_at: datetime | None = None
) -> None:
    found = [
        (row["cluster"], row["day"], row["num_snapshots"], row["kept_snapshot_ids"], downsampled_at)
        for row in rows
    ]
    frame = work.lake.spark.createDataFrame(found, DOWNSAMPLED_DAYS.ddl)
    work.lake.replace_days(DOWNSAMPLED_DAYS, frame, cluster, [row["day"] for row in rows])


def _thin_day(work: Upkeep, cluster: str, day: date, row: Mapping[str, Any]) -> None:
    kept = list(row["kept_snapshot_ids"])
    delete_rows(work, SNAPSHOTS, (cluster, day), "snapshot_id", kept, keep=True)
    delete_rows(work, LAG, (cluster, day), "snapshot_id", kept, keep=True)
    limit = work.age_limit(work.settings.orphan_days or _SAFE_DAYS)
    for table in _DROPPED:
        files = work.files(table)
        parts = () if files is None else files.by_day.get((cluster, day), ())
        # What is young is being written for this slot at this moment, or was an hour ago: orphans see to it.
        if parts and max(file.written_at for file in parts) < limit:
            _drop_day(work, table, cluster, day)
    _set_down(work, cluster, [row], work.now)


_SAFE_DAYS: Final = 3


def _drop_day(work: Upkeep, table: Table, cluster: str, day: date) -> None:
    """Drop a whole partition: files leave the log, and none is read or written."""
    from delta.tables import DeltaTable
    from pyspark.sql import functions as sf

    condition = (sf.col("cluster") == cluster) & (sf.col("day") == sf.lit(day))
    path = work.lake.paths.table(table)
    work.lake.write(table, lambda: DeltaTable.forPath(work.lake.spark, path).delete(condition))
