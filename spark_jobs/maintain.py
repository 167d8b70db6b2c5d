"""Maintain a lake: downsample old days, delete expired rows and orphans, compact, vacuum and check tables.

It runs in parallel with the cycles: each unit of work is one partition of one table, and is deferred to the
next run if another process changed it. Appends never conflict with it. It may be killed at any point; the
next run continues. If a unit fails, the others still run, and the job fails at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import MaintenanceStep
from evenlag.errors import LakeError
from evenlag.lake.table_properties import wanted_properties
from evenlag.lake.tables import SNAPSHOTS, TABLES, Table
from evenlag.lake.upkeep.direct_tables import set_properties, trim_log, vacuum_table
from evenlag.logging_setup import named_logger
from evenlag.monitoring.lake_health import check_lake, keep_checks, schedules_of
from evenlag.policy.loader import load_policy
from evenlag.policy.settings import Policy
from spark_jobs.maintenance.compaction import compact_parts
from spark_jobs.maintenance.maintenance_run import MaintenanceRun
from spark_jobs.maintenance.retention import downsample_days, expire_rows, remove_orphans
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.entry_point import IncompleteJobError, Job, JobWork, end_process, run_job
from spark_jobs.runtime.progress import ReportProgress, no_progress
from spark_jobs.runtime.sql_text import text_literal

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession


_LOG = named_logger("spark_jobs.maintain")


def maintain_lake(
    lake: Lake,
    policy: Policy,
    now: datetime,
    *,
    clusters: Collection[str] | None = None,
    steps: Collection[str] = tuple(MaintenanceStep),
    is_dry_run: bool = False,
    progress: ReportProgress = no_progress,
) -> MaintenanceRun:
    """Maintain the tables of a lake; returns the run that has ended.

    now: Time of the run: days before its UTC day are closed. Vacuuming uses the real clock.
    clusters: All clusters of the lake if None. Vacuuming applies to complete tables.
    """
    wanted = None if clusters is None else frozenset(clusters)
    work = MaintenanceRun(lake, policy.maintenance, now, wanted, is_dry_run)
    parts: dict[MaintenanceStep, Callable[[], None]] = {
        MaintenanceStep.DOWNSAMPLE: partial(downsample_days, work),
        MaintenanceStep.EXPIRE: partial(expire_rows, work),
        MaintenanceStep.ORPHANS: partial(remove_orphans, work),
        MaintenanceStep.COMPACT: partial(compact_parts, work),
        MaintenanceStep.VACUUM: partial(vacuum_tables, work),
        MaintenanceStep.CHECK: partial(_check, work, policy),
    }
    for step in MaintenanceStep:
        if step in steps:
            progress(f"maintenance: {step}", 0, 1)
            _LOG.info("%s", step)
            parts[step]()
            progress(f"maintenance: {step}", 1, 1)
    return work


def _check(work: MaintenanceRun, policy: Policy) -> None:
    files = work.files(SNAPSHOTS)
    schedules = schedules_of(policy)
    for cluster in files.clusters if files is not None else ():
        if not work.includes(cluster):
            continue
        now = work.now
        checks = check_lake(work.reader, work.settings, cluster, schedules.get(cluster), now)
        for check in checks:
            if not check.is_ok:
                warning = (
                    f"{check.table_name} of {cluster}: {check.check_name}: {check.observed}: {check.message}"
                )
                _LOG.warning("%s", warning)
                work.unhealthy.append(warning)
        keep = partial(keep_checks, work.lake.paths.root, cluster, checks, now)
        work.run(f"keep {len(checks)} checks of {cluster}", "checks", keep, len(checks))


def vacuum_tables(work: MaintenanceRun) -> None:
    """Set every table's properties, trim its log, and delete files that are older than the policy says."""
    days = work.settings.vacuum_days
    for table in TABLES.values():
        files = work.files(table)
        if files is None:
            continue
        wanted = wanted_properties(table.writer)
        if any(files.properties.get(name) != value for name, value in wanted.items()):
            work.run(f"set the retention of {table.name}", "retention", partial(_set, work, table, wanted))
        work.run(f"trim the log of {table.name}", "trimmed", partial(trim_log, work.lake.paths, table))
        if days is not None:
            work.run(f"vacuum {table.name}", "vacuumed", partial(vacuum_table, work.lake.paths, table, days))


def _set(work: MaintenanceRun, table: Table, wanted: dict[str, str]) -> None:
    if table.writer == "direct":
        set_properties(work.lake.paths, table, wanted)
        return
    listed = ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in wanted.items())
    work.lake.change(table, f"ALTER TABLE {work.lake.sql_name(table)} SET TBLPROPERTIES ({listed})")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", action="append", help="only this one, may be given several times")
    parser.add_argument(
        "--only", action="append", choices=tuple(MaintenanceStep), help="only this step, several times"
    )
    parser.add_argument("--dry-run", action="store_true", help="report what would be done, and do nothing")


def _prepare(arguments: argparse.Namespace) -> JobWork:
    loaded = load_policy(arguments.config)
    for name in arguments.cluster or ():
        loaded.cluster_settings(name)

    def run(spark: SparkSession, progress: ReportProgress) -> dict[str, Any]:
        maintained = maintain_lake(
            Lake(spark, loaded.policy.lake),
            loaded.policy,
            datetime.now(UTC),
            clusters=arguments.cluster,
            steps=arguments.only or tuple(MaintenanceStep),
            is_dry_run=arguments.dry_run,
            progress=progress,
        )
        failures, summary = maintained.failures, maintained.summary()
        if failures:
            error = LakeError(f"{len(failures)} pieces failed; the first: {failures[0]}")
            raise IncompleteJobError(error, summary)
        return summary

    return JobWork("evenlag maintenance", run, is_large=True, lake=loaded.policy.lake)


JOB: Final = Job("spark_jobs.maintain", __doc__, _add_arguments, _prepare, lambda _: "maintenance")


if __name__ == "__main__":
    end_process(run_job(JOB))
