"""Health of the lake: of its tables by their Delta logs, and freshness by the snapshots' markers.

The checks need no JVM, so a command can run them. Maintenance records the verdicts in ``table_health``;
alerts use the newest ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import SchemaError
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.schema_evolution import PROTOCOL, missing_columns, unknown_columns
from evenlag.lake.table_metadata import TableFiles, read_table_files
from evenlag.lake.table_properties import wanted_properties
from evenlag.lake.tables import SNAPSHOT_TABLES, SNAPSHOTS, TABLE_HEALTH, TABLES, Table
from evenlag.lake.upkeep.orphans import find_orphans
from evenlag.lake.writer import append_once
from evenlag.policy.cron import last_due

if TYPE_CHECKING:
    from evenlag.policy.settings import MaintenanceSettings, Policy

FRESHNESS: Final = "FRESHNESS"
# Ten times the commits between two checkpoints.
_MAX_COMMITS: Final = 100
_MAX_LOG_BYTES: Final = 1024**3
# A day with a snapshot every five minutes has 288 files before compaction, and a few after it.
_MAX_FILES_PER_PART: Final = 50
_MB: Final = 1024**2
# Maintenance may not have run for yesterday yet.
_DAYS_TO_COMPACT: Final = 2
_LOOK_BACK_DAYS: Final = 7
_LISTED: Final = 5
# The newest run may still be active; the run before it must have left its snapshot.
_DUE_RUNS: Final = 2
# With a schedule of a minute, a repeated task is no fault yet: it takes its delay and its time.
_SHORTEST_LIMIT: Final = timedelta(minutes=3)


@dataclass(frozen=True, slots=True)
class Check:
    """The verdict of one check, in texts for users; the message is the remedy if it failed."""

    table_name: str
    check_name: str
    is_ok: bool
    observed: str
    allowed: str
    message: str


def check_lake(
    reader: LakeReader, settings: MaintenanceSettings, cluster: str, schedule: str | None, now: datetime
) -> list[Check]:
    """Check a cluster's part of all tables, and its snapshots, by the cron expression of its cycles."""
    found: list[Check] = []
    for table in TABLES.values():
        files = read_table_files(reader, table)
        if files is not None:
            found += check_table(table, files, settings, cluster, now)
            if table in SNAPSHOT_TABLES and settings.orphan_days is not None:
                limit = now - timedelta(days=settings.orphan_days)
                found.append(_orphans(reader, table, files, cluster, limit))
    found += _readings(reader, cluster, schedule, now)
    return found


def check_table(
    table: Table, files: TableFiles, settings: MaintenanceSettings, cluster: str, now: datetime
) -> Iterator[Check]:
    """Check one table by its log."""
    yield _schema(table, files)
    yield _make(
        table,
        "PROTOCOL",
        files.protocol == PROTOCOL,
        f"reader {files.protocol[0]}, writer {files.protocol[1]}",
        f"reader {PROTOCOL[0]}, writer {PROTOCOL[1]}",
        "somebody switched on a feature of Delta that other readers lack: make the table anew without it",
    )
    wanted = wanted_properties(table.writer)
    found = {name: files.properties.get(name, "not set") for name in wanted}
    yield _make(
        table,
        "PROPERTIES",
        found == wanted,
        _listed(found),
        _listed(wanted),
        "run maintenance: it sets them",
    )
    if files.commits_since_checkpoint is not None and files.log_bytes is not None:
        yield _make(
            table,
            "LOG",
            files.commits_since_checkpoint <= _MAX_COMMITS and files.log_bytes <= _MAX_LOG_BYTES,
            f"{files.commits_since_checkpoint:,} commits since the last checkpoint, "
            f"{files.log_bytes / _MB:,.1f} MB",
            f"at most {_MAX_COMMITS:,} commits and {_MAX_LOG_BYTES // _MB:,} MB",
            "run maintenance; if it stays, no checkpoint can be written: look at the log of the jobs",
        )
    if settings.target_file_mb is not None:
        yield _files(table, files, cluster, settings.target_file_mb, now)


def keep_checks(root: str, cluster: str, checks: Sequence[Check], now: datetime) -> None:
    """Append verdicts to ``table_health``."""
    head = {"cluster": cluster, "day": now.astimezone(UTC).date(), "checked_at": now}
    append_once(root, TABLE_HEALTH, [head | asdict(check) for check in checks], None)


def newest_faults(reader: LakeReader, cluster: str, now: datetime) -> dict[str, str] | None:
    """Read the messages of the newest failed checks by table; None if nothing was checked within a week.

    Freshness is left out: the alert on stale snapshots reports it.
    """
    since = now.astimezone(UTC).date() - timedelta(days=_LOOK_BACK_DAYS)
    # All checks of a run have the same time.
    of_days = matching(cluster=cluster, since=since)
    rows = reader.read_newest(TABLE_HEALTH, "checked_at", filters=of_days).to_pylist()
    if not rows:
        return None
    faults: dict[str, list[str]] = {}
    for row in rows:
        if not row["is_ok"] and row["check_name"] != FRESHNESS:
            faults.setdefault(row["table_name"], []).append(f"{row['observed']}: {row['message']}")
    return {name: "; ".join(sorted(messages)) for name, messages in sorted(faults.items())}


def schedules_of(policy: Policy) -> dict[str, str | None]:
    """Return the cron expression of each cluster's cycles; None: manual runs."""
    return {name: settings.schedule for name, settings in policy.clusters.items()}


def _make(table: Table, name: str, is_ok: bool, observed: str, allowed: str, remedy: str) -> Check:
    return Check(table.name, name, is_ok, observed, allowed, "as it should be" if is_ok else remedy)


