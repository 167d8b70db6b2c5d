"""Compare candidates: simulate other assignors on past days, into ``comparisons`` and ``replays``.

``python -m spark_jobs.compare --cluster orders --day 2026-03-01``; ``--to`` for more days, ``--continuous``
to simulate them as one period (``continuous_replays``).
"""

from __future__ import annotations

import sys
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import PolicyError
from evenlag.policy.candidates import parse_candidate
from evenlag.policy.loader import load_policy
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.entry_point import Job, JobWork, run_job
from spark_jobs.steps.simulate_candidates import Request, run_compare

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from spark_jobs.runtime.progress import ReportProgress


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", required=True, help="name of the cluster in the policy")
    parser.add_argument("--day", required=True, type=date.fromisoformat, help="UTC day of the slots")
    parser.add_argument("--to", type=date.fromisoformat, help="last day (default: the same)")
    parser.add_argument(
        "--assignor",
        action="append",
        metavar="NAME[:key=value,...]",
        help="what to compare, may be given several times (default: the policy's comparison.policies)",
    )
    parser.add_argument("--continuous", action="store_true", help="simulate all the days as one period")
    parser.add_argument("--force", action="store_true", help="also days that have been compared before")


def _prepare(arguments: argparse.Namespace) -> JobWork:
    last = arguments.to or arguments.day
    if last < arguments.day:
        raise PolicyError(f"--to {last} lies before --day {arguments.day}")
    loaded = load_policy(arguments.config)
    loaded.cluster_settings(arguments.cluster)
    names = tuple(arguments.assignor or ())
    for name in names:
        parse_candidate(name)
    request = Request(arguments.cluster, arguments.day, last, names, arguments.continuous, arguments.force)

    def run(spark: SparkSession, progress: ReportProgress) -> dict[str, Any]:
        return run_compare(Lake(spark, loaded.policy.lake), loaded, request, progress)

    return JobWork(f"evenlag compare {arguments.cluster}", run, is_large=True, lake=loaded.policy.lake)


_JOB: Final = Job("spark_jobs.compare", __doc__, _add_arguments, _prepare, lambda _: "compare")


def main(argv: Sequence[str] | None = None) -> int:
    """Compare candidates from the command line and return the exit code."""
    return run_job(_JOB, argv)


if __name__ == "__main__":
    sys.exit(main())
