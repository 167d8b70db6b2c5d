"""Maintain a lake: downsample old days, remove orphans, compact, vacuum and check the tables."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import MaintenanceStep
from evenlag.errors import LakeError
from evenlag.policy.loader import load_policy
from spark_jobs.maintenance.maintain_lake import check_done, maintain_lake
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.entry_point import IncompleteJobError, Job, JobWork, run_job

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from spark_jobs.runtime.progress import ReportProgress


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
        try:
            check_done(maintained)
        except LakeError as error:
            raise IncompleteJobError(error, maintained.summary()) from error
        return maintained.summary()

    return JobWork("evenlag maintenance", run, is_large=True, lake=loaded.policy.lake)


_JOB: Final = Job("spark_jobs.maintain", __doc__, _add_arguments, _prepare, lambda _: "maintenance")


def main(argv: Sequence[str] | None = None) -> int:
    """Maintain a lake from the command line and return the exit code."""
    return run_job(_JOB, argv)


if __name__ == "__main__":
    sys.exit(main())
