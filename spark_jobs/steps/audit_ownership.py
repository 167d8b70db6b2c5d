"""Audit: the members of each group and the partitions they owned, as intervals, from a cluster's snapshots.

Each UTC day depends only on the snapshots that started on it. A day is audited again when its snapshots have
changed since, whatever the order of their arrival; its rows are replaced, one commit per table and day.
``audited_snapshots`` is written last, so the next run repeats what a killed run left unfinished.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final

import pyarrow as pa

from evenlag.audit.pending_days import (
    AuditDay,
    AuditProgress,
    read_audit_days,
    read_edge_day,
    read_progress,
    read_start_days,
    record_progress,
)
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import AUDITED_SNAPSHOTS, MEMBERS, MEMBERSHIPS, OFFSETS, OWNERSHIP
from evenlag.logging_setup import named_logger
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.frames import CachedFrames, conform, run_in_parallel
from spark_jobs.runtime.progress import ReportProgress, no_progress

_LOG = named_logger(__name__)

# Part of every input_hash: a new version audits every day again that still has its snapshots.
AUDIT_VERSION: Final = 1
# Clocks of the writers of markers may differ, and a commit takes its time.
_CLOCKS: Final = timedelta(days=1)
_STEP: Final = "audit: days"


@dataclass(frozen=True, slots=True)
class Audited:
    """Result of an audit.

    kept_days: Days that have lost snapshots since they were audited: their rows are not changed, even where
        other snapshots were added. Days that maintenance has downsampled are skipped silently.
    left_from: First of the days that are left to the next run; None: none is left.
    """

    days: tuple[date, ...]
    kept_days: tuple[date, ...] = ()
    left_from: date | None = None

    def summary(self) -> dict[str, Any]:
        """Return the days as JSON values, for the job's result."""
        return {
            "days": [day.isoformat() for day in self.days],
            "kept_days": [day.isoformat() for day in self.kept_days],
            "left_from": None if self.left_from is None else self.left_from.isoformat(),
        }


def audit_assignments(
    lake: Lake,
    cluster: str,
    *,
    rebuild: bool = False,
    slot_days: Collection[date] | None = None,
    budget_s: float | None = None,
    progress: ReportProgress = no_progress,
) -> Audited:
    """Update a cluster's ``memberships``, ``ownership`` and ``audited_snapshots`` from its snapshots.

    First the days whose snapshots have changed since the last run; then, after a new version of the audit or
    for a rebuild, all days. Each day is committed for itself; what is left is continued by the next run.

    slot_days: Audit only the snapshots of slots on these days, if they have changed; default: all.
    budget_s: Time in seconds after which no other day is begun, but for the first one; default: no limit.
    """
    run = _AuditRun(lake, cluster, budget_s, progress)
    if slot_days is not None:
        run.audit_days(read_start_days(run.reader, cluster, *matching(day=list(slot_days))))
    else:
        run.audit_all(rebuild=rebuild)
    return run.result()