def _schema(table: Table, files: TableFiles) -> Check:
    allowed = "the columns of the contract"
    try:
        missing = missing_columns(table, files.types)
    except SchemaError as error:
        return _make(table, "SCHEMA", False, "a fault", allowed, str(error))
    more = unknown_columns(table, files.types)
    parts = [f"to be added at the next write: {', '.join(c.name for c in missing)}"] if missing else []
    parts += [f"of a newer evenlag: {', '.join(more)}"] if more else []
    return _make(table, "SCHEMA", True, "; ".join(parts) or "the same", allowed, "")


def _files(table: Table, files: TableFiles, cluster: str, target_mb: int, now: datetime) -> Check:
    before = now.astimezone(UTC).date() - timedelta(days=_DAYS_TO_COMPACT - 1)
    counts: dict[date, int] = {}
    for (name, start), parts in files.by_part.items():
        closed = [file for file in parts if file.last_day < before]
        spare = sum(file.size_bytes for file in closed) // (target_mb * _MB)
        if name == cluster and closed:
            counts[start] = len(closed) - spare
    word = "month" if table.is_by_month else "day"
    worst = max(counts, key=lambda day: counts[day]) if counts else None
    most = counts[worst] if worst is not None else 0
    return _make(
        table,
        "FILES",
        most <= _MAX_FILES_PER_PART,
        "none" if worst is None else f"{most} {f'in {worst:%Y-%m}' if table.is_by_month else f'on {worst}'}",
        f"at most {_MAX_FILES_PER_PART} of the closed days of a {word} above what their size asks for",
        "run maintenance, and see in its log what it left or could not do",
    )


def _orphans(reader: LakeReader, table: Table, files: TableFiles, cluster: str, limit: datetime) -> Check:
    num_rows = sum(find_orphans(reader, table, files, cluster, limit).values(), Counter[str]())
    return _make(
        table,
        "ORPHANS",
        not num_rows,
        f"{num_rows.total():,} rows of {len(num_rows)} readings that were never finished",
        "none that is older than orphan_days",
        "run maintenance: it removes them",
    )


def _readings(reader: LakeReader, cluster: str, schedule: str | None, now: datetime) -> Iterator[Check]:
    today = now.astimezone(UTC).date()
    since = today - timedelta(days=_LOOK_BACK_DAYS)
    recent = reader.read(SNAPSHOTS, columns=["day"], filters=matching(cluster=cluster, since=since))
    days = set(recent["day"].to_pylist())
    before = matching(cluster=cluster, until=since - timedelta(days=1))
    earlier = reader.read_newest(SNAPSHOTS, "day", columns=["day"], filters=before)
    if schedule is not None and (days or earlier.num_rows):
        first = since if earlier.num_rows else min(days)
        wanted = [first + timedelta(days=number) for number in range((today - first).days)]
        missing = [day.isoformat() for day in wanted if day not in days and _is_due(schedule, day)]
        yield _make(
            SNAPSHOTS,
            "MISSING_DAYS",
            not missing,
            f"no reading on {', '.join(missing[:_LISTED]) or 'no day'}",
            f"a reading on each of the last {_LOOK_BACK_DAYS} closed days on which a run was due",
            "nobody watched the cluster then, and it cannot be read afterwards: why did its cycles not run?",
        )
    fresh = read_freshness(reader, cluster, schedule, now)
    limit = "by the schedule" if fresh.limit_s is None else f"{fresh.limit_s:,.0f} s"
    yield Check(SNAPSHOTS.name, FRESHNESS, fresh.is_fresh, str(fresh.snapshot_id), limit, fresh.reason)


def _is_due(schedule: str, day: date) -> bool:
    return last_due(schedule, datetime.combine(day, time.max, UTC), 1)[0].date() == day


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.removeprefix('delta.')}: {value}" for name, value in values.items())


@dataclass(frozen=True, slots=True)
class Freshness:
    """Freshness of a cluster's newest finished snapshot; None if there is none.

    limit_s: Allowed age: since its end or, by a schedule, since its slot; None: any age.
    """

    cluster: str
    snapshot_id: str | None
    slot: datetime | None
    finished_at: datetime | None
    age_s: float | None
    limit_s: float | None
    is_fresh: bool
    reason: str


def read_freshness(
    reader: LakeReader, cluster: str, schedule: str | None, now: datetime, *, max_age_s: float | None = None
) -> Freshness:
    """Check the age of the newest snapshot of a cluster.

    Without `max_age_s` the schedule decides: the last run may still be active, the run before it must have
    left a snapshot. A snapshot of the last three minutes is always fresh. A cluster without a schedule is run
    manually, and any snapshot is fresh.
    """
    limit_s, due = max_age_s, None
    if max_age_s is None and schedule is not None:
        due = min(last_due(schedule, now, _DUE_RUNS)[-1], now - _SHORTEST_LIMIT)
        limit_s = (now - due).total_seconds()
    row = reader.latest_snapshot(cluster)
    if row is None:
        reason = "there is no finished snapshot yet"
        return Freshness(cluster, None, None, None, None, limit_s, is_fresh=False, reason=reason)
    age_s = (now - row["finished_at"]).total_seconds()
    is_fresh, reason = True, "; there is no schedule, runs are by hand"
    if max_age_s is not None:
        is_fresh, reason = age_s <= max_age_s, f", at most {max_age_s:,.0f} s are allowed"
    elif due is not None:
        is_fresh = row["slot"] >= due
        reason = f"; by the schedule {schedule} there has to be one for {due:%Y-%m-%d %H:%M}Z or later"
    found = (row["snapshot_id"], row["slot"], row["finished_at"], age_s, limit_s)
    return Freshness(cluster, *found, is_fresh, f"the newest snapshot is {age_s:,.0f} s old{reason}")
