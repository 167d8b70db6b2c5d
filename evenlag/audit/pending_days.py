"""Days to audit: those whose finished snapshots differ from the ones that their audit was built from.

An audited day is a UTC day; its snapshots are those that started on it, whatever their slots. Nothing here
reads more than a month of snapshots at once.
"""

import hashlib
import json
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from typing import Any, Final

from evenlag.lake.filters import Filter, matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import AUDITED_SNAPSHOTS, DOWNSAMPLED_DAYS, RUNS, SNAPSHOTS
from evenlag.lake.writer import append_once

_COLUMNS: Final = ("day", "slot", "snapshot_id", "started_at", "finished_at")
_ONE_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class AuditDay:
    """A day with finished snapshots, one per slot, oldest first, and how it differs from its audit.

    slot_days: Days that their rows are stored under.
    is_audited: Whether its audit was built from them, by this version.
    has_same_snapshots: Whether its audit was built from them, by any version.
    is_trimmed: Whether snapshots that its audit was built from are gone.
    is_downsampled: Whether maintenance has downsampled all days of the slots.
    """

    day: date
    snapshots: tuple[dict[str, Any], ...]
    slot_days: frozenset[date]
    input_hash: str
    is_audited: bool
    has_same_snapshots: bool
    is_trimmed: bool
    is_downsampled: bool


def read_start_days(
    reader: LakeReader, cluster: str, *slots: Filter, written_since: datetime | None = None
) -> set[date]:
    """Read the days on which snapshots started: of some slots, or in files written since a moment."""
    filters = [*matching(cluster=cluster), *slots]
    rows = reader.read(SNAPSHOTS, columns=["started_at"], filters=filters, written_since=written_since)
    return _days(rows["started_at"].to_pylist())


def read_edge_day(reader: LakeReader, cluster: str, *, is_first: bool = False) -> date | None:
    """Read the last day on which a cluster has a snapshot, or the first one; None without snapshots."""
    of_cluster = matching(cluster=cluster)
    found = reader.read_newest(
        SNAPSHOTS, "started_at", columns=["started_at"], filters=of_cluster, is_oldest=is_first
    )
    return next(iter(sorted(_days(found["started_at"].to_pylist()))), None)


def read_audit_days(
    reader: LakeReader, cluster: str, days: Iterable[date], *, version: int
) -> Iterator[AuditDay]:
    """Read days that have a snapshot and compare them to their audit, a month at a time, oldest first."""
    for _, of_month in groupby(sorted(set(days)), key=lambda day: (day.year, day.month)):
        yield from _read_month(reader, cluster, list(of_month), version)


def _read_month(reader: LakeReader, cluster: str, days: list[date], version: int) -> Iterator[AuditDay]:
    markers = _read_snapshots(reader, cluster, days)
    if not markers:
        return
    audited = matching(cluster=cluster, day=sorted(markers))
    old_ids: dict[date, set[str]] = defaultdict(set)
    old_hashes: dict[date, set[str]] = defaultdict(set)
    columns = ["day", "snapshot_id", "input_hash"]
    for row in reader.read(AUDITED_SNAPSHOTS, columns=columns, filters=audited).to_pylist():
        old_ids[row["day"]].add(row["snapshot_id"])
        old_hashes[row["day"]].add(row["input_hash"])
    slot_days = {row["day"] for rows in markers.values() for row in rows}
    filters = matching(cluster=cluster, day=sorted(slot_days))
    downsampled = set(reader.read(DOWNSAMPLED_DAYS, columns=["day"], filters=filters)["day"].to_pylist())
    for day, rows in sorted(markers.items()):
        ids = {row["snapshot_id"] for row in rows}
        input_hash = hash_snapshots(ids, version)
        own_days = frozenset(row["day"] for row in rows)
        yield AuditDay(
            day=day,
            snapshots=tuple({name: row[name] for name in _COLUMNS[1:]} for row in rows),
            slot_days=own_days,
            input_hash=input_hash,
            is_audited=old_hashes[day] == {input_hash},
            has_same_snapshots=ids == old_ids[day],
            is_trimmed=bool(old_ids[day] - ids),
            is_downsampled=own_days <= downsampled,
        )


