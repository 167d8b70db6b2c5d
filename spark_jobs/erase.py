"""Erase a group or a member from every table of a lake, for an erasure request."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.upkeep.erasure import Erasure
from evenlag.policy.loader import load_policy
from spark_jobs.maintenance.erasure import erase
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.entry_point import Job, JobWork, run_job

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from spark_jobs.runtime.progress import ReportProgress


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    named = parser.add_mutually_exclusive_group(required=True)
    named.add_argument("--group", help="the group whose rows are deleted")
    named.add_argument("--member", help="a member id, instance id, client id or host")
    parser.add_argument("--cluster", action="append", help="only this one, may be given several times")
    parser.add_argument("--dry-run", action="store_true", help="count the rows, and change nothing")


def _prepare(arguments: argparse.Namespace) -> JobWork:
    loaded = load_policy(arguments.config)
    is_group = arguments.group is not None
    erasure = Erasure(arguments.group if is_group else arguments.member, is_group)

    def run(spark: SparkSession, progress: ReportProgress) -> dict[str, Any]:
        counts = erase(
            Lake(spark, loaded.policy.lake),
            erasure,
            clusters=arguments.cluster,
            is_dry_run=arguments.dry_run,
            progress=progress,
        )
        return {"rows": counts, "vacuum_days": loaded.policy.maintenance.vacuum_days}

    return JobWork("evenlag erasure", run, is_large=True, lake=loaded.policy.lake)


_JOB: Final = Job("spark_jobs.erase", __doc__, _add_arguments, _prepare, lambda _: "erasure")


def main(argv: Sequence[str] | None = None) -> int:
    """Erase a group or a member from the command line and return the exit code."""
    return run_job(_JOB, argv)


if __name__ == "__main__":
    sys.exit(main())