class _AuditRun:
    """One run of the audit of a cluster: what it has done, and its time."""

    def __init__(self, lake: Lake, cluster: str, budget_s: float | None, progress: ReportProgress) -> None:
        self.reader = LakeReader(lake.paths.root)
        self._lake, self._cluster = lake, cluster
        self._budget_s, self._progress = budget_s, progress
        self._started_at, self._clock = datetime.now(UTC), time.monotonic()
        self._last_day_s = 0.0
        self._days: list[date] = []
        self._kept: list[date] = []
        self._left_from: date | None = None

    def result(self) -> Audited:
        """Return what the run has done."""
        if self._kept:
            _LOG.warning(
                "%s: %d days have lost snapshots since they were audited, and stay",
                self._cluster,
                len(set(self._kept)),
            )
        if self._left_from is not None:
            _LOG.info("%s: the days from %s on are left to the next run", self._cluster, self._left_from)
        return Audited(tuple(sorted(set(self._days))), tuple(sorted(set(self._kept))), self._left_from)

    def audit_all(self, *, rebuild: bool) -> None:
        """Audit the days that have changed, then the backlog; record how far the run has come."""
        last = read_edge_day(self.reader, self._cluster)
        if last is None:
            # No error: a cluster may be in the policy long before its first snapshot.
            _LOG.warning("%s has no finished snapshot yet: there is nothing to audit", self._cluster)
            return
        earlier = read_progress(self.reader, self._cluster)
        # Without a record all days are in the backlog, also those that have changed.
        now = earlier or AuditProgress(AUDIT_VERSION, self._started_at)
        if earlier is None or rebuild or now.version != AUDIT_VERSION:
            first = read_edge_day(self.reader, self._cluster, is_first=True)
            now = AuditProgress(AUDIT_VERSION, now.checked_at, first, is_rebuild=rebuild)
        if earlier is not None:
            # Late snapshots, and compacted files.
            since = earlier.checked_at - _CLOCKS
            changed = read_start_days(self.reader, self._cluster, written_since=since)
            if self.audit_days(changed):
                now = replace(now, checked_at=self._started_at)
        now = self._audit_backlog(now, last)
        if earlier is None or self._days or _is_worth_a_record(earlier, now):
            self._record(now)

    def audit_days(self, days: Collection[date]) -> bool:
        """Audit those of some days that have other snapshots than their audit; False if any is left."""
        found = read_audit_days(self.reader, self._cluster, days, version=AUDIT_VERSION)
        # A day of an earlier version is in the backlog.
        pending = [day for day in found if not day.has_same_snapshots]
        for number, day in enumerate(pending):
            self._progress(_STEP, number, len(pending))
            if not self._audit(day):
                return False
        self._progress(_STEP, len(pending), len(pending))
        return True

    def _audit_backlog(self, now: AuditProgress, last: date) -> AuditProgress:
        """Compare all days of the backlog, and audit those that differ; return the new progress."""
        first = now.backlog_from
        if first is None or self._left_from is not None:
            return now
        num_days = max((last - first).days + 1, 0)
        days = (first + timedelta(days=number) for number in range(num_days))
        for day in read_audit_days(self.reader, self._cluster, days, version=AUDIT_VERSION):
            is_done = day.day in self._days or (day.is_audited and not now.is_rebuild)
            if is_done:
                continue
            self._progress(_STEP, (day.day - first).days, num_days)
            if not self._audit(day):
                return replace(now, backlog_from=day.day)
            if now.is_rebuild:
                # A rebuilt day has the same hash as before: only the record says that it is done.
                self._record(replace(now, backlog_from=day.day + timedelta(days=1)))
        self._progress(_STEP, num_days, num_days)
        return replace(now, backlog_from=None, is_rebuild=False)

    def _audit(self, day: AuditDay) -> bool:
        """Audit a day, unless it has lost snapshots; False if no time is left for it."""
        if day.is_trimmed:
            self._kept += [] if day.is_downsampled else [day.day]
            return True
        spent_s = time.monotonic() - self._clock
        if self._budget_s is not None and self._days and spent_s + self._last_day_s > self._budget_s:
            self._left_from = day.day
            return False
        began = time.monotonic()
        _write_day(self._lake, self._cluster, day)
        self._last_day_s = time.monotonic() - began
        self._days.append(day.day)
        _LOG.info(
            "%s: audited %s, %d snapshots, in %.1f s",
            self._cluster,
            day.day,
            len(day.snapshots),
            self._last_day_s,
        )
        return True

    def _record(self, progress: AuditProgress) -> None:
        record_progress(self._lake.paths.root, self._cluster, progress, self._started_at)


def _is_worth_a_record(earlier: AuditProgress, now: AuditProgress) -> bool:
    """Whether a run without work has come further: an hourly run need not say each time that it looked."""
    return now.checked_at - earlier.checked_at > _CLOCKS / 2 or now != replace(
        earlier, checked_at=now.checked_at
    )


def _write_day(lake: Lake, cluster: str, day: AuditDay) -> None:
    from spark_jobs.transforms.audit_intervals import build_memberships, build_ownership, number_snapshots

    head = {"cluster": cluster, "day": day.day, "input_hash": day.input_hash}
    rows = pa.Table.from_pylist([head | row for row in day.snapshots], arrow_schema(AUDITED_SNAPSHOTS))
    readings = number_snapshots(lake.spark.createDataFrame(rows, AUDITED_SNAPSHOTS.ddl))
    memberships = build_memberships(
        readings,
        lake.read_days(MEMBERS, cluster, day.slot_days),
        lake.read_days(OFFSETS, cluster, day.slot_days),
    )
    by_group = ("group_id", "first_seen_at")
    by_partition = ("group_id", "topic", "partition", "first_seen_at")
    days = [day.day]
    with CachedFrames() as cached:
        cached.cache(memberships)
        ownership = build_ownership(memberships, readings)
        run_in_parallel(
            partial(lake.replace_days, MEMBERSHIPS, memberships, cluster, days, sort_by=by_group),
            partial(lake.replace_days, OWNERSHIP, ownership, cluster, days, sort_by=by_partition),
        )
        audited = conform(readings, AUDITED_SNAPSHOTS)
        lake.replace_days(AUDITED_SNAPSHOTS, audited, cluster, days, sort_by=("started_at",))