def _read_snapshots(reader: LakeReader, cluster: str, days: list[date]) -> dict[date, list[dict[str, Any]]]:
    """Snapshots by the day on which they started, one per slot: the one that started first."""
    wanted = set(days)
    since, until = (datetime.combine(day, time(), UTC) for day in (days[0], days[-1] + _ONE_DAY))
    # A slot's snapshot may be taken late: its slot is of an earlier day, and a second snapshot of the slot is
    # stored under that day, whenever it started.
    started = [*matching(cluster=cluster), ("started_at", ">=", since), ("started_at", "<", until)]
    slot_days = reader.read(SNAPSHOTS, columns=["day"], filters=started)["day"].unique()
    if not len(slot_days):
        return {}
    same_slots = matching(cluster=cluster, day=slot_days.to_pylist())
    rows = reader.read(SNAPSHOTS, columns=list(_COLUMNS), filters=same_slots).to_pylist()
    first: dict[datetime, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["started_at"], row["snapshot_id"])):
        first.setdefault(row["slot"], row)
    found: dict[date, list[dict[str, Any]]] = defaultdict(list)
    for row in first.values():
        day = row["started_at"].astimezone(UTC).date()
        if day in wanted:
            found[day].append(row)
    return dict(found)


def hash_snapshots(snapshot_ids: Collection[str], version: int) -> str:
    """Return the ``input_hash`` of a day: a SHA-256 in hexadecimal digits."""
    return hashlib.sha256("\n".join([f"audit {version}", *sorted(snapshot_ids)]).encode()).hexdigest()


def _days(moments: Iterable[datetime]) -> set[date]:
    return {moment.astimezone(UTC).date() for moment in moments}


AUDIT_STEP: Final = "audit"


@dataclass(frozen=True, slots=True)
class AuditProgress:
    """What earlier runs have compared and audited, by the version of the audit that they built.

    checked_at: All snapshots whose markers were written before this time have been compared to the audit.
    backlog_from: First day of those that still have to be compared: after a new version, or for a rebuild.
    is_rebuild: Whether the days of the backlog are audited again even if nothing has changed.
    """

    version: int
    checked_at: datetime
    backlog_from: date | None = None
    is_rebuild: bool = False


def read_progress(reader: LakeReader, cluster: str) -> AuditProgress | None:
    """Read the newest progress of a cluster's audit; None if no run has recorded any."""
    filters = matching(cluster=cluster, step=AUDIT_STEP)
    columns = ["finished_at", "summary"]
    newest = reader.read_newest(RUNS, "finished_at", columns=columns, filters=filters).to_pylist()
    if not newest:
        return None
    kept = json.loads(newest[0]["summary"])
    backlog_from = kept["backlog_from"]
    return AuditProgress(
        version=kept["version"],
        checked_at=datetime.fromisoformat(kept["checked_at"]),
        backlog_from=None if backlog_from is None else date.fromisoformat(backlog_from),
        is_rebuild=kept["is_rebuild"],
    )


def record_progress(root: str, cluster: str, progress: AuditProgress, started_at: datetime) -> None:
    """Record the progress of a run."""
    now = datetime.now(UTC)
    run_id = f"audit__{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    summary = json.dumps(asdict(progress), sort_keys=True, default=lambda moment: moment.isoformat())
    row = {
        "cluster": cluster,
        "day": now.date(),
        "run_id": run_id,
        "step": AUDIT_STEP,
        "slot": started_at,
        "started_at": started_at,
        "finished_at": now,
        "summary": summary,
    }
    append_once(root, RUNS, [row], None)
