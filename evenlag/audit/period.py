"""A period of the audit, read from the lake: memberships, ownership, and the readings they rest on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.interval_merge import join_days
from evenlag.cli.console import moment
from evenlag.cli.options import NothingThereError, UsageError, did_you_mean
from evenlag.errors import LakeError

if TYPE_CHECKING:
    from datetime import datetime

    import numpy as np
    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

MEMBERSHIP_KEY: Final = ("group_id",)
OWNERSHIP_KEY: Final = ("group_id", "topic", "topic_id", "partition", "member_id")
# Readings come late and are skipped now and then; from here on nobody knows what was in between.
_USUAL_DISTANCES: Final = 3.0
_USUAL_PERIOD: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class AuditedPeriod:
    """What the audit says of a cluster, or of one group of it, from one moment to another.

    Attributes
    ----------
    cluster, group_id
        What it is of; all groups when the second is None.
    since, until
        The moments asked for.
    snapshots
        Rows of ``audited_snapshots`` in the order of their readings: all of the days that were read, so that
        the neighbours of the period are among them.
    memberships, ownership
        Rows of these tables, joined over midnight; see :func:`evenlag.audit.interval_merge.join_days`.
    num_unaudited
        Snapshots of the period that the audit does not have yet; of a moment, those next to it.
    downsampled_days
        Days of slots whose readings maintenance has thinned: stretches stand, lag is of one reading an hour.
    max_gap_ms
        From this time between two readings on, nothing is claimed of what was in between.
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
        """When each of `snapshots` began, in microseconds since the epoch."""
        return _micros(self.snapshots, "started_at")

    def finished_us(self) -> np.ndarray:
        """When each of `snapshots` ended, in microseconds since the epoch."""
        return _micros(self.snapshots, "finished_at")

    def snapshot_ids(self) -> pa.Array:
        """Ids of `snapshots`, in their order."""
        return self.snapshots["snapshot_id"].combine_chunks()

    def slot_filters(self) -> list[Filter]:
        """Filters for what the readings left in tables that are stored by the slot's day."""
        import pyarrow.compute as pc

        slots = pc.min_max(self.snapshots["slot"]).as_py()
        filters: list[Filter] = [
            ("cluster", "=", self.cluster),
            ("day", ">=", slots["min"].date()),
            ("day", "<=", slots["max"].date()),
        ]
        return filters if self.group_id is None else [*filters, ("group_id", "=", self.group_id)]

    def rests_on(self) -> dict[str, Any]:
        """What the answer can be reproduced from: the period's readings, and the hash of each day's."""
        import pyarrow.compute as pc

        started = self.snapshots["started_at"]
        inside = self.snapshots.filter(
            pc.and_(pc.greater_equal(started, self.since), pc.less_equal(started, self.until))
        )
        ids = inside["snapshot_id"].to_pylist()
        days = dict(
            zip(self.snapshots["day"].to_pylist(), self.snapshots["input_hash"].to_pylist(), strict=True)
        )
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
            "input_hash_of_days": [
                {"day": day, "input_hash": input_hash} for day, input_hash in sorted(days.items())
            ],
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
    """Read a period, with the readings just before and after it.

    Parameters
    ----------
    since, until
        The moments; all whole UTC days that they touch are read. Without an end, that of the newest reading;
        without a begin, 24 hours before the end.
    group_id
        One group only.
    max_gap_s
        Longest time between two readings for which what both show is taken to have been so in between; three
        times the usual distance when not given.

    Raises
    ------
    NothingThereError
        When the cluster has not been audited, or the group is not in the audit.
    UsageError
        When the period ends before it begins.
    LakeError
        When a table cannot be read, or a day is being written at this moment.
    """
    from evenlag.lake.tables import AUDITED_SNAPSHOTS, MEMBERSHIPS, OWNERSHIP

    audited = reader.read(AUDITED_SNAPSHOTS, filters=[("cluster", "=", cluster)])
    if audited.num_rows == 0:
        raise NothingThereError(
            f"the audit of {cluster} has not run yet: evenlag audit build --cluster {cluster} --lake "
            f"{reader.paths.root}, or Airflow's DAG assignment_audit"
        )
    audited = audited.sort_by([("started_at", "ascending"), ("snapshot_id", "ascending")])
    asked_until = until
    if until is None:
        newest: datetime = audited["finished_at"][-1].as_py()
        until = newest if since is None else max(newest, since)
    since = since or until - _USUAL_PERIOD
    if since > until:
        raise UsageError(f"the period ends ({moment(until)}) before it begins ({moment(since)})")
    first, last = _days_of(audited, since, until)
    filters: list[Filter] = [("cluster", "=", cluster), ("day", ">=", first), ("day", "<=", last)]
    snapshots = _between(audited, first, last)
    of_group: list[Filter] = [] if group_id is None else [("group_id", "=", group_id)]
    memberships = reader.read(MEMBERSHIPS, filters=filters + of_group)
    if group_id is not None and memberships.num_rows == 0:
        raise NothingThereError(_no_such_group(reader, cluster, group_id, filters))
    ownership = reader.read(OWNERSHIP, filters=filters + of_group)
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
        # Up to the newest snapshot that the audit has is also up to those that it lacks.
        num_unaudited=_count_unaudited(reader, cluster, audited, since, asked_until),
        max_gap_ms=1000 * max_gap_s if max_gap_s is not None else _usual_gap_ms(snapshots),
        downsampled_days=_thinned_days(reader, cluster, snapshots),
    )


