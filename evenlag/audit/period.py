"""A period of the audit, read from the lake: memberships, ownership, and the snapshots behind them."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.audit.interval_merge import join_days
from evenlag.errors import LakeError, NotFoundError, UsageError
from evenlag.formatting import did_you_mean, moment
from evenlag.lake.filters import Filter, matching, of_group
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import AUDITED_SNAPSHOTS, DOWNSAMPLED_DAYS, MEMBERSHIPS, OWNERSHIP, SNAPSHOTS
from evenlag.queries.lag import CLIENT_COLUMNS, client_names

MEMBERSHIP_KEY: Final = ("group_id",)
OWNERSHIP_KEY: Final = ("group_id", "topic", "topic_id", "partition", "member_id")
# Snapshots may be late or skipped. Beyond this many median distances, the time in between is a gap.
_USUAL_DISTANCES: Final = 3.0
_USUAL_PERIOD: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class AuditedPeriod:
    """Audit of a cluster, or of one of its groups, for a period.

    snapshots: Rows of ``audited_snapshots`` by start time, with those just before and after the period.
    memberships, ownership: Rows of these tables, merged over midnight.
    num_unaudited: Snapshots of the period that are not in the audit yet; for a moment, those next to it.
    max_gap_ms: Snapshots further apart than this prove nothing about the time between them.
    downsampled_days: Days (of slots) of which lag is kept for one snapshot per hour.
    """

    cluster: str
    group_id: str | None
    since: datetime
    until: datetime
    snapshots: pa.Table
    memberships: pa.Table
    ownership: pa.Table
    num_unaudited: int
    max_gap_ms: float
    downsampled_days: tuple[date, ...] = ()

    def started_us(self) -> np.ndarray:
        """Start of each row of `snapshots`, in microseconds since the epoch; int64, shape (snapshots,)."""
        return _micros(self.snapshots, "started_at")

    def finished_us(self) -> np.ndarray:
        """End of each row of `snapshots`, in microseconds since the epoch; int64, shape (snapshots,)."""
        return _micros(self.snapshots, "finished_at")

    def snapshot_ids(self) -> pa.Array:
        """Ids of `snapshots`, in their order; shape (snapshots,)."""
        return self.snapshots["snapshot_id"].combine_chunks()

    def value_at(self, place: int | None, name: str) -> Any:
        """Value of a column of `snapshots` in a row; None where there is no such row."""
        is_there = place is not None and 0 <= place < self.snapshots.num_rows
        return self.snapshots[name][place].as_py() if is_there else None

    def slot_filters(self) -> list[Filter]:
        """Filters on the cluster, the days of the slots and the group, for tables partitioned by slot day."""
        return _slot_filters(self.cluster, self.snapshots, self.group_id)

    def client_names(self) -> dict[str, str]:
        """Name of the client of each member that the period shows: instance id, or else client id."""
        members = pc.list_flatten(self.memberships["members"])
        columns = {name: pc.struct_field(members, name) for name in CLIENT_COLUMNS}
        return client_names(pa.table(columns).group_by(list(CLIENT_COLUMNS)).aggregate([]).to_pylist())

    def rests_on(self) -> dict[str, Any]:
        """Describe the input of the answer, to reproduce it."""
        started = self.snapshots["started_at"]
        inside = self.snapshots.filter(
            pc.and_(pc.greater_equal(started, self.since), pc.less_equal(started, self.until))
        )
        ids = inside["snapshot_id"].to_pylist()
        days = self.snapshots.select(["day", "input_hash"]).to_pylist()
        return {
            "cluster": self.cluster,
            "since": self.since,
            "until": self.until,
            "num_snapshots": len(ids),
            "first_snapshot_id": ids[0] if ids else None,
            "last_snapshot_id": ids[-1] if ids else None,
            "num_snapshots_not_audited": self.num_unaudited,
            "max_gap_ms": self.max_gap_ms,
            "downsampled_days": list(self.downsampled_days),
            "input_hash_of_days": [day for _, day in sorted({row["day"]: row for row in days}.items())],
        }


def read_period(
    reader: LakeReader,
    cluster: str,
    since: datetime | None = None,
    until: datetime | None = None,
    *,
    group_id: str | None = None,
    max_gap_s: float | None = None,
) -> AuditedPeriod:
    """Read a period, with the snapshots just before and after it; by default the last 24 hours.

    max_gap_s: Longest time between two snapshots for which equal content proves that nothing changed in
        between; by default three times the median distance.
    """
    newest = reader.read_newest(AUDITED_SNAPSHOTS, "started_at", filters=matching(cluster=cluster))
    if newest.num_rows == 0:
        raise NotFoundError(
            f"the audit of {cluster} has not run yet: evenlag audit build --cluster {cluster} --lake "
            f"{reader.paths.root}, or Airflow's DAG assignment_audit"
        )
    asked_until = until
    if until is None:
        last_end: datetime = newest.sort_by("snapshot_id")["finished_at"][-1].as_py()
        until = last_end if since is None else max(last_end, since)
    since = since or until - _USUAL_PERIOD
    if since > until:
        raise UsageError(f"the period ends ({moment(until)}) before it begins ({moment(since)})")
    first, last = _days_of(reader, cluster, since, until)
    of_days = matching(cluster=cluster, since=first, until=last)
    audited = reader.read(AUDITED_SNAPSHOTS, filters=of_days)
    snapshots = audited.sort_by([("started_at", "ascending"), ("snapshot_id", "ascending")]).combine_chunks()
    wanted = of_days + of_group(group_id)
    memberships = reader.read(MEMBERSHIPS, filters=wanted)
    if group_id is not None and memberships.num_rows == 0:
        known = set(reader.read(MEMBERSHIPS, columns=["group_id"], filters=of_days)["group_id"].to_pylist())
        meant = did_you_mean(group_id, known)
        raise NotFoundError(f"no snapshot of {cluster} in this period shows the group {group_id!r}{meant}")
    ownership = reader.read(OWNERSHIP, filters=wanted)
    for table in (memberships, ownership):
        _check_basis(table, snapshots)
    return AuditedPeriod(
        cluster=cluster,
        group_id=group_id,
        since=since,
        until=until,
        snapshots=snapshots,
        memberships=join_days(memberships, snapshots, MEMBERSHIP_KEY),
        ownership=join_days(ownership, snapshots, OWNERSHIP_KEY),
        # Without a requested end, snapshots after the newest audited one count as missing.
        num_unaudited=_count_unaudited(reader, cluster, snapshots, since, asked_until),
        max_gap_ms=1000 * max_gap_s if max_gap_s is not None else _usual_gap_ms(snapshots),
        downsampled_days=_downsampled_days(reader, cluster, snapshots),
    )


def require_snapshots(period: AuditedPeriod) -> None:
    """Check that a snapshot was taken within a period, not only before or after it."""
    started, finished = period.snapshots["started_at"], period.snapshots["finished_at"]
    inside = pc.and_(pc.less_equal(started, period.until), pc.greater_equal(finished, period.since))
    if pc.any(inside).as_py():
        return
    asked = f"from {moment(period.since)} to {moment(period.until)}"
    if period.num_unaudited:
        raise NotFoundError(
            f"the {period.num_unaudited} snapshots of {period.cluster} {asked} are not in the audit yet: "
            "evenlag audit build"
        )
    earlier = pc.max(finished.filter(pc.less(finished, period.since))).as_py()
    later = pc.min(started.filter(pc.greater(started, period.until))).as_py()
    beside = [f"the last before it ended at {moment(earlier)}"] if earlier else []
    beside += [f"the first after it began at {moment(later)}"] if later else []
    raise NotFoundError(f"no snapshot of {period.cluster} was taken {asked}: {', '.join(beside)}")


def _days_of(reader: LakeReader, cluster: str, since: datetime, until: datetime) -> tuple[date, date]:
    """First and last day to read: from the last snapshot before a period to the first one after it."""
    before: Filter = ("finished_at", "<=", since)
    after: Filter = ("started_at", ">=", until)
    first = _edge(reader, cluster, "finished_at", before) or _edge(reader, cluster, "day", is_oldest=True)
    last = _edge(reader, cluster, "started_at", after, is_oldest=True) or _edge(reader, cluster, "day")
    if first is None or last is None:
        raise NotFoundError(f"the audit of {cluster} has no snapshot")
    return first, last


def _edge(reader: LakeReader, cluster: str, by: str, *wanted: Filter, is_oldest: bool = False) -> date | None:
    """Newest or oldest day of the audited snapshots that are nearest to a moment."""
    filters = [*matching(cluster=cluster), *wanted]
    rows = reader.read_newest(AUDITED_SNAPSHOTS, by, columns=["day"], filters=filters, is_oldest=is_oldest)
    return (min if is_oldest else max)(rows["day"].to_pylist(), default=None)


def _check_basis(rows: pa.Table, snapshots: pa.Table) -> None:
    """Check that all tables of a day have the same input: they are written one after the other."""
    known = set(zip(snapshots["day"].to_pylist(), snapshots["input_hash"].to_pylist(), strict=True))
    seen = rows.group_by(["day", "input_hash"]).aggregate([]).to_pylist()
    ahead = sorted({row["day"] for row in seen if (row["day"], row["input_hash"]) not in known})
    if ahead:
        raise LakeError(
            f"the audit of {ahead[0]} is being rebuilt, or its last run was interrupted: try again, and if "
            "the error persists, run evenlag audit build"
        )


def _count_unaudited(
    reader: LakeReader, cluster: str, audited: pa.Table, since: datetime, until: datetime | None
) -> int:
    """Number of snapshots that are not audited: in a period, or between the audited ones around a moment."""
    first: datetime = since
    last = until
    if since == until:
        started = audited["started_at"]
        first = pc.max(started.filter(pc.less_equal(audited["finished_at"], since))).as_py() or since
        # Without an audited snapshot after the moment, every later one is relevant.
        last = pc.min(started.filter(pc.greater_equal(started, until))).as_py()
    # The table is partitioned by the day of the slot: the same day as the start, or the day before.
    day_before = date.fromordinal(max(1, first.toordinal() - 1))
    filters = [*matching(cluster=cluster, since=day_before), ("started_at", ">=", first)]
    if last is not None:
        filters += [("day", "<=", last.date()), ("started_at", "<=", last)]
    found = reader.read(SNAPSHOTS, columns=["snapshot_id"], filters=filters)["snapshot_id"]
    is_known = pc.is_in(found, value_set=audited["snapshot_id"].combine_chunks())
    return len(found) - (pc.sum(is_known).as_py() or 0)


def _downsampled_days(reader: LakeReader, cluster: str, snapshots: pa.Table) -> tuple[date, ...]:
    """Days of the snapshots' slots that maintenance has downsampled or is downsampling."""
    if snapshots["slot"].null_count == snapshots.num_rows:
        return ()
    filters = _slot_filters(cluster, snapshots)
    return tuple(sorted(reader.read(DOWNSAMPLED_DAYS, columns=["day"], filters=filters)["day"].to_pylist()))


def _slot_filters(cluster: str, snapshots: pa.Table, group_id: str | None = None) -> list[Filter]:
    slots = pc.min_max(snapshots["slot"]).as_py()
    of_days = matching(cluster=cluster, since=slots["min"].date(), until=slots["max"].date())
    return of_days + of_group(group_id)


def _usual_gap_ms(snapshots: pa.Table) -> float:
    started = _micros(snapshots, "started_at")
    return float(_USUAL_DISTANCES * np.median(np.diff(started)) / 1000) if len(started) > 1 else float("inf")


def _micros(rows: pa.Table, name: str) -> np.ndarray:
    return np.asarray(rows[name].to_numpy().astype("datetime64[us]").astype(np.int64))
