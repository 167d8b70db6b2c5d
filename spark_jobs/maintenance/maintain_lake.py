"""The lake's daily maintenance: downsample old days, remove what was never finished, compact, vacuum, check.

It runs beside the cycles without conflicts: each unit of work is one (cluster, day) of one table, locks the
table of a local lake for that long, and is deferred to the next run when another process wrote there. It may
be killed at any point; the next run continues. When a unit fails the others are still done, and the job fails
at its end.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from evenlag.enums import MaintenanceStep
from evenlag.errors import LakeError
from evenlag.lake.tables import SNAPSHOTS
from evenlag.monitoring.table_health import check_lake, keep_checks, schedules_of
from spark_jobs.maintenance.compaction import compact_days
from spark_jobs.maintenance.downsampling import downsample_days
from spark_jobs.maintenance.maintenance_run import MaintenanceRun
from spark_jobs.maintenance.orphans import remove_orphans
from spark_jobs.maintenance.vacuum import vacuum_tables
from spark_jobs.runtime.progress import ReportProgress, no_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from evenlag.policy.settings import Policy
    from spark_jobs.runtime.delta_lake import Lake

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Maintained:
    """What maintenance did.

    Attributes
    ----------
    done
        Counts by kind: ``downsampled`` days, ``orphans``, ``compacted`` days of
        tables, ``vacuumed`` tables, …
    left
        What was deferred to the next run, one message each.
    failures
        What failed, one message each.
    unhealthy
        What the checks found, one message each.
    """

    done: dict[str, int]
    left: tuple[str, ...]
    failures: tuple[str, ...]
    unhealthy: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """All of it as JSON values, for the job's result."""
        return {
            "done": self.done,
            "left": list(self.left),
            "failures": list(self.failures),
            "unhealthy": list(self.unhealthy),
        }


def maintain_lake(
    lake: Lake,
    policy: Policy,
    now: datetime,
    *,
    clusters: Collection[str] | None = None,
    steps: Collection[str] = tuple(MaintenanceStep),
    is_dry_run: bool = False,
    progress: ReportProgress = no_progress,
) -> Maintained:
    """Maintain the tables of a lake.

    Parameters
    ----------
    lake
        The tables, with a session.
    policy
        How long what is kept.
    now
        The moment: days before its UTC day are closed. Files are deleted by the real clock.
    clusters
        Only these; all clusters of the lake when None. Vacuuming applies to whole tables.
    steps
        The steps to do, in the order of :class:`MaintenanceStep`.
    is_dry_run
        Log what would be done; nothing is written.
    progress
        Called with (step, done, total).

    Raises
    ------
    LakeError
        When a table's log cannot be read at all. Other failures are part of the result.
    """
    wanted = None if clusters is None else frozenset(clusters)
    work = MaintenanceRun(lake, policy.maintenance, now, wanted, is_dry_run)
    unhealthy: list[str] = []
    parts: dict[MaintenanceStep, Callable[[], None]] = {
        MaintenanceStep.DOWNSAMPLE: partial(downsample_days, work),
        MaintenanceStep.ORPHANS: partial(remove_orphans, work),
        MaintenanceStep.COMPACT: partial(compact_days, work),
        MaintenanceStep.VACUUM: partial(vacuum_tables, work),
        MaintenanceStep.CHECK: partial(_check, work, policy, unhealthy),
    }
    for step in MaintenanceStep:
        if step in steps:
            progress(f"maintenance: {step}", 0, 1)
            _LOG.info("%s", step)
            parts[step]()
            progress(f"maintenance: {step}", 1, 1)
    return Maintained(dict(work.done), tuple(work.left), tuple(work.failures), tuple(unhealthy))


def _check(work: MaintenanceRun, policy: Policy, unhealthy: list[str]) -> None:
    files = work.files(SNAPSHOTS)
    schedules = schedules_of(policy)
    for cluster in files.clusters if files is not None else ():
        if not work.includes(cluster):
            continue
        now = work.now
        checks = check_lake(work.reader, work.settings, cluster, schedules.get(cluster), now)
        for check in checks:
            if not check.is_ok:
                told = (
                    f"{check.table_name} of {cluster}: {check.check_name}: {check.observed}: {check.message}"
                )
                _LOG.warning("%s", told)
                unhealthy.append(told)
        keep = partial(keep_checks, work.lake.paths.root, cluster, checks, now)
        work.run(f"keep {len(checks)} checks of {cluster}", "checks", keep, len(checks))


def check_done(maintained: Maintained) -> None:
    """Raise what failed, once everything else is done.

    Raises
    ------
    LakeError
        With the first failure and how many there are.
    """
    if maintained.failures:
        raise LakeError(f"{len(maintained.failures)} pieces failed; the first: {maintained.failures[0]}")