def require_snapshots(period: AuditedPeriod) -> None:
    """Make sure that a snapshot was taken in a period: an answer about it must not rest on others alone.

    Raises
    ------
    NothingThereError
        When none was.
    """
    import pyarrow.compute as pc

    started, finished = period.snapshots["started_at"], period.snapshots["finished_at"]
    inside = pc.and_(pc.less_equal(started, period.until), pc.greater_equal(finished, period.since))
    if pc.any(inside).as_py():
        return
    asked = f"from {moment(period.since)} to {moment(period.until)}"
    if period.num_unaudited:
        raise NothingThereError(
            f"the {period.num_unaudited} snapshots of {period.cluster} {asked} are not in the audit yet: "
            "evenlag audit build"
        )
    earlier = pc.max(finished.filter(pc.less(finished, period.since))).as_py()
    later = pc.min(started.filter(pc.greater(started, period.until))).as_py()
    beside = [f"the last before ended at {moment(earlier)}"] if earlier else []
    beside += [f"the first after began at {moment(later)}"] if later else []
    raise NothingThereError(f"no snapshot of {period.cluster} was taken {asked}: {', '.join(beside)}")


def _days_of(audited: pa.Table, since: datetime, until: datetime) -> tuple[date, date]:
    """The days from the last reading before a period to the first one after it."""
    import pyarrow.compute as pc

    before = audited.filter(pc.less_equal(audited["finished_at"], since))["day"]
    after = audited.filter(pc.greater_equal(audited["started_at"], until))["day"]
    first = pc.max(before).as_py() or pc.min(audited["day"]).as_py()
    last = pc.min(after).as_py() or pc.max(audited["day"]).as_py()
    return first, last


def _between(audited: pa.Table, first: date, last: date) -> pa.Table:
    import pyarrow.compute as pc

    days = audited["day"]
    return audited.filter(pc.and_(pc.greater_equal(days, first), pc.less_equal(days, last))).combine_chunks()


def _check_basis(rows: pa.Table, snapshots: pa.Table) -> None:
    """A day is written table by table: until the last one is there, the others may be ahead of it."""
    known = set(zip(snapshots["day"].to_pylist(), snapshots["input_hash"].to_pylist(), strict=True))
    seen = rows.group_by(["day", "input_hash"]).aggregate([]).to_pylist()
    ahead = sorted({row["day"] for row in seen if (row["day"], row["input_hash"]) not in known})
    if ahead:
        raise LakeError(
            f"the audit of {ahead[0]} is being made anew, or was stopped in between: try again, and if it "
            "stays, run evenlag audit build"
        )


def _count_unaudited(
    reader: LakeReader, cluster: str, audited: pa.Table, since: datetime, until: datetime | None
) -> int:
    """Snapshots that the audit lacks: of a period, or between the audited ones around a moment."""
    import pyarrow.compute as pc

    from evenlag.lake.tables import SNAPSHOTS

    first: datetime = since
    last = until
    if since == until:
        started = audited["started_at"]
        first = pc.max(started.filter(pc.less_equal(audited["finished_at"], since))).as_py() or since
        # Without an audited one after it, each later one would say more.
        last = pc.min(started.filter(pc.greater_equal(started, until))).as_py()
    filters: list[Filter] = [
        ("cluster", "=", cluster),
        # By the slot's day, which is mostly the same one or the one before.
        ("day", ">=", date.fromordinal(max(1, first.toordinal() - 1))),
        ("started_at", ">=", first),
    ]
    if last is not None:
        filters += [("day", "<=", last.date()), ("started_at", "<=", last)]
    found = reader.read(SNAPSHOTS, columns=["snapshot_id"], filters=filters)["snapshot_id"]
    is_known = pc.is_in(found, value_set=audited["snapshot_id"].combine_chunks())
    return len(found) - (pc.sum(is_known).as_py() or 0)


def _thinned_days(reader: LakeReader, cluster: str, snapshots: pa.Table) -> tuple[date, ...]:
    """Days of the readings' slots that maintenance has thinned, or is thinning."""
    import pyarrow.compute as pc

    from evenlag.lake.tables import DOWNSAMPLED_DAYS

    slots = pc.min_max(snapshots["slot"]).as_py()
    if slots["min"] is None:
        return ()
    filters: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", ">=", slots["min"].date()),
        ("day", "<=", slots["max"].date()),
    ]
    return tuple(sorted(reader.read(DOWNSAMPLED_DAYS, columns=["day"], filters=filters)["day"].to_pylist()))


def _usual_gap_ms(snapshots: pa.Table) -> float:
    import numpy as np

    started = _micros(snapshots, "started_at")
    return float(_USUAL_DISTANCES * np.median(np.diff(started)) / 1000) if len(started) > 1 else float("inf")


def _no_such_group(reader: LakeReader, cluster: str, group_id: str, filters: list[Filter]) -> str:
    from evenlag.lake.tables import MEMBERSHIPS

    known = set(reader.read(MEMBERSHIPS, columns=["group_id"], filters=filters)["group_id"].to_pylist())
    return f"no reading of {cluster} around then shows the group {group_id!r}{did_you_mean(group_id, known)}"


def _micros(rows: pa.Table, name: str) -> np.ndarray:
    import numpy as np

    return np.asarray(rows[name].to_numpy().astype("datetime64[us]").astype(np.int64))
