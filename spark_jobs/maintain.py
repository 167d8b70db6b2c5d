"""The lake's daily upkeep: thin old days, drop what was never finished, compact, vacuum, check.

It runs beside the cycles and conflicts with nothing that they do: each piece is one (cluster, day) of one
table, holds a local lake's lock for that long, and is left for the next run when somebody else wrote there.
It may be killed anywhere; the next run goes on. What fails is set aside, the rest is done, and the job fails
at its end.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import JobError, LakeError
from evenlag.lake.tables import SNAPSHOTS
from evenlag.logging_setup import airflow_run_id, log_fields, set_up_logging
from evenlag.monitoring.table_health import check_lake, keep_checks, schedules_of
from evenlag.policy.loader import load_policy
from spark_jobs.maintenance.compaction import compact_days
from spark_jobs.maintenance.downsampling import downsample_days
from spark_jobs.maintenance.maintenance_run import MaintenanceRun
from spark_jobs.maintenance.orphans import remove_orphans
from spark_jobs.maintenance.vacuum import vacuum_tables
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.session import build_session

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from evenlag.policy.settings import Policy

_LOG = logging.getLogger(__name__)

# In this order: nothing is compacted that goes anyway, and nothing is mixed with what was never finished.
STEPS: Final = ("thin", "orphans", "compact", "vacuum", "check")


@dataclass(frozen=True, slots=True)
class Maintained:
    """What upkeep did.

    Attributes
    ----------
    done
        Counts by kind: ``downsampled`` days, ``orphans``, ``compacted`` days, ``vacuumed`` tables, …
    left
        What was left for the next run, in plain words.
    failures
        What failed, in plain words.
    unhealthy
        What the checks found, in plain words.
    """

    done: dict[str, int]
    left: tuple[str, ...]
    failures: tuple[str, ...]
    unhealthy: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """The same for a log."""
        return {
            **self.done,
            "left": len(self.left),
            "failures": list(self.failures),
            "unhealthy": list(self.unhealthy),
        }


def maintain_lake(
    lake: Lake,
    policy: Policy,
    now: datetime,
    *,
    clusters: Collection[str] | None = None,
    steps: Collection[str] = STEPS,
    is_dry_run: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Maintained:
    """Look after the tables of a lake.

    Parameters
    ----------
    lake
        The tables, with a session.
    policy
        What is kept for how long.
    now
        The moment: days before its UTC day are closed. Files are deleted by the real clock.
    clusters
        Only these; whatever the lake has when not given. Vacuuming takes whole tables.
    steps
        Some of :data:`STEPS`; they are done in its order.
    is_dry_run
        Say in the log what would be done; nothing is written.
    progress
        Called with (step, done, total).

    Raises
    ------
    LakeError
        When a table's log cannot be read at all. What fails otherwise stands in the result.
    """
    wanted = None if clusters is None else frozenset(clusters)
    work = MaintenanceRun(lake, policy.maintenance, now, wanted, is_dry_run)
    unhealthy: list[str] = []
    parts: dict[str, Callable[[], None]] = {
        "thin": partial(downsample_days, work),
        "orphans": partial(remove_orphans, work),
        "compact": partial(compact_days, work),
        "vacuum": partial(vacuum_tables, work),
        "check": partial(_check, work, policy, unhealthy),
    }
    chosen = [name for name in STEPS if name in steps]
    for number, name in enumerate(chosen):
        if progress is not None:
            progress(name, number, len(chosen))
        _LOG.info("%s", name)
        parts[name]()
    if progress is not None:
        progress("done", len(chosen), len(chosen))
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


def main(argv: Sequence[str] | None = None) -> int:
    """Look after a lake from the command line; returns the exit status."""
    arguments = _parse(argv)
    with log_fields(run_id=airflow_run_id(), step="maintenance"):
        set_up_logging()
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    try:
        loaded = load_policy(arguments.config)
        for name in arguments.cluster or ():
            loaded.cluster_settings(name)
        spark = build_session("evenlag maintenance", is_large=True)
        try:
            maintained = maintain_lake(
                Lake(spark, loaded.policy.lake),
                loaded.policy,
                datetime.now(UTC),
                clusters=arguments.cluster,
                steps=arguments.only or STEPS,
                is_dry_run=arguments.dry_run,
            )
        finally:
            spark.stop()
        _LOG.info("maintenance: %s", json.dumps(maintained.summary()))
        check_done(maintained)
    except JobError as error:
        _LOG.error("maintenance failed: %s", error)
        return error.exit_code
    return 0


def check_done(maintained: Maintained) -> None:
    """Raise what failed, once all the rest is done.

    Raises
    ------
    LakeError
        With the first failure and how many there are.
    """
    if maintained.failures:
        raise LakeError(f"{len(maintained.failures)} pieces failed; the first: {maintained.failures[0]}")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="spark_jobs.maintain", description=__doc__)
    parser.add_argument("--config", help="the policy file (default: EVENLAG_CONFIG, else evenlag.yaml)")
    parser.add_argument("--cluster", action="append", help="only this one, may be given several times")
    parser.add_argument("--only", action="append", choices=STEPS, help="only this step, several times")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
