"""Run the Spark steps of a cycle, ``observe`` and ``decide``, in one session or each in its own process.

``observe`` takes a snapshot, computes lag and settles earlier hints; ``decide`` plans and validates.
Publishing needs no JVM and is not a Spark job (``evenlag.publishing.publish``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import CycleStep
from evenlag.lake.location import LakePaths
from evenlag.logging_setup import log_fields
from evenlag.policy.loader import load_policy
from spark_jobs.runtime.entry_point import Job, JobWork, end_process, moment_argument, run_job
from spark_jobs.runtime.progress import ReportProgress

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession


_STEPS: Final = (CycleStep.OBSERVE, CycleStep.DECIDE)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("steps", nargs="+", choices=_STEPS, help="in this order, one or both")
    parser.add_argument("--cluster", required=True, help="name of the cluster in the policy")
    parser.add_argument("--slot", required=True, type=moment_argument, help="ISO 8601 moment with its offset")
    parser.add_argument("--run-id", required=True, help="name of the run, for the records")


def _prepare(arguments: argparse.Namespace) -> JobWork:
    loaded = load_policy(arguments.config)
    cluster, slot, run_id = arguments.cluster, arguments.slot, arguments.run_id
    loaded.cluster_settings(cluster)
    LakePaths(loaded.policy.lake).make_root()

    def run(spark: SparkSession, progress: ReportProgress) -> dict[str, Any]:
        # Not before the JVM starts.
        from spark_jobs.steps.cycle_steps import run_decide, run_observe

        run_step = {CycleStep.OBSERVE: run_observe, CycleStep.DECIDE: run_decide}
        summaries = {}
        for step in arguments.steps:
            with log_fields(step=step):
                summaries[step] = run_step[step](spark, loaded, cluster, slot, run_id, progress)
        return summaries

    return JobWork(f"evenlag {JOB.step(arguments)} {cluster}", run, lake=loaded.policy.lake)


JOB: Final = Job("spark_jobs.cycle", __doc__, _add_arguments, _prepare, lambda given: "+".join(given.steps))


if __name__ == "__main__":
    end_process(run_job(JOB))
