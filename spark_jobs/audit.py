"""Audit a cluster: update ``memberships``, ``ownership`` and ``audited_snapshots`` from its new snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.context import lake_root
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.entry_point import Job, JobWork, end_process, run_job
from spark_jobs.runtime.progress import ReportProgress
from spark_jobs.steps.audit_ownership import audit_assignments

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lake", help="root of the tables; then no policy file is read")
    parser.add_argument("--cluster", required=True, help="name of the cluster in the policy")
    parser.add_argument("--rebuild", action="store_true", help="audit every day again")
    parser.add_argument(
        "--budget-s", type=float, help="seconds after which no other day is begun: the next run continues"
    )


def _prepare(arguments: argparse.Namespace) -> JobWork:
    root = lake_root(arguments.lake, arguments.config, arguments.cluster)

    def run(spark: SparkSession, progress: ReportProgress) -> dict[str, Any]:
        audited = audit_assignments(
            Lake(spark, root),
            arguments.cluster,
            rebuild=arguments.rebuild,
            budget_s=arguments.budget_s,
            progress=progress,
        )
        return audited.summary()

    return JobWork(f"evenlag audit {arguments.cluster}", run, lake=root)


JOB: Final = Job("spark_jobs.audit", __doc__, _add_arguments, _prepare, lambda _: "audit")


if __name__ == "__main__":
    end_process(run_job(JOB))
